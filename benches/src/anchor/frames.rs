//! The frames that anchors send: of the host's shape and size, made once.

fn event(choice: &str) -> Vec<u8> {
    format!(
        "data: {{\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion.chunk\",\
         \"created\":1764432000,\"model\":\"mock\",\"system_fingerprint\":\"anchor-0123456789\",\"choices\":[{choice}]}}\n\n"
    )
    .into_bytes()
}

/// An answer begins with the role.
pub(crate) fn role() -> Vec<u8> {
    event(r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}"#)
}

/// Each token.
pub(crate) fn token() -> Vec<u8> {
    event(r#"{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}"#)
}

/// The end and what follows it.
pub(crate) fn last() -> Vec<u8> {
    let mut frames = event(r#"{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}"#);
    frames.extend_from_slice(b"data: [DONE]\n\n");
    frames
}
