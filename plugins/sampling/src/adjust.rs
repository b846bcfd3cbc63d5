//! The row with bias, penalties, bans and masks: a copy, since the row is lent, and made only where there is something to do.
//!
//! Bans come after bias and penalties, so that nothing lifts them. What may not be chosen is minus infinity.

use crate::history::History;
use crate::sampler::Row;
use crate::scratch::Scratch;
use crate::settings::Settings;

/// The changed row, or `None` if nothing changes it. The caller gives the memory back to `scratch.copy`.
pub(crate) fn adjusted(
    row: Row<'_>,
    settings: &Settings,
    allowed: &[u32],
    history: &History,
    scratch: &mut Scratch,
) -> Option<Vec<f32>> {
    let early = history.answer().len() < settings.min_tokens as usize && !settings.ends.is_empty();
    let sparse = early
        || !history.is_unseen()
        || !settings.logit_bias.is_empty()
        || !settings.banned.is_empty()
        || !settings.banned_sequences.is_empty();
    let masked = row.mask.is_some() || !allowed.is_empty();
    if !sparse && !masked {
        return None;
    }
    let mut copy = std::mem::take(&mut scratch.copy);
    if masked {
        copy.resize(row.logits.len(), 0.0);
        let words = both(row, allowed, &mut scratch.words);
        (scratch.passes.masked)(row.logits, words, &mut copy);
    } else {
        copy.clear();
        copy.extend_from_slice(row.logits);
    }
    for &(token, bias) in &settings.logit_bias {
        // An infinite logit and the opposite bias have no sum.
        change(&mut copy, token, |x| if bias == f32::NEG_INFINITY { bias } else { x + bias });
    }
    for (token, seen) in history.seen() {
        change(&mut copy, token, |x| penalized(x, settings, seen.answer));
    }
    for &token in &settings.banned {
        change(&mut copy, token, |_| f32::NEG_INFINITY);
    }
    if early {
        for &token in &settings.ends {
            change(&mut copy, token, |_| f32::NEG_INFINITY);
        }
    }
    for sequence in &settings.banned_sequences {
        if let Some((&last, before)) = sequence.split_last()
            && history.answer().ends_with(before)
        {
            change(&mut copy, last, |_| f32::NEG_INFINITY);
        }
    }
    Some(copy)
}

/// Tokens outside the row are passed over: an end token of the tokenizer that the model lacks.
fn change(row: &mut [f32], token: u32, to: impl FnOnce(f32) -> f32) {
    if let Some(x) = row.get_mut(token as usize) {
        *x = to(*x);
    }
}

fn penalized(x: f32, settings: &Settings, answer: u32) -> f32 {
    let r = settings.repetition_penalty;
    let x = if x > 0.0 { x / r } else { x * r };
    if answer == 0 {
        return x;
    }
    x - settings.frequency_penalty * answer as f32 - settings.presence_penalty
}

/// The words of the mask and of the allowed tokens in one, as many as the row needs.
fn both<'a>(row: Row<'a>, allowed: &'a [u32], words: &'a mut Vec<u32>) -> &'a [u32] {
    let needed = row.logits.len().div_ceil(32);
    match row.mask {
        Some(mask) if allowed.is_empty() && mask.len() >= needed => &mask[..needed],
        None => allowed,
        Some(mask) => {
            words.clear();
            words.extend(mask.iter().take(needed));
            words.resize(needed, 0);
            for (word, allowed) in words.iter_mut().zip(allowed) {
                *word &= allowed;
            }
            words
        }
    }
}
