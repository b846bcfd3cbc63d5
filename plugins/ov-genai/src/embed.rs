//! The engine of a network that embeds: token ids in, one vector for each input, and no generations.
//!
//! Invariants: one input a step, so that a cancel ends a batch with the input at hand and no padding changes a vector;
//! for every batch that was taken exactly one finish is pushed, and its vectors before.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::Duration;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::ext::features;
use cascadia_plugin_api::sdk::{
    Card, Chunk, EmbedInfo, EmbedInput, EmbedOut, EmbedTask, Embedding, Embeddings, Engine, Error,
    Extensions, Finish, Load, Metric, Next, Pooling, Progress, Result, Sink, Task, Worker,
};
use parking_lot::Mutex;

use crate::engine::inferences;
use crate::ffi::embedder;
use crate::folder::Folder;
use crate::options::Options;
use crate::pipeline::embedder::Embedder;

/// Most inputs of a task.
const MAX_INPUTS: usize = 2048;

/// The model and the batches at hand.
pub(crate) struct Embeds {
    model: Mutex<Embedder>,
    queue: Mutex<Queue>,
    out: OnceLock<EmbedOut>,
    info: EmbedInfo,
    /// Number of ids; 0: not known.
    vocabulary: u64,
    max_waiting: usize,
    card: Card,
    worker: Worker,
    inferences: Metric,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// A batch that has had no finish.
struct Job {
    task: EmbedTask,
    pooling: embedder::Pooling,
    /// Inputs that have their vector, and their tokens.
    done: usize,
    tokens: u32,
    cancelled: bool,
}

/// What a step works on.
enum Turn {
    Input { task: u64, index: u32, ids: Vec<u32>, pooling: embedder::Pooling, normalize: bool },
    Cancelled { task: u64, tokens: u32 },
}

impl Embeds {
    pub(crate) fn new(
        model: Embedder,
        folder: &Folder,
        options: &Options,
        version: &str,
        worker: Worker,
    ) -> Embeds {
        let max_tokens = match (folder.max_tokens, options.context_length) {
            (known, 0) => known,
            (0, given) => given,
            (known, given) => known.min(given),
        };
        let info = EmbedInfo {
            dimensions: u32::try_from(model.dimensions()).unwrap_or(u32::MAX),
            can_shorten: false,
            max_inputs: MAX_INPUTS as u32,
            max_tokens,
            pooling: of_library(folder.pooling),
        };
        let card = Card {
            context_length: max_tokens.into(),
            max_tasks: (1 + options.max_waiting) as u64,
            vocab_size: folder.vocabulary,
            device: options.device.clone(),
            features: vec![features::EMBEDDINGS, features::NO_GENERATION],
            notes: vec![
                format!("OpenVINO {version}"),
                format!("embeds, {} dimensions, {}", info.dimensions, folder.pooling_note),
            ],
            ..Card::default()
        };
        Embeds {
            model: Mutex::new(model),
            queue: Mutex::default(),
            out: OnceLock::new(),
            info,
            vocabulary: folder.vocabulary,
            max_waiting: options.max_waiting,
            card,
            worker,
            inferences: inferences(worker),
        }
    }

    /// The pooling that a task asks for.
    fn pooling(&self, asked: Pooling) -> Result<embedder::Pooling> {
        let asked = if asked == Pooling::Default { self.info.pooling } else { asked };
        match asked {
            Pooling::Mean => Ok(embedder::Pooling::Mean),
            Pooling::First => Ok(embedder::Pooling::First),
            Pooling::Last => Ok(embedder::Pooling::Last),
            Pooling::Default | Pooling::Unknown(_) => {
                Err(Error::config(format!("pooling {asked:?} is none of mean, first, last")))
            }
        }
    }

    fn check(&self, task: &EmbedTask) -> Result<()> {
        let inputs = task.inputs.len();
        if inputs == 0 || inputs > MAX_INPUTS {
            return Err(Error::config(format!("{inputs} inputs; a task has 1 to {MAX_INPUTS}")));
        }
        if task.dimensions != 0 && task.dimensions != self.info.dimensions {
            let (asked, have) = (task.dimensions, self.info.dimensions);
            return Err(Error::config(format!(
                "dimensions is {asked}; vectors have {have}, and are not cut"
            )));
        }
        if !task.adapter.is_empty() {
            return Err(Error::unsupported("adapters"));
        }
        task.inputs.iter().try_for_each(|input| self.check_input(input))
    }

    fn check_input(&self, input: &EmbedInput) -> Result<()> {
        let (count, most) = (input.tokens.len(), self.info.max_tokens as usize);
        if count == 0 {
            return Err(Error::config("an input has no tokens; this engine takes token ids"));
        }
        if most > 0 && count > most {
            return Err(Error::prompt_too_long(count, most));
        }
        match input.tokens.iter().find(|id| self.vocabulary > 0 && u64::from(**id) >= self.vocabulary) {
            Some(id) => Err(Error::config(format!("token id {id}; the model has {} ids", self.vocabulary))),
            None => Ok(()),
        }
    }

    fn turn(&self) -> Option<Turn> {
        let mut queue = self.queue.lock();
        let job = queue.jobs.front_mut()?;
        let task = job.task.id;
        if job.cancelled {
            let tokens = job.tokens;
            queue.jobs.pop_front();
            return Some(Turn::Cancelled { task, tokens });
        }
        let ids = std::mem::take(&mut job.task.inputs[job.done].tokens);
        let index = u32::try_from(job.done).unwrap_or(u32::MAX);
        let (pooling, normalize) = (job.pooling, job.task.normalize);
        Some(Turn::Input { task, index, ids, pooling, normalize })
    }

    /// Counts an input of the batch at the front as done; its tokens, where it was the last.
    fn count(&self, tokens: u32) -> Option<u32> {
        let mut queue = self.queue.lock();
        let job = queue.jobs.front_mut()?;
        (job.done, job.tokens) = (job.done + 1, job.tokens.saturating_add(tokens));
        let over = (job.done == job.task.inputs.len() && !job.cancelled).then_some(job.tokens);
        if over.is_some() {
            queue.jobs.pop_front();
        }
        over
    }

    fn work(&self, turn: Turn, sink: &mut Sink) {
        let finish = |sink: &mut Sink, task, finish, tokens| {
            sink.push(&[Chunk { task, finish, prompt_tokens: Some(tokens), ..Chunk::default() }]);
        };
        let (task, index, ids, pooling, normalize) = match turn {
            Turn::Cancelled { task, tokens } => return finish(sink, task, Finish::Cancelled, tokens),
            Turn::Input { task, index, ids, pooling, normalize } => (task, index, ids, pooling, normalize),
        };
        self.inferences.add(1.0);
        match self.model.lock().run(&ids, pooling) {
            Ok(mut vector) => {
                if normalize {
                    unit(&mut vector);
                }
                let tokens = u32::try_from(ids.len()).unwrap_or(u32::MAX);
                if let Some(out) = self.out.get() {
                    out.take(&[Embedding { task, index, tokens, vector: &vector }]);
                }
                if let Some(tokens) = self.count(tokens) {
                    finish(sink, task, Finish::Stop, tokens);
                }
            }
            Err(error) => {
                let tokens = self.queue.lock().jobs.pop_front().map_or(0, |job| job.tokens);
                finish(sink, task, Finish::Error(&Error::backend(error.to_string())), tokens);
            }
        }
    }
}

impl Embeddings for Embeds {
    fn info(&self) -> EmbedInfo {
        self.info
    }

    fn attach(&self, out: EmbedOut) -> Result<()> {
        self.out.set(out).map_err(|_| Error::config("there is a place for vectors already"))
    }

    fn submit(&self, task: EmbedTask) -> Result<()> {
        if self.out.get().is_none() {
            return Err(Error::unsupported("place for vectors yet"));
        }
        let pooling = self.pooling(task.pooling)?;
        self.check(&task)?;
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(Error::new(code::CLOSED, "the engine is closed"));
        }
        if queue.jobs.len() > self.max_waiting {
            return Err(Error::queue_full(queue.jobs.len()));
        }
        // Behind those of its priority; the one at work goes on.
        let behind = queue.jobs.iter().skip(1).position(|job| job.task.priority < task.priority);
        let place = behind.map_or(queue.jobs.len(), |at| at + 1);
        queue.jobs.insert(place, Job { task, pooling, done: 0, tokens: 0, cancelled: false });
        drop(queue);
        self.worker.wake();
        Ok(())
    }
}

impl Engine for Embeds {
    fn warmup(&self, progress: &Progress) -> Result<()> {
        progress.report("warmup", 0, 1)?;
        let pooling = self.pooling(Pooling::Default)?;
        let failed = |e: crate::pipeline::fault::Error| Error::backend(format!("warm-up: {e}"));
        self.model.lock().run(&[0], pooling).map_err(failed)?;
        progress.report("warmup", 1, 1)
    }

    fn submit(&self, _task: Task) -> Result<()> {
        Err(Error::unsupported("generation: its model embeds"))
    }

    fn step(&self, _budget: Duration, sink: &mut Sink) -> Result<Next> {
        let Some(turn) = self.turn() else { return Ok(Next::Idle) };
        self.work(turn, sink);
        Ok(if self.queue.lock().jobs.is_empty() { Next::Idle } else { Next::More })
    }

    fn cancel(&self, task: u64) {
        if let Some(job) = self.queue.lock().jobs.iter_mut().find(|job| job.task.id == task) {
            job.cancelled = true;
        }
    }

    fn close(&self, _deadline: Duration) -> Result<()> {
        // The next step ends them: finishes are pushed from inside a step only.
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.jobs.iter_mut().for_each(|job| job.cancelled = true);
        Ok(())
    }

    fn card(&self) -> Card {
        self.card.clone()
    }

    fn load(&self) -> Load {
        let jobs = u32::try_from(self.queue.lock().jobs.len()).unwrap_or(u32::MAX);
        Load { running: jobs.min(1), waiting: jobs.saturating_sub(1), ..Load::default() }
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { embeddings: Some(self), ..Extensions::default() }
    }
}

fn of_library(pooling: embedder::Pooling) -> Pooling {
    match pooling {
        embedder::Pooling::Mean => Pooling::Mean,
        embedder::Pooling::First => Pooling::First,
        embedder::Pooling::Last => Pooling::Last,
    }
}

fn unit(vector: &mut [f32]) {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt() as f32;
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x /= length);
    }
}

#[cfg(test)]
mod tests {
    use super::unit;

    #[test]
    fn a_vector_gets_length_one_unless_it_has_none() {
        let mut vector = [3.0, 0.0, -4.0];
        unit(&mut vector);
        assert_eq!(vector, [0.6, 0.0, -0.8]);
        let mut none = [0.0; 3];
        unit(&mut none);
        assert_eq!(none, [0.0; 3]);
    }
}
