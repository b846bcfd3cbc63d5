//! Server-sent events of an answer, and what they add up to.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// One event or comment.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A JSON object.
    Data(Value),
    /// `[DONE]`.
    Done,
    /// A comment.
    Comment,
}

/// The next event in `bytes` and its length; none when it is not whole yet.
pub fn first(bytes: &[u8]) -> Result<Option<(Event, usize)>> {
    let Some(end) = bytes.windows(2).position(|w| w == b"\n\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..end]).context("a frame is not UTF-8")?;
    let event = if text.starts_with(':') {
        Event::Comment
    } else {
        ensure!(!text.contains('\n'), "a frame of several lines: {text:?}");
        match text.strip_prefix("data: ") {
            Some("[DONE]") => Event::Done,
            Some(json) => Event::Data(serde_json::from_str(json).with_context(|| format!("frame {text:?}"))?),
            None => bail!("a frame without data: {text:?}"),
        }
    };
    Ok(Some((event, end + 2)))
}

/// What a whole body told.
pub fn told(mut body: &[u8]) -> Result<Told> {
    let mut told = Told::default();
    while let Some((event, length)) = first(body)? {
        told.take(event)?;
        body = &body[length..];
    }
    ensure!(body.is_empty(), "half a frame: {:?}", String::from_utf8_lossy(body));
    Ok(told)
}

/// What a stream told, frame by frame and altogether.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// All JSON frames.
    pub frames: Vec<Value>,
    /// The text.
    pub text: String,
    /// The pieces of the text, a frame each.
    pub pieces: Vec<String>,
    /// Frames with an empty text besides the one with the role.
    pub empty_pieces: usize,
    /// The finish reasons that were told.
    pub finish: Vec<String>,
    /// The choices that have finished.
    pub over: Vec<u64>,
    /// The counts, if told.
    pub usage: Option<Value>,
    /// The error frame's object.
    pub error: Option<Value>,
    /// `[DONE]` came, as the last.
    pub done: bool,
}

impl Told {
    /// Takes an event.
    pub fn take(&mut self, event: Event) -> Result<()> {
        ensure!(!self.done, "{event:?} came after [DONE]");
        let frame = match event {
            Event::Comment => return Ok(()),
            Event::Done => {
                self.done = true;
                return Ok(());
            }
            Event::Data(frame) => frame,
        };
        ensure!(self.error.is_none(), "{frame} came after the error");
        if let Some(error) = frame.get("error") {
            self.error = Some(error.clone());
        }
        if let Some(usage) = frame.get("usage").filter(|u| !u.is_null()) {
            self.usage = Some(usage.clone());
        }
        if let Some(choice) = frame["choices"].get(0) {
            let piece = choice["delta"]["content"].as_str().or(choice["text"].as_str());
            let (index, finishes) = (choice["index"].as_u64().unwrap_or(0), choice["finish_reason"].as_str());
            match piece {
                Some("") if choice["delta"]["role"].is_string() || finishes.is_some() => {}
                Some("") => self.empty_pieces += 1,
                Some(piece) => {
                    ensure!(!self.over.contains(&index), "text came after the finish: {frame}");
                    self.text.push_str(piece);
                    self.pieces.push(piece.to_owned());
                }
                None => {}
            }
            self.over.extend(finishes.map(|_| index));
            self.finish.extend(finishes.map(str::to_owned));
        }
        self.frames.push(frame);
        Ok(())
    }

    /// The one finish reason.
    ///
    /// # Panics
    /// When there is none, or several.
    #[track_caller]
    pub fn finish(&self) -> &str {
        assert_eq!(self.finish.len(), 1, "one finish reason; error {:?}", self.error);
        &self.finish[0]
    }

    /// The completion tokens that the stream told of.
    ///
    /// # Panics
    /// When it told none.
    #[track_caller]
    pub fn completion_tokens(&self) -> u64 {
        let usage = self.usage.as_ref().expect("PANIC: the request asked for usage");
        usage["completion_tokens"].as_u64().expect("PANIC: a count")
    }
}
