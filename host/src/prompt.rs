//! Text in and out of a model: chat template, tokenizer, detokenizer.
//!
//! [`Text`] is what the host holds per model, shared by all requests. What must hold: everything here is a pure function
//! of the model's data and the arguments (the one file that reads files is `source.rs`), and no text, template or vocabulary
//! makes it panic or run without end. It knows nothing of HTTP, engines, plugins or time; a template that asks for the
//! date gets the `now` of its caller.

mod bytes;
pub mod detok;
mod ends;
mod engine;
mod folder;
mod gguf;
mod pieces;
mod pre;
pub mod source;
mod spm;
pub mod template;
mod tokenizer;
pub mod words;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use detok::Detokenizer;
use source::{Source, SourceError};
use template::{ChatOptions, Template, TemplateError};
use tokenizer::Tokenizer;

/// Why a model's text data cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file is absent, unreadable, too large or not what its name says.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A metadata key is absent or of the wrong type.
    #[error(transparent)]
    Gguf(#[from] cascadia_gguf::Error),
    /// The GGUF holds a tokenizer of a kind that is not implemented.
    #[error(
        "tokenizer kind {0:?} is not supported, known are \"gpt2\" and \"llama\"; serve a folder with tokenizer.json instead"
    )]
    Kind(String),
    /// The GGUF's BPE tokenizer splits text by a rule that is not implemented.
    #[error(
        "pre-tokenizer {found:?} is not supported, known are {known}; serve a folder with tokenizer.json instead"
    )]
    Pre {
        /// `tokenizer.ggml.pre`.
        found: String,
        /// All implemented names.
        known: String,
    },
    /// Vocabulary data that contradicts itself.
    #[error("the tokenizer is unusable: {0}; convert or fetch the model again")]
    Vocabulary(String),
    /// The tokenizers library refused the data.
    #[error("the tokenizer is unusable")]
    Tokenizer(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The chat template does not compile.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// Why a text could not be tokenized.
#[derive(Debug, thiserror::Error)]
#[error("the tokenizer failed on a text of {bytes} bytes")]
pub struct EncodeError {
    /// Length of the text.
    pub bytes: usize,
    /// What the tokenizers library said.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Template, tokenizer and the few facts about text that a model's files hold.
///
/// `Send + Sync`; put it into an `Arc`. A detokenizer shares its table and may outlive it.
pub struct Text {
    tokenizer: Tokenizer,
    template: Option<Template>,
    eos: Vec<u32>,
    context: Option<u32>,
    name: Option<String>,
    kind: String,
    pre: String,
}

impl Text {
    /// Reads a `.gguf` file, or a folder with `tokenizer.json`. Takes up to about a second for a large vocabulary.
    ///
    /// # Errors
    /// Whatever is missing, unreadable or not supported, with the way out.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        Self::from_source(&source::read(path)?)
    }

    /// As [`Text::open`], from what was read already.
    ///
    /// # Errors
    /// Whatever is missing or not supported, with the way out.
    pub fn from_source(source: &Source) -> Result<Self, LoadError> {
        match source {
            Source::Gguf(gguf) => gguf::load(gguf),
            Source::Folder(folder) => folder::load(folder),
        }
    }

    /// The text side of an engine whose token ids are bytes; `template` is its chat template, or empty.
    ///
    /// # Errors
    /// When the template does not compile.
    pub fn bytes(template: &str) -> Result<Self, LoadError> {
        bytes::load(template)
    }

    /// The text side of an engine that has the tokenizer, with `vocabulary` ids. `template` is used where the files at
    /// `path` have none.
    ///
    /// # Errors
    /// What the engine says, and whatever of the files is not usable.
    pub fn of_engine(
        words: Arc<dyn words::Words>,
        vocabulary: u64,
        template: &str,
        path: Option<&Path>,
    ) -> Result<Self, LoadError> {
        let files = path.map(source::beside).transpose()?.unwrap_or_default();
        engine::load(words, vocabulary, template, &files)
    }

    /// Renders a conversation into the model's prompt text. Messages are objects as the OpenAI API has them (`role`,
    /// `content`, `tool_calls`, …) and reach the template as they are, but for [`template`]'s few repairs.
    ///
    /// # Errors
    /// [`TemplateError::NoTemplate`] without a template; [`TemplateError::Raised`] with the template's own words where it
    /// refuses the conversation; else what went wrong while rendering.
    pub fn render_chat(&self, messages: &[Value], options: &ChatOptions) -> Result<String, TemplateError> {
        self.template.as_ref().ok_or(TemplateError::NoTemplate)?.render(messages, options)
    }

    /// Turns text into token ids. Special tokens that are written out in the text become their ids.
    ///
    /// `add_special` is for raw completion prompts: the beginning-of-sequence token goes in front if the model asks for it
    /// and the text does not begin with it already. Rendered chat prompts carry their own: pass `false`.
    ///
    /// # Errors
    /// Where the tokenizers library fails, which no valid tokenizer does.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, EncodeError> {
        self.tokenizer.encode(text, add_special).map_err(|source| EncodeError { bytes: text.len(), source })
    }

    /// Number of ids: one more than the largest.
    pub fn vocab_size(&self) -> usize {
        self.tokenizer.pieces().len()
    }

    /// Tokens that a text of so many bytes has at the least: no token is longer than the vocabulary's longest, and
    /// normalising halves a text at most. Looks at the whole vocabulary: for long texts only.
    pub fn fewest_tokens(&self, bytes: usize) -> usize {
        bytes / self.tokenizer.pieces().longest().saturating_mul(2)
    }

    /// All ids that end a generation, ascending, without duplicates.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos
    }

    /// The bytes that a token stands for, also of special ones; none for an id outside the vocabulary. The bytes may be a
    /// part of a character.
    pub fn token_piece(&self, id: u32) -> Option<&[u8]> {
        self.tokenizer.pieces().get(id).map(|piece| piece.bytes)
    }

    /// Whether a token is a control token, which is not text.
    pub fn is_special(&self, id: u32) -> bool {
        self.tokenizer.pieces().get(id).is_some_and(|piece| piece.special)
    }

    /// The incremental state for one generation.
    pub fn detokenizer(&self) -> Detokenizer {
        Detokenizer::new(Arc::clone(self.tokenizer.pieces()), self.tokenizer.window())
    }

    /// Whether the model has a chat template.
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// The model's own context length in tokens, if its files state one.
    pub fn context_length(&self) -> Option<u32> {
        self.context
    }

    /// Tokenizer kind and pre-tokenizer, for a log line: `("gpt2", "smollm")`, `("tokenizer.json", "BPE")`.
    pub fn describe(&self) -> (&str, &str) {
        (&self.kind, &self.pre)
    }

    /// The model's name for people, if its files state one; a folder's name otherwise.
    pub fn model_name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Text")
            .field("kind", &self.kind)
            .field("pre", &self.pre)
            .field("vocab_size", &self.vocab_size())
            .field("template", &self.has_template())
            .finish_non_exhaustive()
    }
}
