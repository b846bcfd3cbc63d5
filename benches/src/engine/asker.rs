//! A client that asks for ever, in every way that clients do, and compares what it hears with what was said to it alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use cascadia_tests::Dice;
use cascadia_tests::client::{CHAT, Client, with};
use cascadia_tests::http::Request;
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::question::{Question, Said};
use crate::answers::{self, begin, refusal, to_end};
use crate::books::{Books, End};

/// Words of a prompt that is larger than the cache, and not too large for a request.
const TOO_MANY: usize = 2000;
/// A whole answer may take this long where others use the machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// What a slow reader rests after each event.
const REST: Duration = Duration::from_millis(20);

/// See the file.
pub(crate) struct Asker<'a> {
    pub(crate) client: Client,
    pub(crate) number: u64,
    pub(crate) questions: &'a [Question],
    pub(crate) dice: Dice,
    pub(crate) books: &'a Books,
    /// Held for reading while a question is out.
    pub(crate) calm: &'a RwLock<()>,
}

impl Asker<'_> {
    /// Asks until it is over.
    pub(crate) fn run(mut self, over: &AtomicBool) {
        let mut asked = 0_u64;
        while !over.load(Ordering::Relaxed) {
            asked += 1;
            let id = format!("{}-{asked}", self.number);
            let (kind, wanted) = match self.dice.roll(16) {
                0..6 => ("unary", End::Whole),
                6..10 => ("stream", End::Whole),
                10 => ("slow reader", End::Whole),
                11 => ("cancelled stream", End::Whole),
                12..14 => ("left stream", End::Left),
                14 => ("left unary", End::Left),
                _ => ("too long", End::Refused(413)),
            };
            let _out = self.calm.read();
            let books = self.books;
            books.asks("m", kind, wanted, || self.ask(kind, &id));
        }
    }

    fn ask(&mut self, kind: &str, id: &str) -> Result<End> {
        let all = self.questions;
        let question = &all[self.dice.roll(all.len() as u64) as usize];
        // A stream's pieces are told without their choice.
        let rest = if kind == "slow reader" { REST } else { Duration::ZERO };
        match kind {
            "stream" | "slow reader" if question.choices() == 1 => self.stream(question, rest),
            "unary" | "stream" | "slow reader" => self.unary(question),
            "cancelled stream" => self.cancelled(&endless(question), id),
            "left stream" => answers::left_stream(self.client, &endless(question), &mut self.dice),
            "left unary" => answers::left_unary(self.client, &endless(question), 400, &mut self.dice),
            _ => self.too_long(),
        }
    }

    fn unary(&self, question: &Question) -> Result<End> {
        let mut call = self.client.begin(&Request::post(CHAT, &question.body))?;
        call.waits(PATIENCE)?;
        let answer = call.answer()?;
        if answer.status() != 200 {
            return refusal(&answer.body, answer.status());
        }
        question.check(&Said::of(&answer.json())?)?;
        Ok(End::Whole)
    }

    fn stream(&self, question: &Question, rest: Duration) -> Result<End> {
        let mut stream = match begin(self.client, &question.body, None)? {
            Ok(stream) => stream,
            Err(end) => return Ok(end),
        };
        let end = to_end(&mut stream, rest)?;
        if end == End::Whole {
            question.check(&Said::told(stream.told()))?;
        }
        Ok(end)
    }

    fn cancelled(&mut self, body: &Value, id: &str) -> Result<End> {
        let (end, stream) = answers::cancelled(self.client, body, id, &mut self.dice)?;
        let tokens = stream.map(|stream| stream.told().completion_tokens());
        ensure!(tokens.is_none_or(|n| n < ENDLESS), "a cancelled stream went on to its end");
        Ok(end)
    }

    fn too_long(&self) -> Result<End> {
        let messages = json!([{ "role": "user", "content": "word ".repeat(TOO_MANY) }]);
        let answer = self.client.post(CHAT, &json!({ "model": "m", "messages": messages }))?;
        ensure!(answer.status() != 200, "a prompt of {TOO_MANY} words was answered");
        refusal(&answer.body, answer.status())
    }
}

/// Tokens that nobody waits for.
const ENDLESS: u64 = 160;

/// The question with an answer that is longer than its reader's patience.
fn endless(question: &Question) -> Value {
    with(question.body.clone(), &json!({ "max_tokens": ENDLESS, "ignore_eos": true, "n": 1 }))
}
