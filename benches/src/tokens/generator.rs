//! The load: streams on connections of their own, read by one thread with epoll, each answer checked.
//!
//! Holds: an answer that is not whole, or has another number of events than it should, counts as failed. A chunk is an event
//! with a token: what stands before and behind the tokens counts as none. A server may close a connection between two answers:
//! then the next request goes over a new one.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::answer::Answer;
use crate::spread::Histogram;
use crate::system::Poll;

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
    /// Microseconds from a request to the end of its answer.
    pub(crate) whole: Histogram,
}

/// How a server's answers to the request look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Events before the first token.
    pub(crate) before: u64,
    /// Events with a token.
    pub(crate) tokens: u64,
    /// Events behind them, `[DONE]` among them.
    pub(crate) behind: u64,
    /// Every answer has exactly these; else the texts, and so the events, may vary.
    pub(crate) exact: bool,
}

impl Shape {
    /// The host's and the anchors': the role, the tokens, the end and `[DONE]`.
    pub(crate) fn ours(tokens: u32) -> Shape {
        Shape { before: 1, tokens: tokens.into(), behind: 2, exact: true }
    }

    fn events(&self) -> u64 {
        self.before + self.tokens + self.behind
    }
}

/// What is asked, as it goes over the wire: `extra` are further members of the body, each behind a comma.
pub(crate) fn request(model: &str, tokens: u32, extra: &str) -> Vec<u8> {
    let body = format!(
        r#"{{"model":"{model}","messages":[{{"role":"user","content":"token"}}],"stream":true,"max_tokens":{tokens}{extra}}}"#
    );
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
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
    address: SocketAddr,
    poll: Poll,
    lines: Vec<Line>,
    request: Vec<u8>,
    shape: Shape,
    buffer: Vec<u8>,
    /// Streams that have never had a token.
    waiting: usize,
}

impl Generator {
    /// Opens `streams` connections and asks on each.
    pub(crate) fn open(
        address: SocketAddr,
        streams: usize,
        request: Vec<u8>,
        shape: Shape,
    ) -> Result<Generator> {
        let mut generator = Generator {
            address,
            poll: Poll::new()?,
            lines: Vec::with_capacity(streams),
            request,
            shape,
            buffer: vec![0; 256 << 10],
            waiting: streams,
        };
        for number in 0..streams {
            let socket = generator.connect(number)?;
            let asked = Instant::now();
            generator.lines.push(Line { socket, answer: Answer::default(), tokens: 0, asked, last: None });
            if number % AT_ONCE == AT_ONCE - 1 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(generator)
    }

    /// A new connection under that number, with the request on its way.
    fn connect(&self, number: usize) -> Result<TcpStream> {
        let mut socket = TcpStream::connect(self.address).context("connect")?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        self.poll.add(&socket, number)?;
        socket.write_all(&self.request).context("ask")?;
        Ok(socket)
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
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            // Closed between two answers, as servers may; whoever has never answered is in trouble.
            Ok(0) if line.answer.is_new() && line.last.is_some() => return self.again(number),
            Err(e)
                if e.kind() == ErrorKind::ConnectionReset && line.answer.is_new() && line.last.is_some() =>
            {
                return self.again(number);
            }
            Ok(0) => anyhow::bail!("the server closed a connection"),
            Ok(n) => n,
            Err(e) => return Err(e).context("read"),
        };
        line.answer.feed(&self.buffer[..n])?;
        let micros = |now: Instant, since: Instant| now.duration_since(since).as_micros() as u64;
        let tokens = line.answer.events().saturating_sub(self.shape.before).min(self.shape.tokens);
        let new = tokens - line.tokens;
        if new > 0 {
            let now = Instant::now();
            match line.last {
                Some(last) if line.tokens > 0 => tally.gaps.add(micros(now, last), 1),
                _ => tally.first.add(micros(now, line.asked), 1),
            }
            tally.gaps.add(0, new - 1);
            tally.chunks += new;
            if self.waiting > 0 && line.last.is_none() {
                self.waiting -= 1;
            }
            (line.last, line.tokens) = (Some(now), tokens);
        }
        if line.answer.is_over() {
            let expected = !self.shape.exact || line.answer.events() == self.shape.events();
            let good = line.answer.is_whole() && expected;
            *(if good { &mut tally.answers } else { &mut tally.failed }) += 1;
            tally.whole.add(micros(Instant::now(), line.asked), 1);
            line.answer.reset();
            (line.tokens, line.asked) = (0, Instant::now());
            match line.socket.write_all(&self.request) {
                Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                    return self.again(number);
                }
                written => written.context("ask again")?,
            }
        }
        Ok(())
    }

    /// Asks over a new connection.
    fn again(&mut self, number: usize) -> Result<()> {
        self.lines[number].socket = self.connect(number)?;
        Ok(())
    }
}
