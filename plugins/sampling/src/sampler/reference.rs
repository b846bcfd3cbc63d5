//! Sampling as the parameters are described, in f64 and by sorting everything; shares nothing with the code that it is held against.

use crate::settings::Settings;

/// A token that may be chosen, and the share of the random numbers that choose it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) token: u32,
    pub(super) from: f64,
    pub(super) to: f64,
}

/// The logits that are chosen from.
pub(super) fn adjusted(
    row: &[f32],
    mask: Option<&[u32]>,
    s: &Settings,
    prompt: &[u32],
    answer: &[u32],
) -> Vec<f64> {
    let mut out = Vec::new();
    for (token, &x) in row.iter().enumerate() {
        let token = token as u32;
        let mut x = f64::from(x);
        for bias in s.logit_bias.iter().filter(|b| b.0 == token) {
            x += f64::from(bias.1);
        }
        let times = answer.iter().filter(|&&t| t == token).count();
        let r = f64::from(s.repetition_penalty);
        if times > 0 || prompt.contains(&token) {
            x = if x > 0.0 { x / r } else { x * r };
        }
        if times > 0 {
            x -= times as f64 * f64::from(s.frequency_penalty) + f64::from(s.presence_penalty);
        }
        let masked =
            mask.is_some_and(|m| m.get(token as usize / 32).is_none_or(|w| w >> (token % 32) & 1 == 0));
        let early = answer.len() < s.min_tokens as usize && s.ends.contains(&token);
        let out_of_list = !s.allowed.is_empty() && !s.allowed.contains(&token);
        let sequence = s.banned_sequences.iter().any(|sequence| {
            let mut told = answer.to_vec();
            told.push(token);
            !sequence.is_empty() && told.ends_with(sequence)
        });
        if masked || early || out_of_list || sequence || s.banned.contains(&token) {
            x = f64::NEG_INFINITY;
        }
        out.push(x);
    }
    out
}

/// Keeps the first ones until they hold `share` of all.
fn prefix(all: &mut Vec<(u32, f64)>, share: f64) {
    let total: f64 = all.iter().map(|x| x.1).sum();
    let mut kept = 0.0;
    let mut n = 0;
    while n < all.len() {
        kept += all[n].1;
        n += 1;
        if kept >= share * total {
            break;
        }
    }
    all.truncate(n);
}

/// Who may be chosen, by id.
pub(super) fn slots(logits: &[f64], s: &Settings) -> Vec<Slot> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let t = f64::from(s.temperature);
    let mut all: Vec<(u32, f64)> =
        logits.iter().enumerate().map(|(token, x)| (token as u32, ((x - max) / t).exp())).collect();
    all.retain(|x| x.1 > 0.0);
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if s.top_k > 0 {
        all.truncate(s.top_k as usize);
    }
    if s.top_p < 1.0 {
        prefix(&mut all, f64::from(s.top_p));
    }
    all.retain(|x| x.1 >= f64::from(s.min_p) * (1.0 - 1e-6));
    if s.typical_p < 1.0 {
        let total: f64 = all.iter().map(|x| x.1).sum();
        let entropy: f64 = all.iter().map(|x| -x.1 / total * (x.1 / total).ln()).sum();
        let apart = |x: &(u32, f64)| ((x.1 / total).ln() + entropy).abs();
        all.sort_by(|a, b| apart(a).total_cmp(&apart(b)).then(b.1.total_cmp(&a.1)).then(a.0.cmp(&b.0)));
        prefix(&mut all, f64::from(s.typical_p));
    }
    all.sort_by_key(|x| x.0);
    let total: f64 = all.iter().map(|x| x.1).sum();
    let mut from = 0.0;
    all.into_iter()
        .map(|(token, weight)| {
            let slot = Slot { token, from: from / total, to: (from + weight) / total };
            from += weight;
            slot
        })
        .collect()
}

/// Log-probabilities of a whole row.
pub(super) fn logprobs(row: &[f32]) -> Vec<f64> {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let apart = |x: &f32| f64::from(*x) - f64::from(max);
    let total: f64 = row.iter().map(|x| apart(x).exp()).sum();
    row.iter().map(|x| apart(x) - total.ln()).collect()
}
