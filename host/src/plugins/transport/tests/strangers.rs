//! Peers that do not keep to the rules: at the door, and once they are in.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;

#[test]
fn a_frame_that_stands_still_ends_the_link() {
    let stage = Stage::new(small());
    let (mut raw, link) = raw_peer(&stage);
    raw.write_all(&raw_head(1000)).expect("there is room");
    raw.write_all(&[7; 10]).expect("there is room");
    let error = recv(&link).expect_err("it stands still");
    assert!(matches!(&error, Error::Lost(m) if m.contains("10 of its 1000 bytes")), "{error}");
    // What comes late is not read as the begin of another frame.
    drop(raw.write_all(&raw_head(0)));
    assert!(matches!(recv(&link), Err(Error::Lost(_))));
    assert!(matches!(send(&link, b"x"), Err(Error::Lost(_))));
    assert_eq!((stage.errors("stalled"), stage.sum("cascadia_link_up")), (1.0, 0.0));
    assert_eq!(stage.sum("cascadia_link_unfinished_frames"), 0.0);
}

#[test]
fn strangers_are_refused_and_keep_nobody_out() {
    let stage = Stage::new(small());
    let (listener, bound) = stage.listen(":0");
    let say = |bytes: &[u8]| {
        let mut raw = TcpStream::connect(&bound).expect("it listens");
        raw.write_all(bytes).expect("there is room");
        raw
    };
    let mut version = hello().bytes();
    version[8] = 9;
    let other = Hello { text: "test/2".to_owned(), ..hello() }.bytes();
    let silent = say(b"");
    let half = say(&hello().bytes()[..20]);
    let strangers = [
        (say(b"GET / HTTP/1.1\r\n\r\n"), "does not speak"),
        (say(&version), "version 9"),
        (say(&other), "\"test/2\""),
        (say(&Hello { word: Word::Welcome, ..hello() }.bytes()), "does not speak"),
    ];
    let gone = say(b"CSCD");
    drop(gone);
    let mut peer = say(&hello().bytes());
    let link = stage.accept(listener).expect("the peer is let in");
    let mut welcome = vec![0; hello().bytes().len()];
    peer.read_exact(&mut welcome).expect("a welcome");
    peer.write_all(&[raw_head(2), b"ok".to_vec()].concat()).expect("there is room");
    assert_eq!(recv(&link).expect("received"), b"ok");
    for (mut raw, expected) in strangers {
        raw.set_read_timeout(Some(SOON)).expect("a timeout");
        let mut said = Vec::new();
        drop(raw.read_to_end(&mut said));
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains(expected), "{expected}: {said:?}");
    }
    // Those who say nothing go when their time is over, while the next peer is waited for.
    let until = Until::At(Instant::now() + Duration::from_secs(2));
    assert!(matches!(accept(listener, until, &stage.metrics.transport), Err(Error::Deadline(_))));
    for mut raw in [silent, half] {
        raw.set_read_timeout(Some(SOON)).expect("a timeout");
        assert!(raw.read_to_end(&mut Vec::new()).is_ok());
    }
    assert_eq!(stage.errors("rejected"), 6.0);
}

#[test]
fn who_opens_learns_why_it_was_refused() {
    let (a, b) = (Stage::new(small()), Stage::new(small()));
    let (listener, bound) = b.listen(":0");
    let (told, accepting) =
        beside(move || accept(listener, Until::At(Instant::now() + SOON), &b.metrics.transport));
    let error = a.ends.open(&bound, "test/2", soon(), &a.metrics.transport).expect_err("another purpose");
    assert!(matches!(&error, Error::Rejected(m) if m.contains("\"test/1\"")), "{error}");
    assert_eq!(a.errors("rejected"), 1.0);
    close(listener);
    assert!(told.recv_timeout(SOON).expect("it wakes").is_err());
    accepting.join().expect("no panic");
    // Something else that listens, another version, and one who closes at once.
    for (answer, expected) in [
        (b"SSH-2.0-server\r\n".to_vec(), "does not speak"),
        (
            {
                let mut v = Hello { word: Word::Welcome, ..hello() }.bytes();
                v[8] = 7;
                v
            },
            "version 7",
        ),
        (hello().bytes(), "opened a link itself"),
    ] {
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = other.local_addr().expect("bound").to_string();
        let (_, answering) = beside(move || {
            let (mut stream, _) = other.accept().expect("it comes");
            stream.write_all(&answer).expect("there is room");
            drop(stream.read_to_end(&mut Vec::new()));
        });
        let error = a.open(&at).map(|_| ()).expect_err("refused");
        assert!(matches!(&error, Error::Rejected(m) if m.contains(expected)), "{error}");
        answering.join().expect("no panic");
    }
}

#[test]
fn a_peer_that_is_there_and_does_not_accept_is_told_apart() {
    let stage = Stage::new(Limits::CONTRACT);
    let dir = std::env::temp_dir().join(format!("cascadia-deaf-{}", std::process::id()));
    drop(std::fs::remove_file(&dir));
    let deaf = UnixListener::bind(&dir).expect("a socket");
    let until = Until::At(Instant::now() + Duration::from_millis(300));
    let at = format!("unix:{}", dir.display());
    let error = stage.ends.open(&at, PURPOSE, until, &stage.metrics.transport).expect_err("deaf");
    assert!(matches!(error, Error::Deadline(_)), "{error}");
    drop(deaf);
    // The file of a listener that is gone is in nobody's way.
    let (listener, _) = stage.listen(&at);
    close(listener);
    assert!(!dir.exists());
    std::fs::write(&dir, "a file").expect("written");
    let error = stage.ends.listen(&at, PURPOSE, &stage.metrics.transport).expect_err("not ours");
    assert!(matches!(error, Error::Failed(_)), "{error}");
    std::fs::remove_file(&dir).expect("it is still there");
}

#[test]
fn what_is_no_frame_ends_the_link_and_takes_no_memory() {
    let huge = {
        let mut head = b"CFR1\x01\x05\x01\0".to_vec();
        head.extend(u64::MAX.to_le_bytes());
        head
    };
    let mut wrong_shape = b"CFR1\x01\x01\x01\0".to_vec();
    wrong_shape.extend(4_u64.to_le_bytes());
    wrong_shape.extend(2_u64.to_le_bytes());
    for (bytes, reason, expected) in [
        (vec![0xa5; 64], "protocol", "no frame"),
        (huge, "oversize", "over the limit"),
        (raw_head(2 << 20), "oversize", "over the limit of 1048576"),
        (wrong_shape, "protocol", "has 8 bytes"),
    ] {
        let stage = Stage::new(small());
        let (mut raw, link) = raw_peer(&stage);
        raw.write_all(&bytes).expect("there is room");
        let error = recv(&link).expect_err(expected);
        assert!(matches!(&error, Error::Lost(m) if m.contains(expected)), "{error}");
        assert_eq!((stage.errors(reason), stage.sum("cascadia_link_errors_total")), (1.0, 1.0));
        assert_eq!(stage.sum("cascadia_link_unfinished_frames"), 0.0);
        assert!(matches!(recv(&link), Err(Error::Lost(_))));
    }
}

#[test]
fn a_peer_that_goes_away_is_told_apart_by_where_it_did() {
    let stage = Stage::new(Limits::CONTRACT);
    let (mut raw, link) = raw_peer(&stage);
    raw.write_all(&[raw_head(3), b"end".to_vec()].concat()).expect("there is room");
    drop(raw);
    assert_eq!(recv(&link).expect("a whole frame before the end counts"), b"end");
    let error = recv(&link).expect_err("it left");
    assert!(
        matches!(&error, Error::Lost(m) if m.contains("closed the link") && !m.contains("inside")),
        "{error}"
    );
    assert_eq!(stage.sum("cascadia_link_errors_total"), 0.0);
    let (mut raw, link) = raw_peer(&stage);
    raw.write_all(&raw_head(1000)).expect("there is room");
    raw.write_all(&[7; 10]).expect("there is room");
    drop(raw);
    let error = recv(&link).expect_err("it left");
    assert!(matches!(&error, Error::Lost(m) if m.contains("inside a frame, 10 of its 1000")), "{error}");
    assert_eq!(stage.errors("cut"), 1.0);
}

#[test]
fn a_flood_of_silent_connections_keeps_no_peer_out() {
    let stage = Stage::new(Limits::CONTRACT);
    let (listener, bound) = stage.listen(":0");
    let flood: Vec<_> = (0..60).map(|_| TcpStream::connect(&bound).expect("it listens")).collect();
    let other = Stage::new(Limits::CONTRACT);
    thread::scope(|scope| {
        let opening = scope.spawn(|| other.open(&bound));
        stage.accept(listener).expect("accepted");
        opening.join().expect("no panic").expect("opened");
    });
    drop(flood);
}
