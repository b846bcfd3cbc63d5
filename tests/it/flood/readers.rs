//! Clients that read about a kilobyte a second of answers that come as fast as the engine can.

use std::io::Read;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use cascadia_tests::client::{CHAT, chat, order, streamed};
use cascadia_tests::http::{Connection, Request};
use cascadia_tests::sse::{self, Told};
use cascadia_tests::{Host, sys, wait};
use serde_json::{Value, json};

use super::{is_calm, peak_within, settled};

/// Readers, and tokens of 16 kB for each: 100 MB.
const READERS: u32 = 4;
const TOKENS: u32 = 6_400;
const TOKEN: usize = 16 << 10;
/// What is kept of one stream is bounded at sixteen times this, in KiB.
const KEPT: u64 = 64;
/// What a reader takes of each second.
const PER_SECOND: usize = 1_000;

fn large() -> Value {
    streamed(chat(&order(&"x".repeat(TOKEN), &json!({"repeat": TOKENS}))))
}

/// A stream on a socket that holds 4 kB.
fn slow(host: &Host, body: &Value) -> Result<TcpStream> {
    let mut connection = Connection::open(host.client().address)?;
    connection.send(&Request::post(CHAT, body))?;
    assert_eq!(connection.head()?.status, 200);
    let socket = connection.into_socket();
    sys::receive_buffer(&socket, 4 << 10);
    Ok(socket)
}

/// Reads a little of each now and then, until told to stop or all were ended by the host; the bytes read of each.
fn trickle(sockets: &mut [TcpStream], stop: &AtomicBool) -> Vec<usize> {
    let mut read = vec![0; sockets.len()];
    let mut over = vec![false; sockets.len()];
    let mut part = [0; PER_SECOND / 10];
    while !stop.load(Ordering::Relaxed) && over.contains(&false) {
        let next = Instant::now() + Duration::from_millis(100);
        for ((socket, read), over) in sockets.iter_mut().zip(&mut read).zip(&mut over) {
            match socket.read(&mut part) {
                Ok(n) if n > 0 => *read += n,
                _ => *over = true,
            }
        }
        // This is the pace of such a client, not a wait for something.
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    read
}

/// Slow readers beside one that reads; `patience` is what the host has with them.
fn slow_readers(patience: &str, least: Duration) -> Result<()> {
    let kept = format!("limits.stream_buffer_kb={KEPT}");
    let patience = format!("limits.slow_client_timeout={patience}");
    let args = ["--plugin-opt", "mock.context-length=100000", "--set", &kept, "--set", &patience];
    let host = Host::mock(&args);
    let before = settled(&host);
    let begun = Instant::now();
    let mut sockets = (0..READERS).map(|_| slow(&host, &large())).collect::<Result<Vec<_>>>()?;
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let readers = scope.spawn(|| trickle(&mut sockets, stop));
        // Whatever happens the readers must be told, or the scope would wait for them.
        let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| -> Result<()> {
            // Others notice nothing.
            let words: Vec<String> = (0..100).map(|i| format!("word{i}")).collect();
            let other = streamed(chat(&order(&words.join(" "), &json!({"token_delay_ms": 10}))));
            loop {
                let told = host.told(CHAT, &other)?;
                assert_eq!((told.text, told.pieces.len()), (words.join(" "), 100));
                if begun.elapsed() > least {
                    break;
                }
            }
            // They are ended, by the rule that the configuration states.
            wait("the slow readers to be ended", || {
                let ended = host.scrape().ended("cancelled");
                if ended == f64::from(READERS) { Ok(()) } else { Err(ended.to_string()) }
            });
            Ok(())
        }));
        stop.store(true, Ordering::Relaxed);
        let read = readers.join().expect("PANIC: the readers do not panic");
        watched.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        assert!(read.iter().all(|n| *n > 0), "each had something: {read:?}");
        Ok(())
    })?;
    let metrics = host.quiet();
    assert_eq!(metrics.value("cascadia_slow_clients_total", &[]), f64::from(READERS));
    assert_eq!(metrics.connections_ended("cut"), f64::from(READERS));
    // 400 MB were asked for. What is kept, and twice as much for buffers that grow, and the host's own.
    peak_within(&host, before, u64::from(READERS) * 3 * 16 * KEPT + (64 << 10));
    drop(sockets);
    is_calm(&host, before)
}

#[test]
fn output_to_slow_readers_is_bounded_and_others_are_unaffected() -> Result<()> {
    slow_readers("2s", Duration::ZERO)
}

#[test]
#[ignore = "takes more than a minute; the module says how to run it"]
fn output_to_slow_readers_is_bounded_for_a_minute_long() -> Result<()> {
    slow_readers("45s", Duration::from_secs(60))
}

#[test]
fn small_frames_that_a_full_socket_takes_in_parts_arrive_whole_and_in_order() -> Result<()> {
    let args = ["--plugin-opt", "mock.token-delay-us=50", "--set", "limits.stream_buffer_kb=2048"];
    let host = Host::mock(&args);
    // Frames of up to a kilobyte, which go to the socket one by one; more of them than the kernel holds for a client that
    // rests.
    let words: Vec<String> = (0..10).map(|i| format!("{i}").repeat(60 * (i + 1))).collect();
    let body = chat(&order(&words.join(" "), &json!({"repeat": 2000})));
    let whole = host.post(CHAT, &body)?.content();
    assert!(whole.len() > 6_000_000, "{}", whole.len());
    let mut connection = Connection::open(host.client().address)?;
    // The second answer comes over the connection that the first has left.
    for rests in [1, 2] {
        connection.send(&Request::post(CHAT, &streamed(body.clone())))?;
        assert_eq!(connection.head()?.status, 200);
        let (mut bytes, mut told, mut rested) = (Vec::new(), Told::default(), 0);
        while connection.piece(&mut bytes)? {
            while let Some((event, length)) = sse::first(&bytes)? {
                told.take(event)?;
                bytes.drain(..length);
            }
            if rested < rests && told.text.len() > rested * 3_000_000 {
                rested += 1;
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        assert_eq!((told.text.len(), told.finish(), told.done), (whole.len(), "stop", true));
        assert!(told.text == whole, "the text is not that of a whole answer");
    }
    Ok(())
}

#[test]
fn what_many_slow_readers_leave_unread_is_bounded_for_all_of_them_together() -> Result<()> {
    const MANY: u32 = 60;
    const MOST: u64 = 8 << 20;
    let args = [
        "--plugin-opt",
        "mock.context-length=100000",
        "--max-queued",
        "100",
        "--set",
        "limits.max_unread_mb=8",
    ];
    let host = Host::mock(&args);
    let before = settled(&host);
    // 12 MB each, of which the kernel takes some 4. It is within what one stream may leave: without the common bound the
    // rest would wait.
    let body = streamed(chat(&order(&"x".repeat(TOKEN), &json!({"repeat": 750}))));
    let sockets = (0..MANY).map(|_| slow(&host, &body)).collect::<Result<Vec<_>>>()?;
    // A few may wait for their clients as long as any; the others leave no room and are ended.
    wait("all but a few to be ended, and the unread bytes to be within their bound", || {
        let metrics = host.scrape();
        let unread = metrics.value("cascadia_stream_unread_bytes", &[]);
        let slow = metrics.value("cascadia_slow_clients_total", &[]);
        let fine = slow >= f64::from(MANY - 10) && unread <= MOST as f64;
        if fine { Ok(()) } else { Err(format!("{unread} bytes unread, {slow} ended")) }
    });
    // Others are served meanwhile.
    assert_eq!(host.told(CHAT, &streamed(chat("and this one")))?.text, "and this one");
    // 480 MB would have waited. The engine gives a gigabyte a second, and what is freed of that is kept for a second.
    peak_within(&host, before, 2 * (MOST >> 10) + (128 << 10));
    drop(sockets);
    let metrics = host.quiet();
    assert_eq!(metrics.ended("cancelled"), f64::from(MANY));
    assert_eq!(metrics.value("cascadia_stream_unread_bytes", &[]), 0.0);
    is_calm(&host, before)
}
