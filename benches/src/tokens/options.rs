//! What the benches of this program are told: the same words, of which each knows its own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// The words that every bench knows.
pub(crate) const COMMON: &[&str] = &["--quick", "--json", "--only", "--out"];

/// What was said.
#[derive(Default)]
pub(crate) struct Options {
    /// Fewer rounds.
    pub(crate) quick: bool,
    pub(crate) json: bool,
    /// Where the report goes too.
    pub(crate) out: Option<PathBuf>,
    /// Only cases whose name contains it.
    pub(crate) only: Option<String>,
    /// The real model.
    pub(crate) model: Option<PathBuf>,
    /// Where the plugin keeps compiled models.
    pub(crate) cache: Option<PathBuf>,
    /// Threads of a real engine; as many as there are processors, if it is not said.
    pub(crate) threads: Option<usize>,
    /// The interpreters of what was installed.
    pub(crate) pythons: BTreeMap<String, PathBuf>,
    /// Who could not be installed, and why.
    pub(crate) absent: Vec<(String, String)>,
}

impl Options {
    /// Reads the words; besides the common ones only `more` are known.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>, more: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        while let Some(word) = words.next() {
            if !COMMON.iter().chain(more).any(|known| *known == word) {
                let known: Vec<_> = COMMON.iter().chain(more).copied().collect();
                bail!("unknown word {word}; there are {}", known.join(", "));
            }
            let mut value = || words.next().with_context(|| format!("{word} takes a value"));
            match word.as_str() {
                "--quick" => options.quick = true,
                "--json" => options.json = true,
                "--out" => options.out = Some(value()?.into()),
                "--only" => options.only = Some(value()?),
                "--model" => options.model = Some(value()?.into()),
                "--cache" => options.cache = Some(value()?.into()),
                "--threads" => {
                    let told = value()?;
                    let threads =
                        told.parse().with_context(|| format!("--threads takes a number, got {told:?}"));
                    options.threads = Some(threads?);
                }
                "--python" => {
                    let (name, path) = pair(&value()?)?;
                    options.pythons.insert(name, path.into());
                }
                "--absent" => options.absent.push(pair(&value()?)?),
                other => bail!("{other} is known and not read"),
            }
        }
        Ok(options)
    }
}

fn pair(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once('=').with_context(|| format!("{text} should be NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str], more: &[&str]) -> Result<Options> {
        Options::parse(words.iter().map(|word| (*word).to_owned()), more)
    }

    #[test]
    fn a_bench_takes_its_own_words_and_no_others() {
        let told = parse(&["--quick", "--only", "16", "--python", "smg=/p"], &["--python"]).expect("known");
        assert!(told.quick && !told.json);
        assert_eq!((told.only.as_deref(), told.pythons.len()), (Some("16"), 1));
        for (words, problem) in
            [(&["--python", "smg=/p"][..], "unknown word --python"), (&["--only"], "--only takes a value")]
        {
            let error = parse(words, &[]).map(|_| ()).expect_err("refused").to_string();
            assert!(error.contains(problem), "{error}");
        }
        assert!(parse(&["--threads", "many"], &["--threads"]).is_err());
        assert!(parse(&["--absent", "smg"], &["--absent"]).is_err());
    }
}
