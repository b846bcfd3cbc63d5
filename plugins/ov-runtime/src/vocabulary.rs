//! Whether two models mean the same by their tokens, as far as their files say.
//!
//! A GGUF file has its tokens in its header, a folder in `tokenizer.json` or in the header of the file that it was compiled from. What has neither is taken by the size of its
//! vocabulary alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use cascadia_gguf::{Gguf, VOCABULARY};
use serde_json::Value;

/// Of tokens that both know, one in so many may be called otherwise: names of special tokens do differ.
const TOLERATED: usize = 100;

/// How two models' tokens differ; none where they do not, or where one of them does not say.
pub(crate) fn difference(model: &Path, draft: &Path) -> Option<String> {
    compare(&pieces(model)?, &pieces(draft)?)
}

fn compare(model: &BTreeMap<u64, String>, draft: &BTreeMap<u64, String>) -> Option<String> {
    let both = || model.iter().filter_map(|(id, piece)| Some((id, piece, draft.get(id)?)));
    let differ = both().filter(|(_, one, other)| one != other).count();
    if differ * TOLERATED <= both().count() {
        return None;
    }
    let (id, one, other) = both().find(|(_, one, other)| one != other)?;
    Some(format!("{differ} tokens are others; {id} is {one:?} in the model and {other:?} in the draft model"))
}

/// The model's tokens by their numbers.
fn pieces(path: &Path) -> Option<BTreeMap<u64, String>> {
    if path.is_dir() {
        return match std::fs::read(path.join("tokenizer.json")) {
            Ok(text) => from_json(&serde_json::from_slice(&text).ok()?),
            Err(_) => pieces(&path.join(VOCABULARY)),
        };
    }
    let header = Gguf::read(BufReader::new(File::open(path).ok()?)).ok()?;
    let tokens = header.strings("tokenizer.ggml.tokens").ok()??;
    Some((0..).zip(tokens.iter().cloned()).collect())
}

fn from_json(tokenizer: &Value) -> Option<BTreeMap<u64, String>> {
    let text = |piece: &Value| piece.as_str().map(str::to_owned);
    let mut pieces: BTreeMap<u64, String> = match &tokenizer["model"]["vocab"] {
        Value::Object(ids) => {
            ids.iter().filter_map(|(piece, id)| Some((id.as_u64()?, piece.clone()))).collect()
        }
        Value::Array(rows) => (0..).zip(rows).filter_map(|(id, row)| Some((id, text(&row[0])?))).collect(),
        _ => return None,
    };
    for added in tokenizer["added_tokens"].as_array().into_iter().flatten() {
        pieces.extend(added["id"].as_u64().zip(text(&added["content"])));
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_are_the_same_in_both_forms_of_a_vocabulary_and_others_are_named() {
        let words: Vec<String> = (0..300).map(|n| format!("w{n}")).collect();
        let listed =
            from_json(&json!({"model": {"vocab": words.iter().map(|w| json!([w, 0.5])).collect::<Vec<_>>()},
            "added_tokens": [{"id": 299, "content": "<end>"}]}))
            .unwrap();
        let ids: serde_json::Map<String, Value> =
            words.iter().enumerate().map(|(id, word)| (word.clone(), json!(id))).collect();
        let mapped = from_json(&json!({"model": {"vocab": ids}})).unwrap();
        assert_eq!((listed.len(), mapped.len()), (300, 300));
        assert_eq!(compare(&listed, &mapped), None, "one special token is called otherwise");
        let mut moved = mapped.clone();
        moved.extend((7..20).map(|id| (id, format!("w{}", id + 1))));
        let told = compare(&mapped, &moved).unwrap();
        assert!(
            told.contains("13 tokens") && told.contains("7 is \"w7\"") && told.contains("\"w8\""),
            "{told}"
        );
        assert_eq!(from_json(&json!({"model": {}})), None);
    }
}
