//! Log-probabilities on their way to the text that they belong to.
//!
//! What must hold: each token that is part of the answer is told once, with the text it begins in; what a stop string cut
//! off is not told.

use super::Logprobs;

/// A token with its log-probability.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// Its id.
    pub token: u32,
    /// Its bytes in this text; may be a part of a character.
    pub bytes: Vec<u8>,
    /// Its log-probability.
    pub logprob: f32,
    /// Alternatives with theirs, most likely first.
    pub top: Vec<(u32, f32)>,
    /// Where its bytes begin in the generated text.
    start: usize,
}

/// The scores that wait for their text.
#[derive(Debug, Default)]
pub(super) struct Scores {
    waiting: Vec<Scored>,
    told: Vec<Scored>,
    /// Bytes of generated text so far, and of shown text.
    generated: usize,
    shown: usize,
}

impl Scores {
    /// A token came with `bytes` of text; `at` is its place in its piece. Without a log-probability it is not told.
    pub(super) fn token(&mut self, token: u32, bytes: &[u8], at: usize, logprobs: &Logprobs<'_>) {
        if let Some(logprob) = logprobs.chosen.get(at) {
            let (from, to) = (at * logprobs.k, (at + 1) * logprobs.k);
            let (ids, values) = (logprobs.top_ids.get(from..to), logprobs.top.get(from..to));
            let top = ids.unwrap_or_default().iter().copied().zip(values.unwrap_or_default().iter().copied());
            let (bytes, top, start) = (bytes.to_vec(), top.collect(), self.generated);
            self.waiting.push(Scored { token, bytes, logprob: *logprob, top, start });
        }
        self.generated += bytes.len();
    }

    /// Whether none waits.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// So many bytes were generated and are shown at once, of tokens that are not told.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.generated += bytes;
        self.shown += bytes;
    }

    /// So many bytes more are shown; answers the scores of the tokens that begin in them.
    pub(super) fn show(&mut self, bytes: usize) -> &[Scored] {
        self.shown += bytes;
        let n = self.waiting.iter().take_while(|scored| scored.start < self.shown).count();
        self.told.clear();
        self.told.extend(self.waiting.drain(..n));
        &self.told
    }

    /// The answer is over with so many bytes more; answers all that is left.
    pub(super) fn rest(&mut self, bytes: usize) -> &[Scored] {
        self.shown += bytes;
        self.told.clear();
        self.told.append(&mut self.waiting);
        &self.told
    }

    /// The text was cut: what has not been told belongs to what is not shown.
    pub(super) fn cut(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logprobs() -> Logprobs<'static> {
        Logprobs { chosen: &[-0.5, -0.25], top_ids: &[7, 8, 9, 10], top: &[-0.5, -1.0, -0.25, -2.0], k: 2 }
    }

    #[test]
    fn scores_go_with_the_text_they_begin_in() {
        let mut scores = Scores::default();
        scores.token(7, b"abc", 0, &logprobs());
        scores.token(9, b"de", 1, &logprobs());
        // Two bytes shown: the first token begins in them, the second does not.
        let told: Vec<_> = scores.show(2).iter().map(|s| (s.token, s.top.clone())).collect();
        assert_eq!(told, [(7, vec![(7, -0.5), (8, -1.0)])]);
        assert_eq!(scores.show(0), []);
        assert_eq!(scores.show(3).iter().map(|s| s.token).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn what_is_cut_off_is_not_told_and_what_gave_no_text_is() {
        let mut scores = Scores::default();
        scores.token(7, b"abc", 0, &logprobs());
        scores.token(9, b"", 1, &logprobs());
        assert_eq!(scores.show(3).len(), 1);
        assert_eq!(scores.rest(0).len(), 1);
        scores.token(7, b"abc", 0, &logprobs());
        scores.cut();
        assert!(scores.rest(0).is_empty());
        // An engine that counts wrongly harms nobody.
        scores.token(1, b"x", 5, &logprobs());
        assert!(scores.rest(0).is_empty());
    }
}
