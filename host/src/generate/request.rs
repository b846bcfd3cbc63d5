//! One generation, as asked for.

/// How the next token is chosen; the neutral values are the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 = greedy.
    pub temperature: f32,
    /// 1 = off.
    pub top_p: f32,
    /// 0 = off.
    pub top_k: u32,
    /// 0 = off.
    pub min_p: f32,
    /// 1 = off.
    pub typical_p: f32,
    /// 1 = off.
    pub repetition_penalty: f32,
    /// 0 = off.
    pub frequency_penalty: f32,
    /// 0 = off.
    pub presence_penalty: f32,
    /// Start of the random numbers.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: None,
        }
    }
}

/// An addition to one token's logit before sampling.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Bias {
    /// Token id.
    pub token: u32,
    /// Added to the logit.
    pub bias: f32,
}

/// One generation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The client-visible id.
    pub id: String,
    /// The same for all generations of one request.
    pub group: u64,
    /// The served name of the model.
    pub model: String,
    /// The prompt.
    pub tokens: Vec<u32>,
    /// Most tokens to generate; at least 1.
    pub max_tokens: u32,
    /// Fewest tokens before an end token counts.
    pub min_tokens: u32,
    /// End tokens do not end it.
    pub ignore_eos: bool,
    /// Tokens that end it and are not shown.
    pub stop_tokens: Vec<u32>,
    /// Texts that end it and are not shown.
    pub stops: Vec<String>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Additions to logits.
    pub logit_bias: Vec<Bias>,
    /// Where not empty, the only tokens that may be chosen.
    pub allowed: Vec<u32>,
    /// Log-probabilities that are wanted: none, or so many alternatives beside each chosen token.
    pub logprobs: Option<u32>,
    /// Log-probabilities of the prompt are wanted.
    pub prompt_logprobs: bool,
}
