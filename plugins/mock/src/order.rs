//! What a task is asked to do besides its parameters: the engine's defaults with the prompt's `@mock` line over them.
//!
//! Holds: an order that was read has no unknown key and no value of a wrong type. A field is one line of the README's
//! table; a new one needs no edit here but itself.

use std::num::NonZeroUsize;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::Error;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::code::Code;
use crate::crash::Crash;
use crate::script::{End, Script};

/// An object's keys and values before they are typed.
pub(crate) type Raw = Map<String, Value>;

/// The overrides of one task. Counts are in generated tokens, times in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Order {
    // What is generated.
    pub(crate) script: Option<Script>,
    pub(crate) repeat: Option<u64>,
    pub(crate) finish: Option<End>,
    pub(crate) stop_token: Option<u32>,
    pub(crate) max_tokens_ignore: bool,
    pub(crate) invalid_utf8: bool,

    // When and in which pieces.
    pub(crate) token_delay_ms: Option<u64>,
    pub(crate) prefill_delay_ms: Option<u64>,
    pub(crate) whole: bool,
    pub(crate) chunk: Option<NonZeroUsize>,

    // What is reported.
    pub(crate) prompt_tokens: Option<u32>,
    pub(crate) no_prompt_tokens: bool,
    pub(crate) cached_tokens: Option<u32>,
    pub(crate) timestamp_ns: Option<u64>,
    pub(crate) nan: bool,
    pub(crate) bad_logprobs: bool,

    // Refusal.
    pub(crate) submit_error: Option<Code>,
    pub(crate) message: Option<String>,
    pub(crate) details: Option<Value>,
    pub(crate) slow_submit_ms: u64,

    // Failure of the task.
    pub(crate) fail_after: Option<u64>,
    pub(crate) error_code: Option<Code>,
    pub(crate) error_message: Option<String>,
    pub(crate) error_details: Option<Value>,
    pub(crate) stall_after: Option<u64>,
    pub(crate) ignore_cancel: bool,
    pub(crate) cancel_delay_ms: u64,

    // Breaches of the boundary's contract.
    pub(crate) no_finish: bool,
    pub(crate) double_finish: bool,
    pub(crate) push_after_finish: bool,
    pub(crate) unknown_task: bool,
    pub(crate) unknown_finish: bool,
    pub(crate) push_from_thread: bool,
    pub(crate) push_in_submit: bool,

    // What extensions do for it.
    pub(crate) drafts: usize,
    pub(crate) take_back: bool,
    pub(crate) span: bool,

    // Failure of the engine.
    pub(crate) thread_panic: bool,
    pub(crate) step_error_after: Option<u64>,
    pub(crate) panic_after: Option<u64>,
    pub(crate) panic_in: Option<Site>,
    pub(crate) abort_in: Option<Site>,
    pub(crate) segfault_in: Option<Site>,
    pub(crate) exit_in: Option<Site>,
    pub(crate) hog_in: Option<Site>,
    pub(crate) slow_step_ms: u64,
    pub(crate) no_beat: bool,
    pub(crate) watch_flag: bool,
}

/// A call of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Site {
    /// `submit` of this task.
    Submit,
    /// The first `step` that generates for this task.
    Step,
    /// `cancel` of this task.
    Cancel,
}

impl Site {
    /// Its name in the boundary.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Site::Submit => "submit",
            Site::Step => "step",
            Site::Cancel => "cancel",
        }
    }
}

impl Order {
    /// The order of a task: `line` is the JSON of its `@mock` line.
    pub(crate) fn read(defaults: &Raw, line: Option<&str>) -> Result<Order, Error> {
        let mut raw = defaults.clone();
        if let Some(line) = line {
            raw.extend(object("the @mock line", line)?);
        }
        Order::typed("the @mock line", raw)
    }

    /// The defaults of all tasks, tried out so that a mistake is found at start.
    pub(crate) fn defaults(text: &str) -> Result<Raw, Error> {
        if text.is_empty() {
            return Ok(Raw::new());
        }
        let raw = object("option order", text)?;
        Order::typed("option order", raw.clone()).map(|_| raw)
    }

    fn typed(place: &str, raw: Raw) -> Result<Order, Error> {
        if raw.is_empty() {
            return Ok(Order::default());
        }
        Order::deserialize(Value::Object(raw)).map_err(|e| Error::config(format!("{place}: {e}")))
    }

    /// How the call `site` crashes.
    pub(crate) fn crash(&self, site: Site) -> Option<Crash> {
        let asked = [
            (self.abort_in, Crash::Abort),
            (self.segfault_in, Crash::Segfault),
            (self.exit_in, Crash::Exit),
            (self.hog_in, Crash::Hog),
            (self.panic_in, Crash::Panic),
        ];
        asked.into_iter().find(|(at, _)| *at == Some(site)).map(|(_, how)| how)
    }

    /// The refusal that `submit` answers with. `have` and `max` are tokens, for the code that tells them.
    pub(crate) fn refusal(&self, have: usize, max: usize) -> Option<Error> {
        let code = self.submit_error?.0;
        let mut error = match code {
            code::PROMPT_TOO_LONG => Error::prompt_too_long(have, max),
            _ => Error::new(code, format!("the prompt asked for {}", code::name(code))),
        };
        if let Some(message) = &self.message {
            error.message.clone_from(message);
        }
        if let Some(details) = &self.details {
            error.details = text_of(details);
        }
        Some(error)
    }

    /// How the task or the engine fails when its count is reached.
    pub(crate) fn failure(&self) -> Error {
        Error {
            code: self.error_code.map_or(code::BACKEND, |c| c.0),
            message: self.error_message.clone().unwrap_or_else(|| "the prompt asked for a failure".into()),
            details: self.error_details.as_ref().map_or_else(String::new, text_of),
        }
    }
}

/// A text goes as it is, so that details which are no JSON can be sent too.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn object(place: &str, text: &str) -> Result<Raw, Error> {
    serde_json::from_str(text).map_err(|e| Error::config(format!("{place} is no JSON object: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_before_the_defaults() {
        let defaults = Order::defaults(r#"{"token_delay_ms":5,"whole":true}"#).unwrap();
        let order = Order::read(&defaults, Some(r#"{"token_delay_ms":7,"script":["a"]}"#)).unwrap();
        assert_eq!(order.token_delay_ms, Some(7));
        assert!(order.whole);
        assert_eq!(order.script, Some(Script::parse(r#"["a"]"#).unwrap()));
    }

    #[test]
    fn codes_have_names_and_numbers() {
        let order = |line: &str| Order::read(&Raw::new(), Some(line));
        assert_eq!(order(r#"{"submit_error":"queue_full"}"#).unwrap().submit_error, Some(Code(1)));
        assert_eq!(order(r#"{"submit_error":99}"#).unwrap().submit_error, Some(Code(99)));
        let long = order(r#"{"submit_error":"prompt_too_long"}"#).unwrap().refusal(9, 8).unwrap();
        assert_eq!(long.details, r#"{"have":9,"max":8}"#);
        let own = order(r#"{"submit_error":4,"message":"m","details":"{broken"}"#).unwrap();
        let own = own.refusal(0, 0).unwrap();
        assert_eq!((own.code, own.message.as_str(), own.details.as_str()), (4, "m", "{broken"));
    }

    #[test]
    fn a_mistake_is_named() {
        for (line, expected) in [
            ("{", "is no JSON object"),
            ("[]", "is no JSON object"),
            (r#"{"fail_afer":1}"#, "unknown field `fail_afer`"),
            (r#"{"fail_after":"x"}"#, "invalid type: string"),
            (r#"{"submit_error":"full"}"#, "queue_full"),
            (r#"{"chunk":0}"#, "nonzero"),
            (r#"{"script":[1]}"#, "script[0]"),
            (r#"{"panic_in":"load"}"#, "unknown variant `load`"),
        ] {
            let error = Order::read(&Raw::new(), Some(line)).unwrap_err();
            assert_eq!(error.code, code::INVALID_CONFIG);
            assert!(error.message.contains(expected), "{line}: {}", error.message);
        }
    }
}
