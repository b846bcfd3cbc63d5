//! `cargo xtask soak`: a host under load while everything that may go wrong does, and what is left of it afterwards.
//!
//! Three models of the mock, each a plugin of its own in a folder that the host follows; one of them, or with `--isolate`
//! all, in processes of their own. Clients ask without a pause ([`load`]), a breaker a model commits faults ([`faults`]);
//! [`books`] judges each request. Afterwards gauges, memory, descriptors, threads and children must be back ([`verdict`]).
#![expect(clippy::print_stderr, reason = "a command that talks to its terminal")]

mod books;
mod dice;
mod faults;
mod load;
mod verdict;
mod vitals;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cascadia_tests::{Host, Scrape, TempDir, elf, setup};

use books::Books;
use dice::Dice;
use faults::Breaker;
use load::Caller;
use vitals::Vitals;

/// Clients of each model.
const CLIENTS: u64 = 12;
/// Upgrades without load, which tell what a copy in the host's memory costs. As many go before them: the first ones make the
/// heap grow to what an upgrade needs.
const PROBES: u32 = 10;
const EVERY: Duration = Duration::from_secs(1);
const PROGRESS: Duration = Duration::from_secs(10);

/// Plugin id, as long as the mock's own so that its bytes stay in place; model; whether it is isolated in any case.
const MODELS: [(&str, &str, bool); 3] = [("mocb", "b", true), ("mocc", "c", false), ("mocd", "d", false)];

struct Options {
    minutes: f64,
    seed: u64,
    isolate: bool,
    json: bool,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Options> {
        let mut options = Options { minutes: 30.0, seed: 0, isolate: false, json: false };
        let mut seed = None;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--minutes" => {
                    options.minutes =
                        words.next().and_then(|n| n.parse().ok()).context("--minutes takes a number")?
                }
                "--seed" => {
                    seed = Some(words.next().and_then(|n| n.parse().ok()).context("--seed takes a number")?)
                }
                "--isolate" => options.isolate = true,
                "--json" => options.json = true,
                other => bail!("unknown word {other}; there are --minutes, --seed, --isolate and --json"),
            }
        }
        options.seed = seed.unwrap_or_else(setup::seed);
        Ok(options)
    }
}

fn main() -> ExitCode {
    let done = Options::parse(std::env::args().skip(1)).and_then(|options| soak(&options));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether the host passed.
fn soak(options: &Options) -> Result<bool> {
    let dir = TempDir::new();
    let mock = fs::read(setup::plugin("mock")).context("read the mock")?;
    let libraries =
        MODELS.map(|(id, ..)| elf::replaced(&mock, "\"id\":\"mock\"", &format!("\"id\":\"{id}\"")));
    for ((id, model, _), library) in MODELS.iter().zip(&libraries) {
        let folder = dir.path().join(model);
        fs::create_dir(&folder)?;
        fs::write(folder.join("plugin.toml"), format!("[[model]]\nname = \"{model}\"\n"))?;
        fs::write(folder.join(format!("lib{id}.so")), library)?;
    }
    let mut host = start(dir.path(), options)?;
    let (books, versions, over) = (Books::default(), AtomicU64::new(0), AtomicBool::new(false));
    let breaker = |n: usize| Breaker {
        client: host.client(),
        host: host.id(),
        model: MODELS[n].1,
        file: dir.path().join(MODELS[n].1).join(format!("lib{}.so", MODELS[n].0)),
        library: &libraries[n],
        isolated: MODELS[n].2 || options.isolate,
        dice: Dice::new(options.seed, 1000 + n as u64),
        books: &books,
        versions: &versions,
    };
    for n in 0..MODELS.len() {
        breaker(n).serves()?;
    }
    let copy = copy_cost(&host, &mut breaker(1))?;
    let before = settled(&host);
    eprintln!(
        "seed {}; a copy in the host's memory takes {copy:.0} KiB; before the load {before:?}",
        options.seed
    );
    let mut looks = Vec::new();
    std::thread::scope(|scope| {
        for (n, (_, model, _)) in MODELS.iter().enumerate() {
            let breaker = breaker(n);
            let over = &over;
            scope.spawn(move || breaker.run(over));
            for client in 0..CLIENTS {
                let caller = Caller {
                    client: host.client(),
                    model,
                    name: format!("{model}-{client}"),
                    dice: Dice::new(options.seed, n as u64 * CLIENTS + client),
                    books: &books,
                };
                scope.spawn(move || caller.run(over));
            }
        }
        watch(&host, options, &books, &mut looks);
        over.store(true, Ordering::Relaxed);
    });
    let after =
        verdict::Rest { before, copy, isolated: MODELS.iter().filter(|m| m.2 || options.isolate).count() };
    let passed = verdict::judge(&mut host, &after, &looks, &books);
    verdict::tell(options.json, options.seed, &books, &looks, &passed);
    Ok(books.faults().0 == 0)
}

fn start(folder: &Path, options: &Options) -> Result<Host> {
    let folder = folder.to_str().context("the temporary folder's path is text")?;
    let mut args = vec!["--plugin-dir", folder, "--plugin-max-generations", "100000", "--log-level", "info"];
    args.extend(["--max-concurrent", "16", "--max-queued", "1000", "--queue-timeout", "1h"]);
    args.extend(["--set", "limits.stall_timeout=2s"]);
    args.push(if options.isolate { "--isolate" } else { "--isolate=mocb" });
    Ok(Host::start(&args))
}

/// What a copy of a plugin costs in the host's memory, in KiB; less than nothing is nothing.
fn copy_cost(host: &Host, breaker: &mut Breaker<'_>) -> Result<f64> {
    for _ in 0..PROBES {
        breaker.upgrade()?;
    }
    let before = settled(host);
    for _ in 0..PROBES {
        breaker.upgrade()?;
    }
    let after = settled(host);
    let copies = (after.generations - before.generations).max(1.0);
    Ok(((after.memory - before.memory) / copies).max(0.0))
}

/// A look once drained engines are closed.
fn settled(host: &Host) -> Vitals {
    std::thread::sleep(Duration::from_secs(2));
    look(host, 0.0).unwrap_or_default()
}

fn look(host: &Host, at: f64) -> Result<Vitals> {
    let scrape = Scrape::parse(&host.get("/metrics")?.text())?;
    // The sum of none is -0, which is no way to tell a count.
    let generations = scrape.sum("cascadia_plugin_generations", &[]) + 0.0;
    Ok(Vitals { at, generations, ..Vitals::of(host.id()) })
}

/// Looks every second until the time is up, and tells how it goes.
fn watch(host: &Host, options: &Options, books: &Books, looks: &mut Vec<Vitals>) {
    let (begun, mut told) = (Instant::now(), Instant::now());
    let until = begun + Duration::from_secs_f64(options.minutes * 60.0);
    while Instant::now() < until {
        std::thread::sleep(EVERY);
        match look(host, begun.elapsed().as_secs_f64()) {
            Ok(look) => looks.push(look),
            Err(error) => books.fault(format!("metrics cannot be read: {error:#}")),
        }
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let (counts, (faults, first)) = (books.counts(), books.faults());
            let requests = |what: &str| counts.get(what).copied().unwrap_or(0);
            let committed: u64 =
                counts.iter().filter(|(k, _)| k.starts_with("fault: ")).map(|(_, n)| n).sum();
            let last = looks.last().copied().unwrap_or_default();
            eprintln!(
                "{:>5.0} s  {} answered, {} left, {} failed in trouble; {committed} faults committed; {:.0} MiB, {} copies, \
                 {} descriptors, {} threads, {} children; wrong: {faults} {}",
                begun.elapsed().as_secs_f64(),
                requests("as asked"),
                requests("left"),
                requests("failed in trouble"),
                last.memory / 1024.0,
                last.generations,
                last.descriptors,
                last.threads,
                last.children,
                first.last().map(String::as_str).unwrap_or_default(),
            );
        }
    }
}
