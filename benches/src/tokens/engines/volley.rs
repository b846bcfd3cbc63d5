//! Some requests at once, over HTTP, read by one thread until each has its whole answer.
//!
//! Holds: connections stand before the clock starts; an answer that is not whole, has another number of tokens than was asked for,
//! or much fewer events than they should come in, is an error.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::words::Prompt;
use crate::answer::Answer;
use crate::peers::probe;
use crate::system::Poll;

/// How long one volley may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes of an answer at most, and those for which there is room from the beginning.
const MOST: usize = 16 << 20;
const USUAL: usize = 64 << 10;

/// What came of it. Times in seconds since the requests were sent, one for each.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Volley {
    pub(crate) first: Vec<f64>,
    pub(crate) last: Vec<f64>,
}

impl Volley {
    /// From the first request to the last token of the last answer.
    pub(crate) fn took(&self) -> f64 {
        self.last.iter().copied().fold(0.0, f64::max)
    }
}

/// How a server's tokens come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Events {
    /// Events before the first token.
    pub(crate) before: u64,
    /// Most tokens that one event should hold: 1, or more of who checks guesses.
    pub(crate) together: usize,
}

/// A request for the text completion of a prompt, as it goes over the wire.
pub(crate) fn request(model: &str, prompt: &Prompt, tokens: usize) -> Vec<u8> {
    let body = json!({
        "model": model, "prompt": prompt.text, "max_tokens": tokens, "temperature": 0, "ignore_eos": true,
        "stream": true, "stream_options": { "include_usage": true },
    })
    .to_string();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

struct Line {
    /// Closed when its answer is over: an end that stays readable would keep us busy.
    socket: Option<TcpStream>,
    answer: Answer,
    /// All of it, to be read when the clock has stopped.
    raw: Vec<u8>,
    first: Option<f64>,
    last: Option<f64>,
}

/// Sends all of `requests`, which ask for so many tokens each.
pub(crate) fn fly(
    address: SocketAddr,
    requests: &[Vec<u8>],
    events: Events,
    tokens: usize,
) -> Result<Volley> {
    let mut poll = Poll::new()?;
    let mut lines = Vec::new();
    for number in 0..requests.len() {
        let socket = TcpStream::connect(address).context("connect")?;
        socket.set_nodelay(true)?;
        poll.add(&socket, number)?;
        let (answer, raw) = (Answer::default(), Vec::with_capacity(USUAL));
        lines.push(Line { socket: Some(socket), answer, raw, first: None, last: None });
    }
    let begun = Instant::now();
    for (line, request) in lines.iter_mut().zip(requests) {
        let socket = line.socket.as_mut().context("an open connection")?;
        socket.write_all(request).context("ask")?;
        socket.set_nonblocking(true)?;
    }
    let (mut ready, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while lines.iter().any(|line| line.last.is_none()) {
        ensure!(begun.elapsed() < PATIENCE, "not all answers ended within {PATIENCE:?}");
        poll.wait(Duration::from_secs(1), &mut ready)?;
        for number in &ready {
            lines[*number].read(&mut buffer, begun, events.before)?;
        }
    }
    lines.iter().try_for_each(|line| line.check(events, tokens))?;
    let times = |of: fn(&Line) -> Option<f64>| lines.iter().filter_map(of).collect();
    Ok(Volley { first: times(|line| line.first), last: times(|line| line.last) })
}

impl Line {
    fn read(&mut self, buffer: &mut [u8], begun: Instant, before: u64) -> Result<()> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        let n = match socket.read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Ok(0) => bail!("the server closed the connection before the end"),
            read => read.context("read")?,
        };
        self.answer.feed(&buffer[..n])?;
        self.raw.extend_from_slice(&buffer[..n]);
        ensure!(self.raw.len() <= MOST, "an answer has more than {MOST} bytes");
        let now = begun.elapsed().as_secs_f64();
        if self.first.is_none() && self.answer.events() > before {
            self.first = Some(now);
        }
        if self.answer.is_over() {
            ensure!(self.answer.is_whole(), "an answer does not end with [DONE]");
            (self.last, self.socket) = (Some(now), None);
        }
        Ok(())
    }

    /// That it has all its tokens, and in enough events to be timed by.
    fn check(&self, events: Events, tokens: usize) -> Result<()> {
        let made = usage(&probe::body(&self.raw)?, "completion_tokens")?;
        ensure!(made == tokens as u64, "an answer of {made} tokens where {tokens} were asked");
        // A character of two tokens is one event, and some servers send the last text with the reason of the end.
        let least = (tokens - tokens / 4).div_ceil(events.together) as u64;
        let came = self.answer.events().saturating_sub(events.before);
        ensure!(came >= least, "an answer of {came} events where {tokens} tokens were asked");
        Ok(())
    }
}

/// A number of the usage that stands in a streamed answer's body.
pub(crate) fn usage(body: &str, name: &str) -> Result<u64> {
    let told = body.lines().filter_map(|line| line.strip_prefix("data: ")).find_map(|data| {
        let value: Value = serde_json::from_str(data).ok()?;
        value["usage"][name].as_u64()
    });
    told.with_context(|| format!("no {name} in the answer's usage"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A volley of one request to a server that answers with so many events, and says that they were so many tokens.
    fn flown(texts: usize, told: usize, together: usize) -> Result<Volley> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let text = "data: {\"choices\":[{\"text\":\" a\"}],\"usage\":null}\n\n".repeat(texts);
        let usage = format!("data: {{\"choices\":[],\"usage\":{{\"completion_tokens\":{told}}}}}\n\n");
        let body = [text.as_str(), &usage, "data: [DONE]\n\n"].concat();
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let answer = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let serve = move || -> std::io::Result<()> {
            let (mut socket, _) = listener.accept()?;
            let read = socket.read(&mut [0; 4096])?;
            assert!(read > 0, "a request");
            socket.write_all(answer.as_bytes())
        };
        let server = std::thread::spawn(serve);
        let prompt = Prompt { ids: vec![1], text: " a".into() };
        let flown = fly(address, &[request("m", &prompt, 24)], Events { before: 0, together }, 24);
        server.join().expect("no panic").and(Ok(()))?;
        flown
    }

    #[test]
    fn an_answer_must_have_all_its_tokens_and_an_event_for_most_unless_it_has_guesses() {
        let volley = flown(24, 24, 1).expect("a whole answer");
        assert_eq!((volley.first.len(), volley.last.len()), (1, 1));
        // Six tokens an event; the usage and the end are two events more.
        assert!(flown(4, 24, 6).is_ok());
        let few = flown(4, 24, 1).expect_err("too few events").to_string();
        assert!(few.contains("6 events where 24 tokens"), "{few}");
        for together in [1, 6] {
            let short = flown(24, 23, together).expect_err("a token is missing").to_string();
            assert!(short.contains("23 tokens where 24"), "{short}");
        }
    }
}
