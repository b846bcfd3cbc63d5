//! One generation between its turns: what it has said, and what its rows of logits make of it.

use cascadia_batching::{Batch, Outcome, Part};
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Error, GrammarKind, Task};
use cascadia_sampling::{Choice, Refused, Row, Sampler, Scratch, score};

use crate::asked::settings;
use crate::backend::Logits;
use crate::masks::Masker;
use crate::tray::{End, Tray};

const NOT_A_NUMBER: cascadia_sampling::Error = cascadia_sampling::Error::NotANumber;

/// A task that was taken.
#[derive(Debug)]
pub(crate) struct Generation {
    task: u64,
    sampler: Sampler,
    /// Tokens of the prompt.
    prompt: usize,
    /// Tokens that may still come.
    left: usize,
    /// Of the prompt, not computed again; known once it was let in.
    pub(crate) cached: Option<usize>,
    /// Whether the counts were told.
    told: bool,
    /// Log-probabilities of the prompt, where they are wanted; the first token has none.
    prompt_logprobs: Option<Vec<f32>>,
    /// Where the host says which tokens may come.
    masked: Option<Masked>,
}

/// A generation whose tokens the host allows.
#[derive(Debug, Default)]
struct Masked {
    /// Tokens that the host was not told of yet.
    taken: Vec<u32>,
    /// Its first row of this step's masks.
    first: usize,
}

/// What a step computed for a generation.
pub(crate) struct Rows<'a> {
    /// Its part of the batch.
    pub(crate) part: &'a Part,
    pub(crate) batch: &'a Batch,
    pub(crate) logits: &'a Logits<'a>,
    pub(crate) masker: &'a Masker,
    /// Its tokens before this step.
    pub(crate) tokens: &'a [u32],
}

impl Generation {
    /// For a task of at most `most` tokens, prompt included; `seed` where it names none.
    ///
    /// # Errors
    /// The sampler refuses a value.
    pub(crate) fn new(task: &Task, most: usize, vocabulary: usize, seed: u64) -> Result<Generation, Refused> {
        let generated_from =
            usize::try_from(task.generated_from).unwrap_or(usize::MAX).min(task.tokens.len());
        let settings = settings(task, seed);
        Ok(Generation {
            task: task.id,
            sampler: Sampler::new(settings, vocabulary, &task.tokens, generated_from)?,
            prompt: generated_from,
            left: most - task.tokens.len().min(most),
            cached: None,
            told: false,
            prompt_logprobs: task.prompt_logprobs.map(|_| vec![f32::NAN]),
            masked: (task.grammar.0 == GrammarKind::Mask).then(Masked::default),
        })
    }

    /// It came from elsewhere with so many positions: of its prompt nothing more is told, and these were not computed here.
    pub(crate) fn moved(self, positions: usize) -> Generation {
        Generation { cached: Some(positions.min(self.prompt)), prompt_logprobs: None, ..self }
    }

    /// Start of its random numbers.
    pub(crate) fn seed(&self) -> u64 {
        self.sampler.settings().seed
    }

    /// Whether the host says which tokens may come.
    pub(crate) fn is_masked(&self) -> bool {
        self.masked.is_some()
    }

    /// Says which masks it needs for its part of a step.
    pub(crate) fn want(&mut self, part: &Part, batch: &Batch, masker: &mut Masker) {
        if let (Some(masked), true) = (&mut self.masked, part.next > 0) {
            masked.first = masker.want(self.task, &masked.taken, drafts(part, batch));
            masked.taken.clear();
        }
    }

    /// Makes of the rows of its part what the scheduler and the client are told.
    pub(crate) fn advance(&mut self, rows: &Rows<'_>, tools: &mut Tools, tray: &mut Tray) -> Outcome {
        let Rows { part, batch, logits, masker, .. } = *rows;
        if let Err(error) = self.score(rows, &mut tools.scratch) {
            return self.fail(failed(&error), error == NOT_A_NUMBER, tray);
        }
        if part.next == 0 {
            return Outcome::Computed;
        }
        let mut masks = Vec::new();
        if let Some(masked) = &self.masked {
            for at in 0..part.next as usize {
                match masker.row(masked.first + at) {
                    Ok(mask) => masks.push(mask),
                    Err(error) => return self.fail(error, false, tray),
                }
            }
        }
        tools.drafts.clear();
        tools.drafts.extend(drafts(part, batch));
        tools.choices.clear();
        let rows = part.next_sampled().enumerate().map(|(n, at)| Row {
            logits: logits.row(at).unwrap_or_default(),
            mask: masks.get(n).copied().flatten(),
        });
        let verified = self.sampler.verify(rows, &tools.drafts, &mut tools.scratch, &mut tools.choices);
        if let Some(masked) = &mut self.masked {
            masked.taken.extend(tools.choices.iter().map(|choice| choice.token));
        }
        self.tell(tray);
        let mut end = End::No;
        let mut last = None;
        for choice in &tools.choices {
            last = Some(choice.token);
            if choice.ends {
                // The boundary wants it named, not delivered.
                end = End::Stop;
                set(tray, |news| news.stop_token = Some(choice.token));
                break;
            }
            tray.token(choice);
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                end = End::Length;
                break;
            }
        }
        if let (Err(error), End::No) = (&verified, &end) {
            set(tray, |news| {
                news.nan_seen = *error == NOT_A_NUMBER;
                news.end = End::Error(failed(error));
            });
            return Outcome::Failed;
        }
        // All but the last token are drafts that hold.
        let accepted = u32::try_from(tools.choices.len().saturating_sub(1)).unwrap_or(0);
        match (end, last) {
            (End::No, Some(token)) => Outcome::Token { accepted, token },
            (end, _) => {
                set(tray, |news| news.end = end);
                Outcome::Ended { accepted }
            }
        }
    }

    /// Log-probabilities of the prompt's tokens, each from the row before it.
    fn score(&mut self, rows: &Rows<'_>, scratch: &mut Scratch) -> Result<(), cascadia_sampling::Error> {
        let Rows { part, logits, tokens, .. } = *rows;
        let Some(told) = &mut self.prompt_logprobs else { return Ok(()) };
        for n in 0..part.scored as usize {
            let row = logits.row(part.first_sampled as usize + n).unwrap_or_default();
            // A row that is computed again, after the sequence gave way, says the same again.
            let about = part.scored_from as usize + n + 1;
            if about == told.len()
                && let Some(&token) = tokens.get(about)
            {
                told.push(score(row, token, 0, scratch)?.logprob);
            }
        }
        Ok(())
    }

    /// Begins its news, the first time with what is told once.
    fn tell(&mut self, tray: &mut Tray) {
        let news = tray.begin(self.task);
        if !std::mem::replace(&mut self.told, true) {
            news.prompt_tokens = u32::try_from(self.prompt).ok();
            news.cached_tokens = self.cached.and_then(|n| u32::try_from(n).ok());
            news.prompt_logprobs = self.prompt_logprobs.take().unwrap_or_default();
        }
    }

    fn fail(&self, error: Error, nan_seen: bool, tray: &mut Tray) -> Outcome {
        let news = tray.begin(self.task);
        news.nan_seen = nan_seen;
        news.end = End::Error(error);
        Outcome::Failed
    }
}

/// The guesses among a part's rows.
fn drafts(part: &Part, batch: &Batch) -> impl Iterator<Item = u32> {
    let end = (part.first_row + part.rows) as usize;
    let ids = batch.ids.get(end - part.drafts() as usize..end).unwrap_or_default();
    ids.iter().map(|&id| u32::try_from(id).unwrap_or(u32::MAX))
}

/// What one thread needs to make tokens of rows, for all its generations.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    scratch: Scratch,
    drafts: Vec<u32>,
    choices: Vec<Choice>,
}

fn set(tray: &mut Tray, change: impl FnOnce(&mut crate::tray::News)) {
    if let Some(news) = tray.last() {
        change(news);
    }
}

fn failed(error: &cascadia_sampling::Error) -> Error {
    let code = match error {
        cascadia_sampling::Error::NothingAllowed => code::INVALID_CONFIG,
        _ => code::BACKEND,
    };
    Error::new(code, error.to_string())
}
