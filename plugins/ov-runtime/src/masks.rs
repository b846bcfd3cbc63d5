//! Which tokens the host lets come next: asked once in each step for all tasks whose grammar is a mask.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use cascadia_plugin_api::sdk::{Error, MaskFiller, MaskRequest, MaskRow, Masks, Result};

/// The host's side, once it was attached; shared with who checks tasks.
pub(crate) type Filler = Arc<OnceLock<MaskFiller>>;

/// Asks, and keeps the answers of a step.
#[derive(Default)]
pub(crate) struct Masker {
    filler: Filler,
    masks: Masks,
    /// Rows that were asked for in this step.
    rows: usize,
    /// Tasks, and where in `tokens` what they have taken and what is guessed for them lies.
    asked: Vec<(u64, Range<usize>, Range<usize>)>,
    tokens: Vec<u32>,
    failed: Option<Error>,
}

impl Masker {
    pub(crate) fn new(filler: Filler) -> Masker {
        Masker { filler, ..Masker::default() }
    }

    /// A step begins; nothing is asked for.
    pub(crate) fn clear(&mut self) {
        self.asked.clear();
        self.tokens.clear();
        self.rows = 0;
        self.failed = None;
    }

    /// Wants a row for the next token of a task and one after each guess. Answers the number of its first row.
    pub(crate) fn want(&mut self, task: u64, taken: &[u32], drafts: impl Iterator<Item = u32>) -> usize {
        let from = self.tokens.len();
        self.tokens.extend_from_slice(taken);
        let middle = self.tokens.len();
        self.tokens.extend(drafts);
        let end = self.tokens.len();
        self.asked.push((task, from..middle, middle..end));
        let first = self.rows;
        self.rows += 1 + end - middle;
        first
    }

    /// Asks for all rows that are wanted.
    pub(crate) fn ask(&mut self, vocabulary: usize) {
        if self.asked.is_empty() {
            return;
        }
        let requests: Vec<MaskRequest<'_>> = self
            .asked
            .iter()
            .map(|(task, taken, drafts)| MaskRequest {
                task: *task,
                taken: &self.tokens[taken.clone()],
                drafts: &self.tokens[drafts.clone()],
                rollback: 0,
            })
            .collect();
        let filled = match self.filler.get() {
            Some(filler) => filler.fill(&requests, vocabulary, &mut self.masks),
            None => Err(Error::unsupported("token masks without their filler")),
        };
        self.failed = filled.err();
    }

    /// The words of a row's mask; none where every token may come, no words where none may.
    ///
    /// # Errors
    /// The host's, which ends every task that was asked for.
    pub(crate) fn row(&self, row: usize) -> Result<Option<&[u32]>> {
        match (&self.failed, self.masks.row(row)) {
            (Some(error), _) => Err(error.clone()),
            (None, MaskRow::All) => Ok(None),
            (None, MaskRow::Some(words)) => Ok(Some(words)),
            (None, MaskRow::DeadEnd | MaskRow::Unreached) => Ok(Some(&[])),
        }
    }
}
