//! What an engine says of itself: the same facts for both ways to serve, and what each of them lacks.

use cascadia_plugin_api::ext::features;
use cascadia_plugin_api::sdk::Card;

use super::Facts;
use crate::options::Options;
use cascadia_ov_base::profile::Profile;

/// What the paged pipeline has.
pub(super) fn paged(options: &Options, facts: &Facts, width: usize) -> Card {
    let mut card = common(options, facts, width);
    if !options.cb {
        card.notes.push("generations run one after the other; --cb runs them together".to_owned());
    }
    card.features.push(features::LOGPROBS);
    if facts.has_vocabulary {
        card.features.extend([features::JSON_SCHEMA, features::REGEX, features::EBNF]);
    }
    card
}

/// What a model in one piece has: no log-probabilities, as its tokens come without, and no grammars.
pub(super) fn stateful(options: &Options, facts: &Facts, why: &str) -> Card {
    let mut card = common(options, facts, 1);
    card.notes.push(format!("generations run one after the other, without paged attention: {why}"));
    if let Some((_, window)) = options.npu_window() {
        let known = card.context_length;
        card.context_length = if known == 0 { window } else { known.min(window) };
    }
    card
}

fn common(options: &Options, facts: &Facts, width: usize) -> Card {
    let mut notes = vec![format!("OpenVINO {}", facts.version)];
    notes.extend(facts.weights.clone());
    if facts.vocabulary.is_none() {
        notes.push("min_tokens is off: the model's files do not say how many tokens it has".to_owned());
    }
    let cache = match (options.profile, &facts.computes) {
        (Profile::Exact, Some(computes)) => format!("{computes} inference, f32 KV cache"),
        (_, Some(computes)) => format!("{computes} inference, the library's choice for the rest"),
        (_, None) => "the library's choice for the device".to_owned(),
    };
    let mut has = vec![
        features::SAMPLING,
        features::MIN_P,
        features::PENALTIES,
        features::REPETITION_PENALTY,
        features::SEED,
        features::IGNORE_EOS,
    ];
    has.extend(facts.vocabulary.map(|_| features::MIN_TOKENS));
    Card {
        context_length: options.context_length.into(),
        max_tasks: (width + options.max_waiting) as u64,
        device: options.device.clone(),
        quantization: cache,
        features: has,
        notes,
        ..Card::default()
    }
}
