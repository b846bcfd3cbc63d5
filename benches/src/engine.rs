//! Our own batching over OpenVINO with a real model, at `exact` and with guesses, in a cache that is too small for all who ask:
//! generations share prefixes, give way and are computed again. Every answer must be the very one that the model gave when it was asked
//! alone, and in between, when nobody asks, every block must be back.

mod asker;
mod question;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cascadia_tests::client::Client;
use cascadia_tests::{Dice, Host, Scrape, setup};
use parking_lot::RwLock;

use crate::Options;
use crate::books::Books;
use crate::verdict;
use crate::watch::{settled, watch};
use asker::Asker;
use question::Question;

const CLIENTS: u64 = 8;
/// A file is compiled before its first use.
const LOADS: Duration = Duration::from_secs(300);
/// Clients rest so often.
const CALM: Duration = Duration::from_secs(60);
/// The longest answers take part of a minute, on a busy machine more.
const ENDS: Duration = Duration::from_secs(600);
/// Generations whose clients left end within a token.
const RETURNS: Duration = Duration::from_secs(20);
/// Answers do not depend on what runs beside them, room for all in a step and for few in the cache, guesses from the text. Few numbers of
/// rows, so that all have been soon and the kernels made for them take no more memory. One
/// thread: others may use the machine meanwhile.
const OPTIONS: [&str; 6] = [
    "ov-runtime.threads=1",
    "ov-runtime.profile=exact",
    "ov-runtime.cb-max-num-seqs=8",
    "ov-runtime.cb-num-kv-blocks=16",
    "ov-runtime.cb-prompt-lookup=true",
    "ov-runtime.cb-max-batched-tokens=64",
];
/// Looks that may fall between two gauges, one after the other.
const LOOKS: usize = 3;
/// Where the engine keeps its series.
const SERIES: &str = "cascadia_plugin_ov_runtime_";

/// Whether the host passed.
pub(crate) fn soak(model: &Path, options: &Options) -> Result<bool> {
    let mut host = start(model, options)?;
    host.ready_within(LOADS);
    let questions = Question::all(host.client())?;
    let before = settled(&host);
    let all = Blocks::of(&scrape(host.client())?).all();
    ensure!(all > 0.0, "the engine tells of no blocks");
    eprintln!(
        "seed {}; {} questions; {all} blocks; before the load {before:?}",
        options.seed,
        questions.len()
    );
    let (books, over, calm) = (Books::default(), AtomicBool::new(false), RwLock::new(()));
    let mut looks = Vec::new();
    std::thread::scope(|scope| {
        for n in 0..CLIENTS {
            let asker = Asker {
                client: host.client(),
                number: n,
                questions: &questions,
                dice: Dice::new(options.seed, n),
                books: &books,
                calm: &calm,
            };
            let over = &over;
            scope.spawn(move || asker.run(over));
        }
        let mut keeper =
            Keeper { client: host.client(), books: &books, calm: &calm, all, last: Instant::now() };
        watch(&host, options.minutes, &books, &mut looks, || keeper.look());
        over.store(true, Ordering::Relaxed);
    });
    let told = scrape(host.client())?;
    let mut lines = did(&told, &books);
    lines.push(connections(&told, &books));
    let isolated = usize::from(options.isolate);
    lines.extend(verdict::judge(&mut host, &verdict::Rest { before, copy: 0.0, isolated }, &looks, &books));
    verdict::tell(options.json, options.seed, &books, &looks, &lines);
    Ok(books.faults().0 == 0)
}

fn start(model: &Path, options: &Options) -> Result<Host> {
    let (library, model) = (setup::plugin("ov_runtime"), format!("m={}", model.display()));
    let library = library.to_str().context("the plugin's path is text")?;
    let cache = format!("ov-runtime.cache-dir={}", setup::compiled_models().display());
    let mut args = vec!["--plugin", library, "--model", &model, "--log-level", "debug"];
    args.extend(["--max-concurrent", "32", "--max-queued", "100", "--queue-timeout", "1h"]);
    // A client that the machine keeps from sending for a quarter of a minute is no fault of the host's.
    args.extend(["--set", "server.header_timeout=1h"]);
    for option in OPTIONS.into_iter().chain([cache.as_str()]) {
        args.extend(["--plugin-opt", option]);
    }
    if options.isolate {
        args.push("--isolate");
    }
    Ok(Host::start(&args))
}

fn scrape(client: Client) -> Result<Scrape> {
    Scrape::parse(&client.get("/metrics")?.text())
}

/// What of the engine's ways was gone; a way that nobody went was not tested.
fn did(scrape: &Scrape, books: &Books) -> Vec<String> {
    let ways = [
        ("tokens computed", "step_rows_sum", None),
        ("tokens found in the prefix cache", "prefix_hit_tokens_total", None),
        ("times that a generation gave way", "preemptions_total", None),
        ("guesses that held", "draft_tokens_total", Some(("outcome", "accepted"))),
        ("guesses that did not hold", "draft_tokens_total", Some(("outcome", "rejected"))),
    ];
    let told = ways.map(|(what, series, label)| {
        let n = scrape.sum(&format!("{SERIES}{series}"), label.as_slice());
        if n == 0.0 {
            books.fault(format!("there were no {what}"));
        }
        format!("{n:>8}  {what}")
    });
    told.into()
}

/// How connections ended. No client here gives the host a reason to end one.
fn connections(scrape: &Scrape, books: &Books) -> String {
    let ended = |how: Option<(&str, &str)>| scrape.sum("cascadia_connections_ended_total", how.as_slice());
    let (all, usual) = (ended(None), ["closed", "client_left"].map(|how| ended(Some(("reason", how)))));
    let rest = all - usual.iter().sum::<f64>();
    if rest > 0.0 {
        books.fault(format!("the host ended {rest} connections"));
    }
    format!("{all:>8}  connections ended, {} of them because the client left, {rest} by the host", usual[1])
}

/// Blocks of the KV cache.
#[derive(Debug, Clone, Copy)]
struct Blocks {
    free: f64,
    held: f64,
    cached: f64,
}

impl Blocks {
    fn of(scrape: &Scrape) -> Blocks {
        let of = |state| scrape.sum(&format!("{SERIES}kv_blocks"), &[("state", state)]);
        Blocks { free: of("free"), held: of("held"), cached: of("cached") }
    }

    fn all(self) -> f64 {
        self.free + self.held + self.cached
    }
}

/// Looks after the blocks.
struct Keeper<'a> {
    client: Client,
    books: &'a Books,
    calm: &'a RwLock<()>,
    /// Blocks that there are.
    all: f64,
    last: Instant,
}

impl Keeper<'_> {
    fn look(&mut self) -> String {
        if self.last.elapsed() >= CALM {
            match self.rest() {
                Ok(()) => self.books.count("times that all rested"),
                Err(error) => self.books.fault(format!("while all rested: {error:#}")),
            }
            self.last = Instant::now();
        }
        match scrape(self.client) {
            Ok(scrape) => {
                let blocks = Blocks::of(&scrape);
                if blocks.all() != self.all && !self.add_up() {
                    self.books.fault(format!("{blocks:?} where there are {}", self.all));
                }
                let gave_way = scrape.sum(&format!("{SERIES}preemptions_total"), &[]);
                let Blocks { free, held, cached } = blocks;
                format!("{free} blocks free, {held} held, {cached} cached, {gave_way} gave way")
            }
            Err(error) => {
                self.books.fault(format!("metrics cannot be read: {error:#}"));
                String::new()
            }
        }
    }

    /// Whether the blocks add up at one of some further looks: the three gauges are set one after the other, and a look may fall between.
    fn add_up(&self) -> bool {
        let adds_up = || scrape(self.client).is_ok_and(|scrape| Blocks::of(&scrape).all() == self.all);
        (0..LOOKS).any(|_| adds_up())
    }

    /// Lets nobody ask, and waits until nothing is held.
    fn rest(&self) -> Result<()> {
        let _alone = self.calm.try_write_for(ENDS).context("an answer did not come to its end")?;
        let until = Instant::now() + RETURNS;
        loop {
            let scrape = scrape(self.client)?;
            let (blocks, waiting) = (Blocks::of(&scrape), scrape.sum(&format!("{SERIES}waiting"), &[]));
            if blocks.held == 0.0 && waiting == 0.0 {
                return Ok(());
            }
            ensure!(Instant::now() < until, "{blocks:?} and {waiting} wait although nobody asks");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
