//! The load: streams on connections of their own, read by one thread with epoll, each answer checked.
//!
//! Holds: an answer that is not whole, or has another number of events than asked for, counts as failed. A chunk is an event
//! with a token: the role before and the end behind the tokens count as none.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::answer::Answer;
use crate::spread::Histogram;
use crate::system::Poll;

/// Events of an answer that are no token: role, end, `[DONE]`.
const BESIDE: u64 = 3;
/// Connections that are opened without a pause, so that no backlog overflows.
const AT_ONCE: usize = 100;
/// How long all streams together may take to their first token.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was seen in a while.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Tokens received.
    pub(crate) chunks: u64,
    /// Answers that ended as they should.
    pub(crate) answers: u64,
    /// Answers that did not.
    pub(crate) failed: u64,
    /// Microseconds between two tokens of a stream; what came in one piece has none between.
    pub(crate) gaps: Histogram,
    /// Microseconds from a request to its first token.
    pub(crate) first: Histogram,
}

struct Line {
    socket: TcpStream,
    answer: Answer,
    /// Tokens of this answer so far.
    tokens: u64,
    asked: Instant,
    last: Option<Instant>,
}

/// Streams in progress.
pub(crate) struct Generator {
    poll: Poll,
    lines: Vec<Line>,
    request: Vec<u8>,
    tokens: u64,
    buffer: Vec<u8>,
    /// Streams that have never had a token.
    waiting: usize,
}

impl Generator {
    /// Opens `streams` connections and asks on each for `tokens`.
    pub(crate) fn open(address: SocketAddr, streams: usize, tokens: u32) -> Result<Generator> {
        let body = format!(
            r#"{{"model":"mock","messages":[{{"role":"user","content":"token"}}],"stream":true,"max_tokens":{tokens}}}"#
        );
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut generator = Generator {
            poll: Poll::new()?,
            lines: Vec::with_capacity(streams),
            request: request.into_bytes(),
            tokens: tokens.into(),
            buffer: vec![0; 256 << 10],
            waiting: streams,
        };
        for number in 0..streams {
            let mut socket = TcpStream::connect(address).context("connect")?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            generator.poll.add(&socket, number)?;
            socket.write_all(&generator.request).context("ask")?;
            let asked = Instant::now();
            generator.lines.push(Line { socket, answer: Answer::default(), tokens: 0, asked, last: None });
            if number % AT_ONCE == AT_ONCE - 1 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(generator)
    }

    /// Reads until every stream has had a token.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let (until, mut scratch) = (Instant::now() + PATIENCE, Tally::default());
        while self.waiting > 0 {
            ensure!(Instant::now() < until, "{} streams have had no token in {PATIENCE:?}", self.waiting);
            self.turn(until, &mut scratch)?;
        }
        Ok(())
    }

    /// Reads, and asks again where an answer ended, for so long.
    pub(crate) fn run(&mut self, length: Duration) -> Result<Tally> {
        let (until, mut tally) = (Instant::now() + length, Tally::default());
        while Instant::now() < until {
            self.turn(until, &mut tally)?;
        }
        Ok(tally)
    }

    fn turn(&mut self, until: Instant, tally: &mut Tally) -> Result<()> {
        let mut ready = Vec::new();
        let left = until.saturating_duration_since(Instant::now());
        self.poll.wait(left.max(Duration::from_millis(1)), &mut ready)?;
        for number in ready {
            self.read(number, tally)?;
        }
        Ok(())
    }

    fn read(&mut self, number: usize, tally: &mut Tally) -> Result<()> {
        let line = &mut self.lines[number];
        let n = match line.socket.read(&mut self.buffer) {
            Ok(0) => anyhow::bail!("the server closed a connection"),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e).context("read"),
        };
        line.answer.feed(&self.buffer[..n])?;
        let tokens = line.answer.events().saturating_sub(1).min(self.tokens);
        let new = tokens - line.tokens;
        if new > 0 {
            let now = Instant::now();
            let micros = |since: Instant| now.duration_since(since).as_micros() as u64;
            match line.last {
                None => tally.first.add(micros(line.asked), 1),
                Some(last) => tally.gaps.add(micros(last), 1),
            }
            tally.gaps.add(0, new - 1);
            tally.chunks += new;
            if self.waiting > 0 && line.last.is_none() {
                self.waiting -= 1;
            }
            (line.last, line.tokens) = (Some(now), tokens);
        }
        if line.answer.is_over() {
            let good = line.answer.is_whole() && line.answer.events() == self.tokens + BESIDE;
            *(if good { &mut tally.answers } else { &mut tally.failed }) += 1;
            line.answer.reset();
            line.socket.write_all(&self.request).context("ask again")?;
            (line.tokens, line.asked, line.last) = (0, Instant::now(), None);
        }
        Ok(())
    }
}
