//! Stage 0: has the tasks, plans the batches, pushes the answers, and begins anew what was refused.

use std::collections::BTreeMap;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::host::dtype;
use cascadia_plugin_api::sdk::{
    Chunk, Error, Finish, GrammarKind, MaskFiller, MaskRequest, MaskRow, Masks, Refusal, Result, Row,
    Sequence, StageBatch, StageToken, Task,
};

use super::tail::Sampling;
use super::{BLOCK, WIDTH, pack};
use crate::options::Options;
use crate::script::SPECIAL;

/// A chunk to be pushed.
#[derive(Debug, Default)]
pub(super) struct Piece {
    task: u64,
    tokens: Vec<u32>,
    end: Option<Finish<'static>>,
    error: Option<Error>,
    prompt_tokens: Option<u32>,
    logprobs: Vec<f32>,
    top: (Vec<u32>, Vec<f32>),
    prompt_logprobs: Vec<f32>,
}

impl Piece {
    pub(super) fn chunk(&self) -> Chunk<'_> {
        let finish = match (&self.error, self.end) {
            (Some(error), _) => Finish::Error(error),
            (None, end) => end.unwrap_or(Finish::No),
        };
        Chunk {
            task: self.task,
            tokens: &self.tokens,
            finish,
            prompt_tokens: self.prompt_tokens,
            logprobs: &self.logprobs,
            top: (&self.top.0, &self.top.1, u32::try_from(self.top.0.len()).unwrap_or(u32::MAX)),
            prompt_logprobs: &self.prompt_logprobs,
            ..Chunk::default()
        }
    }
}

/// A task in the pipeline.
struct Flight {
    prompt: usize,
    /// Prompt and answer.
    tokens: Vec<u32>,
    most: usize,
    attempt: u32,
    /// Tokens that were sent in this attempt.
    sent: usize,
    /// A token was asked for and has not come.
    waits: bool,
    blocks: Vec<u32>,
    ask: Sampling,
    /// Scores of the prompt, where they are wanted; the first token has none.
    scores: Option<Vec<f32>>,
    masked: bool,
    /// Tokens the mask was told of.
    told: usize,
    cancelled: bool,
}

/// Which tokens may come next, asked for before a batch is planned.
#[derive(Default)]
pub(super) struct Asking {
    tasks: Vec<(u64, Vec<u32>)>,
    rows: BTreeMap<u64, std::result::Result<Vec<u32>, Error>>,
}

impl Asking {
    /// Asks the host, once for all.
    pub(super) fn ask(mut self, filler: Option<&MaskFiller>, vocabulary: u64) -> Asking {
        let Some(filler) = filler.filter(|_| !self.tasks.is_empty()) else { return self };
        let requests: Vec<_> = self
            .tasks
            .iter()
            .map(|(task, taken)| MaskRequest { task: *task, taken, ..MaskRequest::default() })
            .collect();
        let mut masks = Masks::default();
        let filled = filler.fill(&requests, usize::try_from(vocabulary).unwrap_or(usize::MAX), &mut masks);
        for (at, request) in requests.iter().enumerate() {
            let row = match (&filled, masks.row(at)) {
                (Err(error), _) => Err(error.clone()),
                (Ok(()), MaskRow::Some(words)) => Ok(words.to_vec()),
                (Ok(()), MaskRow::DeadEnd) => {
                    Err(Error::config("no token of the vocabulary goes on from here"))
                }
                (Ok(()), MaskRow::All | MaskRow::Unreached) => Ok(Vec::new()),
            };
            self.rows.insert(request.task, row);
        }
        self
    }
}

/// The first stage.
pub(super) struct Head {
    window: usize,
    pub(super) epoch: u64,
    batch: u64,
    next_block: u32,
    flights: BTreeMap<u64, Flight>,
    arrived: Vec<StageToken>,
    pieces: Vec<Piece>,
    closed: bool,
}

impl Head {
    pub(super) fn new(options: &Options) -> Head {
        Head {
            window: options.stage_window,
            epoch: 0,
            batch: 0,
            next_block: 0,
            flights: BTreeMap::new(),
            arrived: Vec::new(),
            pieces: Vec::new(),
            closed: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }

    pub(super) fn submit(&mut self, task: Task, filler: bool) -> Result<()> {
        let masked = task.grammar.0 == GrammarKind::Mask;
        match () {
            () if self.closed => return Err(Error::new(code::CLOSED, "the engine is closed")),
            () if self.flights.contains_key(&task.id) => {
                return Err(Error::config(format!("task id {} is in use", task.id)));
            }
            () if task.tokens.is_empty() => return Err(Error::unsupported("way to begin without tokens")),
            () if masked && !filler => return Err(Error::unsupported("filler of masks yet")),
            () if !masked && task.grammar.0 != GrammarKind::None => {
                return Err(Error::unsupported("grammars"));
            }
            () => {}
        }
        let ask = Sampling { prompt: task.tokens.len(), logprobs: task.logprobs.map_or(0, |k| k + 1) };
        let scores = task.prompt_logprobs.map(|_| vec![f32::NAN; task.tokens.len()]);
        let most = if task.max_tokens == 0 { usize::MAX } else { task.max_tokens as usize };
        self.flights.insert(
            task.id,
            Flight {
                prompt: task.tokens.len(),
                tokens: task.tokens,
                most,
                attempt: 1,
                sent: 0,
                waits: false,
                blocks: Vec::new(),
                ask,
                scores,
                masked,
                told: 0,
                cancelled: false,
            },
        );
        Ok(())
    }

    pub(super) fn cancel(&mut self, task: u64) {
        if let Some(flight) = self.flights.get_mut(&task) {
            flight.cancelled = true;
        }
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        self.flights.values_mut().for_each(|flight| flight.cancelled = true);
    }

    pub(super) fn tokens(&mut self, epoch: u64, tokens: &[StageToken]) {
        if epoch == self.epoch {
            self.arrived.extend_from_slice(tokens);
        }
    }

    pub(super) fn refused(&mut self, refusal: &Refusal) {
        if refusal.epoch == self.epoch {
            for task in &refusal.tasks {
                if let Some(flight) = self.flights.get_mut(task) {
                    flight.again();
                }
            }
        }
    }

    pub(super) fn abort(&mut self, epoch: u64) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.arrived.clear();
            self.flights.values_mut().for_each(Flight::again);
        }
    }

    /// Makes chunks of the tokens that have come, and ends what was cancelled.
    pub(super) fn answer(&mut self) {
        for token in std::mem::take(&mut self.arrived) {
            let Some(flight) = self.flights.get_mut(&token.task) else { continue };
            if token.scored {
                let place = usize::try_from(token.position).unwrap_or(usize::MAX);
                if let Some(score) = flight.scores.as_mut().and_then(|scores| scores.get_mut(place)) {
                    *score = token.logprob;
                }
                continue;
            }
            // What an earlier attempt had asked for comes too late.
            if token.attempt != flight.attempt || token.position != flight.tokens.len() as u64 {
                continue;
            }
            flight.waits = false;
            let first = flight.tokens.len() == flight.prompt;
            let mut piece = Piece { task: token.task, ..Piece::default() };
            piece.prompt_tokens = first.then(|| u32::try_from(flight.prompt).unwrap_or(u32::MAX));
            if first {
                piece.prompt_logprobs = flight.scores.take().unwrap_or_default();
            }
            if token.token == SPECIAL {
                piece.end = Some(Finish::Stop);
            } else {
                flight.tokens.push(token.token);
                piece.tokens.push(token.token);
                if flight.ask.logprobs > 0 {
                    piece.logprobs.push(token.logprob);
                    piece.top = token.top;
                }
                if flight.tokens.len() - flight.prompt >= flight.most {
                    piece.end = Some(Finish::Length);
                }
            }
            if piece.end.is_some() {
                self.flights.remove(&token.task);
            }
            self.pieces.push(piece);
        }
        let pieces = &mut self.pieces;
        self.flights.retain(|task, flight| {
            if flight.cancelled {
                pieces.push(Piece { task: *task, end: Some(Finish::Cancelled), ..Piece::default() });
            }
            !flight.cancelled
        });
    }

    pub(super) fn take_pieces(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.pieces)
    }

    /// The masked tasks whose next batch asks for a token.
    pub(super) fn take_asking(&mut self) -> Asking {
        let window = self.window;
        let ready = self.flights.iter_mut().filter(|(_, f)| f.masked && !f.waits && f.left() <= window);
        let tasks = ready.map(|(task, flight)| {
            let from = flight.prompt + flight.told;
            flight.told = flight.tokens.len() - flight.prompt;
            (*task, flight.tokens[from..].to_vec())
        });
        Asking { tasks: tasks.collect(), ..Asking::default() }
    }

    /// The next batch: a window of every task that does not wait, as far as there is room for rows.
    pub(super) fn plan(&mut self, mut asking: Asking) -> Option<StageBatch> {
        let mut batch = StageBatch {
            batch: self.batch + 1,
            epoch: self.epoch,
            dtype: dtype::F32,
            width: WIDTH as u32,
            ..StageBatch::default()
        };
        let mut hidden = Vec::new();
        let mut failed = Vec::new();
        for (task, flight) in self.flights.iter_mut().filter(|(_, f)| !f.waits && !f.cancelled) {
            let end = flight.tokens.len().min(flight.sent + self.window);
            if batch.rows.len() + end - flight.sent > self.window * 4 {
                break;
            }
            let samples = end == flight.tokens.len();
            let mask = match asking.rows.remove(task) {
                Some(Err(error)) => {
                    failed.push((*task, error));
                    continue;
                }
                // Not asked for, because it came after the question: its turn is the next batch.
                None if flight.masked && samples => continue,
                row => row.and_then(Result::ok).unwrap_or_default(),
            };
            while flight.blocks.len() * BLOCK < end {
                self.next_block += 1;
                flight.blocks.push(self.next_block);
            }
            let begins = flight.sent == 0;
            let at = u32::try_from(batch.sequences.len()).unwrap_or(u32::MAX);
            batch.sequences.push(Sequence {
                task: *task,
                past: flight.sent as u64,
                attempt: flight.attempt,
                prefill: flight.sent < flight.prompt,
                begins,
                blocks: flight.blocks.clone(),
                mask,
                sampling: if begins { flight.ask.text() } else { String::new() },
            });
            for position in flight.sent..end {
                let sampled = samples && position + 1 == end;
                let scored = flight.scores.is_some() && position > 0 && position < flight.prompt;
                let token = flight.tokens[position];
                batch.rows.push(Row {
                    task: *task,
                    position: position as u64,
                    sequence: at,
                    sampled,
                    scored,
                    token,
                });
                hidden.push([token as f32, position as f32, 1.0, 0.0]);
            }
            batch.max_context = batch.max_context.max(end as u64);
            (flight.sent, flight.waits) = (end, samples);
        }
        for (task, error) in failed {
            self.flights.remove(&task);
            self.pieces.push(Piece { task, error: Some(error), ..Piece::default() });
        }
        if batch.rows.is_empty() {
            return None;
        }
        self.batch += 1;
        batch.payload = pack(hidden.into_iter());
        Some(batch)
    }

    pub(super) fn has_more(&self) -> bool {
        !self.arrived.is_empty()
            || !self.pieces.is_empty()
            || self.flights.values().any(|f| f.cancelled || !f.waits)
    }
}

impl Flight {
    /// Begins anew: everything is computed again.
    fn again(&mut self) {
        (self.attempt, self.sent, self.waits) = (self.attempt + 1, 0, false);
    }

    fn left(&self) -> usize {
        self.tokens.len() - self.sent
    }
}
