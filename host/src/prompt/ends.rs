//! The tokens that end a generation although the file names only one: markers known by their text.
//!
//! GGUF files often state one end id, that of the document, while chat models end a turn with another.

/// Control tokens with these texts end a turn or a document.
const MARKERS: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endofturn|>",
    "<end_of_utterance>",
    "<EOT>",
    "[EOS]",
    "</s>",
    "<｜end▁of▁sentence｜>",
];

/// Picks the end markers among a vocabulary's control tokens.
pub(super) fn known<'a>(controls: impl Iterator<Item = (u32, &'a str)>) -> Vec<u32> {
    let mut found: Vec<(u32, &str)> = controls.filter(|(_, text)| MARKERS.contains(text)).collect();
    // In the harmony format <|end|> closes one message of several; the answer goes on.
    let has = |text: &str| found.iter().any(|(_, t)| *t == text);
    if has("<|return|>") && has("<|call|>") {
        found.retain(|(_, text)| *text != "<|end|>");
    }
    found.into_iter().map(|(id, _)| id).collect()
}

/// Ascending and without duplicates or ids outside the vocabulary.
pub(super) fn tidy(mut ids: Vec<u32>, vocab: usize) -> Vec<u32> {
    ids.retain(|id| (*id as usize) < vocab);
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmony_messages_do_not_end_the_answer() {
        let plain = [(1, "<|end|>"), (2, "<|user|>"), (3, "<|endoftext|>")];
        assert_eq!(known(plain.into_iter()), [1, 3]);
        let harmony = [(1, "<|end|>"), (2, "<|return|>"), (3, "<|call|>")];
        assert_eq!(known(harmony.into_iter()), [2, 3]);
    }

    #[test]
    fn ids_are_sorted_unique_and_inside() {
        assert_eq!(tidy(vec![7, 2, 7, 99], 10), [2, 7]);
    }
}
