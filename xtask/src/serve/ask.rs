//! A few HTTP requests to a host on this machine, over a plain socket.
//!
//! Holds: each has a deadline. Good enough for one JSON answer; it is no general client.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Long enough for the small model on two busy cores; a stuck host is noticed in minutes, not never.
const ANSWER: Duration = Duration::from_secs(300);
const PROBE: Duration = Duration::from_secs(5);

pub(super) fn listens(address: &str) -> bool {
    let targets = address.to_socket_addrs().into_iter().flatten();
    targets.into_iter().any(|target| TcpStream::connect_timeout(&target, PROBE).is_ok())
}

pub(super) fn is_ready(address: &str) -> bool {
    request(address, "GET", "/readyz", None, PROBE).is_ok_and(|(status, _)| status == 200)
}

pub(super) fn first_model(address: &str) -> Result<String> {
    let models = json_answer(address, "GET", "/v1/models", None)?;
    let name = models["data"][0]["id"].as_str();
    Ok(name.context("/v1/models lists no model; give one with --model")?.to_owned())
}

pub(super) fn chat(address: &str, model: &str, question: &str) -> Result<String> {
    let body = json!({
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 64,
    });
    let answer = json_answer(address, "POST", "/v1/chat/completions", Some(&body))?;
    let text = answer["choices"][0]["message"]["content"].as_str();
    Ok(text.with_context(|| format!("no message in {answer}"))?.trim().to_owned())
}

pub(super) fn curl(address: &str, model: &str) -> String {
    let body = json!({"model": model, "temperature": 0, "messages": [{"role": "user", "content": "Name three rivers."}]});
    format!("curl http://{address}/v1/chat/completions -H 'content-type: application/json' -d '{body}'")
}

fn json_answer(address: &str, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
    let (status, text) = request(address, method, path, body, ANSWER)?;
    ensure!(status == 200, "{method} {path} gave {status}: {}", text.trim());
    serde_json::from_str(&text).with_context(|| format!("{method} {path} gave no JSON: {text}"))
}

fn request(
    address: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
    wait: Duration,
) -> Result<(u16, String)> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let target = address.to_socket_addrs().with_context(|| format!("resolve {address}"))?.next();
    let target = target.with_context(|| format!("{address} has no address"))?;
    let mut stream =
        TcpStream::connect_timeout(&target, PROBE).with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(wait)).context("set a deadline")?;
    stream.set_write_timeout(Some(PROBE)).context("set a deadline")?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\naccept: application/json\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).with_context(|| format!("send {method} {path}"))?;
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .with_context(|| format!("{method} {path}: no whole answer within {wait:?}"))?;
    parse(&String::from_utf8_lossy(&answer)).with_context(|| format!("{method} {path}"))
}

/// Status and body of one whole answer.
fn parse(answer: &str) -> Result<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no end of head")?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status =
        status.with_context(|| format!("no status in {:?}", head.lines().next().unwrap_or_default()))?;
    let chunked = head.lines().any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked"));
    Ok((status, if chunked { unchunk(body)? } else { body.to_owned() }))
}

fn unchunk(mut rest: &str) -> Result<String> {
    let mut body = String::new();
    loop {
        let (size, tail) = rest.split_once("\r\n").context("a chunk without a size")?;
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16);
        let size = size.context("a chunk's size")?;
        match (size, tail.get(..size)) {
            (0, _) => return Ok(body),
            (_, Some(part)) => body += part,
            (_, None) => bail!("the answer ends inside a chunk"),
        }
        rest =
            tail.get(size..).and_then(|tail| tail.strip_prefix("\r\n")).context("a chunk without an end")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_answer_is_read_plain_and_chunked() {
        let plain = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse(plain).unwrap(), (200, "{}".to_owned()));
        let chunked =
            "HTTP/1.1 503 no\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n";
        assert_eq!(parse(chunked).unwrap(), (503, "abc".to_owned()));
        assert!(parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nab").is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn a_question_is_asked_and_its_answer_found() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap().to_string();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut seen = [0; 4096];
            let mut got = String::new();
            while !got.contains("France?") {
                let n = stream.read(&mut seen).unwrap();
                got += std::str::from_utf8(&seen[..n]).unwrap();
            }
            let body = r#"{"choices":[{"message":{"content":" Paris.\n"}}]}"#;
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
            got
        });
        assert_eq!(chat(&address, "m", "What is the capital of France?").unwrap(), "Paris.");
        let got = thread.join().unwrap();
        assert!(
            got.starts_with("POST /v1/chat/completions HTTP/1.1\r\n") && got.contains("\"temperature\":0"),
            "{got}"
        );
        assert!(!listens(&address) && !is_ready(&address), "nobody listens any more");
    }
}
