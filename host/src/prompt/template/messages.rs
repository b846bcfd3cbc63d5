//! Messages on their way into a template: two repairs, and the mark by which the final message is left open.

use std::borrow::Cow;

use serde_json::Value;

/// Stands behind the text of the final message while it is rendered. The trailing space shows whether the template trims
/// content: then it is gone, and the text in front must be trimmed too. From a private-use plane, so no text has it.
const MARK: &str = "\u{10fff0}cascadia\u{10fff1} ";

/// The messages, repaired where they need it, see [`super`].
pub(super) fn prepare(messages: &[Value]) -> Cow<'_, [Value]> {
    let calls =
        |message: &Value| message.as_object().is_some_and(|m| m.keys().any(|key| key == "tool_calls"));
    if !messages.iter().any(calls) {
        return Cow::Borrowed(messages);
    }
    let mut out = messages.to_vec();
    for message in out.iter_mut().filter_map(Value::as_object_mut) {
        let absent = match message.get("tool_calls") {
            Some(Value::Null) => true,
            Some(Value::Array(calls)) => calls.is_empty(),
            _ => false,
        };
        if absent {
            // Not `remove`, which would swap the last key into the gap.
            message.shift_remove("tool_calls");
        }
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let Some(arguments) = call.pointer_mut("/function/arguments") else { continue };
            if let Some(object) = arguments.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok())
                && object.is_object()
            {
                *arguments = object;
            }
        }
    }
    Cow::Owned(out)
}

/// Puts the mark behind the final message's text.
pub(super) fn mark_final(messages: &mut [Value]) -> Result<(), &'static str> {
    let last = messages.last_mut().ok_or("there is no message")?;
    let text = match last.get_mut("content") {
        Some(Value::Array(parts)) => parts.iter_mut().rev().find_map(|part| part.get_mut("text")),
        content => content,
    };
    match text {
        Some(Value::String(text)) => {
            text.push_str(MARK);
            Ok(())
        }
        _ => Err("it has no text"),
    }
}

/// The rendered text up to the mark.
pub(super) fn cut_at_mark(rendered: &str) -> Result<String, &'static str> {
    let at = rendered.rfind(MARK.trim_end()).ok_or("the chat template does not show its text")?;
    let before = &rendered[..at];
    let kept = rendered[at..].starts_with(MARK);
    Ok(if kept { before } else { before.trim_end() }.to_owned())
}
