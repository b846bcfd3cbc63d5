//! How a request's tokens are chosen, in the library's names and types.
//!
//! Invariant: what is sent is complete: nothing of the model's own generation settings is left to chance but its end of
//! text, and that only where none is given.

use super::fault::{Error, c_string};
use crate::ffi::value::{Entry, Value};

/// What an answer must keep to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grammar {
    JsonSchema(String),
    Regex(String),
    /// In the extended Backus-Naur form of the library.
    Ebnf(String),
}

impl Grammar {
    pub(crate) fn text(&self) -> &str {
        match self {
            Grammar::JsonSchema(text) | Grammar::Regex(text) | Grammar::Ebnf(text) => text,
        }
    }
}

/// Temperatures below this one are taken as 0. The library multiplies by the reciprocal in f32, which below 3e-39 is infinite:
/// what it then draws is random. No second token of a real model has a chance far above that already, and the sampler of
/// `plugins/sampling` has the same bound.
const COLDEST: f32 = 1e-5;

/// How tokens are chosen and when to stop. At `temperature` 0 the likeliest is taken and the filters do nothing.
///
/// Every field may have any value of its range; the library refuses some of them, and is told of others that mean the same.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sampling {
    pub(crate) max_tokens: usize,
    /// So many tokens before a stop id may come; more than `max_tokens` means all of them.
    pub(crate) min_tokens: usize,
    /// Below 1e-5 it counts as 0.
    pub(crate) temperature: f32,
    /// From 0, which leaves the likeliest alone, to 1, which leaves all.
    pub(crate) top_p: f32,
    /// 0: no limit.
    pub(crate) top_k: usize,
    /// From 0, which leaves all, to 1, which leaves the likeliest alone.
    pub(crate) min_p: f32,
    pub(crate) repetition_penalty: f32,
    pub(crate) frequency_penalty: f32,
    pub(crate) presence_penalty: f32,
    pub(crate) seed: u64,
    /// End of text; counts as a stop id unless `ignore_eos`. The model's own if none: a GGUF has one, a folder with
    /// nothing but a model has not and then refuses.
    pub(crate) eos: Option<u32>,
    /// These end a request even with `ignore_eos`. Of the model's vocabulary only: with `min_tokens` the library writes
    /// to the logits of all of them, without a look at how many there are.
    pub(crate) stop_ids: Vec<u32>,
    pub(crate) ignore_eos: bool,
    /// Compute each chosen token's log-probability: of the model's own distribution, before temperature and filters.
    pub(crate) logprobs: bool,
    /// Most proposed tokens in a step and, for [`Proposer::Prompt`], the longest match that is looked for.
    pub(crate) assistant: Option<(usize, usize)>,
    /// Needs a pipeline with a vocabulary, [`Pipeline::has_vocabulary`].
    pub(crate) grammar: Option<Grammar>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            max_tokens: 16,
            min_tokens: 0,
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: 0,
            eos: None,
            stop_ids: Vec::new(),
            ignore_eos: false,
            logprobs: false,
            assistant: None,
            grammar: None,
        }
    }
}

impl Sampling {
    /// What is sent.
    ///
    /// # Errors
    /// A grammar has a zero byte in it.
    pub(super) fn entries(&self) -> Result<Vec<Entry>, Error> {
        let ends = self.ends();
        let least = if ends.ignored { 0 } else { self.min_tokens.min(self.max_tokens) };
        let drawn = !self.greedy();
        let mut all = vec![
            (c"max_new_tokens", Value::Size(self.max_tokens)),
            (c"min_new_tokens", Value::Size(least)),
            (c"do_sample", Value::Bool(drawn)),
            (c"repetition_penalty", Value::Float(self.repetition_penalty)),
            (c"frequency_penalty", Value::Float(self.frequency_penalty)),
            (c"presence_penalty", Value::Float(self.presence_penalty)),
            (c"ignore_eos", Value::Bool(ends.ignored)),
            (c"logprobs", Value::Size(usize::from(self.logprobs))),
        ];
        if drawn {
            all.extend([
                (c"temperature", Value::Float(self.temperature)),
                (c"top_p", Value::Float(self.top_p)),
                (c"top_k", Value::Size(if self.top_k == 0 { usize::MAX } else { self.top_k })),
                (c"min_p", Value::Float(self.min_p)),
                (c"rng_seed", Value::Size(self.seed as usize)),
            ]);
        }
        if let Some(eos) = ends.eos {
            all.push((c"eos_token_id", Value::Int(eos)));
        }
        if !ends.stops.is_empty() {
            all.push((c"stop_token_ids", Value::Ids(ends.stops)));
        }
        if let Some((tokens, ngram)) = self.assistant {
            all.push((c"num_assistant_tokens", Value::Size(tokens)));
            if ngram > 0 {
                all.push((c"max_ngram_size", Value::Size(ngram)));
            }
        }
        if let Some(grammar) = &self.grammar {
            let key = match grammar {
                Grammar::JsonSchema(_) => c"json_schema",
                Grammar::Regex(_) => c"regex",
                Grammar::Ebnf(_) => c"grammar",
            };
            all.push((key, Value::Grammar(c_string("grammar", grammar.text())?)));
        }
        Ok(all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Whether one token alone is left at each place: no number is drawn then. The library refuses a `top_p` of 0 and a
    /// `min_p` of 1 where it draws.
    fn greedy(&self) -> bool {
        self.temperature < COLDEST || self.top_p <= 0.0 || self.min_p >= 1.0
    }

    /// The ids of which the first that comes ends a request.
    pub(super) fn stops(&self) -> Vec<i64> {
        let ends = self.ends();
        if ends.ignored { Vec::new() } else { ends.stops }
    }

    /// The library's `ignore_eos` ignores all stop ids, and it insists on an end of text even then.
    fn ends(&self) -> Ends {
        let mut stops: Vec<i64> = self.stop_ids.iter().copied().map(i64::from).collect();
        let eos = self.eos.map(i64::from);
        match (self.ignore_eos, stops.first()) {
            (true, None) => {
                let any = eos.unwrap_or(0);
                Ends { ignored: true, eos: Some(any), stops: vec![any] }
            }
            (true, Some(&first)) => Ends { ignored: false, eos: Some(first), stops },
            (false, _) => {
                stops.extend(eos);
                Ends { ignored: false, eos, stops }
            }
        }
    }
}

/// What the library is told of the ids that end a request.
struct Ends {
    ignored: bool,
    eos: Option<i64>,
    stops: Vec<i64>,
}
