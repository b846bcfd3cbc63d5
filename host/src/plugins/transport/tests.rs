//! Links over real sockets: two ends in one process, and peers that do not keep to the rules.

use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

use cascadia_plugin_api::abi::host::{FRAME_RAW, FRAME_TENSOR, dtype};

use super::hello::{Hello, Word};
use super::link::Shape;
use super::*;
use crate::telemetry::metrics::Metrics;

mod strangers;

/// Generous: it ends a test that hangs, and measures nothing.
const SOON: Duration = Duration::from_secs(30);

const PURPOSE: &str = "test/1";
const RAW: Shape<'static> = Shape { kind: FRAME_RAW, dtype: 0, dims: &[] };

fn soon() -> Until {
    Until::At(Instant::now() + SOON)
}

fn at_once() -> Until {
    Until::At(Instant::now())
}

fn small() -> Limits {
    Limits { still: Duration::from_millis(100), greeting: Duration::from_millis(300), ..Limits::CONTRACT }
}

/// A worker with limits and metrics of its own.
struct Stage {
    ends: &'static Ends,
    metrics: Metrics,
}

impl Stage {
    fn new(limits: Limits) -> Stage {
        Stage { ends: Box::leak(Box::new(Ends::new("test", limits))), metrics: Metrics::new() }
    }

    fn listen(&self, address: &str) -> (u64, String) {
        self.ends.listen(address, PURPOSE, &self.metrics.transport).expect("it listens")
    }

    fn open(&self, address: &str) -> Result<Arc<Link>> {
        link(self.ends.open(address, PURPOSE, soon(), &self.metrics.transport)?)
    }

    fn accept(&self, listener: u64) -> Result<Arc<Link>> {
        link(accept(listener, soon(), &self.metrics.transport)?)
    }

    fn series(&self, line: &str) -> f64 {
        let text = String::from_utf8(self.metrics.expose()).expect("text");
        let found = text.lines().find_map(|l| l.strip_prefix(line));
        found
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or_else(|| panic!("{line} is missing in {text}"))
    }

    fn errors(&self, reason: &str) -> f64 {
        self.series(&format!("cascadia_link_errors_total{{reason=\"{reason}\"}}"))
    }

    /// The sum of a family over its series.
    fn sum(&self, family: &str) -> f64 {
        let text = String::from_utf8(self.metrics.expose()).expect("text");
        let values = text.lines().filter(|l| l.starts_with(family) && !l.starts_with('#'));
        values.filter_map(|l| l.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.ends.close();
    }
}

/// Two stages with a link: the opening side, then the accepting one.
fn pair(limits: Limits, address: &str) -> (Stage, Arc<Link>, Stage, Arc<Link>) {
    let (a, b) = (Stage::new(limits), Stage::new(limits));
    let (listener, bound) = b.listen(address);
    let (opened, accepted) = thread::scope(|scope| {
        let opening = scope.spawn(|| a.open(&bound));
        let accepted = b.accept(listener);
        (opening.join().expect("no panic"), accepted)
    });
    (a, opened.expect("opened"), b, accepted.expect("accepted"))
}

fn send(link: &Link, text: &[u8]) -> Result<()> {
    link.send(RAW, &[IoSlice::new(text)], soon())
}

fn recv(link: &Link) -> Result<Vec<u8>> {
    link.recv(soon(), |frame| frame.payload.to_vec())
}

/// Runs in a thread; what came of it, or a panic when it hangs.
fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> (Receiver<T>, JoinHandle<()>) {
    let (tell, told) = sync_channel(1);
    (told, thread::spawn(move || drop(tell.send(work()))))
}

/// A peer made by hand, greeted as one that opens; the link that the stage has to it.
fn raw_peer(stage: &Stage) -> (TcpStream, Arc<Link>) {
    let (listener, bound) = stage.listen(":0");
    let mut raw = TcpStream::connect(&bound).expect("it listens");
    raw.write_all(&hello().bytes()).expect("there is room");
    let link = stage.accept(listener).expect("accepted");
    let mut welcome = vec![0; hello().bytes().len()];
    raw.read_exact(&mut welcome).expect("a welcome");
    assert_eq!(Hello::read(&welcome).map(|h| h.map(|h| h.word)), Ok(Ok(Word::Welcome)));
    (raw, link)
}

fn hello() -> Hello {
    Hello { word: Word::Hello, largest: 1 << 20, text: PURPOSE.to_owned() }
}

fn raw_head(len: u64) -> Vec<u8> {
    let mut head = b"CFR1\x02\0\0\0".to_vec();
    head.extend(len.to_le_bytes());
    head
}

#[test]
fn frames_come_whole_and_in_order_over_tcp_and_unix() {
    let dir = std::env::temp_dir().join(format!("cascadia-link-{}", std::process::id()));
    let unix = format!("unix:{}", dir.display());
    for address in [":0", "[::1]:0", &unix] {
        let (a, near, b, far) = pair(Limits::CONTRACT, address);
        if let Ok(file) = std::fs::metadata(&dir) {
            assert_eq!(file.permissions().mode() & 0o777, 0o600);
        }
        let big: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
        let dims = [1, 3, 1_000_000];
        thread::scope(|scope| {
            scope.spawn(|| {
                send(&near, b"").expect("sent");
                for i in 0..100_u8 {
                    send(&near, &[i; 7]).expect("sent");
                }
                let parts: Vec<_> = big.chunks(1000).map(IoSlice::new).collect();
                near.send(Shape { kind: FRAME_TENSOR, dtype: dtype::I8, dims: &dims }, &parts, soon())
                    .expect("sent");
                send(&near, b"last").expect("sent");
            });
            assert_eq!(recv(&far).expect("received"), b"");
            for i in 0..100_u8 {
                assert_eq!(recv(&far).expect("received"), [i; 7]);
            }
            let tensor = far.recv(soon(), |f| (f.kind, f.dtype, f.dims.to_vec(), f.payload == big));
            assert_eq!(tensor.expect("received"), (FRAME_TENSOR, dtype::I8, dims.to_vec(), true));
            assert_eq!(recv(&far).expect("received"), b"last");
        });
        send(&far, b"back").expect("sent");
        assert_eq!(recv(&near).expect("received"), b"back");
        let whole = (16 + 24 + big.len()) as f64;
        assert_eq!(a.series("cascadia_transport_sent_bytes_total{kind=\"tensor\"}"), whole);
        assert_eq!(b.series("cascadia_transport_recv_bytes_total{kind=\"tensor\"}"), whole);
        assert_eq!(b.series("cascadia_transport_recv_payload_seconds_count"), 1.0);
        assert_eq!(a.ends.frames(), (103, 1));
        assert_eq!(b.sum("cascadia_link_unfinished_frames"), 0.0);
        assert_eq!(b.sum("cascadia_link_up"), 1.0);
    }
    assert!(!dir.exists(), "the socket's file is gone with its listener");
}

#[test]
fn several_links_do_not_mix() {
    let (a, b) = (Stage::new(Limits::CONTRACT), Stage::new(Limits::CONTRACT));
    let (listener, bound) = b.listen(":0");
    let links: Vec<_> = (0..8)
        .map(|_| {
            thread::scope(|scope| {
                let opening = scope.spawn(|| a.open(&bound));
                let far = b.accept(listener).expect("accepted");
                (opening.join().expect("no panic").expect("opened"), far)
            })
        })
        .collect();
    for (i, (near, _)) in links.iter().enumerate() {
        send(near, &[i as u8]).expect("sent");
    }
    for (i, (_, far)) in links.iter().enumerate().rev() {
        assert_eq!(recv(far).expect("received"), [i as u8]);
    }
    assert_eq!(a.sum("cascadia_link_up"), 8.0);
}

#[test]
fn one_link_serves_many_threads() {
    let (_a, near, _b, far) = pair(Limits::CONTRACT, ":0");
    thread::scope(|scope| {
        for i in 0..4_u8 {
            let near = &near;
            scope.spawn(move || (0..50).for_each(|_| send(near, &[i; 5000]).expect("sent")));
        }
        let takers: Vec<_> = (0..4)
            .map(|_| {
                let far = &far;
                scope.spawn(move || {
                    let frames = (0..50).map(|_| recv(far).expect("received"));
                    frames.filter(|f| f.len() == 5000 && f.iter().all(|b| *b == f[0])).count()
                })
            })
            .collect();
        assert_eq!(takers.into_iter().map(|t| t.join().expect("no panic")).sum::<usize>(), 200);
    });
}

#[test]
fn a_deadline_loses_nothing_of_a_frame_that_goes_on() {
    let stage = Stage::new(Limits { still: SOON, ..Limits::CONTRACT });
    let (mut raw, link) = raw_peer(&stage);
    let nothing = link.recv(at_once(), |_| ()).expect_err("nothing came");
    assert!(matches!(&nothing, Error::Deadline(m) if m.contains("no frame began")), "{nothing}");
    let mut bytes = raw_head(6);
    bytes.extend(b"frame!");
    for byte in &bytes[..bytes.len() - 1] {
        raw.write_all(&[*byte]).expect("there is room");
        // Whenever the deadline falls, what came is kept.
        let early = link.recv(Until::At(Instant::now() + Duration::from_millis(2)), |_| ());
        assert!(matches!(early, Err(Error::Deadline(_))), "{early:?}");
    }
    assert_eq!(stage.sum("cascadia_link_unfinished_frames"), 1.0);
    raw.write_all(b"!").expect("there is room");
    assert_eq!(recv(&link).expect("received"), b"frame!");
    assert_eq!(stage.sum("cascadia_link_unfinished_frames"), 0.0);
}

#[test]
fn an_idle_link_is_not_a_stalled_one() {
    let (_a, near, b, far) = pair(small(), ":0");
    let idle = far.recv(Until::At(Instant::now() + Duration::from_millis(400)), |_| ());
    assert!(matches!(idle, Err(Error::Deadline(_))), "{idle:?}");
    send(&near, b"still here").expect("sent");
    assert_eq!(recv(&far).expect("received"), b"still here");
    assert_eq!(b.errors("stalled"), 0.0);
}

#[test]
fn a_peer_that_does_not_read_holds_the_sender_up_to_its_deadline() {
    let (a, near, _b, far) = pair(Limits::CONTRACT, ":0");
    let mib = vec![1; 1 << 20];
    // Fills the buffers of both sides; the last frame is cut by its deadline.
    let until = || Until::At(Instant::now() + Duration::from_millis(300));
    let error = (0..100).find_map(|_| near.send(RAW, &[IoSlice::new(&mib)], until()).err());
    let error = error.expect("a hundred MiB do not fit");
    assert!(matches!(&error, Error::Deadline(_)), "{error}");
    assert!(a.sum("cascadia_link_send_blocked_seconds_total") > 0.0);
    if error.to_string().contains("the link has ended") {
        assert!(matches!(send(&near, b"x"), Err(Error::Lost(_))));
        assert_eq!(a.errors("stalled"), 1.0);
        // The other side gets the whole frames, and then learns that the next one was cut.
        let end = (0..200).find_map(|_| recv(&far).err()).expect("it ends");
        assert!(matches!(end, Error::Lost(_)), "{end}");
    }
}

#[test]
fn a_sender_goes_on_when_the_peer_reads_again() {
    let (_a, near, _b, far) = pair(Limits::CONTRACT, ":0");
    let (sent, sending) = beside(move || {
        let mib = vec![1; 1 << 20];
        (0..40).try_for_each(|_| send(&near, &mib))
    });
    for _ in 0..40 {
        assert_eq!(recv(&far).expect("received").len(), 1 << 20);
    }
    assert_eq!(sent.recv_timeout(SOON).expect("it ends"), Ok(()));
    sending.join().expect("no panic");
}

#[test]
fn close_wakes_whoever_waits() {
    let (_a, near, _b, far) = pair(Limits::CONTRACT, ":0");
    let waits = Arc::clone(&far);
    let (received, receiving) = beside(move || recv(&waits));
    let blocked = Arc::clone(&near);
    let (sent, sending) = beside(move || {
        let mib = vec![1; 1 << 20];
        (0..100).find_map(|_| send(&blocked, &mib).err())
    });
    // Nobody can be seen to wait in the system; a close before the wait has the same answer.
    thread::yield_now();
    near.close();
    let sent = sent.recv_timeout(SOON).expect("it wakes");
    assert!(matches!(sent, Some(Error::Closed(_))), "{sent:?}");
    // The other side takes what was sent, then finds the end.
    drop(received.recv_timeout(SOON).expect("it wakes"));
    let waits = Arc::clone(&far);
    let (again, receiving_again) = beside(move || (0..200).find_map(|_| recv(&waits).err()));
    far.close();
    assert!(matches!(again.recv_timeout(SOON).expect("it wakes"), Some(Error::Closed(_) | Error::Lost(_))));
    for thread in [receiving, sending, receiving_again] {
        thread.join().expect("no panic");
    }
    assert!(matches!(recv(&far), Err(Error::Closed(_))));
}

#[test]
fn the_end_of_a_worker_ends_every_wait_of_it() {
    let unix = std::env::temp_dir().join(format!("cascadia-end-{}", std::process::id()));
    for address in [":0".to_owned(), format!("unix:{}", unix.display())] {
        let stage = Stage::new(Limits::CONTRACT);
        let (ends, transport) = (stage.ends, Arc::clone(&stage.metrics.transport));
        let (listener, _) = stage.listen(&address);
        let metrics = Arc::clone(&transport);
        let (accepted, accepting) = beside(move || accept(listener, soon(), &metrics));
        // Nobody listens there: it is tried again and again.
        let metrics = Arc::clone(&transport);
        let (opened, opening) =
            beside(move || ends.open("unix:/nonexistent/stage", PURPOSE, soon(), &metrics));
        // Somebody listens, and does not accept.
        let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = deaf.local_addr().expect("bound").to_string();
        let (answered, waiting) = beside(move || ends.open(&at, PURPOSE, soon(), &transport));
        ends.close();
        for (told, thread) in [(accepted, accepting), (opened, opening), (answered, waiting)] {
            let error = told.recv_timeout(SOON).expect("it wakes").expect_err("closed");
            assert!(matches!(error, Error::Closed(_)), "{error}");
            thread.join().expect("no panic");
        }
        let late = ends.listen(":0", PURPOSE, &stage.metrics.transport).expect_err("closed");
        assert!(matches!(late, Error::Closed(_)), "{late}");
        assert!(matches!(link(listener), Err(Error::Closed(_))) && !is_open(listener));
    }
    assert!(!unix.exists());
}

#[test]
fn a_peer_that_starts_later_is_waited_for() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    let (a, b) = (Stage::new(Limits::CONTRACT), Stage::new(Limits::CONTRACT));
    let soon_over = Until::At(Instant::now() + Duration::from_millis(200));
    let early = a.ends.open(&free, PURPOSE, soon_over, &a.metrics.transport).expect_err("nobody is there");
    assert!(matches!(&early, Error::Lost(m) if m.contains("refused")), "{early}");
    let at = free.clone();
    thread::scope(|scope| {
        let opening = scope.spawn(|| a.open(&at));
        let (listener, _) = b.listen(&free);
        b.accept(listener).expect("accepted");
        opening.join().expect("no panic").expect("opened");
    });
}

#[test]
fn frames_against_the_rules_are_not_sent_and_leave_the_link_as_it_was() {
    let (_a, near, _b, far) = pair(Limits { tensor: 100, ..Limits::CONTRACT }, ":0");
    let bytes = [0; 101];
    let parts = [IoSlice::new(&bytes)];
    for shape in [
        Shape { kind: FRAME_TENSOR, dtype: dtype::U8, dims: &[101] },
        Shape { kind: FRAME_TENSOR, dtype: dtype::U8, dims: &[100] },
        Shape { kind: FRAME_TENSOR, dtype: 77, dims: &[101] },
        Shape { kind: 9, dtype: 0, dims: &[] },
        Shape { kind: FRAME_RAW, dtype: 1, dims: &[] },
    ] {
        let error = near.send(shape, &parts, soon()).expect_err("against the rules");
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
    send(&near, b"fine").expect("sent");
    assert_eq!(recv(&far).expect("received"), b"fine");
}

#[test]
fn a_frame_over_what_the_peer_takes_is_not_sent() {
    let (a, b) = (Stage::new(Limits::CONTRACT), Stage::new(Limits { tensor: 100, ..Limits::CONTRACT }));
    let (listener, bound) = b.listen(":0");
    thread::scope(|scope| {
        let opening = scope.spawn(|| a.open(&bound));
        b.accept(listener).expect("accepted");
        let near = opening.join().expect("no panic").expect("opened");
        let shape = Shape { kind: FRAME_TENSOR, dtype: dtype::U8, dims: &[101] };
        let error = near.send(shape, &[IoSlice::new(&[0; 101])], soon()).expect_err("too large");
        assert!(matches!(&error, Error::Invalid(m) if m.contains("101 bytes is over the 100")), "{error}");
    });
}

#[test]
fn what_a_worker_has_open_is_bounded_and_given_back() {
    let stage = Stage::new(Limits { links: 1, listeners: 1, ..Limits::CONTRACT });
    let (listener, bound) = stage.listen(":0");
    let full = stage.ends.listen(":0", PURPOSE, &stage.metrics.transport).expect_err("one is all");
    assert!(matches!(full, Error::Full(_)), "{full}");
    let other = Stage::new(Limits::CONTRACT);
    for _ in 0..3 {
        let handle = thread::scope(|scope| {
            scope.spawn(|| other.open(&bound).map(|_| ()));
            accept(listener, soon(), &stage.metrics.transport).expect("accepted")
        });
        let full = accept(listener, soon(), &stage.metrics.transport).expect_err("one is all");
        assert!(matches!(full, Error::Full(_)), "{full}");
        close(handle);
        close(handle);
        assert!(matches!(link(handle), Err(Error::Closed(_))));
    }
    close(listener);
    let (again, _) = stage.listen(":0");
    assert_ne!(again, listener, "handles are not used again");
}

#[test]
fn a_link_can_be_polled_for_frames_and_for_its_end() {
    let (_a, near, _b, far) = pair(Limits::CONTRACT, ":0");
    let ready = |time| socket::poll(&[far.fd()], Instant::now() + time).expect("it polls") == [true];
    assert!(!ready(Duration::ZERO));
    send(&near, b"frame").expect("sent");
    assert!(ready(SOON));
    assert_eq!(far.recv(at_once(), |frame| frame.payload.to_vec()).expect("it is there"), b"frame");
    assert!(!ready(Duration::ZERO));
    near.close();
    assert!(ready(SOON));
    assert!(matches!(far.recv(at_once(), |_| ()), Err(Error::Lost(_))));
}

#[test]
fn series_go_when_the_worker_does() {
    let (a, near, b, far) = pair(Limits::CONTRACT, ":0");
    send(&near, b"x").expect("sent");
    recv(&far).expect("received");
    assert_eq!(b.sum("cascadia_link_frames_total"), 1.0);
    drop((near, far));
    a.ends.close();
    b.ends.close();
    for stage in [&a, &b] {
        let text = String::from_utf8(stage.metrics.expose()).expect("text");
        assert!(!text.contains("cascadia_link_frames_total{"), "{text}");
    }
}
