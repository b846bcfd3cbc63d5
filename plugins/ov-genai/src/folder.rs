//! What the folder of a network that embeds says of it, as OpenVINO's tools and sentence-transformers write it.

use std::path::Path;

use cascadia_plugin_api::sdk::{Error, Result};
use serde_json::Value;

use crate::ffi::embedder::Pooling;

/// Of a model that embeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    /// How the states of all tokens become one vector, where a task does not say.
    pub(crate) pooling: Pooling,
    /// That, and who says so.
    pub(crate) pooling_note: String,
    /// Most tokens of an input; 0: not known.
    pub(crate) max_tokens: u32,
    /// Number of ids; 0: not known.
    pub(crate) vocabulary: u64,
}

/// How vectors are to be made, as an option says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// As the model's files say.
    Auto,
    This(Pooling),
}

impl Wish {
    pub(crate) fn read(value: &str) -> Result<Wish> {
        Ok(match value {
            "auto" => Wish::Auto,
            "mean" => Wish::This(Pooling::Mean),
            "first" => Wish::This(Pooling::First),
            "last" => Wish::This(Pooling::Last),
            other => {
                return Err(Error::config(format!("pooling {other:?} is none of auto, mean, first, last")));
            }
        })
    }
}

/// Families whose first position is not 0 but behind that of the padding token.
const SHIFTED: [&str; 4] = ["roberta", "xlm-roberta", "camembert", "mpnet"];

impl Folder {
    pub(crate) fn read(folder: &Path, wish: Wish) -> Folder {
        let json = |name: &str| -> Value {
            std::fs::read(folder.join(name))
                .ok()
                .and_then(|bytes| serde_json::from_slice(&bytes).ok())
                .unwrap_or_default()
        };
        let (config, tokenizer, pool) =
            (json("config.json"), json("tokenizer_config.json"), json("1_Pooling/config.json"));
        let said = |key: &str| pool[key].as_bool() == Some(true);
        let (pooling, who) = match wish {
            Wish::This(pooling) => (pooling, "as --pooling says"),
            Wish::Auto if said("pooling_mode_mean_tokens") => {
                (Pooling::Mean, "as 1_Pooling/config.json says")
            }
            Wish::Auto if said("pooling_mode_cls_token") => (Pooling::First, "as 1_Pooling/config.json says"),
            Wish::Auto if said("pooling_mode_lasttoken") => (Pooling::Last, "as 1_Pooling/config.json says"),
            Wish::Auto => (Pooling::Mean, "as nothing says otherwise; see --pooling"),
        };
        let name = match pooling {
            Pooling::Mean => "the mean of all tokens",
            Pooling::First => "the first token",
            Pooling::Last => "the last token",
        };
        let kind = config["model_type"].as_str().unwrap_or_default();
        let shift =
            if SHIFTED.contains(&kind) { 1 + config["pad_token_id"].as_u64().unwrap_or(1) } else { 0 };
        let places = config["max_position_embeddings"].as_u64().map(|n| n.saturating_sub(shift));
        // Where a tokenizer has no limit, its file has a number that is no number of tokens.
        let window = tokenizer["model_max_length"].as_u64().filter(|n| *n < 1 << 31);
        let most = places.into_iter().chain(window).min().unwrap_or(0);
        Folder {
            pooling,
            pooling_note: format!("pooling {name}, {who}"),
            max_tokens: u32::try_from(most).unwrap_or(u32::MAX),
            vocabulary: config["vocab_size"].as_u64().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_says_how_long_and_how_pooled() {
        let folder = std::env::temp_dir().join(format!("cascadia-ov-genai-embeds-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("1_Pooling")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let read = |wish| Folder::read(&folder, wish);
        let nothing = read(Wish::Auto);
        assert_eq!((nothing.pooling, nothing.max_tokens, nothing.vocabulary), (Pooling::Mean, 0, 0));
        assert!(nothing.pooling_note.contains("--pooling"));
        write("config.json", r#"{"model_type": "bert", "max_position_embeddings": 512, "vocab_size": 99}"#);
        write(
            "1_Pooling/config.json",
            r#"{"pooling_mode_mean_tokens": false, "pooling_mode_cls_token": true}"#,
        );
        let said = read(Wish::Auto);
        assert_eq!((said.pooling, said.max_tokens, said.vocabulary), (Pooling::First, 512, 99));
        assert_eq!(read(Wish::This(Pooling::Last)).pooling, Pooling::Last);
        // Positions of this family begin at 2, and a tokenizer may have less room, or a number that means none.
        write(
            "config.json",
            r#"{"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}"#,
        );
        assert_eq!(read(Wish::Auto).max_tokens, 512);
        write("tokenizer_config.json", r#"{"model_max_length": 128}"#);
        assert_eq!(read(Wish::Auto).max_tokens, 128);
        write("tokenizer_config.json", r#"{"model_max_length": 1000000000000000019884624838656}"#);
        assert_eq!(read(Wish::Auto).max_tokens, 512);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
