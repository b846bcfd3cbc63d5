//! Some requests at once, over HTTP, read by one thread until each has its whole answer.
//!
//! Holds: connections stand before the clock starts; an answer that is not whole, or much too short, is an error.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::words::Prompt;
use crate::answer::Answer;
use crate::system::Poll;

/// How long one volley may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

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
    first: Option<f64>,
    last: Option<f64>,
}

/// Sends all of `requests`; each answer has `before` events ahead of its tokens.
pub(crate) fn fly(address: SocketAddr, requests: &[Vec<u8>], before: u64, tokens: usize) -> Result<Volley> {
    let mut poll = Poll::new()?;
    let mut lines = Vec::new();
    for number in 0..requests.len() {
        let socket = TcpStream::connect(address).context("connect")?;
        socket.set_nodelay(true)?;
        poll.add(&socket, number)?;
        lines.push(Line { socket: Some(socket), answer: Answer::default(), first: None, last: None });
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
            lines[*number].read(&mut buffer, begun, before)?;
        }
    }
    // A character of two tokens is one event, and some servers send the last text with the reason of the end.
    let least = (tokens - tokens / 4) as u64;
    let shortest = lines.iter().map(|line| line.answer.events().saturating_sub(before)).min().unwrap_or(0);
    ensure!(shortest >= least, "an answer of {shortest} events where {tokens} tokens were asked");
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
}
