//! Looks at a host while it is under load, and what it holds.

use std::time::{Duration, Instant};

use anyhow::Result;
use cascadia_tests::{Host, Scrape};

use crate::books::Books;
use crate::vitals::Vitals;

const EVERY: Duration = Duration::from_secs(1);
const PROGRESS: Duration = Duration::from_secs(10);

/// A look once drained engines are closed.
pub(crate) fn settled(host: &Host) -> Vitals {
    std::thread::sleep(Duration::from_secs(2));
    look(host, 0.0).unwrap_or_default()
}

fn look(host: &Host, at: f64) -> Result<Vitals> {
    let scrape = Scrape::parse(&host.get("/metrics")?.text())?;
    // The sum of none is -0, which is no way to tell a count.
    let generations = scrape.sum("cascadia_plugin_generations", &[]) + 0.0;
    Ok(Vitals { at, generations, ..Vitals::of(host.id()) })
}

/// Looks every second until the time is up, and tells how it goes; after each look `more` does its own, whose words are told too.
pub(crate) fn watch(
    host: &Host,
    minutes: f64,
    books: &Books,
    looks: &mut Vec<Vitals>,
    mut more: impl FnMut() -> String,
) {
    let (begun, mut told) = (Instant::now(), Instant::now());
    let until = begun + Duration::from_secs_f64(minutes * 60.0);
    while Instant::now() < until {
        std::thread::sleep(EVERY);
        match look(host, begun.elapsed().as_secs_f64()) {
            Ok(look) => looks.push(look),
            Err(error) => books.fault(format!("metrics cannot be read: {error:#}")),
        }
        let more = more();
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let (counts, (faults, first)) = (books.counts(), books.faults());
            let requests = |what: &str| counts.get(what).copied().unwrap_or(0);
            let last = looks.last().copied().unwrap_or_default();
            eprintln!(
                "{:>5.0} s  {} answered, {} left; {more}; {:.0} MiB, {} descriptors, {} threads, {} children; wrong: {faults} {}",
                begun.elapsed().as_secs_f64(),
                requests("as asked"),
                requests("left"),
                last.memory / 1024.0,
                last.descriptors,
                last.threads,
                last.children,
                first.last().map(String::as_str).unwrap_or_default(),
            );
        }
    }
}
