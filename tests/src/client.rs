//! A client of the API: bodies, whole answers, streams.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::http::{Connection, Head, Request};
use crate::sse::{self, Event, Told};

/// The body of a chat with one message.
pub fn chat(prompt: &str) -> Value {
    json!({"model": "mock", "messages": [{"role": "user", "content": prompt}]})
}

/// The body of a text completion.
pub fn completion(prompt: &str) -> Value {
    json!({"model": "mock", "prompt": prompt})
}

/// A prompt of these words with overrides for the mock engine.
pub fn order(words: &str, overrides: &Value) -> String {
    format!("{words}\n@mock {overrides}")
}

/// `body` with these fields too.
pub fn with(mut body: Value, fields: &Value) -> Value {
    for (key, value) in fields.as_object().expect("PANIC: fields are an object") {
        body[key] = value.clone();
    }
    body
}

/// `body` as a stream that tells its counts.
pub fn streamed(body: Value) -> Value {
    with(body, &json!({"stream": true, "stream_options": {"include_usage": true}}))
}

/// The path of chats.
pub const CHAT: &str = "/v1/chat/completions";
/// The path of text completions.
pub const COMPLETIONS: &str = "/v1/completions";

/// Talks to one host; each call has its own connection.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Where the host listens.
    pub address: SocketAddr,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status and headers.
    pub head: Head,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The status.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The error object of a refusal with this status, its shape checked.
    ///
    /// # Panics
    /// When it is another status or shape.
    #[track_caller]
    pub fn error(&self, status: u16) -> Value {
        assert_eq!(self.status(), status, "{}", self.text());
        assert_eq!(self.head.header("content-type"), Some("application/json"));
        let body = self.json();
        check_error(&body);
        let temporary = status == 503;
        assert_eq!(self.head.header("retry-after").is_some(), temporary, "Retry-After goes with 503 only");
        assert!(self.head.header("x-request-id").is_some(), "every answer has its id");
        body["error"].clone()
    }

    /// The text of a chat or completion that was answered.
    ///
    /// # Panics
    /// When it was not.
    #[track_caller]
    pub fn content(&self) -> String {
        assert_eq!(self.status(), 200, "{}", self.text());
        let choice = &self.json()["choices"][0];
        let text = choice["message"]["content"].as_str().or(choice["text"].as_str());
        text.unwrap_or_else(|| panic!("no text in {choice}")).to_owned()
    }

    /// Its finish reason.
    #[track_caller]
    pub fn finish(&self) -> String {
        assert_eq!(self.status(), 200, "{}", self.text());
        self.json()["choices"][0]["finish_reason"].as_str().unwrap_or_default().to_owned()
    }

    /// Its completion tokens.
    #[track_caller]
    pub fn completion_tokens(&self) -> u64 {
        assert_eq!(self.status(), 200, "{}", self.text());
        self.json()["usage"]["completion_tokens"].as_u64().expect("PANIC: a count")
    }
}

/// An error body has `error` with all four keys, in an answer and in a stream.
#[track_caller]
pub fn check_error(body: &Value) {
    let error = body.get("error").and_then(Value::as_object);
    let error = error.unwrap_or_else(|| panic!("no error object in {body}"));
    let mut keys: Vec<_> = error.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["code", "message", "param", "type"], "{body}");
    for key in ["code", "message", "type"] {
        assert!(error[key].as_str().is_some_and(|s| !s.is_empty()), "{key} of {body}");
    }
    assert!(error["param"].is_null() || error["param"].is_string(), "param of {body}");
}

impl Client {
    /// Sends and takes the whole answer.
    pub fn call(&self, request: &Request) -> Result<Answer> {
        let mut call = Call::begin(self.address, request)?;
        call.answer()
    }

    /// GET.
    pub fn get(&self, path: &str) -> Result<Answer> {
        self.call(&Request::new("GET", path))
    }

    /// POST of JSON.
    pub fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call(&Request::post(path, body))
    }

    /// A chat, answered as a whole.
    pub fn chat(&self, prompt: &str) -> Result<Answer> {
        self.post(CHAT, &chat(prompt))
    }

    /// Cancels by an id; the answer is 200 whatever the id is.
    pub fn cancel(&self, id: &str) -> Result<()> {
        let answer = self.post(&format!("/v1/cancel/{id}"), &json!({}))?;
        ensure!(answer.status() == 200, "cancel: {}", answer.text());
        Ok(())
    }

    /// Sends and does not wait for an answer.
    pub fn begin(&self, request: &Request) -> Result<Call> {
        Call::begin(self.address, request)
    }

    /// Begins a stream and waits for its head.
    pub fn stream(&self, path: &str, body: &Value) -> Result<Stream> {
        self.begin(&Request::post(path, body))?.stream()
    }

    /// A stream, read to its end.
    pub fn told(&self, path: &str, body: &Value) -> Result<Told> {
        self.stream(path, body)?.rest()
    }
}

/// A request that was sent.
#[derive(Debug)]
pub struct Call {
    connection: Connection,
    bodiless: bool,
}

impl Call {
    /// Sends a request on a connection of its own.
    pub fn begin(address: SocketAddr, request: &Request) -> Result<Call> {
        let mut connection = Connection::open(address)?;
        connection.send(request)?;
        Ok(Call { connection, bodiless: request.is_head() })
    }

    /// Waits so long for a piece of the answer.
    pub fn waits(&self, patience: Duration) -> Result<()> {
        self.connection.waits(patience)
    }

    /// Waits for the whole answer.
    pub fn answer(&mut self) -> Result<Answer> {
        let head = self.connection.head()?;
        if self.bodiless {
            self.connection.no_body();
        }
        let body = self.connection.body()?;
        Ok(Answer { head, body })
    }

    /// Waits for the head of a stream.
    pub fn stream(self) -> Result<Stream> {
        self.stream_or_refusal()?
            .map_err(|answer| anyhow::anyhow!("status {}: {}", answer.status(), answer.text()))
    }

    /// The same, or the whole answer where that is none.
    pub fn stream_or_refusal(mut self) -> Result<Result<Stream, Answer>> {
        let head = self.connection.head()?;
        if head.status != 200 {
            let body = self.connection.body()?;
            return Ok(Err(Answer { head, body }));
        }
        let kind = head.header("content-type").unwrap_or_default().to_owned();
        ensure!(kind.starts_with("text/event-stream"), "content-type {kind:?} is no stream");
        Ok(Ok(Stream { connection: self.connection, head, bytes: Vec::new(), at: 0, told: Told::default() }))
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        self.connection.reset();
    }
}

/// A stream that has begun.
#[derive(Debug)]
pub struct Stream {
    connection: Connection,
    /// Status and headers.
    pub head: Head,
    bytes: Vec<u8>,
    /// So many of the bytes are told.
    at: usize,
    told: Told,
}

impl Stream {
    /// The next event; none at the proper end of the body.
    pub fn event(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some((event, length)) = sse::first(&self.bytes[self.at..])? {
                self.at += length;
                self.told.take(event.clone())?;
                return Ok(Some(event));
            }
            self.bytes.drain(..std::mem::take(&mut self.at));
            if !self.connection.piece(&mut self.bytes)? {
                ensure!(self.bytes.is_empty(), "half a frame: {:?}", String::from_utf8_lossy(&self.bytes));
                return Ok(None);
            }
        }
    }

    /// Takes all bytes as fast as they come and looks at them afterwards; `[DONE]` must be the last.
    pub fn swallow(mut self) -> Result<Told> {
        while self.connection.piece(&mut self.bytes)? {}
        self.rest()
    }

    /// Reads until `n` pieces of text are there; answers them.
    pub fn pieces(&mut self, n: usize) -> Result<&[String]> {
        while self.told.pieces.len() < n {
            let event = self.event()?;
            ensure!(event.is_some(), "ended after {} pieces of {n}: {:?}", self.told.pieces.len(), self.told);
        }
        Ok(&self.told.pieces)
    }

    /// Reads until at least that many bytes of the body are there, as a client that looks at nothing.
    pub fn raw(&mut self, bytes: usize) -> Result<()> {
        while self.bytes.len() < bytes {
            ensure!(self.connection.piece(&mut self.bytes)?, "ended after {} bytes", self.bytes.len());
        }
        Ok(())
    }

    /// The id in its frames; reads the first if need be.
    pub fn id(&mut self) -> Result<String> {
        while self.told.frames.is_empty() {
            ensure!(self.event()?.is_some(), "ended without a frame");
        }
        self.told.frames[0]["id"].as_str().map(str::to_owned).context("a frame has an id")
    }

    /// Reads to the end; `[DONE]` must be the last.
    pub fn rest(mut self) -> Result<Told> {
        while self.event()?.is_some() {}
        ensure!(self.told.done, "ended without [DONE]: {:?}", self.told);
        Ok(self.told)
    }

    /// What was told so far.
    pub fn told(&self) -> &Told {
        &self.told
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        self.connection.reset();
    }
}
