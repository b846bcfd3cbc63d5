//! Answers of a host, and how they ended.

use std::time::Duration;

use anyhow::{Result, ensure};
use cascadia_tests::client::{CHAT, Client, check_error, streamed};
use cascadia_tests::http::Request;
use cascadia_tests::{Stream, sse::Event};
use serde_json::{Value, json};

use crate::books::End;

/// A stream of a chat, or how it was refused.
pub(crate) fn begin(client: Client, body: &Value, id: Option<&str>) -> Result<Result<Stream, End>> {
    let mut request = Request::post(CHAT, &streamed(body.clone()));
    if let Some(id) = id {
        request = request.header("x-request-id", id);
    }
    match client.begin(&request)?.stream_or_refusal()? {
        Ok(stream) => Ok(Ok(stream)),
        Err(answer) => Ok(Err(refusal(&answer.body, answer.status())?)),
    }
}

/// Reads to the end, resting after each event.
pub(crate) fn to_end(stream: &mut Stream, rest: Duration) -> Result<End> {
    while let Some(event) = stream.event()? {
        if event != Event::Done {
            std::thread::sleep(rest);
        }
    }
    let told = stream.told();
    ensure!(told.done, "the stream ended without [DONE]");
    match &told.error {
        Some(error) => {
            check_error(&json!({ "error": error }));
            Ok(End::Broken)
        }
        None => {
            ensure!(told.finish.len() == 1, "finish reasons {:?}", told.finish);
            Ok(End::Whole)
        }
    }
}

/// A refusal whose body is what it should be.
pub(crate) fn refusal(body: &[u8], status: u16) -> Result<End> {
    let body: Value = serde_json::from_slice(body)?;
    check_error(&body);
    Ok(End::Refused(status))
}
