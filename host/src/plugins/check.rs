//! `cascadia-host plugin check`: holds a plugin to the boundary's contract, one test at a time.
//!
//! Each test builds what it needs from the library alone and says in one line what was wrong. The command runs each in a
//! process of its own ([`alone`]), so that a crash or a hang is that test's failure and no more. The driver keeps the
//! contract itself, and debug builds hold it to that (`strict`): tags, states, one driving thread; what it deliberately
//! breaks (sizes, ids) the contract speaks of.
//!
//! Knows nothing of the command line and prints nothing.

pub mod alone;
mod answer;
mod ask;
mod boundary;
mod budget;
mod building;
mod cancel;
mod ending;
mod ext;
mod fuzz;
mod leaks;
mod links;
mod note;
mod pace;
mod page;
mod refuse;
mod rig;
mod said;
mod setup;
mod sink;
mod sizes;
mod subject;
mod surroundings;

use regex::Regex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::breach;

/// What to check, and with what.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The library's file.
    pub library: PathBuf,
    /// The engine; the plugin's first when left out.
    pub engine: Option<String>,
    /// Options as the plugin gets them, checked and completed.
    pub options: BTreeMap<String, String>,
    /// File or folder of a model, for engines that need one.
    pub model: Option<PathBuf>,
    /// An adapter that fits the model, for engines that take some.
    pub adapter: Option<String>,
    /// Start of the random sequences; none without it.
    pub fuzz: Option<u64>,
    /// How long one test may take.
    pub timeout: Duration,
}

impl Plan {
    /// How long an engine with work may show no sign of life.
    fn patience(&self) -> Duration {
        self.timeout / 6
    }
}

/// What came of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was wrong; the text says what was measured, if anything.
    Passed(String),
    /// What was wrong.
    Failed(String),
    /// Why it could not be tried.
    Skipped(String),
}

/// Why a test did not pass.
#[derive(Debug)]
enum Fault {
    Failed(String),
    Skipped(String),
}

impl Fault {
    /// The same fault met on the way to another test's own question: no answer to that, and told where it belongs.
    fn elsewhere(self, what: &str) -> Fault {
        match self {
            Fault::Failed(_) => Fault::Skipped(what.to_owned()),
            skipped @ Fault::Skipped(_) => skipped,
        }
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Fault {
        Fault::Failed(text)
    }
}

impl From<&str> for Fault {
    fn from(text: &str) -> Fault {
        Fault::Failed(text.to_owned())
    }
}

/// A remark for a pass, or the fault.
type Outcome = Result<String, Fault>;

/// Passes without a remark.
fn passed() -> Outcome {
    Ok(String::new())
}

fn skip<T>(why: &str) -> Result<T, Fault> {
    Err(Fault::Skipped(why.to_owned()))
}

struct Test {
    name: &'static str,
    run: fn(&Plan) -> Outcome,
}

/// Every test, from the file inwards.
const TESTS: &[&[Test]] = &[
    boundary::TESTS,
    sizes::TESTS,
    building::TESTS,
    answer::TESTS,
    refuse::TESTS,
    budget::TESTS,
    cancel::TESTS,
    ending::TESTS,
    links::TESTS,
    surroundings::TESTS,
    leaks::TESTS,
    fuzz::TESTS,
    ext::kv_events::TESTS,
    ext::token_mask::TESTS,
    ext::tokenize::TESTS,
    ext::embeddings::TESTS,
    ext::stage::TESTS,
    ext::kv_state::TESTS,
    ext::adapters::TESTS,
    ext::pause::TESTS,
    ext::async_sink::TESTS,
];

/// Whether the test was skipped for want of a model: then no engine was tried at all.
pub fn needs_model(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Skipped(why) if why.starts_with(setup::NEEDS_MODEL))
}

/// The names of the tests in which `only` matches, in order.
pub fn names(only: Option<&Regex>) -> Vec<&'static str> {
    let all = TESTS.iter().flat_map(|group| group.iter().map(|test| test.name));
    all.filter(|name| only.is_none_or(|only| only.is_match(name))).collect()
}

/// Runs the test of that name in this process.
pub fn here(plan: &Plan, name: &str) -> Verdict {
    let Some(test) = TESTS.iter().flat_map(|group| group.iter()).find(|test| test.name == name) else {
        return Verdict::Failed("there is no test of that name".to_owned());
    };
    let line = |text: String| text.replace(['\n', '\r'], " ");
    drop(breach::take_seen());
    let outcome = (test.run)(plan);
    let broken = breach::take_seen();
    match outcome {
        // Whatever a test asks, the plugin keeps the rules of the services meanwhile.
        Ok(_) if !broken.is_empty() => {
            Verdict::Failed(format!("meanwhile it broke a rule: {}", broken.join("; ")))
        }
        Ok(remark) => Verdict::Passed(line(remark)),
        Err(Fault::Failed(why)) => Verdict::Failed(line(why)),
        Err(Fault::Skipped(why)) => Verdict::Skipped(line(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn re(text: &str) -> Regex {
        Regex::new(text).expect("a regular expression")
    }

    #[test]
    fn every_test_has_a_name_of_its_own() {
        let all = names(None);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert!(all.len() > 40, "{}", all.len());
        assert_eq!(names(Some(&re("exactly one finish"))).len(), 1);
        assert!(names(Some(&re("no such words"))).is_empty());
    }
}
