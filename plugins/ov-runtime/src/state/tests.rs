//! States over a model that computes nothing: a text that moved is the one that stayed, and no damage gets in.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use cascadia_batching::{Limits as Bounds, Load, Scheduler};
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Error, GrammarKind, Sampling};
use serde_json::{Value, json};

use super::*;
use crate::asked::Limits;
use crate::backend::Backend;
use crate::backend::null::Null;
use crate::guess::Guesses;
use crate::tray::End;

mod damage;
mod live;
mod pressure;

const VOCABULARY: usize = 97;
const BLOCK: usize = 4;

/// What a task has said, and how it ended.
type Said = (Vec<u32>, Option<End>);

/// An engine on one thread, which may make turns whenever it is visited.
struct Alone {
    all: RefCell<Generations>,
    limits: Limits,
    form: Form,
    turns: Cell<usize>,
    told: RefCell<BTreeMap<u64, Said>>,
}

impl Alone {
    fn new(blocks: usize) -> Alone {
        let null = Null::new(BLOCK, blocks, VOCABULARY);
        let form = Form {
            dtype: "i64".to_owned(),
            computes: "nothing".to_owned(),
            runtime: "1.0".to_owned(),
            caches: "1xi64[4]".to_owned(),
            weights: Weights::made_up("none"),
            rows: Form::rows(&null),
        };
        Alone::of(Box::new(null), blocks, form)
    }

    fn of(backend: Box<dyn Backend>, blocks: usize, form: Form) -> Alone {
        let facts = backend.facts();
        let bounds = Bounds {
            block_size: facts.block_tokens,
            blocks,
            rows: 16,
            rows_beside: 8,
            sequences: 8,
            waiting: 64,
            ..Bounds::default()
        };
        let filler = crate::masks::Filler::default();
        let limits = Limits { window: 400, vocabulary: facts.vocabulary, filler };
        let all = Generations::new(backend, Scheduler::new(bounds).unwrap(), limits.clone(), Guesses::No);
        Alone { all: RefCell::new(all), limits, form, turns: Cell::new(0), told: RefCell::default() }
    }

    fn add(&self, task: Task) {
        self.all.borrow_mut().add(task, 0).unwrap();
    }

    fn turn(&self) {
        let mut all = self.all.borrow_mut();
        drop(all.turn(0));
        let mut told = self.told.borrow_mut();
        for news in all.tray.news() {
            let one = told.entry(news.task).or_default();
            assert_eq!(one.1, None, "{} goes on behind its end", news.task);
            // Of one task there is one piece of news in a turn.
            one.0.extend(all.tray.tokens_of(news.task));
            one.1 = (news.end != End::No).then(|| news.end.clone());
        }
    }

    fn turns(&self, turns: usize) {
        (0..turns).for_each(|_| self.turn());
    }

    /// Turns until nothing lives; nothing may be held then.
    fn run(&self) {
        for _ in 0..10_000 {
            if self.all.borrow().is_idle() {
                assert_eq!(self.load().held, 0);
                return;
            }
            self.turn();
        }
        panic!("it does not end");
    }

    fn load(&self) -> Load {
        self.all.borrow().load()
    }

    fn text(&self, task: u64) -> Vec<u32> {
        self.told.borrow().get(&task).map(|told| told.0.clone()).unwrap_or_default()
    }

    fn end(&self, task: u64) -> Option<End> {
        self.told.borrow().get(&task).and_then(|told| told.1.clone())
    }

    fn save(&self, task: u64) -> Result<Held> {
        let mut held = Held::default();
        save(self, &self.form, task, &mut held)?;
        Ok(held)
    }

    fn restore(&self, task: Task, held: &Held) -> Result<()> {
        restore(self, &self.form, task, held)
    }
}

impl Between for Alone {
    fn visit<R>(&self, see: impl FnOnce(&mut Generations) -> R) -> Result<R> {
        self.turns(self.turns.get());
        Ok(see(&mut self.all.borrow_mut()))
    }

    fn check(&self, task: &Task) -> Result<()> {
        self.limits.check(task)
    }

    fn adopt(&self, _task: u64, begin: impl FnOnce(&mut Generations) -> Result<()>) -> Result<()> {
        self.visit(begin)?
    }
}

/// A state on its way.
#[derive(Debug, Clone, Default)]
struct Held {
    descriptor: String,
    bytes: Vec<u8>,
    chunks: usize,
    /// Chunks after which the receiver wants no more, and bytes after which the giver has lost the rest.
    enough: Option<usize>,
    lost: Option<u64>,
}

impl Held {
    fn with(&self, key: &str, value: Value) -> Held {
        let mut descriptor: Value = serde_json::from_str(&self.descriptor).unwrap();
        descriptor[key] = value;
        Held { descriptor: descriptor.to_string(), ..self.clone() }
    }
}

impl Receiver for Held {
    fn describe(&mut self, descriptor: &str) -> Result<()> {
        assert!(self.descriptor.is_empty() && self.chunks == 0, "it comes once and first");
        self.descriptor = descriptor.to_owned();
        Ok(())
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<()> {
        assert!(!bytes.is_empty() && bytes.len() <= PIECE);
        if self.enough == Some(self.chunks) {
            return Err(Error::new(code::CANCELLED, "enough"));
        }
        self.chunks += 1;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

impl Giver for Held {
    fn descriptor(&self) -> &str {
        &self.descriptor
    }

    fn read(&self, offset: u64, most: u64) -> Result<Vec<u8>> {
        if self.lost.is_some_and(|lost| offset >= lost) {
            return Err(Error::new(code::NOT_CONNECTED, "the peer is gone"));
        }
        let from = (offset as usize).min(self.bytes.len());
        // Never all that is asked for, where it may be less.
        let most = (most as usize).div_ceil(2);
        Ok(self.bytes[from..(from + most).min(self.bytes.len())].to_vec())
    }
}

fn prompt(seed: u64, length: usize) -> Vec<u32> {
    (0..length as u64).map(|at| ((seed * 31 + at * 7) % VOCABULARY as u64) as u32).collect()
}

fn task(id: u64, tokens: Vec<u32>, max_tokens: u32) -> Task {
    let generated_from = tokens.len() as u64;
    Task { id, generated_from, tokens, max_tokens, ..Task::default() }
}

/// Greedy, at random with and without a seed of its own, and with everything that hangs on the text so far.
fn sampling(kind: u64) -> Sampling {
    let hot = Sampling { temperature: 1.5, ..Sampling::default() };
    match kind % 4 {
        0 => Sampling::default(),
        1 => Sampling { seed: Some(77), ..hot },
        2 => hot,
        _ => Sampling {
            seed: Some(5),
            temperature: 3.0,
            top_p: 0.9,
            repetition_penalty: 1.4,
            frequency_penalty: 0.7,
            presence_penalty: 0.4,
            ..Sampling::default()
        },
    }
}

/// The task as it goes on elsewhere under another name, with what it had said.
fn moved(task: &Task, id: u64, said: &[u32]) -> Task {
    Task { id, tokens: [task.tokens.as_slice(), said].concat(), ..task.clone() }
}

#[test]
fn moved_anywhere_beside_others_a_text_is_the_one_that_stayed() {
    let mut moves = 0;
    for case in 0..120_u64 {
        let (here, there) = (Alone::new(200), Alone::new(60));
        let whole = Task {
            sampling: sampling(case),
            ..task(1, prompt(case, 1 + case as usize * 5 % 41), 3 + (case % 30) as u32)
        };
        for id in 2..4 {
            here.add(task(id, prompt(id + case % 2, 9), 30));
            there.add(task(id, prompt(id, 14), 30));
        }
        here.add(whole.clone());
        here.turns(1 + case as usize % 9);
        there.turns(3);
        let said = here.text(1);
        let saved = here.save(1);
        if here.end(1).is_some() {
            assert_eq!(saved.unwrap_err().code, code::INVALID_CONFIG, "it is over");
            continue;
        }
        let saved = match saved {
            Ok(saved) => saved,
            Err(error) => {
                assert!(said.is_empty() && error.message.contains("waits"), "{error:?}");
                continue;
            }
        };
        moves += 1;
        let gone = moved(&whole, 9, &said);
        // Steps go on between the visits.
        there.turns.set(case as usize % 3);
        there.restore(gone, &saved).unwrap();
        here.run();
        there.run();
        assert_eq!([said, there.text(9)].concat(), here.text(1), "case {case}");
        assert_eq!(there.end(9), here.end(1));
        for id in 2..4 {
            assert!(there.end(id).is_some());
        }
    }
    assert!(moves > 80, "{moves}");
}

#[test]
fn steps_between_the_visits_of_a_save_change_nothing_of_what_is_saved() {
    let here = Alone::new(200);
    let whole = Task { sampling: sampling(3), ..task(1, prompt(3, 41), 90) };
    here.add(whole.clone());
    here.turns(10);
    let said = here.text(1);
    let still = here.save(1).unwrap();
    here.turns.set(1);
    let turning = here.save(1).unwrap();
    assert!(here.text(1).len() > said.len() + 10, "it went on meanwhile");
    // One turn more before the first visit.
    assert!(turning.bytes.len() > still.bytes.len());
    let there = Alone::new(60);
    // Tokens that came since are computed there.
    for (id, saved) in [(2, &still), (3, &turning)] {
        there.restore(moved(&whole, id, &here.text(1)), saved).unwrap();
    }
    let begun = here.text(1);
    here.run();
    there.run();
    for id in 2..4 {
        assert_eq!([begun.clone(), there.text(id)].concat(), here.text(1), "{id}");
    }
}

#[test]
fn a_moved_task_moves_again_and_is_told_what_was_not_computed() {
    let engines = [Alone::new(60), Alone::new(60), Alone::new(60)];
    let whole = Task { sampling: sampling(2), ..task(1, prompt(2, 10), 30) };
    let stays = Alone::new(60);
    stays.add(whole.clone());
    stays.turns(1);
    // Its seed is none that the task names.
    let saved = stays.save(1).unwrap();
    let mut said = stays.text(1);
    stays.run();
    let mut saved = saved;
    for (n, engine) in engines.iter().enumerate() {
        engine.restore(moved(&whole, 5, &said), &saved).unwrap();
        engine.turn();
        let cached: Vec<_> =
            engine.all.borrow().tray.chunks(0).map(|c| (c.prompt_tokens, c.cached_tokens)).collect();
        assert_eq!(cached, [(Some(10), Some(10))], "{n}");
        engine.turns(6);
        said.extend(engine.text(5));
        saved = engine.save(5).unwrap();
    }
    engines[2].run();
    let rest = engines[2].text(5);
    said.truncate(said.len() - 7);
    assert_eq!([said, rest].concat(), stays.text(1));
}

#[test]
fn what_came_from_elsewhere_is_never_found_by_others() {
    let (here, there) = (Alone::new(60), Alone::new(60));
    let whole = task(1, prompt(1, 20), 30);
    here.add(whole.clone());
    here.turns(12);
    let saved = here.save(1).unwrap();
    there.restore(moved(&whole, 2, &here.text(1)), &saved).unwrap();
    there.run();
    assert_eq!(there.load().cached, 0);
    there.add(task(3, prompt(1, 20), 4));
    there.run();
    assert_eq!(there.load().hit_tokens, 0);
}
