//! One answer of a server, read as a client reads it: whether it serves, and how its answers look.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::answer::Answer;
use crate::generator::Shape;

/// How long a silence may be, and a connection take.
const SILENCE: Duration = Duration::from_secs(30);

/// Asks once, until `until` at most. Gives the shape of the answer and its text.
pub(crate) fn ask(address: SocketAddr, request: &[u8], until: Instant) -> Result<(Shape, String)> {
    look(&fetch(address, request, until)?)
}

/// The body of one whole answer.
pub(crate) fn fetch(address: SocketAddr, request: &[u8], until: Instant) -> Result<String> {
    let mut socket = TcpStream::connect_timeout(&address, SILENCE).context("connect")?;
    socket.set_read_timeout(Some(SILENCE))?;
    socket.write_all(request).context("ask")?;
    let (mut answer, mut raw, mut buffer) = (Answer::default(), Vec::new(), vec![0; 64 << 10]);
    while !answer.is_over() {
        ensure!(Instant::now() < until, "no end of the answer in time");
        let n = socket.read(&mut buffer).context("read")?;
        ensure!(n > 0, "the server closed the connection");
        answer.feed(&buffer[..n])?;
        raw.extend_from_slice(&buffer[..n]);
    }
    ensure!(answer.is_whole(), "the answer does not end with [DONE]");
    body(&raw)
}

/// The body of an answer in chunks.
pub(crate) fn body(raw: &[u8]) -> Result<String> {
    let head = raw.windows(4).position(|four| four == b"\r\n\r\n").context("no end of the head")?;
    let (mut rest, mut body) = (&raw[head + 4..], Vec::new());
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n").context("no end of a chunk's size")?;
        let size = std::str::from_utf8(&rest[..line])?;
        let size = usize::from_str_radix(size, 16).with_context(|| format!("{size:?} as a chunk's size"))?;
        if size == 0 {
            return String::from_utf8(body).context("text that is no UTF-8");
        }
        body.extend_from_slice(rest.get(line + 2..line + 2 + size).context("a chunk is cut")?);
        rest = rest.get(line + 4 + size..).context("a chunk is cut")?;
    }
}

/// Which events carry a token.
pub(crate) fn look(body: &str) -> Result<(Shape, String)> {
    let mut shape = Shape { before: 0, tokens: 0, behind: 0, exact: true };
    let mut text = String::new();
    for event in
        body.split("\n\n").map(str::trim).filter(|event| !event.is_empty() && !event.starts_with(':'))
    {
        let data = event.strip_prefix("data:").with_context(|| format!("{event:?} as an event"))?.trim();
        let content = if data == "[DONE]" { None } else { content(data)? };
        match content {
            Some(content) => {
                ensure!(shape.behind == 0, "an event without a token stands between two with one");
                shape.tokens += 1;
                text.push_str(&content);
            }
            None if shape.tokens == 0 => shape.before += 1,
            None => shape.behind += 1,
        }
    }
    Ok((shape, text))
}

fn content(data: &str) -> Result<Option<String>> {
    let value: Value = serde_json::from_str(data).with_context(|| format!("read {data:?}"))?;
    if let Some(error) = value.get("error") {
        bail!("an error in the stream: {error}");
    }
    let choice = &value["choices"][0];
    // Chats and completions.
    let content = choice["delta"]["content"].as_str().or_else(|| choice["text"].as_str()).unwrap_or_default();
    Ok((!content.is_empty()).then(|| content.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(delta: &str) -> String {
        format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n")
    }

    fn word(text: &str) -> String {
        event(&format!("{{\"content\":\"{text}\"}}"))
    }

    #[test]
    fn the_shape_is_what_stands_around_the_tokens() {
        let role = event(r#"{"role":"assistant","content":null}"#);
        let body = [role, ": ping\n\n".into(), word("a"), word("b"), event("{}"), "data: [DONE]\n\n".into()]
            .concat();
        let (shape, text) = look(&body).expect("an answer");
        assert_eq!((shape.before, shape.tokens, shape.behind, text.as_str()), (1, 2, 2, "ab"));
    }

    #[test]
    fn a_gap_between_tokens_and_an_error_are_told() {
        let gap = [word("a"), event("{}"), word("b")].concat();
        assert!(look(&gap).expect_err("a gap").to_string().contains("between two"));
        let error = "data: {\"error\":{\"message\":\"no room\"}}\n\n";
        assert!(look(error).expect_err("an error").to_string().contains("no room"));
    }

    #[test]
    fn a_body_is_put_together_from_its_chunks() {
        let raw = b"HTTP/1.1 200 OK\r\n\r\n3\r\ndat\r\n2\r\na:\r\n0\r\n\r\n";
        assert_eq!(body(raw).expect("a body"), "data:");
        assert!(body(b"HTTP/1.1 200 OK\r\n\r\n9\r\ndat\r\n").is_err());
    }
}
