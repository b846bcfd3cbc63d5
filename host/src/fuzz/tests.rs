//! Replays every corpus and mutates it: the same inputs in every run. A crash that a fuzzer found is a file of its corpus.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{TARGETS, Target};

/// Inputs of each target that are made of its corpus.
const MUTANTS: usize = 1_500;
/// Longest of them.
const LENGTH: usize = 4096;
/// What numbers and marks of the formats look like.
const WORDS: &[&[u8]] = &[
    b"\0",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\x01\0\0\0\0\0\0\0",
    b"null",
    b"{}",
    b"[]",
    b"[[[[[[[[",
    b"-1",
    b"1e999",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"{{",
    b"{%",
    b"%}",
    b"\xf0\x9f",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries.map(|e| e.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = folder().join("corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    // In one order on every machine: the mutants depend on it.
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// A generator (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % sides.max(1)
    }

    fn mutate(&mut self, input: &mut Vec<u8>, all: &[Vec<u8>]) {
        for _ in 0..1 + self.roll(4) {
            let at = self.roll(input.len() + 1);
            let to = at + self.roll(16).min(input.len() - at);
            match self.roll(6) {
                0 if at < input.len() => input[at] ^= 1 << self.roll(8),
                1 if at < input.len() => input[at] = self.roll(256) as u8,
                2 => drop(input.drain(at..to)),
                3 => drop(input.splice(at..to, WORDS[self.roll(WORDS.len())].iter().copied())),
                4 => {
                    let twice = input[at..to].to_vec();
                    input.splice(at..at, twice);
                }
                _ => {
                    let other = &all[self.roll(all.len())];
                    let from = self.roll(other.len() + 1);
                    input.truncate(at);
                    input.extend_from_slice(&other[from..]);
                }
            }
            input.truncate(LENGTH);
        }
    }
}

/// Runs a target; on a panic the input is told, ready to be put into the corpus.
fn run(name: &str, target: Target, input: &[u8]) {
    if std::panic::catch_unwind(|| target(input)).is_err() {
        panic!("{name} breaks on b\"{}\"", input.escape_ascii());
    }
}

#[test]
fn each_target_has_a_program_and_a_corpus() {
    let expected: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(expected.len(), TARGETS.len());
    assert_eq!(names(&folder().join("fuzz_targets")), expected);
    assert_eq!(names(&folder().join("corpus")), expected);
    for name in expected {
        assert!(corpus(&name).len() >= 3, "{name} has hardly a corpus");
        let program = std::fs::read_to_string(folder().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(program.contains(&format!("fuzz::{name}(data)")), "{name}: {program}");
    }
}

#[test]
fn every_corpus_keeps_its_promises() {
    for (name, target) in TARGETS {
        corpus(name).iter().chain([&Vec::new()]).for_each(|input| run(name, *target, input));
    }
}

/// One test for each target, so that they run beside each other.
fn mutants(name: &str) {
    let (_, target) = TARGETS.iter().find(|(n, _)| *n == name).unwrap();
    let all = corpus(name);
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut pool = all.clone();
    for _ in 0..MUTANTS {
        let at = dice.roll(pool.len());
        let mut input = pool[at].clone();
        dice.mutate(&mut input, &all);
        run(name, *target, &input);
        // Some are mutated on, others begin anew.
        pool[at] = if dice.roll(8) == 0 { all[dice.roll(all.len())].clone() } else { input };
    }
}

macro_rules! mutants {
    ($($name:ident)*) => {
        mod mutants {
            $(#[test] fn $name() { super::mutants(stringify!($name)); })*
        }
    };
}

mutants!(body frames stops text template plugin_file isolate gguf);
