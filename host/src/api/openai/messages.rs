//! The messages of a chat, as templates read them.

use serde_json::Value;

use super::fields::{unsupported, wrong};
use crate::error::{ApiError, Code};

const ROLES: &[&str] = &["developer", "system", "user", "assistant", "tool", "function"];

/// Checks the messages and joins content parts of text.
pub(super) fn read(value: Option<Value>) -> Result<Vec<Value>, ApiError> {
    let mut messages = match value {
        None => return Err(ApiError::new(Code::EmptyPrompt, "messages is missing").param("messages")),
        Some(Value::Array(messages)) => messages,
        Some(other) => return Err(wrong("messages", "a list", &other)),
    };
    if messages.is_empty() {
        return Err(ApiError::new(Code::EmptyPrompt, "messages is empty").param("messages"));
    }
    for (i, message) in messages.iter_mut().enumerate() {
        one(message, &format!("messages[{i}]"))?;
    }
    Ok(messages)
}

fn one(message: &mut Value, at: &str) -> Result<(), ApiError> {
    let Some(fields) = message.as_object_mut() else { return Err(wrong(at, "an object", message)) };
    let role = fields.get("role").cloned().unwrap_or_default();
    match role.as_str() {
        // Templates know the older word.
        Some("developer") => {
            fields.insert("role".to_owned(), Value::from("system"));
        }
        Some(role) if ROLES.contains(&role) => {}
        _ => return Err(wrong(&format!("{at}.role"), &format!("one of {}", ROLES.join(", ")), &role)),
    }
    let name = format!("{at}.content");
    match fields.get("content") {
        Some(Value::String(_)) => Ok(()),
        None | Some(Value::Null) if role == "assistant" => {
            // Templates concatenate it.
            fields.insert("content".to_owned(), Value::from(""));
            Ok(())
        }
        Some(Value::Array(parts)) => {
            let text = parts.iter().map(|part| text_of(part, &name)).collect::<Result<String, _>>()?;
            fields.insert("content".to_owned(), Value::from(text));
            Ok(())
        }
        other => Err(wrong(&name, "a string or a list of parts", other.unwrap_or(&Value::Null))),
    }
}

fn text_of<'a>(part: &'a Value, name: &str) -> Result<&'a str, ApiError> {
    let kind = part.get("type").and_then(Value::as_str);
    let field = match kind {
        Some("text") => "text",
        Some("refusal") => "refusal",
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            return Err(unsupported(
                name,
                format_args!("this version has no content parts of type {other:?}"),
            ));
        }
        None => return Err(wrong(name, "a list of parts with a type", part)),
    };
    part.get(field).and_then(Value::as_str).ok_or_else(|| wrong(name, "a list of parts with text", part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_parts_are_joined_and_developer_is_system() {
        let messages = json!([{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                              {"role": "assistant", "content": null}]);
        let read = read(Some(messages)).expect("valid");
        assert_eq!(
            read,
            [json!({"role": "system", "content": "ab"}), json!({"role": "assistant", "content": ""})]
        );
    }

    #[test]
    fn faults_name_their_place() {
        for (messages, param) in [
            (json!([{"role": "user"}]), "messages[0].content"),
            (
                json!([{"role": "user", "content": "x"}, {"role": "robot", "content": "x"}]),
                "messages[1].role",
            ),
            (json!([3]), "messages[0]"),
            (json!([{"role": "user", "content": [{"type": "image_url"}]}]), "messages[0].content"),
            (json!("x"), "messages"),
            (json!([]), "messages"),
        ] {
            let error = read(Some(messages.clone())).expect_err(param);
            assert_eq!(error.param.as_deref(), Some(param), "{messages}");
        }
    }
}
