//! The model card: what the mock says of itself.

use cascadia_plugin_api::ext::features as f;
use cascadia_plugin_api::sdk::{Card, Error, Result};

use crate::options::Options;
use crate::script::SPECIAL;

/// The contents of the messages, a line each, so that the echo repeats just their words.
const CHAT_TEMPLATE: &str =
    r#"{% for m in messages %}{% if not loop.first %}{{ "\n" }}{% endif %}{{ m.content or "" }}{% endfor %}"#;

/// What the engine acts on. Its answers never depend on chance, so every way of sampling and every seed is kept to.
const HONEST: [&str; 7] =
    [f::SAMPLING, f::SEED, f::LOGPROBS, f::TOP_LOGPROBS, f::PROMPT_LOGPROBS, f::MIN_TOKENS, f::IGNORE_EOS];

/// What it can be told to put on its card besides.
const IGNORED: [&str; 6] =
    [f::MIN_P, f::TYPICAL_P, f::PENALTIES, f::REPETITION_PENALTY, f::LOGIT_BIAS, f::TOKEN_LISTS];

/// The card of an engine with these options.
pub(crate) fn card(options: &Options) -> Result<Card> {
    let template = &options.chat_template;
    Ok(Card {
        context_length: options.context_length,
        max_tasks: (options.slots + options.max_waiting) as u64,
        vocab_size: u64::from(SPECIAL) + 1,
        device: options.device.clone(),
        tokenizer: options.tokenizer.clone(),
        chat_template: if template.is_empty() { CHAT_TEMPLATE.into() } else { template.clone() },
        features: features(options)?,
        notes: vec!["the mock engine repeats the prompt; it is no model".into()],
        ..Card::default()
    })
}

fn features(options: &Options) -> Result<Vec<&'static str>> {
    let mut all = match options.features.as_str() {
        "" => HONEST.to_vec(),
        "none" => Vec::new(),
        list => pick("features", list, &HONEST)?,
    };
    for name in pick("accept-features", &options.accept_features, &[HONEST.as_slice(), &IGNORED].concat())? {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    Ok(all)
}

fn pick(option: &str, list: &str, from: &[&'static str]) -> Result<Vec<&'static str>> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .map(|name| {
            from.iter().copied().find(|known| *known == name).ok_or_else(|| {
                Error::config(format!("option {option} has {name}; it takes {}", from.join(", ")))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(features: &str, accept: &str) -> Result<Vec<&'static str>> {
        let options =
            Options { features: features.into(), accept_features: accept.into(), ..Options::default() };
        Ok(card(&options)?.features)
    }

    #[test]
    fn features_are_limited_and_added() {
        assert_eq!(with("", "").unwrap(), HONEST);
        assert_eq!(with("none", "").unwrap(), [""; 0]);
        assert_eq!(with("seed, logprobs", "penalties,seed").unwrap(), ["seed", "logprobs", "penalties"]);
        assert!(with("penalties", "").unwrap_err().message.contains("features has penalties"));
    }
}
