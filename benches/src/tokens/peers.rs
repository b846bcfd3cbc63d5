//! `cargo xtask bench peers`: what others' servers cost for the same tokens, beside ours, in turn.
//!
//! The same client asks all of them the same. A server that is not there, does not start or does not answer as it should is
//! named with the reason; the others go on. Only of ours is that an error.

mod gguf;
pub(crate) mod group;
pub(crate) mod launch;
mod plan;
pub(crate) mod probe;
mod report;
mod server;
mod tiny;

use anyhow::{Context, Result, bail};

use crate::options::Options;
use crate::system;
use launch::Stock;
use plan::Case;
use report::Row;
use server::Who;

/// Rounds of a whole run, and of a quick one.
const ROUNDS: (usize, usize) = (5, 3);

/// The command.
#[expect(clippy::print_stdout, reason = "a command that talks to its terminal")]
pub(crate) fn bench(words: impl Iterator<Item = String>) -> Result<()> {
    let options = Options::parse(words, &["--model", "--threads", "--python", "--absent"])?;
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or_else(all);
    let stock = Stock::new(options.pythons.clone(), options.model.clone(), threads)?;
    let before = system::load();
    let (mut rows, mut pairs) = (Vec::new(), Vec::new());
    for case in plan::cases(options.quick) {
        let name = format!("{} {}", case.name, case.manner.streams);
        if options.only.as_ref().is_some_and(|part| !name.contains(part)) {
            continue;
        }
        let found = rounds(&case, &options, &stock);
        pairs.extend(report::pairs(&found));
        rows.extend(found);
    }
    let after = system::load();
    let all = report::json(&rows, &pairs, &options.absent, threads, [&before, &after]);
    if let Some(file) = &options.out {
        let text = serde_json::to_string_pretty(&all).context("write the report")?;
        std::fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    }
    if options.json {
        println!("{all}");
    } else {
        println!("\nmedian (quartiles) of the rounds\n\n{}", report::head());
        rows.iter().for_each(|row| println!("{}", row.text()));
        println!();
        pairs.iter().for_each(|pair| println!("{}", pair.text()));
        options.absent.iter().for_each(|(who, why)| println!("not measured: {who}: {why}"));
        println!("load average before and after: {before}; {after}");
    }
    let ours = |row: &&Row| row.who.package().is_none() && row.reason.is_some();
    match rows.iter().find(ours) {
        Some(row) => bail!("{}: {}", row.who.name(), row.reason.as_deref().unwrap_or_default()),
        None => Ok(()),
    }
}

/// All rounds of a case: each server in turn, from another one on in every round. Who fails once is out of this case.
#[expect(clippy::print_stderr, reason = "a command that talks to its terminal")]
fn rounds(case: &Case, options: &Options, stock: &Stock) -> Vec<Row> {
    let mut rows: Vec<Row> = case.who.iter().map(|who| row(case, *who, options)).collect();
    let count = rows.len();
    for round in 0..if options.quick { ROUNDS.1 } else { ROUNDS.0 } {
        for turn in 0..count {
            let row = &mut rows[(round + turn) % count];
            if row.reason.is_some() {
                continue;
            }
            let what = format!("{}, {} streams, {}", case.name, case.manner.streams, row.who.name());
            match plan::run(case, row.who, stock) {
                Ok(found) => {
                    let (all, rate) = (found.all, found.tokens_per_second);
                    eprintln!("{what}: {all:.2} us a token, {rate:.0} tokens/s");
                    row.rounds.push(found);
                }
                Err(error) => {
                    eprintln!("{what}: {error:#}");
                    row.reason = Some(format!("{error:#}"));
                }
            }
        }
    }
    rows
}

fn row(case: &Case, who: Who, options: &Options) -> Row {
    let missing = who.package().filter(|name| !options.pythons.contains_key(*name));
    let why = |name: &str| {
        let told = options.absent.iter().find(|(who, _)| who == name);
        told.map_or_else(|| "not installed".to_owned(), |(_, why)| why.clone())
    };
    Row { case: *case, who, rounds: Vec::new(), reason: missing.map(why) }
}
