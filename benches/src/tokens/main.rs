//! `cargo xtask bench tokens`: what the whole way of a token costs, from the engine to a client's socket.
//!
//! The host runs as it is shipped: routes, limits, metrics and log. Beside it run, in turn, two programs that do next to
//! nothing (`cascadia-anchor`), so that a figure can be judged on a machine that others use too. Processor time is the
//! subject's own, user and system, from its clock; the client's work is not in it, but for what the kernel does of it inside
//! the subject's writes. With `peers`, `engines`, `runtime` or `exact` as its first word it is the bench of that name.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command that talks to its terminal")]

mod answer;
mod engines;
mod generator;
mod options;
mod peers;
mod plan;
mod report;
mod spread;
mod subject;
mod system;

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use options::Options;
use plan::{Case, Found};
use report::Row;
use spread::Spread;
use subject::Who;

/// Rounds of a whole run, and of a quick one.
const ROUNDS: (usize, usize) = (5, 3);

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    let named = ["peers", "engines", "runtime", "exact"];
    let done = match words.next_if(|word| named.contains(&word.as_str())).as_deref() {
        Some("peers") => peers::bench(words),
        Some("engines") => engines::bench(&engines::plan::genai::PLAN, words),
        Some("runtime") => engines::bench(&engines::plan::runtime::PLAN, words),
        Some(_) => engines::bench(&engines::plan::exact::PLAN, words),
        None => Options::parse(words, &[]).and_then(|options| bench(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Result<()> {
    let before = system::load();
    let mut cases = plan::cases(options.quick);
    if let Some(part) = &options.only {
        cases.retain(|case| format!("{} {}", case.name, case.manner.streams).contains(part));
        ensure!(!cases.is_empty(), "--only {part:?} fits no case; leave it out to see them all");
    }
    let mut rows = Vec::new();
    for case in cases {
        rows.extend(rounds(&case, if options.quick { ROUNDS.1 } else { ROUNDS.0 })?);
    }
    let (after, verdicts) = (system::load(), report::verdicts(&rows));
    let all = report::json(&rows, &verdicts, [&before, &after]);
    if let Some(file) = &options.out {
        let text = serde_json::to_string_pretty(&all).context("write the report")?;
        std::fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    }
    if options.json {
        println!("{all}");
        return Ok(());
    }
    println!(
        "\nmedian (quartiles) of the rounds; times of the host's or the anchor's processor\n\n{}",
        report::head()
    );
    rows.iter().for_each(|row| println!("{}", row.text()));
    let hosts = || rows.iter().filter(|row| row.who == Who::Host).flat_map(|row| &row.rounds);
    let start = |figure: fn(&Found) -> f64| Spread::of(hosts().map(figure)).text();
    println!("\nready after {} ms, with {} MiB", start(|f| f.ready), start(|f| f.at_start / 1024.0));
    println!("load average before and after: {before}; {after}\n");
    verdicts.iter().for_each(|verdict| println!("{}", verdict.text()));
    Ok(())
}

/// All rounds of a case: each subject in turn, from another one on in every round.
fn rounds(case: &Case, rounds: usize) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> =
        case.who.iter().map(|who| Row { case: *case, who: *who, rounds: Vec::new() }).collect();
    let count = rows.len();
    for round in 0..if case.once { 1 } else { rounds } {
        for turn in 0..count {
            let row = &mut rows[(round + turn) % count];
            let what = || format!("{}, {} streams, {}", case.name, case.manner.streams, row.who.name());
            let found = plan::run(case, row.who).with_context(what)?;
            eprintln!("{}: {:.2} us a token, {:.0} % of a core", what(), found.cpu, found.core * 100.0);
            row.rounds.push(found);
        }
    }
    Ok(rows)
}
