//! Clients that come, ask, cancel, leave and finish in an order that is drawn.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use cascadia_tests::client::{CHAT, COMPLETIONS, Client, chat, completion, order, streamed};
use cascadia_tests::http::{Connection, Request};
use cascadia_tests::{Dice, setup, sys};
use serde_json::json;

use super::{begin, is_calm};

const THREADS: u64 = 8;

struct Player<'a> {
    client: Client,
    dice: Dice,
    /// Answers that were read whole.
    finished: &'a AtomicU64,
    /// Generations that were cancelled by their id and read to their end.
    cancelled: &'a AtomicU64,
}

impl Player<'_> {
    fn round(&mut self, id: &str) -> Result<()> {
        match self.dice.roll(10) {
            0 => self.goes_at_once(),
            1 => self.goes_within_the_head(),
            2..=4 => self.finishes(),
            5 | 6 => self.cancels(id),
            7 => self.leaves(true),
            8 => self.leaves(false),
            _ => self.keeps_one_connection(),
        }
        .with_context(|| id.to_owned())
    }

    fn goes_at_once(&mut self) -> Result<()> {
        let socket = TcpStream::connect(self.client.address)?;
        if self.dice.roll(2) == 0 {
            sys::reset(socket);
        }
        Ok(())
    }

    fn goes_within_the_head(&mut self) -> Result<()> {
        let mut socket = TcpStream::connect(self.client.address)?;
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 90\r\n\r\n{{\"mo");
        let cut = usize::try_from(self.dice.roll(head.len() as u64))?;
        socket.write_all(&head.as_bytes()[..cut])?;
        if self.dice.roll(2) == 0 {
            sys::reset(socket);
        }
        Ok(())
    }

    fn finishes(&mut self) -> Result<()> {
        let n = 1 + self.dice.roll(20);
        let words = vec!["w"; usize::try_from(n)?].join(" ");
        let (path, body) = match self.dice.roll(2) {
            0 => (CHAT, chat(&words)),
            _ => (COMPLETIONS, cascadia_tests::client::with(completion(&words), &json!({"max_tokens": 99}))),
        };
        match self.dice.roll(2) {
            0 => assert_eq!(self.client.post(path, &body)?.content(), words),
            _ => assert_eq!(self.client.told(path, &streamed(body))?.text, words),
        }
        self.finished.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn cancels(&mut self, id: &str) -> Result<()> {
        let n = 1 + self.dice.roll(4);
        let body = streamed(chat(&order(&"w ".repeat(9), &json!({"stall_after": n}))));
        let request = Request::post(CHAT, &body).header("x-request-id", id);
        let mut stream = self.client.begin(&request)?.stream()?;
        stream.pieces(usize::try_from(n)?)?;
        self.client.cancel(id)?;
        assert_eq!(stream.rest()?.completion_tokens(), n);
        self.cancelled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Leaves a generation that would never end: at a random moment of a stream, or without having read anything.
    fn leaves(&mut self, rude: bool) -> Result<()> {
        let endless = order("word", &json!({"repeat": 10_000, "token_delay_ms": 1}));
        if self.dice.roll(3) == 0 {
            let call = self.client.begin(&Request::post(CHAT, &chat(&endless)))?;
            if rude {
                call.reset();
            }
            return Ok(());
        }
        let mut stream = self.client.stream(CHAT, &streamed(chat(&endless)))?;
        stream.raw(usize::try_from(self.dice.roll(4000))?)?;
        if rude {
            stream.reset();
        }
        Ok(())
    }

    /// Several requests, one behind the other.
    fn keeps_one_connection(&mut self) -> Result<()> {
        let mut connection = Connection::open(self.client.address)?;
        for i in 0..1 + self.dice.roll(5) {
            connection.send(&Request::post(CHAT, &chat(&format!("turn {i}"))))?;
            assert_eq!(connection.head()?.status, 200);
            assert!(String::from_utf8(connection.body()?)?.contains(&format!("turn {i}")));
            self.finished.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn rounds(total: u64) -> Result<()> {
    let seed = setup::seed();
    let (host, before) = begin(&["--max-queued", "1000", "--queue-timeout", "1h"]);
    let (finished, cancelled) = (&AtomicU64::new(0), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        let players: Vec<_> = (0..THREADS)
            .map(|t| {
                let mut player =
                    Player { client: host.client(), dice: Dice::new(seed, t), finished, cancelled };
                scope.spawn(move || (0..total / THREADS).try_for_each(|i| player.round(&format!("r{t}-{i}"))))
            })
            .collect();
        players.into_iter().try_for_each(|p| p.join().expect("PANIC: a client's assertion failed, see above"))
    })?;
    let metrics = host.quiet();
    // The two of the warm-up have finished too.
    let (stop, end) = (finished.load(Ordering::Relaxed) + 2, cancelled.load(Ordering::Relaxed));
    assert_eq!(metrics.ended("stop"), stop as f64);
    assert!(metrics.ended("cancelled") >= end as f64, "{} of at least {end}", metrics.ended("cancelled"));
    assert_eq!(metrics.ended("stop") + metrics.ended("cancelled"), metrics.all_ended());
    assert_eq!(metrics.value("cascadia_tasks_cancelled_total", &[]), metrics.ended("cancelled"));
    assert_eq!(metrics.sum("cascadia_plugin_protocol_errors_total", &[]), 0.0);
    is_calm(&host, before)
}

#[test]
fn a_thousand_and_a_half_rounds_of_random_clients_leave_nothing_behind() -> Result<()> {
    rounds(1_500)
}

#[test]
#[ignore = "takes a minute; the module says how to run it"]
fn ten_thousand_rounds_of_random_clients_leave_nothing_behind() -> Result<()> {
    rounds(10_000)
}
