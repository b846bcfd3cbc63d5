//! The library in a process of its own, driven by lines of JSON (`library.py` beside this file).

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::volley::{PATIENCE, Volley};
use super::words::Prompt;

/// Its ends.
pub(crate) struct Library {
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Library {
    /// What Python runs.
    pub(crate) const SCRIPT: &str = include_str!("library.py");

    /// Reads on a thread of its own, which ends with the process, so that a wait can have a deadline.
    pub(crate) fn new(input: ChildStdin, output: ChildStdout) -> Result<Library> {
        let (sender, lines) = sync_channel(16);
        let read = move || {
            let whole = BufReader::new(output).lines().map_while(std::io::Result::ok);
            for line in whole {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("library".to_owned()).spawn(read)?;
        Ok(Library { input, lines })
    }

    /// Waits until the model is open.
    pub(crate) fn open(&mut self, patience: Duration) -> Result<()> {
        let told = self.answer(patience)?;
        ensure!(told["ready"].is_number(), "the library said {told}");
        Ok(())
    }

    /// All prompts at once, so many tokens each.
    pub(crate) fn fly(&mut self, prompts: &[Prompt], tokens: usize) -> Result<Volley> {
        let ids: Vec<_> = prompts.iter().map(|prompt| &prompt.ids).collect();
        let line = json!({ "prompts": ids, "tokens": tokens });
        writeln!(self.input, "{line}").and_then(|()| self.input.flush()).context("ask the library")?;
        read(&self.answer(PATIENCE)?, prompts.len(), tokens)
    }

    fn answer(&self, patience: Duration) -> Result<Value> {
        let line = self.lines.recv_timeout(patience).context("no answer of the library")?;
        serde_json::from_str(&line).with_context(|| format!("read {line:?}"))
    }
}

fn read(told: &Value, prompts: usize, tokens: usize) -> Result<Volley> {
    let times = |name: &str| -> Result<Vec<f64>> {
        let all: Option<Vec<f64>> =
            told[name].as_array().map(|all| all.iter().filter_map(Value::as_f64).collect());
        let all = all.filter(|all| all.len() == prompts);
        all.with_context(|| format!("not {prompts} times of {name} in {told}"))
    };
    let made = told["tokens"].as_array().context("no numbers of tokens")?;
    ensure!(made.iter().all(|n| n.as_u64() == Some(tokens as u64)), "not {tokens} tokens each: {told}");
    Ok(Volley { first: times("first")?, last: times("last")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_only_whole() {
        let good = json!({ "tokens": [2, 2], "first": [0.1, 0.2], "last": [0.3, 0.4] });
        let volley = read(&good, 2, 2).expect("an answer");
        assert_eq!((volley.first[1], volley.took()), (0.2, 0.4));
        assert!(read(&good, 2, 3).is_err(), "too few tokens");
        assert!(read(&good, 3, 2).is_err(), "too few answers");
        assert!(read(&json!({ "tokens": [2], "first": [null], "last": [0.1] }), 1, 2).is_err());
    }
}
