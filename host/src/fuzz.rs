//! Entries for fuzzing. Each takes any bytes, works as long as they are long, and panics where a promise is broken.
//!
//! fuzz/ makes programs of them; the test below replays fuzz/corpus and mutates it, the same way in every run. Not part of
//! the program: compiled for tests and for fuzz/ only.

mod draw;
#[cfg(test)]
mod tests;
mod text;

use serde_json::Value;

use crate::api::openai;
use crate::error::{ApiError, Code};
use crate::generate::end::Cause;
use crate::generate::{End, Failure};
use crate::models::Offer;
use crate::plugins::{Card, elf, isolate, manifest};
use crate::prompt::Text;
use crate::prompt::template::ChatOptions;
use draw::Draw;
pub use text::{stops, text};

/// Takes any bytes.
pub type Target = fn(&[u8]);

/// All entries, by the names of their programs and corpora.
pub const TARGETS: &[(&str, Target)] = &[
    ("body", body),
    ("frames", frames),
    ("stops", stops),
    ("text", text),
    ("template", template),
    ("plugin_file", plugin_file),
    ("isolate", isolate),
    ("gguf", gguf),
];

/// Longest prompt that a template may write here.
const PROMPT: usize = 64 << 10;

/// The body of a request, up to the prompt of a chat.
pub fn body(data: &[u8]) {
    use cascadia_plugin_api::ext::features;
    let all = [
        features::SAMPLING,
        features::MIN_P,
        features::PENALTIES,
        features::REPETITION_PENALTY,
        features::SEED,
        features::MIN_TOKENS,
        features::IGNORE_EOS,
        features::LOGPROBS,
        features::TOP_LOGPROBS,
        features::PROMPT_LOGPROBS,
        features::LOGIT_BIAS,
        features::TOKEN_LISTS,
    ];
    let card = Card { features: all.map(str::to_owned).to_vec(), ..Card::default() };
    let text = Text::bytes(TEMPLATE).expect("PANIC: the template below compiles");
    let Some(messages) = openai::fuzz::body(data, Offer { name: "m", card: &card, text: &text }) else {
        return;
    };
    let mut options = ChatOptions::new(0);
    options.max_bytes = PROMPT;
    if let Ok(prompt) = text.render_chat(&messages, &options) {
        let tokens = text.encode(&prompt, false).expect("PANIC: any text has bytes");
        assert_eq!(tokens.len(), prompt.len());
    }
}

/// Reads whatever a message may have, as the templates of real models do.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.tool_calls is defined %}\
     {% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}{% endif %}\n\
     {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

/// The events of a stream, read back as a client does.
pub fn frames(data: &[u8]) {
    let mut draw = Draw(data);
    let (chat, usage, echo) = (draw.below(2) == 0, draw.below(2) == 0, draw.below(3) == 0);
    let end = match draw.below(6) {
        0 => End::Length,
        1 => End::Cancelled(Cause::CancelRoute),
        2 => End::Error(Failure::fault("backend", draw.string(40))),
        3 => End::Teardown,
        4 => End::Rejected(ApiError::new(Code::Capacity, draw.string(40))),
        _ => End::Stop,
    };
    let echo = echo.then(|| draw.string(20));
    let mut texts = Vec::new();
    while !draw.is_empty() {
        texts.push(draw.string(40));
    }
    let out = openai::fuzz::frames(chat, usage, echo.as_deref(), &texts, &end);
    let out = String::from_utf8(out).expect("a stream is UTF-8");
    let events = out.strip_suffix("\n\n").expect("the last event is whole").split("\n\n");
    let events: Vec<&str> = events.map(|e| e.strip_prefix("data: ").expect("each event is data")).collect();
    let (last, objects) = events.split_last().expect("there is an end");
    assert_eq!(*last, "[DONE]");
    let objects: Vec<Value> = objects.iter().map(|e| serde_json::from_str(e).expect("JSON")).collect();
    let told: String = objects
        .iter()
        .filter_map(|o| o["choices"][0]["delta"]["content"].as_str().or(o["choices"][0]["text"].as_str()))
        .collect();
    let begun = !texts.is_empty() || end.is_answer();
    let expected = echo.filter(|_| begun).unwrap_or_default() + &texts.concat();
    assert_eq!(told, expected, "the texts come out as they went in");
    let finishes = objects.iter().filter(|o| o["choices"][0]["finish_reason"].is_string()).count();
    let errors = objects.iter().filter(|o| o["error"].is_object()).count();
    assert_eq!((finishes, errors), if end.is_answer() { (1, 0) } else { (0, 1) });
}

/// A chat template, and the conversation that it renders.
pub fn template(data: &[u8]) {
    let cut = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let (source, rest) = data.split_at(cut);
    let Ok(text) = Text::bytes(&String::from_utf8_lossy(source)) else { return };
    let messages = match serde_json::from_slice(rest.get(1..).unwrap_or_default()) {
        Ok(Value::Array(messages)) => messages,
        _ => vec![serde_json::json!({"role": "user", "content": "hello"})],
    };
    let mut options = ChatOptions::new(1_700_000_000);
    options.max_bytes = PROMPT;
    if let Ok(prompt) = text.render_chat(&messages, &options) {
        assert!(prompt.len() <= PROMPT, "a prompt of {} bytes", prompt.len());
    }
}

/// A plugin's file, up to the point where its code would run.
pub fn plugin_file(data: &[u8]) {
    let read = |bytes: &[u8]| {
        if let Err(fault) = manifest::read(bytes) {
            assert!(!fault.contains('\n') && fault.len() < 10_000, "{fault}");
        }
    };
    match elf::read(data, cascadia_plugin_api::manifest::SECTION) {
        Ok(elf) => {
            let names: usize = elf.needed.iter().chain(&elf.soname).map(String::len).sum();
            assert!(names <= data.len() + (1 << 20), "{names} bytes of names in a file of {}", data.len());
            if let Some(manifest) = &elf.manifest {
                read(manifest);
            }
        }
        Err(fault) => assert!(fault.starts_with("is ") || fault.starts_with("has "), "{fault}"),
    }
    read(data);
}

/// What comes from the child of an isolated plugin.
pub fn isolate(data: &[u8]) {
    let mut draw = Draw(data);
    let cuts = [draw.byte(), draw.byte()];
    isolate::fuzz::stream(draw.rest(), &cuts);
}

/// The head of a GGUF file.
pub fn gguf(data: &[u8]) {
    let Ok(gguf) = cascadia_gguf::Gguf::read(data) else { return };
    let fits = gguf.check_len(data.len() as u64).is_ok();
    for tensor in gguf.tensors() {
        if let Some(range) = gguf.range(tensor) {
            assert!(range.start <= range.end);
            assert!(!fits || range.end <= data.len() as u64, "{range:?} of {}", data.len());
        }
    }
    for (key, _) in gguf.metadata() {
        assert!(gguf.get(key).is_some());
        // Each is an error or a value, whatever is there.
        let (_text, _number, _list) = (gguf.str(key), gguf.u64(key), gguf.strings(key));
    }
}
