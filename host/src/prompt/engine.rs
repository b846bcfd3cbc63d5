//! The text side of a model whose engine has the tokenizer: ids and bytes from there, the rest from the model's files.
//!
//! Invariant: the bytes of every token are read once; detokenizing asks the engine for nothing.

use std::sync::Arc;

use super::pieces::{self, Pieces};
use super::source::Folder;
use super::template::{Template, TemplateSource};
use super::tokenizer::{Bos, Encoder, Tokenizer};
use super::words::{Token, Words};
use super::{LoadError, Text, ends, folder};

/// `vocabulary` is the number of ids; `template` is for a folder that has none.
pub(super) fn load(
    words: Arc<dyn Words>,
    vocabulary: u64,
    template: &str,
    files: &Folder,
) -> Result<Text, LoadError> {
    let fault = |why: String| LoadError::Vocabulary(format!("the engine's tokenizer: {why}"));
    let ids = pieces::check_ids(usize::try_from(vocabulary).unwrap_or(usize::MAX))?;
    if ids == 0 {
        return Err(fault("its model card does not say how many ids there are (vocab_size)".to_owned()));
    }
    let tokens: Vec<Option<Token>> =
        (0..ids as u32).map(|id| words.token(id)).collect::<Result<_, _>>().map_err(fault)?;
    let named = |text: &str| {
        let found =
            tokens.iter().position(|token| token.as_ref().is_some_and(|t| t.bytes == text.as_bytes()));
        found.and_then(|id| u32::try_from(id).ok())
    };
    let eos = ends::tidy(folder::eos(files, &named), ids);
    // Whether a text of its own loses the space that its first token begins with.
    let spaced = tokens.iter().position(|token| {
        token.as_ref().is_some_and(|t| !t.special && t.bytes.len() > 1 && t.bytes[0] == b' ')
    });
    let strip_start = match spaced.and_then(|id| u32::try_from(id).ok()) {
        Some(id) => words.decode(&[id]).map_err(fault)?.first() != Some(&b' '),
        None => false,
    };
    let rows = tokens.into_iter().map(|token| token.map(|token| (token.bytes, token.special)));
    let pieces = Pieces::build(rows, strip_start)?;
    let own = match folder::template(files)? {
        None if !template.is_empty() => Some(Template::compile(TemplateSource {
            default: template.to_owned(),
            ..TemplateSource::default()
        })?),
        found => found,
    };
    Ok(Text {
        template: own,
        eos,
        context: folder::context(files),
        name: files.name.clone(),
        kind: "engine".to_owned(),
        pre: String::new(),
        tokenizer: Tokenizer {
            encoder: Encoder::Words(words),
            pieces: Arc::new(pieces),
            bos: Bos::Library,
            by_window: false,
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::prompt::detok::Pushed;

    /// Words are tokens that begin with a space, as SentencePiece has them; the first space of a text is made up.
    struct Made;

    const TOKENS: [Option<(&str, bool)>; 5] =
        [Some(("</s>", true)), Some((" one", false)), None, Some((" two", false)), Some(("s", false))];

    impl Words for Made {
        fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, String> {
            if text == "broken" {
                return Err("no such text".to_owned());
            }
            let mut ids: Vec<u32> = text.split(' ').map(|word| if word == "one" { 1 } else { 3 }).collect();
            if text == "beyond" {
                ids = vec![5];
            }
            if add_special {
                ids.push(0);
            }
            Ok(ids)
        }

        fn decode(&self, tokens: &[u32]) -> Result<Vec<u8>, String> {
            let text: String = tokens.iter().filter_map(|id| Some(TOKENS[*id as usize]?.0)).collect();
            Ok(text.strip_prefix(' ').unwrap_or(&text).as_bytes().to_vec())
        }

        fn token(&self, token: u32) -> Result<Option<Token>, String> {
            let token = TOKENS.get(token as usize).copied().flatten();
            Ok(token.map(|(text, special)| Token { bytes: text.as_bytes().to_vec(), special }))
        }
    }

    fn text(files: &Folder) -> Text {
        load(Arc::new(Made), TOKENS.len() as u64, "", files).unwrap()
    }

    #[test]
    fn ids_come_from_the_engine_and_bytes_from_its_table() {
        let text = text(&Folder::default());
        assert_eq!(text.encode("one two", false).unwrap(), [1, 3]);
        assert_eq!(text.encode("one", true).unwrap(), [1, 0]);
        assert_eq!(text.vocab_size(), 5);
        let (mut alone, mut out) = (text.detokenizer(), Vec::new());
        let pushed = [1, 4, 0, 2].map(|id| alone.push(id, &mut out));
        assert_eq!(pushed, [Pushed::Text, Pushed::Text, Pushed::Hidden, Pushed::Unknown]);
        assert_eq!(out, b"ones", "the space in front was made up");
        let (mut behind, mut out) = (text.detokenizer().continuing(), Vec::new());
        behind.push(1, &mut out);
        assert_eq!(out, b" one");
    }

    #[test]
    fn what_the_engine_gets_wrong_is_an_error() {
        let text = text(&Folder::default());
        let said = |words: &str| text.encode(words, false).unwrap_err().source.to_string();
        assert_eq!(said("broken"), "no such text");
        assert!(said("beyond").contains("id 5"), "{}", said("beyond"));
        let Err(error) = load(Arc::new(Made), 0, "", &Folder::default()) else { panic!("loaded") };
        assert!(error.to_string().contains("vocab_size"), "{error}");
    }

    #[test]
    fn the_files_beside_say_how_an_answer_ends_and_what_a_chat_looks_like() {
        let files = Folder {
            tokenizer_config: serde_json::json!({"eos_token": "</s>", "chat_template": "chat"}),
            config: serde_json::json!({"max_position_embeddings": 64}),
            ..Folder::default()
        };
        let found = text(&files);
        assert_eq!(
            (found.eos_ids(), found.context_length(), found.has_template()),
            (&[0][..], Some(64), true)
        );
        assert!(!text(&Folder::default()).has_template());
        let given = load(Arc::new(Made), TOKENS.len() as u64, "chat", &Folder::default()).unwrap();
        assert!(given.has_template(), "the engine's, where the files have none");
    }
}
