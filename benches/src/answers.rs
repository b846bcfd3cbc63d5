//! Answers of a host, and how they ended.

use std::time::Duration;

use anyhow::{Result, ensure};
use cascadia_tests::client::{CHAT, Client, check_error, streamed};
use cascadia_tests::http::Request;
use cascadia_tests::{Dice, Stream, sse::Event};
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

/// A stream whose client cancels it after some events, read to its end; none where it was refused.
pub(crate) fn cancelled(
    client: Client,
    body: &Value,
    id: &str,
    dice: &mut Dice,
) -> Result<(End, Option<Stream>)> {
    let mut stream = match begin(client, body, Some(id))? {
        Ok(stream) => stream,
        Err(end) => return Ok((end, None)),
    };
    some(&mut stream, dice.roll(8))?;
    client.cancel(id)?;
    Ok((to_end(&mut stream, Duration::ZERO)?, Some(stream)))
}

/// A stream whose client leaves after some events, in one of the two ways there are.
pub(crate) fn left_stream(client: Client, body: &Value, dice: &mut Dice) -> Result<End> {
    let mut stream = match begin(client, body, None)? {
        Ok(stream) => stream,
        Err(end) => return Ok(end),
    };
    some(&mut stream, dice.roll(20))?;
    if dice.roll(2) == 0 {
        stream.reset();
    }
    Ok(End::Left)
}

/// A question whose client leaves within so many milliseconds, before the whole answer.
pub(crate) fn left_unary(client: Client, body: &Value, longest: u64, dice: &mut Dice) -> Result<End> {
    let call = client.begin(&Request::post(CHAT, body))?;
    std::thread::sleep(Duration::from_millis(dice.roll(longest)));
    if dice.roll(2) == 0 {
        call.reset();
    }
    Ok(End::Left)
}

/// Reads so many events, if there are so many.
fn some(stream: &mut Stream, events: u64) -> Result<()> {
    for _ in 0..events {
        if stream.event()?.is_none() {
            break;
        }
    }
    Ok(())
}
