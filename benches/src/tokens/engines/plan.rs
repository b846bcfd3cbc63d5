//! What a run asks of whom, and what one volley of it finds.
//!
//! Three plans: [`genai::PLAN`] is `bench engines`, [`runtime::PLAN`] is `bench runtime`, [`exact::PLAN`] is `bench exact`.

pub(crate) mod exact;
mod figures;
pub(crate) mod genai;
pub(crate) mod runtime;

use anyhow::{Context, Result, ensure};
use cascadia_tests::Dice;

use super::report::{Figure, Report};
use super::steps::Steps;
use super::subject::{Subject, Who};
use super::threads::Threads;
use super::verdict::Verdict;
use super::volley::{self, Events, Volley};
use super::words::{Prompt, Words};
use crate::spread::Spread;
use crate::subject::{self, Manner};
use crate::system::cpu;

/// Tokens of an answer, where its speed counts.
pub(crate) const ANSWER: usize = 32;
/// Halves of a round, each with processes of its own, which are started in the opposite order of the other's. Of four processes
/// that are alike in all but that, the one that was started first was measured to be 12 % slower than the last, as long as they
/// lived.
pub(crate) const HALVES: usize = 2;
/// Volleys of the host without an engine.
const IDLE_ROUNDS: usize = 3;

/// A run.
pub(crate) struct Plan {
    /// In the order of starts: the first compiles the model that the library opens.
    pub(crate) who: &'static [Who],
    /// In the order of the report. No two have one name.
    pub(crate) cases: &'static [Case],
    /// Starts of each that are timed.
    pub(crate) starts: usize,
    pub(crate) warm: Warm,
    /// Most generations at once.
    pub(crate) width: fn(Who) -> usize,
    /// Figures of a volley beside those that every report has.
    pub(crate) figures: &'static [&'static [(&'static str, Figure)]],
    /// Whose ratios are told: ours to theirs.
    pub(crate) pairs: &'static [(Who, Who)],
    /// The targets of which something was measured.
    pub(crate) judge: fn(&Report) -> Vec<Verdict>,
}

/// The volleys of a subject that do not count, in each half of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Warm {
    /// One of each case, ahead of all that count: it makes kernels and buffers.
    Ahead,
    /// So many of a case right ahead of the one that counts: for an engine that learns. What it learned and saved in a later
    /// case is then in the figures of none before.
    Before(u64),
}

impl Warm {
    /// Volleys of each case in a half of a round, the one that counts included.
    pub(crate) fn volleys(self) -> u64 {
        match self {
            Warm::Ahead => 2,
            Warm::Before(count) => count + 1,
        }
    }

    /// The volleys of a half of a round: the place of the case, and the how manieth of it, of which the last counts.
    pub(crate) fn order(self, cases: usize) -> Vec<(usize, u64)> {
        let numbers = 0..self.volleys();
        match self {
            Warm::Ahead => numbers.flat_map(|number| (0..cases).map(move |case| (case, number))).collect(),
            Warm::Before(_) => {
                (0..cases).flat_map(|case| numbers.clone().map(move |number| (case, number))).collect()
            }
        }
    }
}

/// Some prompts at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// For people and reports.
    pub(crate) name: &'static str,
    pub(crate) streams: usize,
    /// Tokens of each prompt.
    pub(crate) prompt: usize,
    /// Tokens with which a second prompt, asked behind the first, begins like it. 0: there is no second.
    pub(crate) shared: usize,
    /// How many times a prompt says the same, one after the other. 1: all its words are drawn.
    pub(crate) repeats: usize,
    /// Tokens of each answer.
    pub(crate) tokens: usize,
    pub(crate) who: &'static [Who],
}

impl Case {
    /// The prompts of a round, the same for everyone.
    pub(crate) fn prompts(&self, words: &Words, round: u64) -> Vec<Prompt> {
        let seed = (self.prompt * 100 + self.streams) as u64;
        let mut dice = Dice::new(seed, round);
        if self.shared == 0 {
            let piece = self.prompt / self.repeats;
            let prompts = (0..self.streams).map(|_| words.prompt(&mut dice, piece).repeated(self.repeats));
            return prompts.collect();
        }
        let head = words.prompt(&mut dice, self.shared);
        (0..2).map(|_| head.then(&words.prompt(&mut dice, self.prompt - self.shared))).collect()
    }

    fn all_tokens(&self) -> f64 {
        let volleys = if self.shared == 0 { 1 } else { 2 };
        (self.streams * self.tokens * volleys) as f64
    }
}

/// What one volley found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Found {
    /// From the requests to the first token, the middle of the streams, in milliseconds.
    pub(crate) first: f64,
    /// The same of the second prompt, which begins like the first; not a number where there was none.
    pub(crate) warm: f64,
    /// Tokens a second of one stream behind its first token, the middle of the streams.
    pub(crate) decode: f64,
    /// Tokens a second of all streams, prompts included in the time.
    pub(crate) total: f64,
    /// Processor time for a token, in milliseconds, prompts included.
    pub(crate) cpu: f64,
    /// The part of it in threads in which no engine computes; not a number where the names do not say.
    pub(crate) others: f64,
    /// Resident memory afterwards, in MiB.
    pub(crate) resident: f64,
    /// Seconds from the requests to the last token.
    pub(crate) took: f64,
    /// The engine's own account, where it gives one.
    pub(crate) steps: Option<Steps>,
}

/// One volley of one subject.
pub(crate) fn run(case: &Case, subject: &mut Subject, prompts: &[Prompt]) -> Result<Found> {
    let process = subject.group.process();
    let told = subject.steps()?;
    let (threads, before) = (Threads::of(process)?, subject.group.cpu()?);
    let one_by_one = if case.shared == 0 { prompts.len() } else { 1 };
    let asked = prompts.chunks(one_by_one).map(|some| subject.fly(some, case.tokens));
    let volleys = asked.collect::<Result<Vec<Volley>>>()?;
    let used = subject.group.cpu()?.saturating_sub(before).as_secs_f64();
    let shares = Threads::of(process)?.since(&threads);
    let whole = (shares.engine + shares.others).as_secs_f64();
    let others = if subject.who.is_host() { shares.others.as_secs_f64() / whole } else { f64::NAN };
    let steps = subject.steps()?.zip(told).map(|(now, then)| now.since(&then)).transpose()?;
    if let Some(steps) = steps {
        ensure!(steps.hits == case.shared as f64, "{} tokens came from the prefix cache", steps.hits);
    }
    let first = |volley: &Volley| Spread::of(volley.first.iter().map(|first| first * 1e3)).median;
    let cold = volleys.first().context("a volley")?;
    let took = volleys.iter().map(Volley::took).sum();
    Ok(Found {
        first: first(cold),
        warm: volleys.get(1).map_or(f64::NAN, first),
        decode: decode(case, cold),
        total: case.all_tokens() / took,
        cpu: used * 1e3 / case.all_tokens(),
        others,
        resident: subject.group.resident()? / 1024.0,
        took,
        steps,
    })
}

/// The first event has one token, with guesses too: nothing is guessed in the step that ends a prompt.
fn decode(case: &Case, volley: &Volley) -> f64 {
    let behind = (case.tokens - 1) as f64;
    Spread::of(volley.first.iter().zip(&volley.last).map(|(first, last)| behind / (last - first))).median
}

/// Milliseconds of processor time that the host needs for a token when its engine, the mock, only waits: the whole process, the
/// mock's share included, at the pace of `decode` tokens a second and stream. More than what is outside a real engine.
pub(crate) fn without_engine(case: &Case, decode: f64) -> Result<Spread> {
    let manner = Manner {
        streams: case.streams,
        tokens: u32::try_from(case.tokens).context("a number of tokens")?,
        pace_us: (1e6 / decode) as u64,
        idle: false,
    };
    let host = subject::Subject::start(subject::Who::Host, &manner)?;
    let mut found = Vec::new();
    for round in 0..=IDLE_ROUNDS {
        let prompt = |stream: usize| Prompt { ids: Vec::new(), text: format!(" stream {stream} of {round}") };
        let requests: Vec<_> =
            (0..case.streams).map(|stream| volley::request("mock", &prompt(stream), case.tokens)).collect();
        let before = cpu(host.process())?;
        volley::fly(host.address, &requests, Events { before: 0, together: 1 }, case.tokens)?;
        found.push((cpu(host.process())? - before).as_secs_f64() * 1e3 / case.all_tokens());
    }
    // The first warms it.
    Ok(Spread::of(found.into_iter().skip(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::words;

    #[test]
    fn a_stream_is_timed_behind_its_first_token() {
        let case = genai::CASES[0];
        let volley = Volley { first: vec![2.0], last: vec![2.0 + 3.1] };
        assert!((decode(&case, &volley) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_copied_is_said_again_and_drawn_anew_in_each_volley() {
        let (_, words) = words::made_up();
        let case = Case { prompt: 12, repeats: 3, streams: 2, ..genai::CASES[0] };
        let prompts = case.prompts(&words, 0);
        for prompt in &prompts {
            assert_eq!((prompt.ids.len(), prompt.text.split_whitespace().count()), (12, 12));
            assert!(prompt.ids.chunks(4).all(|piece| piece == &prompt.ids[..4]), "{prompt:?}");
            assert_ne!(prompt.ids[..3], prompt.ids[1..4], "a piece is drawn");
        }
        assert_ne!(prompts[0].ids, prompts[1].ids);
        assert_eq!(prompts[0].ids, case.prompts(&words, 0)[0].ids, "the same for everyone");
        assert_ne!(prompts[0].ids, case.prompts(&words, 1)[0].ids);
    }

    #[test]
    fn warm_volleys_come_ahead_of_all_that_count_or_each_case_has_its_own() {
        assert_eq!(Warm::Ahead.order(2), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert_eq!(Warm::Before(2).order(2), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
    }

    #[test]
    fn the_cases_of_a_plan_have_a_name_each_and_fit_their_subjects() {
        for plan in [&genai::PLAN, &runtime::PLAN, &exact::PLAN] {
            for (at, case) in plan.cases.iter().enumerate() {
                assert!(plan.cases[..at].iter().all(|other| other.name != case.name), "{}", case.name);
                assert!(case.shared < case.prompt, "{}", case.name);
                assert_eq!(case.prompt % case.repeats, 0, "{}", case.name);
                assert!(case.shared == 0 || case.repeats == 1, "{}", case.name);
                for who in case.who {
                    assert!(plan.who.contains(who) && case.streams <= (plan.width)(*who), "{}", case.name);
                }
            }
        }
    }
}
