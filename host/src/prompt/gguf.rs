//! Builds a [`Text`] from the metadata of a GGUF file (`tokenizer.ggml.*`, `tokenizer.chat_template`).
//!
//! Two kinds of tokenizer: "gpt2", byte-level BPE with a merge list, and "llama", SentencePiece BPE with scores.

use std::sync::Arc;

use cascadia_gguf::{Error, Gguf};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior};

use super::pieces::{self, Pieces};
use super::pre::{self, Pre};
use super::spm::{Row, Spm};
use super::template::{Template, TemplateSource};
use super::tokenizer::{Bos, Encoder, Tokenizer};
use super::{LoadError, Text, ends};

/// `tokenizer.ggml.token_type`.
mod kind {
    pub(super) const NORMAL: i64 = 1;
    pub(super) const UNKNOWN: i64 = 2;
    pub(super) const CONTROL: i64 = 3;
    pub(super) const USER_DEFINED: i64 = 4;
    pub(super) const UNUSED: i64 = 5;
    pub(super) const BYTE: i64 = 6;
}

/// The vocabulary as the file has it.
struct Rows<'a> {
    tokens: &'a [String],
    kinds: Vec<i64>,
}

impl Rows<'_> {
    fn iter(&self) -> impl Iterator<Item = (u32, &str, i64)> {
        let numbered = self.tokens.iter().zip(&self.kinds).enumerate();
        numbered.map(|(id, (text, kind))| (id as u32, text.as_str(), *kind))
    }

    /// What is hidden from an answer: not text, or never meant to be produced.
    fn hidden(kind: i64) -> bool {
        matches!(kind, kind::UNKNOWN | kind::CONTROL | kind::UNUSED)
    }

    /// What is found in a text before it is cut into words.
    fn added(kind: i64) -> bool {
        matches!(kind, kind::CONTROL | kind::USER_DEFINED)
    }
}

pub(super) fn load(gguf: &Gguf) -> Result<Text, LoadError> {
    let model = gguf.str("tokenizer.ggml.model")?.ok_or_else(|| Error::missing("tokenizer.ggml.model"))?;
    let (tokenizer, pre) = match model {
        "gpt2" => {
            let name = gguf.str("tokenizer.ggml.pre")?.unwrap_or("default");
            let pre = pre::find(name)
                .ok_or_else(|| LoadError::Pre { found: name.to_owned(), known: pre::names() })?;
            (byte_level(gguf, pre)?, name)
        }
        "llama" => (sentence_piece(gguf)?, "sentencepiece"),
        other => return Err(LoadError::Kind(other.to_owned())),
    };
    Ok(Text {
        eos: eos(gguf, &rows(gguf)?)?,
        template: template(gguf)?,
        context: context(gguf)?,
        name: gguf.str("general.name")?.map(str::to_owned),
        kind: model.to_owned(),
        pre: pre.to_owned(),
        tokenizer,
    })
}

fn rows(gguf: &Gguf) -> Result<Rows<'_>, LoadError> {
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let tokens = gguf.strings(TOKENS)?.ok_or_else(|| Error::missing(TOKENS))?;
    pieces::check_ids(tokens.len())?;
    let kinds = match gguf.i64s("tokenizer.ggml.token_type")? {
        Some(kinds) => kinds,
        None => vec![kind::NORMAL; tokens.len()],
    };
    same_length("token_type", kinds.len(), tokens.len())?;
    Ok(Rows { tokens, kinds })
}

fn same_length(what: &str, found: usize, tokens: usize) -> Result<(), LoadError> {
    if found == tokens {
        return Ok(());
    }
    Err(LoadError::Vocabulary(format!("tokenizer.ggml.{what} has {found} entries for {tokens} tokens")))
}

fn byte_level(gguf: &Gguf, pre: Pre) -> Result<Tokenizer, LoadError> {
    let rows = rows(gguf)?;
    let mut library = tokenizers::Tokenizer::new(bpe(gguf, &rows, pre)?);
    if pre.compose {
        library.with_normalizer(Some(NFC)).map_err(LoadError::Tokenizer)?;
    }
    library.with_pre_tokenizer(Some(cutter(pre)?));
    let added = rows
        .iter()
        .filter(|(_, _, kind)| Rows::added(*kind))
        .map(|(_, text, kind)| AddedToken::from(text, kind == kind::CONTROL).normalized(false));
    library.add_tokens(added.collect::<Vec<_>>()).map_err(LoadError::Tokenizer)?;
    let table = rows.iter().map(|(_, text, kind)| {
        let raw = Rows::added(kind) || Rows::hidden(kind);
        let bytes = if raw { text.as_bytes().to_vec() } else { pieces::byte_level(text) };
        Some((bytes, Rows::hidden(kind)))
    });
    Ok(Tokenizer {
        pieces: Arc::new(Pieces::build(table, false)?),
        encoder: Encoder::Library(Arc::new(library)),
        bos: bos(gguf, rows.tokens.len(), pre.add_bos)?,
        by_window: false,
    })
}

fn bpe(gguf: &Gguf, rows: &Rows<'_>, pre: Pre) -> Result<BPE, LoadError> {
    const MERGES: &str = "tokenizer.ggml.merges";
    let vocab: Vocab = rows.iter().map(|(id, text, _)| (text.to_owned(), id)).collect();
    let (mut merges, mut joined) = (Vec::new(), String::new());
    for line in gguf.strings(MERGES)?.ok_or_else(|| Error::missing(MERGES))? {
        // The left half is never empty, but may be a space in a vocabulary that is not byte-level.
        let at = line.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
        let (left, right) = at
            .map(|at| (&line[..at], &line[at + 1..]))
            .ok_or_else(|| LoadError::Vocabulary(format!("the merge {line:?} is not two tokens")))?;
        // Checked here, because the library panics on a result that is longer than every token.
        joined.clear();
        joined.extend([left, right]);
        if [left, right, joined.as_str()].iter().any(|part| !vocab.contains_key(*part)) {
            let problem = format!("the merge {line:?} has a part or a result that is no token");
            return Err(LoadError::Vocabulary(problem));
        }
        merges.push((left.to_owned(), right.to_owned()));
    }
    BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(LoadError::Tokenizer)
}

fn cutter(pre: Pre) -> Result<Sequence, LoadError> {
    let mut steps = Vec::new();
    for regex in pre.splits {
        let pattern = SplitPattern::Regex((*regex).to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
        steps.push(PreTokenizerWrapper::Split(split.map_err(LoadError::Tokenizer)?));
    }
    steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false)));
    Ok(Sequence::new(steps))
}

fn sentence_piece(gguf: &Gguf) -> Result<Tokenizer, LoadError> {
    const SCORES: &str = "tokenizer.ggml.scores";
    let rows = rows(gguf)?;
    let scores = gguf.f32s(SCORES)?.ok_or_else(|| Error::missing(SCORES))?;
    same_length("scores", scores.len(), rows.tokens.len())?;
    let prefix = gguf.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let encoder_rows = rows.iter().zip(scores).filter_map(|((id, text, kind), score)| match kind {
        kind::BYTE => pieces::fallback_byte(text).map(|byte| Row::Byte { id, byte }),
        kind::UNKNOWN => None,
        kind if Rows::added(kind) => Some(Row::Added { id, text }),
        _ => Some(Row::Normal { id, text, score: *score }),
    });
    let unknown = id(gguf, "unknown_token_id", rows.tokens.len())?;
    let spm = Spm::new(encoder_rows, unknown, prefix);
    let table = rows.iter().map(|(_, text, kind)| {
        let byte = if kind == kind::BYTE { pieces::fallback_byte(text) } else { None };
        let bytes = byte.map_or_else(|| pieces::spaced(text), |byte| vec![byte]);
        Some((bytes, Rows::hidden(kind)))
    });
    Ok(Tokenizer {
        pieces: Arc::new(Pieces::build(table, prefix)?),
        encoder: Encoder::Spm(spm),
        bos: bos(gguf, rows.tokens.len(), true)?,
        by_window: false,
    })
}

/// A token id stated by the file; refused if the vocabulary lacks it.
fn id(gguf: &Gguf, key: &str, vocab: usize) -> Result<Option<u32>, LoadError> {
    let Some(id) = gguf.u32(&format!("tokenizer.ggml.{key}"))? else { return Ok(None) };
    if id as usize >= vocab {
        return Err(LoadError::Vocabulary(format!("tokenizer.ggml.{key} is {id}, it has {vocab} tokens")));
    }
    Ok(Some(id))
}

fn bos(gguf: &Gguf, vocab: usize, default: bool) -> Result<Bos, LoadError> {
    let wanted = gguf.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(default);
    let id = id(gguf, "bos_token_id", vocab)?;
    Ok(match id {
        Some(id) if wanted => Bos::Id(id),
        _ => Bos::Never,
    })
}

fn eos(gguf: &Gguf, rows: &Rows<'_>) -> Result<Vec<u32>, LoadError> {
    let controls = rows.iter().filter(|(_, _, kind)| Rows::added(*kind)).map(|(id, text, _)| (id, text));
    let mut ids = ends::known(controls);
    for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        ids.extend(id(gguf, key, rows.tokens.len())?);
    }
    Ok(ends::tidy(ids, rows.tokens.len()))
}

fn template(gguf: &Gguf) -> Result<Option<Template>, LoadError> {
    let Some(default) = gguf.str("tokenizer.chat_template")? else { return Ok(None) };
    let tokens = rows(gguf)?.tokens;
    let token = |key| -> Result<String, LoadError> {
        Ok(id(gguf, key, tokens.len())?.map(|id| tokens[id as usize].clone()).unwrap_or_default())
    };
    let source = TemplateSource {
        default: default.to_owned(),
        tool_use: gguf.str("tokenizer.chat_template.tool_use")?.map(str::to_owned),
        bos_token: token("bos_token_id")?,
        eos_token: token("eos_token_id")?,
    };
    Ok(Some(Template::compile(source)?))
}

fn context(gguf: &Gguf) -> Result<Option<u32>, LoadError> {
    let Some(architecture) = gguf.str("general.architecture")? else { return Ok(None) };
    Ok(gguf.u32(&format!("{architecture}.context_length"))?)
}
