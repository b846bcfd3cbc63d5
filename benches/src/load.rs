//! The clients: each asks one model for ever, in every way that clients do, and writes down how it ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use cascadia_tests::Dice;
use cascadia_tests::client::{CHAT, Client, chat, order, with};
use serde_json::{Value, json};

use crate::answers::{self, refusal, to_end};
use crate::books::{Books, End};

/// After a refusal a client rests, as `Retry-After` asks for, only shorter.
const REST: Duration = Duration::from_millis(100);

/// One client.
pub(crate) struct Caller<'a> {
    pub(crate) client: Client,
    pub(crate) model: &'a str,
    pub(crate) name: String,
    pub(crate) dice: Dice,
    pub(crate) books: &'a Books,
}

impl Caller<'_> {
    /// Asks until it is over.
    pub(crate) fn run(mut self, over: &AtomicBool) {
        let mut asked = 0_u64;
        while !over.load(Ordering::Relaxed) {
            asked += 1;
            let id = format!("{}-{asked}", self.name);
            let (kind, wanted) = match self.dice.roll(16) {
                0..4 => ("unary", End::Whole),
                4..10 => ("stream", End::Whole),
                10 => ("cancelled stream", End::Whole),
                11 => ("left stream", End::Left),
                12 => ("slow reader", End::Whole),
                13 => ("failing stream", End::Broken),
                14 => ("failing unary", End::Refused(500)),
                _ => ("left unary", End::Left),
            };
            let end = self.books.asks(self.model, kind, wanted, || self.ask(kind, &id));
            let refused = matches!(end, Some(End::Refused(_)));
            if refused {
                std::thread::sleep(REST);
            }
        }
    }

    fn ask(&mut self, kind: &str, id: &str) -> Result<End> {
        match kind {
            "unary" => self.unary(),
            "stream" => self.stream(Duration::ZERO),
            "cancelled stream" => self.cancelled(id),
            "left stream" => self.left_stream(),
            "slow reader" => self.stream(Duration::from_millis(20)),
            "failing stream" => self.failing_stream(),
            "failing unary" => self.failing_unary(),
            _ => self.left_unary(),
        }
    }

    fn body(&self, words: &str, overrides: &Value) -> Value {
        with(chat(&order(words, overrides)), &json!({"model": self.model, "max_tokens": 5000}))
    }

    fn words(&mut self) -> (usize, String) {
        let n = 1 + self.dice.roll(40);
        (n as usize, "w ".repeat(n as usize).trim_end().to_owned())
    }

    fn pace(&mut self) -> Value {
        json!({"token_delay_ms": self.dice.roll(10)})
    }

    fn unary(&mut self) -> Result<End> {
        let ((_, words), pace) = (self.words(), self.pace());
        let answer = self.client.post(CHAT, &self.body(&words, &pace))?;
        if answer.status() != 200 {
            return refusal(&answer.body, answer.status());
        }
        let content = answer.json()["choices"][0]["message"]["content"].clone();
        ensure!(content == words.as_str(), "answered {content}, asked {words:?}");
        Ok(End::Whole)
    }

    /// Reads to the end, resting after each event.
    fn stream(&mut self, rest: Duration) -> Result<End> {
        let ((n, words), pace) = (self.words(), self.pace());
        let mut stream = match answers::begin(self.client, &self.body(&words, &pace), None)? {
            Ok(stream) => stream,
            Err(end) => return Ok(end),
        };
        let end = to_end(&mut stream, rest)?;
        if end == End::Whole {
            let told = stream.told();
            ensure!(told.text == words, "{:?} was streamed, asked {words:?}", told.text);
            let counted = told.usage.as_ref().and_then(|usage| usage["completion_tokens"].as_u64());
            ensure!(counted == Some(n as u64), "{counted:?} tokens were told of {n}");
        }
        Ok(end)
    }

    fn cancelled(&mut self, id: &str) -> Result<End> {
        let body = self.body("w w w", &json!({"token_delay_ms": 5, "repeat": 1000}));
        Ok(answers::cancelled(self.client, &body, id, &mut self.dice)?.0)
    }

    fn left_stream(&mut self) -> Result<End> {
        let body = self.body("w", &json!({"token_delay_ms": 2, "repeat": 4000}));
        answers::left_stream(self.client, &body, &mut self.dice)
    }

    fn left_unary(&mut self) -> Result<End> {
        let body = self.body("w", &json!({"token_delay_ms": 5, "repeat": 4000}));
        answers::left_unary(self.client, &body, 50, &mut self.dice)
    }

    fn failing_stream(&mut self) -> Result<End> {
        let after = 1 + self.dice.roll(3);
        let body = self.body("w w w w w", &json!({"fail_after": after}));
        match answers::begin(self.client, &body, None)? {
            Ok(mut stream) => to_end(&mut stream, Duration::ZERO),
            // The first piece and the failure may have come together, before the head was sent.
            Err(End::Refused(500)) => Ok(End::Broken),
            Err(end) => Ok(end),
        }
    }

    fn failing_unary(&mut self) -> Result<End> {
        let after = self.dice.roll(3);
        let body = self.body("w w w w w", &json!({"fail_after": after}));
        let answer = self.client.post(CHAT, &body)?;
        ensure!(answer.status() != 200, "answered {} although the engine failed", answer.text());
        refusal(&answer.body, answer.status())
    }
}
