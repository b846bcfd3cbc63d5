//! The repository's one tool: it fetches, builds, serves, tests, checks and packs. `cargo xtask --help` lists how.
//!
//! Holds: everything it makes lies under the target folder; a failure is one line that names the way out.
//! Knows the host by its command line and its HTTP answers only; it uses no crate of ours.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its terminal")]

mod args;
mod bench;
mod compile;
mod dist;
mod docs;
mod fetch;
mod pins;
mod place;
mod proc;
mod serve;
mod suite;
mod tidy;

use args::{Bench, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match args::parse(&words).and_then(run) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    if let Command::Help(topic) = command {
        println!("{}", args::help(topic.as_deref()));
        return Ok(ExitCode::SUCCESS);
    }
    let place = place::Place::find()?;
    match command {
        Command::Help(_) => {}
        Command::Fetch(wanted) => fetch::all(&place, &wanted)?,
        Command::Build(profile) => compile::all(&place, profile)?,
        Command::Shim(openvino) => compile::shims_for(&place, &openvino)?,
        Command::Serve { once, host } => return serve::serve(&place, once, &host),
        Command::Test(options) => suite::run(&place, &options)?,
        Command::Gen(mode) => docs::all(&place, mode)?,
        Command::Tidy => tidy::run(&place)?,
        Command::Dist(runtime) => dist::pack(&place, runtime)?,
        Command::Bench(None) => println!("{}", bench::LIST),
        Command::Bench(Some(Bench::Boundary { gate })) => return bench::boundary(&place, gate),
        Command::Bench(Some(Bench::Tokens(words))) => return bench::tokens(&place, &words),
        Command::Bench(Some(Bench::Peers(words))) => return bench::peers(&place, &words),
        Command::Bench(Some(Bench::Engines(words))) => return bench::engines(&place, "engines", &words),
        Command::Bench(Some(Bench::Runtime(words))) => return bench::engines(&place, "runtime", &words),
        Command::Bench(Some(Bench::Exact(words))) => return bench::exact(&place, &words),
        Command::Soak(words) => return bench::soak(&place, &words),
    }
    Ok(ExitCode::SUCCESS)
}
