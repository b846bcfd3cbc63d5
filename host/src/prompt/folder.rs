//! Builds a [`Text`] from a Hugging Face model folder: `tokenizer.json` and what its neighbours say about it.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer as Library};

use super::pieces::{self, Pieces};
use super::source::Folder;
use super::template::{Template, TemplateSource};
use super::tokenizer::{Bos, Encoder, Tokenizer};
use super::{LoadError, Text, ends};

/// How the tokens of a vocabulary become bytes.
#[derive(Debug, PartialEq, Eq)]
enum Decoding {
    ByteLevel,
    SentencePiece {
        bytes: bool,
        strip_start: bool,
    },
    /// Only the library knows.
    Other,
}

/// As `build`; a panic of the tokenizers library on damaged data is an error like any other.
pub(super) fn load(folder: &Folder) -> Result<Text, LoadError> {
    std::panic::catch_unwind(|| build(folder)).unwrap_or_else(|_| {
        Err(LoadError::Vocabulary("the tokenizers library panicked on tokenizer.json".to_owned()))
    })
}

fn build(folder: &Folder) -> Result<Text, LoadError> {
    let mut library = Library::from_bytes(&folder.tokenizer).map_err(LoadError::Tokenizer)?;
    check_added(folder, &library)?;
    // Settings of training runs: a prompt is never cut or filled up.
    library.with_truncation(None).map_err(LoadError::Tokenizer)?;
    library.with_padding(None);
    let decoder = serde_json::to_value(library.get_decoder())
        .map_err(|e| LoadError::Vocabulary(format!("its decoder cannot be read: {e}")))?;
    let decoding = decoding(&decoder);
    let pieces = table(&library, &decoding)?;
    let vocab = pieces.len();
    let pre = match library.get_model() {
        ModelWrapper::BPE(_) => "BPE",
        ModelWrapper::WordPiece(_) => "WordPiece",
        ModelWrapper::WordLevel(_) => "WordLevel",
        ModelWrapper::Unigram(_) => "Unigram",
    };
    let eos = ends::tidy(eos(folder, &|text| library.token_to_id(text)), vocab);
    Ok(Text {
        template: template(folder)?,
        eos,
        context: context(folder),
        name: folder.name.clone(),
        kind: "tokenizer.json".to_owned(),
        pre: pre.to_owned(),
        tokenizer: Tokenizer {
            bos: bos(folder, &library),
            by_window: decoding == Decoding::Other,
            encoder: Encoder::Library(Arc::new(library)),
            pieces: Arc::new(pieces),
        },
    })
}

/// What `tokenizer.json` says about the tokens added to its vocabulary; the rest is skipped.
#[derive(serde::Deserialize)]
struct Stated {
    #[serde(default)]
    added_tokens: Vec<StatedToken>,
}

#[derive(serde::Deserialize)]
struct StatedToken {
    id: u32,
    content: String,
}

/// The library numbers added tokens itself. Where that is not what the file says, the model would see wrong ids.
fn check_added(folder: &Folder, library: &Library) -> Result<(), LoadError> {
    let stated: Stated = serde_json::from_slice(&folder.tokenizer)
        .map_err(|e| LoadError::Vocabulary(format!("its added tokens cannot be read: {e}")))?;
    for token in stated.added_tokens.iter().filter(|token| !token.content.is_empty()) {
        let found = library.token_to_id(&token.content);
        if found != Some(token.id) {
            let StatedToken { id, content } = token;
            return Err(LoadError::Vocabulary(format!(
                "added token {content:?} has id {id}, but loads as {found:?}"
            )));
        }
    }
    Ok(())
}

/// Recognises the two decoders that work token by token, in the shapes that model folders have them.
fn decoding(decoder: &Value) -> Decoding {
    let list = decoder
        .get("decoders")
        .and_then(Value::as_array)
        .map_or(std::slice::from_ref(decoder), Vec::as_slice);
    let kind = |step: &Value| step.get("type").and_then(Value::as_str).unwrap_or("").to_owned();
    if let [one] = list {
        match kind(one).as_str() {
            "ByteLevel" => return Decoding::ByteLevel,
            "Metaspace" if one["replacement"] == "\u{2581}" => {
                return Decoding::SentencePiece {
                    bytes: false,
                    strip_start: one["prepend_scheme"] != "never",
                };
            }
            _ => return Decoding::Other,
        }
    }
    let (mut replaced, mut bytes, mut fused, mut strip_start) = (false, false, false, false);
    for step in list {
        match kind(step).as_str() {
            "Replace" if step["pattern"]["String"] == "\u{2581}" && step["content"] == " " => replaced = true,
            "ByteFallback" => bytes = true,
            "Fuse" => fused = true,
            // Only behind Fuse it concerns the text and not each token.
            "Strip" if fused && step["content"] == " " && step["start"] == 1 && step["stop"] == 0 => {
                strip_start = true;
            }
            _ => return Decoding::Other,
        }
    }
    if replaced { Decoding::SentencePiece { bytes, strip_start } } else { Decoding::Other }
}

fn table(library: &Library, decoding: &Decoding) -> Result<Pieces, LoadError> {
    let mut tokens: HashMap<u32, String> =
        library.get_vocab(false).into_iter().map(|(t, id)| (id, t)).collect();
    let added = library.get_added_tokens_decoder();
    tokens.extend(added.iter().map(|(id, token)| (*id, token.content.clone())));
    let ids = pieces::check_ids(tokens.keys().max().map_or(0, |id| *id as usize + 1))?;
    let rows = (0..ids as u32).map(|id| {
        let text = tokens.get(&id)?;
        let added = added.get(&id);
        let bytes = match decoding {
            Decoding::ByteLevel if added.is_some() => text.as_bytes().to_vec(),
            Decoding::ByteLevel => pieces::byte_level(text),
            Decoding::SentencePiece { bytes: true, .. } if added.is_none() => {
                match pieces::fallback_byte(text) {
                    Some(byte) => vec![byte],
                    None => pieces::spaced(text),
                }
            }
            Decoding::SentencePiece { .. } => pieces::spaced(text),
            Decoding::Other => library.decode(&[id], false).unwrap_or_default().into_bytes(),
        };
        Some((bytes, added.is_some_and(|token| token.special)))
    });
    let strip_start = matches!(decoding, Decoding::SentencePiece { strip_start: true, .. });
    Pieces::build(rows, strip_start)
}

/// A special token's text: a string, or an object with `content`, in either of two files.
fn special(folder: &Folder, name: &str) -> Option<String> {
    [&folder.tokenizer_config, &folder.special_tokens].into_iter().find_map(|file| {
        let entry = file.get(name)?;
        entry.as_str().or_else(|| entry.get("content")?.as_str()).map(str::to_owned)
    })
}

/// `add_bos_token` decides where it is stated; else the post-processor of `tokenizer.json`.
fn bos(folder: &Folder, library: &Library) -> Bos {
    let id = special(folder, "bos_token").and_then(|text| library.token_to_id(&text));
    match (folder.tokenizer_config.get("add_bos_token").and_then(Value::as_bool), id) {
        (Some(true), Some(id)) => Bos::Id(id),
        (Some(false), _) => Bos::Never,
        _ => Bos::Library,
    }
}

/// Ids that end a generation, by the model's files; `id` knows those of special tokens.
pub(super) fn eos(folder: &Folder, id: &dyn Fn(&str) -> Option<u32>) -> Vec<u32> {
    let mut ids = Vec::new();
    let text_config = folder.config.get("text_config").unwrap_or(&Value::Null);
    for file in [&folder.generation_config, &folder.config, text_config] {
        let entry = &file["eos_token_id"];
        let one = std::slice::from_ref(entry);
        let numbers = entry.as_array().map_or(one, Vec::as_slice).iter().filter_map(Value::as_u64);
        ids.extend(numbers.filter_map(|number| u32::try_from(number).ok()));
    }
    for name in ["eos_token", "eot_token"] {
        ids.extend(special(folder, name).and_then(|text| id(&text)));
    }
    ids
}

pub(super) fn template(folder: &Folder) -> Result<Option<Template>, LoadError> {
    let (mut default, mut tool_use) = (folder.template_file.clone(), None);
    for file in [&folder.template_json, &folder.tokenizer_config] {
        if default.is_some() {
            break;
        }
        (default, tool_use) = stated(&file["chat_template"]);
    }
    let Some(default) = default else { return Ok(None) };
    let token = |name| special(folder, name).unwrap_or_default();
    let source =
        TemplateSource { default, tool_use, bos_token: token("bos_token"), eos_token: token("eos_token") };
    Ok(Some(Template::compile(source)?))
}

/// One template, or a list of named ones.
fn stated(entry: &Value) -> (Option<String>, Option<String>) {
    if let Some(text) = entry.as_str() {
        return (Some(text.to_owned()), None);
    }
    let named = |name: &str| {
        let row = entry.as_array()?.iter().find(|row| row["name"] == name)?;
        row["template"].as_str().map(str::to_owned)
    };
    (named("default"), named("tool_use"))
}

pub(super) fn context(folder: &Folder) -> Option<u32> {
    const KEYS: &[&str] = &["max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"];
    let text_config = folder.config.get("text_config").unwrap_or(&Value::Null);
    let stated = [text_config, &folder.config]
        .into_iter()
        .flat_map(|file| KEYS.iter().filter_map(|key| file[*key].as_u64()))
        .next()
        .or_else(|| folder.tokenizer_config["model_max_length"].as_u64());
    // Tokenizers without a bound state 10^30 or so.
    stated.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn decoders_are_recognised_by_their_shape() {
        let space = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
        let (bytes, fuse) = (json!({"type": "ByteFallback"}), json!({"type": "Fuse"}));
        let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
        let sequence = |list: &[&Value]| json!({"type": "Sequence", "decoders": list});
        assert_eq!(decoding(&json!({"type": "ByteLevel"})), Decoding::ByteLevel);
        assert_eq!(
            decoding(&sequence(&[&space, &bytes, &fuse, &strip])),
            Decoding::SentencePiece { bytes: true, strip_start: true }
        );
        assert_eq!(
            decoding(&sequence(&[&space, &bytes, &fuse])),
            Decoding::SentencePiece { bytes: true, strip_start: false }
        );
        assert_eq!(decoding(&sequence(&[&space, &strip, &fuse])), Decoding::Other);
        assert_eq!(
            decoding(&json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})),
            Decoding::SentencePiece { bytes: false, strip_start: true }
        );
        assert_eq!(decoding(&json!({"type": "WordPiece"})), Decoding::Other);
        assert_eq!(decoding(&Value::Null), Decoding::Other);
    }
}
