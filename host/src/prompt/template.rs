//! Chat templates: the Jinja that model makers ship, run as Hugging Face's transformers runs it.
//!
//! Compiled once. What must hold: a template cannot run long (fuel), recurse deep, or write more than the caller allows; it
//! sees the conversation, the caller's variables and the caller's `now`, nothing else. minijinja is named here and in the
//! helpers below, nowhere else. Two repairs are made to messages, because templates written for Python clients
//! stumble without them: an empty or null `tool_calls` counts as absent, and a tool call's `arguments` that is the text of
//! a JSON object becomes that object.

mod date;
mod json;
mod messages;
#[cfg(test)]
mod tests;
mod variables;

use std::io::Write;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Serde, Value as JinjaValue};
use minijinja::{Environment, Error, ErrorKind, State};
use serde_json::{Map, Value};

use variables::Variables;

/// Work that one rendering may do: instructions, and one per 64 bytes produced (bounds memory to 256 MiB). A conversation
/// of 1,000 messages needs about 100,000.
const FUEL: u64 = 4_000_000;
/// Nesting of loops, macros and calls; a runtime thread's 2 MiB stack holds this many.
const RECURSION: usize = 120;
/// Bytes of a rendered prompt, unless the caller says less.
const MAX_BYTES: usize = 32 << 20;
/// Characters of a `raise_exception` message that are passed on.
const MAX_MESSAGE: usize = 2000;

const DEFAULT: &str = "chat_template";
const TOOL_USE: &str = "chat_template_tool_use";

/// Why a template does not compile, or a conversation does not render.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The model has none.
    #[error(
        "the model has no chat template; use the completions api, or serve a model folder with chat_template.jinja"
    )]
    NoTemplate,
    /// Syntax the engine does not know; found when the model is loaded.
    #[error("the chat template does not compile: {0}; correct it in the model's files")]
    Compile(String),
    /// The template called `raise_exception`: the conversation is not what the model takes. The words are the template's.
    #[error("the chat template refuses the conversation: {0}")]
    Raised(String),
    /// Any other failure while rendering, mostly a message that lacks what the template reads.
    #[error("the chat template fails on the conversation: {0}")]
    Render(String),
    /// Out of fuel.
    #[error("the chat template needs more than {FUEL} steps; shorten the conversation")]
    Endless,
    /// The rendered prompt is longer than the caller allows.
    #[error("the rendered prompt is longer than {limit} bytes; shorten the conversation")]
    TooLong {
        /// [`ChatOptions::max_bytes`].
        limit: usize,
    },
    /// `continue_final` cannot be honoured.
    #[error("the final message cannot be continued: {0}")]
    Continue(&'static str),
}

/// How to render a conversation.
#[derive(Debug, Clone)]
pub struct ChatOptions {
    /// Ends the prompt with the head of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Leaves the last message open, so that the model continues its text. Excludes `add_generation_prompt`.
    pub continue_final: bool,
    /// The tools, as the API has them; an empty list counts as none.
    pub tools: Option<Value>,
    /// Further variables for the template (`enable_thinking`, …). They cannot replace those of the other fields.
    pub extra: Map<String, Value>,
    /// Unix seconds for `strftime_now`, shown as UTC.
    pub now: i64,
    /// The longest accepted result.
    pub max_bytes: usize,
}

impl ChatOptions {
    /// The usual request: the assistant is to answer. `now` is in Unix seconds.
    pub fn new(now: i64) -> Self {
        Self {
            add_generation_prompt: true,
            continue_final: false,
            tools: None,
            extra: Map::new(),
            now,
            max_bytes: MAX_BYTES,
        }
    }
}

/// What a model's files say about its template.
#[derive(Debug, Default)]
pub(super) struct TemplateSource {
    pub(super) default: String,
    /// Taken instead where a request has tools.
    pub(super) tool_use: Option<String>,
    pub(super) bos_token: String,
    pub(super) eos_token: String,
}

/// A compiled template.
pub(super) struct Template {
    env: Environment<'static>,
    bos_token: JinjaValue,
    eos_token: JinjaValue,
}

impl Template {
    pub(super) fn compile(source: TemplateSource) -> Result<Self, TemplateError> {
        let mut env = Environment::new();
        env.set_debug(false);
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|e| TemplateError::Compile(describe(&e)))?);
        env.set_fuel(Some(FUEL));
        env.set_recursion_limit(RECURSION);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_function("raise_exception", raise);
        env.add_filter("tojson", to_json);
        let named = [(DEFAULT, Some(source.default)), (TOOL_USE, source.tool_use)];
        for (name, text) in named {
            let Some(text) = text else { continue };
            env.add_template_owned(name, without_generation_tags(&text))
                .map_err(|e| TemplateError::Compile(describe(&e)))?;
        }
        Ok(Self { env, bos_token: source.bos_token.into(), eos_token: source.eos_token.into() })
    }

    pub(super) fn render(&self, messages: &[Value], options: &ChatOptions) -> Result<String, TemplateError> {
        if options.continue_final && options.add_generation_prompt {
            return Err(TemplateError::Continue("continue_final_message excludes add_generation_prompt"));
        }
        let mut messages = messages::prepare(messages);
        if options.continue_final {
            messages::mark_final(messages.to_mut()).map_err(TemplateError::Continue)?;
        }
        let tools =
            options.tools.as_ref().filter(|tools| tools.as_array().is_none_or(|list| !list.is_empty()));
        let text = self.run(self.variables(&messages, tools, options), tools.is_some(), options.max_bytes)?;
        if !options.continue_final {
            return Ok(text);
        }
        messages::cut_at_mark(&text).map_err(TemplateError::Continue)
    }

    fn variables(&self, messages: &[Value], tools: Option<&Value>, options: &ChatOptions) -> JinjaValue {
        let now = options.now;
        let extra = options.extra.iter().map(|(name, value)| (name.clone(), Serde(value).into()));
        JinjaValue::from_object(Variables {
            messages: Serde(messages).into(),
            tools: Serde(tools).into(),
            add_generation_prompt: options.add_generation_prompt.into(),
            bos_token: self.bos_token.clone(),
            eos_token: self.eos_token.clone(),
            strftime_now: JinjaValue::from_function(move |format: String| date::format(&format, now)),
            extra: extra.collect(),
        })
    }

    fn run(&self, variables: JinjaValue, tools: bool, limit: usize) -> Result<String, TemplateError> {
        let chosen = if tools { self.env.get_template(TOOL_USE).ok() } else { None };
        let template = match chosen {
            Some(template) => template,
            None => self.env.get_template(DEFAULT).map_err(|e| classify(&e))?,
        };
        let mut out = Bounded { text: Vec::new(), limit, full: false };
        let result = template.render_captured_to(variables, &mut out).map(|_| ());
        if out.full {
            return Err(TemplateError::TooLong { limit });
        }
        result.map_err(|e| classify(&e))?;
        String::from_utf8(out.text).map_err(|e| TemplateError::Render(e.to_string()))
    }
}

/// The template's own refusal, carried through the engine as an error's source.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise(message: Rest<JinjaValue>) -> Result<JinjaValue, Error> {
    let text = message.first().map(ToString::to_string).unwrap_or_default();
    let raised = Raised(text.chars().take(MAX_MESSAGE).collect());
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(raised))
}

/// Python's `json.dumps`, with transformers' defaults.
fn to_json(
    state: &State,
    value: &JinjaValue,
    args: Rest<JinjaValue>,
    kwargs: Kwargs,
) -> Result<JinjaValue, Error> {
    let style = json::Style::from_args(&args, &kwargs)?;
    kwargs.assert_all_used()?;
    let text = json::dump(value, &style).map_err(|e| Error::new(ErrorKind::InvalidOperation, e))?;
    // The engine charges the bytes; walking a value costs more than copying it.
    state.consume_fuel(text.len() as u64 / 4)?;
    Ok(text.into())
}

fn classify(error: &Error) -> TemplateError {
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(e) = next {
        if let Some(Raised(message)) = e.downcast_ref() {
            return TemplateError::Raised(message.clone());
        }
        if e.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return TemplateError::Endless;
        }
        next = e.source();
    }
    TemplateError::Render(describe(error))
}

/// The whole chain in one line.
fn describe(error: &Error) -> String {
    let mut out = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(e) = next {
        out.push_str(": ");
        out.push_str(&e.to_string());
        next = e.source();
    }
    out.chars().take(MAX_MESSAGE).collect()
}

/// Transformers has a block tag `{% generation %}` that marks training text and renders its content. Here it becomes a
/// condition that holds, with the whitespace marks it had.
fn without_generation_tags(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        rest = tag;
        // Behind the opening: in `{%}` they share a letter.
        let Some(end) = tag[2..].find("%}").map(|at| at + 2) else { break };
        let inner = &tag[2..end];
        let word = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let replacement = match word {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        match replacement {
            Some(new) => out.push_str(&tag[..end + 2].replacen(word, new, 1)),
            // Only the opening is passed: a "%}" inside a string of this tag does not matter.
            None => {
                out.push_str("{%");
                rest = &tag[2..];
                continue;
            }
        }
        rest = &tag[end + 2..];
    }
    out.push_str(rest);
    out
}

/// A writer that refuses what is too much.
struct Bounded {
    text: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.text.len() + bytes.len() > self.limit {
            self.full = true;
            return Err(std::io::Error::other("the prompt is too long"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
