//! What a request may ask of the choice of its tokens, and which values are refused.

/// Most alternatives per token ([`Settings::alternatives`]).
pub const MAX_ALTERNATIVES: usize = 256;
/// Temperatures below this one are taken as 0: their reciprocal would leave the range of f32, and no second token of a real
/// model has a chance there.
pub(crate) const COLDEST: f32 = 1e-5;

/// How the tokens of one sequence are chosen. [`Settings::default`] is greedy with everything off.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// 0 = greedy: the largest adjusted logit; filters and seed mean nothing then. Below 1e-5 counts as 0.
    pub temperature: f32,
    /// So many of the likeliest tokens stay; 0 = off.
    pub top_k: u32,
    /// The likeliest tokens stay until their share of what top-k left is at least this; 1 = off, 0 = the likeliest alone.
    pub top_p: f32,
    /// Tokens stay whose probability is at least this part of the likeliest's; 0 = off.
    pub min_p: f32,
    /// Tokens stay whose surprise is nearest to the mean surprise of what the filters before left, until their share is at
    /// least this; 1 = off. A pass over everything that is left: slow with all other filters off.
    pub typical_p: f32,
    /// Positive logits of tokens of prompt and answer are divided by it, others multiplied; 1 = off.
    pub repetition_penalty: f32,
    /// Taken from the logit of a token for each time that it stands in the answer; 0 = off.
    pub frequency_penalty: f32,
    /// Taken once from the logit of each token that stands in the answer; 0 = off.
    pub presence_penalty: f32,
    /// Start of the random numbers. A request that named none gets a random one from the caller.
    pub seed: u64,
    /// (token, addition to its logit). Minus infinity bans.
    pub logit_bias: Vec<(u32, f32)>,
    /// Tokens never chosen.
    pub banned: Vec<u32>,
    /// Sequences of tokens that the answer may not contain: the last token is banned where the answer ends with those before
    /// it. The prompt does not count. One of a single token is a ban; an empty one means nothing.
    pub banned_sequences: Vec<Vec<u32>>,
    /// Where not empty, the only tokens that may be chosen.
    pub allowed: Vec<u32>,
    /// Tokens that end the answer: those of the model unless they are to be ignored, and the request's own.
    pub ends: Vec<u32>,
    /// So many tokens of answer before one of `ends` may be chosen.
    pub min_tokens: u32,
    /// Likeliest alternatives to tell for each token, with log-probabilities; `None` = no log-probabilities at all.
    pub alternatives: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: 0,
            logit_bias: Vec::new(),
            banned: Vec::new(),
            banned_sequences: Vec::new(),
            allowed: Vec::new(),
            ends: Vec::new(),
            min_tokens: 0,
            alternatives: None,
        }
    }
}

/// Why settings are no settings. The texts name the value and its bounds, for the client.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refused {
    /// A number outside its range, or none at all.
    #[error("{name} is {value}; it must be {bounds}")]
    Value {
        /// The field.
        name: &'static str,
        /// What it holds.
        value: f32,
        /// What it may hold.
        bounds: &'static str,
    },
    /// A token that the model does not have.
    #[error("{name} names token {token}; the model has tokens below {vocab}")]
    Token {
        /// The field.
        name: &'static str,
        /// The token.
        token: u32,
        /// Number of tokens.
        vocab: usize,
    },
    /// More alternatives than [`MAX_ALTERNATIVES`].
    #[error("{asked} alternatives per token were asked for; at most {MAX_ALTERNATIVES} are told")]
    Alternatives {
        /// What was asked for.
        asked: usize,
    },
}

impl Settings {
    /// Whether every value is in its range and every token below `vocab`. `ends` may name tokens that the model lacks.
    pub fn check(&self, vocab: usize) -> Result<(), Refused> {
        let within = |name, value: f32, holds: bool, bounds| {
            if holds { Ok(()) } else { Err(Refused::Value { name, value, bounds }) }
        };
        let share = |value: f32| (0.0..=1.0).contains(&value);
        let (t, r) = (self.temperature, self.repetition_penalty);
        within("temperature", t, t >= 0.0 && t.is_finite(), "a number from 0")?;
        within("top_p", self.top_p, share(self.top_p), "from 0 to 1")?;
        within("min_p", self.min_p, share(self.min_p), "from 0 to 1")?;
        within("typical_p", self.typical_p, share(self.typical_p), "from 0 to 1")?;
        within("repetition_penalty", r, (0.001..=1000.0).contains(&r), "from 0.001 to 1000")?;
        for (name, value) in
            [("frequency_penalty", self.frequency_penalty), ("presence_penalty", self.presence_penalty)]
        {
            within(name, value, value.abs() <= 1000.0, "from -1000 to 1000")?;
        }
        for &(_, bias) in &self.logit_bias {
            within("logit_bias", bias, bias.is_finite() || bias == f32::NEG_INFINITY, "a number")?;
        }
        let known = |name, mut tokens: Box<dyn Iterator<Item = u32> + '_>| {
            tokens
                .find(|&t| t as usize >= vocab)
                .map_or(Ok(()), |token| Err(Refused::Token { name, token, vocab }))
        };
        known("logit_bias", Box::new(self.logit_bias.iter().map(|b| b.0)))?;
        known("banned", Box::new(self.banned.iter().copied()))?;
        known("banned_sequences", Box::new(self.banned_sequences.iter().flatten().copied()))?;
        known("allowed", Box::new(self.allowed.iter().copied()))?;
        match self.alternatives {
            Some(asked) if asked > MAX_ALTERNATIVES => Err(Refused::Alternatives { asked }),
            _ => Ok(()),
        }
    }

    /// Whether no random number is needed.
    pub(crate) fn greedy(&self) -> bool {
        self.temperature < COLDEST
    }
}
