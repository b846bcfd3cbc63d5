//! The command line: words to a `Command`, and the help texts.
//!
//! Holds: an unknown word is an error that lists what would have been understood.

use crate::compile::Profile;
use crate::dist::Runtime;
use crate::docs::Mode;
use crate::fetch::Artefact;
use anyhow::{Result, anyhow, bail, ensure};
use std::path::PathBuf;

#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Help(Option<String>),
    Fetch(Vec<Artefact>),
    Build(Profile),
    /// Shims for the OpenVINO of that folder.
    Shim(PathBuf),
    Serve {
        once: bool,
        host: Vec<String>,
    },
    Test(TestOptions),
    Gen(Mode),
    Tidy,
    Dist(Runtime),
    /// Nothing: the list of what can be measured.
    Bench(Option<Bench>),
    Soak(Vec<String>),
}

#[derive(Debug, PartialEq)]
pub(crate) enum Bench {
    Boundary {
        gate: bool,
    },
    /// The words go to the bench itself.
    Tokens(Vec<String>),
    /// The same.
    Peers(Vec<String>),
    /// The same.
    Engines(Vec<String>),
    /// The same.
    Runtime(Vec<String>),
    /// The same.
    Exact(Vec<String>),
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct TestOptions {
    /// Only tests whose name contains this, and none of the other checks.
    pub(crate) filter: Option<String>,
    pub(crate) no_fetch: bool,
}

/// Name, one line for the list, and what `cargo xtask NAME --help` adds.
const COMMANDS: [(&str, &str, &str); 10] = [
    (
        "fetch",
        "[openvino|model|prometheus|clients]...  download what builds and tests need (all, if none is named)",
        "Downloads into the target folder: the OpenVINO wheels (unpacked to openvino/VERSION), the small model\n\
         (models/), Prometheus from the distribution's package, and a Python environment for the client tests.\n\
         Wheels are pinned with hashes in xtask/pins.toml. Interrupt it at any time: the next run goes on.\n\
         CLIENTS=none leaves the Python environment out.",
    ),
    (
        "build",
        "[--release]  build the host, the plugins and their C++ shims",
        "Leaves cascadia-host, the plugins and the shims side by side in the target folder's debug or release,\n\
         with a link `openvino` to the runtime. Fetches OpenVINO when it is missing: the shims need its headers.",
    ),
    (
        "shim",
        "FOLDER  build the C++ shims for another OpenVINO than the pinned one",
        "FOLDER has lib and include, or is the site-packages of a Python with openvino and openvino-genai. Leaves\n\
         libNAME_shim-BUILD.so beside what `build` left; the plugin takes it where it finds that OpenVINO (--openvino-dir).",
    ),
    (
        "serve",
        "[--once] [-- ARGS]  build, load a small real model, ask it one question, keep serving",
        "Starts the release host on 127.0.0.1:8000 with the ov-genai plugin and SmolLM2, prints one question and its\n\
         answer, and serves until Ctrl-C. ARGS go to the host; its --plugin, --model and --served-model-name replace\n\
         ours, --config replaces all of them. --once stops the host after the answer.",
    ),
    (
        "test",
        "[FILTER] [--no-fetch]  every check and every test; with FILTER the matching tests only",
        "Fetches, then runs: formatting, tidy, clippy, build, gen --check, unit, integration and doc tests.\n\
         With FILTER: fetch, build and the tests whose name contains it. --no-fetch fails where something is missing.\n\
         CLIENTS=none leaves the Python client tests out, and the summary says so.",
    ),
    (
        "gen",
        "[--check]  write docs/METRICS.md, docs/CONFIG.md and docs/ERRORS.md from the code; --check only compares",
        "Asks the debug build of the host (`gen-docs NAME`), which it builds first.",
    ),
    (
        "tidy",
        "check the house rules: layers, doors, circles, sizes, dependencies",
        "Prints file:line for each breach. The names and exceptions are in tidy.toml, the dependency policy in deny.toml.",
    ),
    (
        "dist",
        "[--without-openvino]  pack a folder and a .tar.gz that run by themselves",
        "Builds with the dist profile into dist/cascadia-host-VERSION-linux-x86_64 under the target folder: host,\n\
         plugins, shims, documents and, unless left out, the OpenVINO runtime with its licences.",
    ),
    (
        "bench",
        "[boundary [--gate] | tokens [--quick] [--json] [--only TEXT] | peers|engines|runtime|exact [the same] [--threads N]]  measure; without a name, list what can be",
        "boundary: what a token costs between host and engine. Builds the release host, engines that do nothing but push, and\n\
         the mock, and measures them in the host's process and in one of their own. Prints medians, quartiles and the targets;\n\
         leaves target/bench/boundary.json. The machine's load is in the numbers: --gate, which makes a missed target exit\n\
         status 1, is for a quiet one.\n\
         tokens: what a streamed token costs on its whole way to a client's socket, flat out and paced, and what an idle\n\
         stream holds; beside it, in turn, two minimal servers. About ten minutes; --quick is one. --json prints the report,\n\
         --only runs the cases whose name and streams contain TEXT (\"paced, 5 ms 256\"). Leaves target/bench/tokens.json.\n\
         peers: the same load on servers that others wrote, beside ours, in turn: llama.cpp's with the same model, NVIDIA Dynamo\n\
         with its mocker, the routers smg and sglang-router. Downloads them (200 MiB) into target/fetch/peers, as pinned in\n\
         xtask/peers/; who cannot be installed or started is named with the reason. A quarter of an hour; --quick is three\n\
         minutes. --threads N is what the real engines compute with, all processors if it is not said: 1 is for a machine that\n\
         others use, on which threads that wait for each other measure the neighbour. Leaves target/bench/peers.json.\n\
         engines: a whole model behind the host, with --cb and without, beside OpenVINO GenAI in process from Python and llama.cpp's\n\
         server, all with the same file: time to a first token, tokens/s of 1, 8 and 16 streams, memory, time to load, the host's\n\
         share of the processor. Downloads OpenVINO for Python (80 MiB) and llama.cpp's server as peers does. Nine rounds in half\n\
         an hour; --quick is three. --threads N as for peers. Leaves target/bench/engines.json.\n\
         runtime: the same for our own batching over OpenVINO (ov-runtime): tokens/s of 1 to 32 streams beside the library in process\n\
         and of 16 beside llama.cpp's server, what its loop costs outside the library, and how much sooner an answer begins whose\n\
         prompt begins like an earlier one. Nine rounds in a quarter of an hour. Leaves target/bench/runtime.json.\n\
         exact: the same engine in f32 (profile=exact), plain and with guessed tokens, by cb-prompt-lookup and by a draft model that is\n\
         as large as the model: what guesses cost where they do not pay, what they save in a text that is copied, and what a cached\n\
         prefix saves. Needs nothing of others. Nine rounds in half an hour. Leaves target/bench/exact.json.",
    ),
    (
        "soak",
        "[ov-runtime|scheduler] [--minutes M] [--seed N] [--isolate] [--json]  load and faults for half an hour, then count what is left",
        "Builds the release host and the mock, follows a plugin folder, and draws load and faults from the seed: upgrades, broken\n\
         files, removals, panics, stalls, killed children. Afterwards every request must have had a proper end, and memory,\n\
         descriptors, threads and processes must be back. --isolate runs all engines in processes of their own.\n\
         ov-runtime: an hour of our own batching with the real model at profile=exact, in a cache too small for those who ask: every\n\
         answer must be the one that the model gave when it was asked alone, and whenever all rest every block must be back.\n\
         scheduler: ten million tokens through the scheduler of ov-runtime alone, with nothing that computes; no other words.",
    ),
];

pub(crate) fn help(topic: Option<&str>) -> String {
    if let Some((name, line, more)) = COMMANDS.iter().find(|(name, ..)| Some(*name) == topic) {
        return format!("cargo xtask {name} {line}\n\n{more}");
    }
    let mut text = "usage: cargo xtask COMMAND\n\n".to_owned();
    for (name, line, _) in COMMANDS {
        text += &format!("  {name:<6} {line}\n");
    }
    text + "\n`cargo xtask COMMAND --help` says more. serve and test are the two to start with."
}

pub(crate) fn parse(words: &[String]) -> Result<Command> {
    let Some((name, rest)) = words.split_first() else {
        return Ok(Command::Help(None));
    };
    let own = rest.split(|word| word == "--").next().unwrap_or_default();
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        return Ok(Command::Help(rest.first().cloned()));
    }
    if own.iter().any(|word| word == "--help" || word == "-h") {
        return Ok(Command::Help(Some(name.clone())));
    }
    Ok(match name.as_str() {
        "fetch" => Command::Fetch(rest.iter().map(|word| Artefact::parse(word)).collect::<Result<_>>()?),
        "build" => {
            Command::Build(if flag(name, rest, "--release")? { Profile::Release } else { Profile::Dev })
        }
        "shim" => match rest {
            [folder] if !folder.starts_with('-') => Command::Shim(PathBuf::from(folder)),
            _ => bail!("shim takes the folder of an OpenVINO"),
        },
        "serve" => {
            let host = rest.get(own.len() + 1..).unwrap_or_default().to_vec();
            let once = flag(name, own, "--once").map_err(|e| {
                let (own, meant): (Vec<&str>, Vec<&str>) =
                    own.iter().map(String::as_str).partition(|word| *word == "--once");
                let line =
                    [&["cargo xtask serve"], own.get(..1).unwrap_or_default(), &["--"], &meant].concat();
                anyhow!("{e}; the host's own arguments go after --: {}", line.join(" "))
            })?;
            Command::Serve { once, host }
        }
        "test" => Command::Test(test(rest)?),
        "gen" => Command::Gen(if flag(name, rest, "--check")? { Mode::Check } else { Mode::Write }),
        "tidy" => {
            none(name, rest)?;
            Command::Tidy
        }
        "dist" => Command::Dist(if flag(name, rest, "--without-openvino")? {
            Runtime::Left
        } else {
            Runtime::Packed
        }),
        "bench" => match rest {
            [] => Command::Bench(None),
            [what, rest @ ..] if what == "boundary" => {
                Command::Bench(Some(Bench::Boundary { gate: flag(name, rest, "--gate")? }))
            }
            [what, rest @ ..] => {
                let (bench, words): (fn(Vec<String>) -> Bench, _) = match what.as_str() {
                    "tokens" => (Bench::Tokens, TOKENS),
                    "peers" => (Bench::Peers, ENGINES),
                    "engines" => (Bench::Engines, ENGINES),
                    "runtime" => (Bench::Runtime, ENGINES),
                    "exact" => (Bench::Exact, ENGINES),
                    other => bail!(
                        "bench does not know {other:?}; it takes what to measure: boundary, tokens, peers, engines, runtime or exact"
                    ),
                };
                Command::Bench(Some(bench(known(what, rest, words)?)))
            }
        },
        "soak" => match rest {
            [what, ..] if !what.starts_with('-') && what != "ov-runtime" && what != "scheduler" => {
                bail!(
                    "soak does not know {what:?}; it takes ov-runtime, scheduler, or none of them for the mock"
                )
            }
            [what, word, ..] if what == "scheduler" => {
                bail!("soak scheduler takes nothing else, got {word:?}")
            }
            [what] if what == "scheduler" => Command::Soak(rest.to_vec()),
            [engine, words @ ..] if engine == "ov-runtime" => {
                known("soak", words, SOAK)?;
                Command::Soak(rest.to_vec())
            }
            _ => Command::Soak(known("soak", rest, SOAK)?),
        },
        other => {
            let known: Vec<&str> = COMMANDS.iter().map(|(name, ..)| *name).collect();
            bail!("unknown command {other}; there are {}", known.join(", "))
        }
    })
}

/// What stands behind a word of a bench or soak.
#[derive(Clone, Copy)]
enum Takes {
    Nothing,
    Text,
    Number,
}

const TOKENS: &[(&str, Takes)] =
    &[("--quick", Takes::Nothing), ("--json", Takes::Nothing), ("--only", Takes::Text)];
const ENGINES: &[(&str, Takes)] = &[
    ("--quick", Takes::Nothing),
    ("--json", Takes::Nothing),
    ("--only", Takes::Text),
    ("--threads", Takes::Number),
];
const SOAK: &[(&str, Takes)] = &[
    ("--minutes", Takes::Number),
    ("--seed", Takes::Number),
    ("--isolate", Takes::Nothing),
    ("--json", Takes::Nothing),
];

/// The words, if all are known: a typing error is told before minutes of compilation, not after.
fn known(command: &str, words: &[String], all: &[(&str, Takes)]) -> Result<Vec<String>> {
    let mut left = words.iter();
    while let Some(word) = left.next() {
        let Some((_, takes)) = all.iter().find(|(name, _)| name == word) else {
            let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
            bail!("{command} does not know {word:?}; it takes {}", names.join(", "));
        };
        match (takes, left.len()) {
            (Takes::Nothing, _) => {}
            (_, 0) => bail!("{word} takes a value"),
            (Takes::Text, _) => drop(left.next()),
            (Takes::Number, _) => {
                let value = left.next().map_or("", String::as_str);
                ensure!(value.parse::<f64>().is_ok(), "{word} takes a number, got {value:?}");
            }
        }
    }
    Ok(words.to_vec())
}

fn test(words: &[String]) -> Result<TestOptions> {
    let mut options = TestOptions::default();
    for word in words {
        if word == "--no-fetch" {
            options.no_fetch = true;
        } else if word.starts_with('-') {
            bail!("test does not know {word:?}; it takes [FILTER] [--no-fetch]");
        } else if let Some(first) = options.filter.replace(word.clone()) {
            bail!("test takes one filter, got {first} and {word}");
        }
    }
    Ok(options)
}

/// True if the one optional flag of a command is there; anything else is refused.
fn flag(command: &str, words: &[String], flag: &str) -> Result<bool> {
    match words {
        [] => Ok(false),
        [word] if word == flag => Ok(true),
        [word, ..] if word == flag => bail!("{command} does not know {:?}; it takes {flag} once", words[1]),
        [word, ..] => bail!("{command} does not know {word:?}; it takes {flag}"),
    }
}

fn none(command: &str, words: &[String]) -> Result<()> {
    match words {
        [] => Ok(()),
        [word, ..] => bail!("{command} takes no arguments, got {word}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_after_the_dashes_belong_to_the_host() {
        let host = vec!["--api".to_owned(), ":9000".to_owned(), "--help".to_owned()];
        assert_eq!(
            parsed("serve --once -- --api :9000 --help").unwrap(),
            Command::Serve { once: true, host }
        );
        assert_eq!(parsed("serve").unwrap(), Command::Serve { once: false, host: vec![] });
    }

    #[test]
    fn bench_lists_or_runs_what_is_named() {
        assert_eq!(parsed("bench").unwrap(), Command::Bench(None));
        let boundary = Command::Bench(Some(Bench::Boundary { gate: true }));
        assert_eq!(parsed("bench boundary --gate").unwrap(), boundary);
        let tokens = Command::Bench(Some(Bench::Tokens(vec!["--quick".to_owned()])));
        assert_eq!(parsed("bench tokens --quick").unwrap(), tokens);
        let peers = Command::Bench(Some(Bench::Peers(vec!["--only".to_owned(), "16".to_owned()])));
        assert_eq!(parsed("bench peers --only 16").unwrap(), peers);
        assert!(parsed("bench token").unwrap_err().to_string().contains("engines, runtime or exact"));
        let engines = Command::Bench(Some(Bench::Engines(vec!["--quick".to_owned()])));
        assert_eq!(parsed("bench engines --quick").unwrap(), engines);
        let runtime = Command::Bench(Some(Bench::Runtime(vec!["--quick".to_owned()])));
        assert_eq!(parsed("bench runtime --quick").unwrap(), runtime);
        let exact = Command::Bench(Some(Bench::Exact(vec!["--quick".to_owned()])));
        assert_eq!(parsed("bench exact --quick").unwrap(), exact);
    }

    #[test]
    fn soak_runs_what_is_named_or_the_mock() {
        for words in ["", "ov-runtime", "scheduler", "ov-runtime --minutes 5 --seed 3", "--isolate --json"] {
            let all = words.split_whitespace().map(str::to_owned).collect();
            assert_eq!(parsed(&format!("soak {words}")).unwrap(), Command::Soak(all), "{words}");
        }
    }

    #[test]
    fn test_takes_one_filter_and_one_flag() {
        let options = TestOptions { filter: Some("metrics".into()), no_fetch: true };
        assert_eq!(parsed("test metrics --no-fetch").unwrap(), Command::Test(options));
        assert!(parsed("test a b").unwrap_err().to_string().contains("a and b"));
    }

    #[test]
    fn unknown_words_are_refused_with_what_is_known() {
        for (line, part) in [
            ("tset", "there are fetch"),
            ("build --relase", "takes --release"),
            ("serve --foo", "takes --once; the host's own arguments go after --: cargo xtask serve -- --foo"),
            ("serve --once --api :9", "cargo xtask serve --once -- --api :9"),
            ("tidy now", "takes no arguments"),
            ("fetch modle", "openvino, model"),
            ("test --fast", "--no-fetch"),
            ("bench exact --quik", "exact does not know \"--quik\"; it takes --quick"),
            ("bench tokens --threads 1", "tokens does not know"),
            ("bench engines --threads", "--threads takes a value"),
            ("bench runtime --only", "--only takes a value"),
            ("soak --minuts 5", "it takes --minutes"),
            ("soak schedular", "it takes ov-runtime, scheduler"),
            ("soak scheduler --seed 1", "takes nothing else"),
            ("soak ov-runtime --seed x", "--seed takes a number, got \"x\""),
        ] {
            let said = parsed(line).unwrap_err().to_string();
            assert!(said.contains(part), "{line}: {said}");
        }
    }

    #[test]
    fn every_command_has_a_help_page() {
        for (name, ..) in COMMANDS {
            assert!(help(None).contains(name));
            assert_eq!(parsed(&format!("{name} --help")).unwrap(), Command::Help(Some(name.into())));
            assert!(help(Some(name)).starts_with(&format!("cargo xtask {name}")));
        }
    }
}
