//! `cargo xtask bench engines`, `bench runtime` and `bench exact`: whole models, in turn: our host over HTTP, OpenVINO GenAI in process from
//! Python, and llama.cpp's server; the same file, threads, prompts and lengths. What is asked of whom is the [`plan`].
//!
//! First all are started and ended in turn, for the time until a first answer, where the plan wants that. Then all are up, only one works at a time, and
//! neighbouring volleys are compared. One that fails is named with the reason and is out; only of ours is that an error.

mod library;
pub(crate) mod plan;
mod report;
mod steps;
mod subject;
mod threads;
mod verdict;
mod volley;
mod words;

use anyhow::{Context, Result, ensure};
use cascadia_tests::Dice;

use crate::options::Options;
use crate::spread::Spread;
use crate::system;
use plan::{Case, HALVES, Plan};
use report::{Idle, Report, Row, Start};
use subject::{Stock, Subject, Who};
use words::{Prompt, Words};

/// Rounds of a whole run, and of a quick one.
const ROUNDS: (usize, usize) = (9, 3);
/// Of the prompts that nobody counts.
const SEED_OF_STARTS: u64 = 7;

/// The command.
#[expect(clippy::print_stdout, reason = "a command that talks to its terminal")]
pub(crate) fn bench(plan: &'static Plan, words: impl Iterator<Item = String>) -> Result<()> {
    let options = Options::parse(words, &["--model", "--cache", "--threads", "--python", "--absent"])?;
    let model = options.model.clone().context("no model was named")?;
    let cache = options.cache.clone().context("no folder for compiled models was named")?;
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or_else(all);
    let words = Words::read(&model)?;
    let stock = Stock { model, cache, threads, width: plan.width, pythons: options.pythons.clone() };
    let (absent, loads) = (options.absent.clone(), vec![system::load()]);
    let report = Report { absent, loads, ..Report::new(plan, threads) };
    let mut bench = Bench { plan, options, stock, words, report };
    bench.run()?;
    let all = bench.report.json();
    if let Some(file) = &bench.options.out {
        let text = serde_json::to_string_pretty(&all).context("write the report")?;
        std::fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    }
    if bench.options.json {
        println!("{all}");
    } else {
        println!("\nmedian (quartiles) of the rounds\n\n{}", bench.report.text());
    }
    Ok(())
}

struct Bench {
    plan: &'static Plan,
    options: Options,
    stock: Stock,
    words: Words,
    report: Report,
}

impl Bench {
    fn run(&mut self) -> Result<()> {
        self.starts(if self.options.only.is_some() { 0 } else { self.plan.starts })?;
        self.volleys()?;
        self.idle()?;
        self.report.loads.push(system::load());
        Ok(())
    }

    fn small(&self, number: u64) -> Prompt {
        self.words.prompt(&mut Dice::new(SEED_OF_STARTS, number), 20)
    }

    /// Whether it can still be measured.
    fn is_there(&self, who: Who) -> bool {
        !self.report.absent.iter().any(|(name, _)| Some(name.as_str()) == who.package())
    }

    /// Ours must work; of another the reason is kept.
    fn lost(&mut self, who: Who, error: anyhow::Error) -> Result<()> {
        let Some(package) = who.package() else { return Err(error.context(who.name())) };
        self.report.absent.push((package.to_owned(), format!("{error:#}")));
        Ok(())
    }

    /// Starts and ends all of them in turn.
    fn starts(&mut self, rounds: usize) -> Result<()> {
        let who = self.plan.who;
        if rounds > 0 {
            self.report.starts = who.iter().map(|who| Start { who: *who, rounds: Vec::new() }).collect();
        }
        // What is compiled once, and read from a cold disk, is no part of a start.
        drop(Subject::start(who[0], &self.stock, &self.small(0))?);
        for round in 0..rounds {
            for (at, &who) in who.iter().enumerate() {
                if !self.is_there(who) {
                    continue;
                }
                match Subject::start(who, &self.stock, &self.small(round as u64)) {
                    Ok(subject) => {
                        let (load, resident) =
                            (subject.load.as_secs_f64(), subject.group.resident()? / 1024.0);
                        said(&format!("start, {}: {load:.2} s, {resident:.0} MiB", who.name()));
                        self.report.starts[at].rounds.push((load, resident));
                    }
                    Err(error) => self.lost(who, error)?,
                }
            }
        }
        Ok(())
    }

    /// The volleys of all cases that are wanted.
    fn volleys(&mut self) -> Result<()> {
        let cases: Vec<Case> = self.plan.cases.iter().filter(|case| self.wants(case)).copied().collect();
        let all = || self.plan.cases.iter().map(|case| case.name).collect::<Vec<_>>().join(", ");
        ensure!(!cases.is_empty(), "--only fits no case; there are {}", all());
        let asked = |who: &Who| cases.iter().any(|case| case.who.contains(who));
        let who: Vec<Who> = self.plan.who.iter().copied().filter(asked).collect();
        for case in &cases {
            let row = |who: &Who| Row { case: *case, who: *who, rounds: Vec::new() };
            self.report.rows.extend(case.who.iter().map(row));
        }
        let rounds = if self.options.quick { ROUNDS.1 } else { ROUNDS.0 };
        self.halves(&cases, &who, rounds)?;
        self.report.rows.retain(|row| !row.rounds.is_empty());
        Ok(())
    }

    /// Processes of its own for each half of a round: whoever was started first in the one is the last in the other. One works at a
    /// time, and who is first there changes too. What does not count, and when it comes, is the plan's.
    fn halves(&mut self, cases: &[Case], who: &[Who], rounds: usize) -> Result<()> {
        for half in 0..rounds * HALVES {
            let backwards = half % 2 == 1;
            let order: Vec<Who> = if backwards { who.iter().rev().copied().collect() } else { who.to_vec() };
            let mut subjects = self.raise(order.into_iter(), half == 0)?;
            // Who works first is not always who was started first.
            let mut order: Vec<usize> = (0..subjects.len()).collect();
            if half % 4 > 1 {
                order.reverse();
            }
            let volleys = self.plan.warm.volleys();
            for (case, number) in self.plan.warm.order(cases.len()) {
                let (dice, counts) = (half as u64 * volleys + number, number + 1 == volleys);
                self.each(&cases[case], &mut subjects, &order, dice, counts)?;
            }
            self.report.loads.push(system::load());
        }
        Ok(())
    }

    /// Starts those that can be measured. Checked are those whose count of a long prompt's tokens was compared with ours.
    fn raise(&mut self, who: impl Iterator<Item = Who>, checked: bool) -> Result<Vec<Subject>> {
        let mut subjects = Vec::new();
        for who in who {
            if !self.is_there(who) {
                continue;
            }
            match self.start(who, checked) {
                Ok(subject) => subjects.push(subject),
                Err(error) => self.lost(who, error)?,
            }
        }
        Ok(subjects)
    }

    /// A volley of a case for each subject.
    fn each(
        &mut self,
        case: &Case,
        subjects: &mut [Subject],
        order: &[usize],
        number: u64,
        counts: bool,
    ) -> Result<()> {
        let prompts = case.prompts(&self.words, number);
        order.iter().try_for_each(|at| self.volley(case, &mut subjects[*at], &prompts, counts))
    }

    fn volley(&mut self, case: &Case, subject: &mut Subject, prompts: &[Prompt], counts: bool) -> Result<()> {
        let who = subject.who;
        if !case.who.contains(&who) || !self.is_there(who) {
            return Ok(());
        }
        let run = plan::run(case, subject, prompts).and_then(|found| subject.rest().map(|()| found));
        match run {
            Ok(found) if counts => {
                let (first, total) = (found.first, found.total);
                said(&format!("{}, {}: {first:.0} ms, {total:.1} tokens/s", case.name, who.name()));
                let row =
                    self.report.rows.iter_mut().find(|row| row.case.name == case.name && row.who == who);
                row.context("a row for each")?.rounds.push(found);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => self.lost(who, error),
        }
    }

    fn start(&self, who: Who, checked: bool) -> Result<Subject> {
        let subject = Subject::start(who, &self.stock, &self.small(0))?;
        if checked {
            subject.counts(&self.words.prompt(&mut Dice::new(SEED_OF_STARTS, 1), 1000))?;
        }
        Ok(subject)
    }

    fn wants(&self, case: &Case) -> bool {
        self.options.only.as_ref().is_none_or(|part| case.name.contains(part))
    }

    /// The host at the same pace without an engine.
    fn idle(&mut self) -> Result<()> {
        let measured = |row: &&Row| row.who == Who::Batch && row.case.prompt < 100;
        let paces: Vec<_> = self
            .report
            .rows
            .iter()
            .filter(measured)
            .map(|row| (row.case, Spread::of(row.rounds.iter().map(|found| found.decode)).median))
            .collect();
        for (case, pace) in paces {
            let cpu = plan::without_engine(&case, pace).context("the host with the mock")?;
            said(&format!("{}, without an engine: {} ms a token", case.name, cpu.text()));
            self.report.idle.push(Idle { streams: case.streams, cpu });
        }
        Ok(())
    }
}

#[expect(clippy::print_stderr, reason = "a command that talks to its terminal")]
fn said(line: &str) {
    eprintln!("{line}");
}
