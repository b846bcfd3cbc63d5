//! Two hundred requests of every kind at once, drawn at random: afterwards the books balance.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use cascadia_tests::client::{CHAT, COMPLETIONS, Client, chat, completion, order, streamed, with};
use cascadia_tests::http::Request;
use cascadia_tests::{Dice, Host, Scrape, setup};
use serde_json::{Value, json};

const THREADS: u64 = 12;
const EACH: u64 = 17;

/// What all clients together know of what must have happened.
#[derive(Default)]
struct Expected {
    /// Requests to the model `full`, by how they ended; their clients read everything.
    stop: AtomicU64,
    length: AtomicU64,
    error: AtomicU64,
    cancelled: AtomicU64,
    /// Tokens that these clients received.
    tokens: AtomicU64,
    /// First tokens that these clients received.
    firsts: AtomicU64,
    /// Requests to the model `rude`, whose clients left: after tokens, and before any.
    left_midway: AtomicU64,
    left_early: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

/// One of the clients' threads.
struct Player<'a> {
    client: Client,
    dice: Dice,
    name: String,
    expected: &'a Expected,
}

impl Player<'_> {
    /// A body for a model, as a chat or a completion, and its path.
    fn body(&mut self, model: &str, prompt: &str) -> (&'static str, Value) {
        let named = json!({"model": model});
        match self.dice.roll(3) {
            0 => (COMPLETIONS, with(completion(prompt), &with(named, &json!({"max_tokens": 1000})))),
            _ => (CHAT, with(chat(prompt), &named)),
        }
    }

    fn play(&mut self, i: u64) -> Result<()> {
        let id = format!("{}-{i}", self.name);
        match self.dice.roll(10) {
            0..=2 => self.goes_on_to_the_end(None),
            3 => self.goes_on_to_the_end(Some("length")),
            4 => self.goes_on_to_the_end(Some("error")),
            5 => self.cancelled(&id),
            6 => self.leaves_midway(),
            7 => self.leaves_early(1),
            8 => self.leaves_early(2),
            _ => self.cancelled_whole(&id),
        }
        .with_context(|| format!("request {id}"))
    }

    /// Reads an answer that ends by itself.
    fn goes_on_to_the_end(&mut self, how: Option<&str>) -> Result<()> {
        let n = 1 + self.dice.roll(30);
        let mut overrides = json!({"token_delay_ms": self.dice.roll(4)});
        if self.dice.roll(4) == 0 {
            overrides["whole"] = json!(true);
        }
        if how == Some("error") {
            overrides = json!({"fail_after": self.dice.roll(n)});
        }
        let (path, mut body) = self.body("full", &order(&"w ".repeat(usize::try_from(n)?), &overrides));
        let mut tokens = n;
        if how == Some("length") {
            tokens = 1 + self.dice.roll(n);
            body["max_tokens"] = json!(tokens);
        }
        // A limit that the words end at is reached before their end is.
        let finish = if how == Some("length") { "length" } else { "stop" };
        let ended = match how {
            Some("error") => &self.expected.error,
            Some("length") => &self.expected.length,
            _ => &self.expected.stop,
        };
        add(ended, 1);
        if self.dice.roll(2) == 0 {
            let answer = self.client.post(path, &body)?;
            if how == Some("error") {
                answer.error(500);
                return Ok(());
            }
            assert_eq!((answer.completion_tokens(), answer.finish().as_str()), (tokens, finish), "{body}");
        } else if how == Some("error") {
            tokens = self.failing_stream(path, &body)?;
        } else {
            let told = self.client.told(path, &streamed(body.clone()))?;
            assert_eq!((told.completion_tokens(), told.finish()), (tokens, finish), "{body}");
        }
        add(&self.expected.tokens, tokens);
        add(&self.expected.firsts, u64::from(tokens > 0));
        Ok(())
    }

    /// Tokens of a stream that ends with an error; a 500 where there was none before it.
    fn failing_stream(&self, path: &str, body: &Value) -> Result<u64> {
        let answer = self.client.post(path, &streamed(body.clone()))?;
        if answer.status() != 200 {
            answer.error(500);
            return Ok(0);
        }
        assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
        let text = answer.text();
        let frames = text.lines().filter_map(|l| l.strip_prefix("data: ")).filter(|l| *l != "[DONE]");
        let frames: Vec<Value> = frames.map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        assert!(frames.last().is_some_and(|f| f.get("error").is_some()), "{text}");
        let shows = |f: &&Value| {
            let choice = &f["choices"][0];
            choice["delta"]["content"].as_str().or(choice["text"].as_str()).is_some_and(|t| !t.is_empty())
        };
        Ok(frames.iter().filter(shows).count() as u64)
    }

    /// Cancels a stream by either id and reads what is left of it.
    fn cancelled(&mut self, id: &str) -> Result<()> {
        let n = 1 + self.dice.roll(8);
        let (path, body) = self.body("full", &order(&"w ".repeat(20), &json!({"stall_after": n})));
        let request = Request::post(path, &streamed(body)).header("x-request-id", id);
        let mut stream = self.client.begin(&request)?.stream()?;
        stream.pieces(usize::try_from(n)?)?;
        let own = stream.id()?;
        self.client.cancel(if self.dice.roll(2) == 0 { id } else { &own })?;
        let told = stream.rest()?;
        assert_eq!((told.completion_tokens(), told.finish()), (n, "stop"));
        add(&self.expected.cancelled, 1);
        add(&self.expected.tokens, n);
        add(&self.expected.firsts, 1);
        Ok(())
    }

    /// Cancels a whole answer, running or still in the queue, until it is over.
    fn cancelled_whole(&mut self, id: &str) -> Result<()> {
        let (path, body) = self.body("full", &order("w w w", &json!({"stall_after": 2})));
        let request = Request::post(path, &body).header("x-request-id", id);
        let mut call = self.client.begin(&request)?;
        let client = self.client;
        let over = &AtomicU64::new(0);
        let answer = std::thread::scope(|scope| -> Result<_> {
            let canceller = scope.spawn(move || -> Result<()> {
                // An id that is not there yet is nothing to cancel, so it is said again.
                while over.load(Ordering::Relaxed) == 0 {
                    client.cancel(id)?;
                    std::thread::yield_now();
                }
                Ok(())
            });
            let answer = call.answer();
            over.store(1, Ordering::Relaxed);
            canceller.join().expect("PANIC: the thread does not panic")?;
            answer
        })?;
        assert_eq!(answer.finish(), "stop");
        add(&self.expected.cancelled, 1);
        add(&self.expected.tokens, answer.completion_tokens());
        add(&self.expected.firsts, u64::from(answer.completion_tokens() > 0));
        Ok(())
    }

    /// Leaves a stream after some tokens.
    fn leaves_midway(&mut self) -> Result<()> {
        let n = 1 + self.dice.roll(8);
        let overrides = json!({"token_delay_ms": 1, "repeat": 10_000});
        let (path, body) = self.body("rude", &order("w", &overrides));
        let body = with(body, &json!({"max_tokens": 10_000}));
        let mut stream = self.client.stream(path, &streamed(body))?;
        stream.pieces(usize::try_from(n)?)?;
        add(&self.expected.left_midway, 1);
        if self.dice.roll(2) == 0 {
            stream.reset()
        } else {
            drop(stream)
        }
        Ok(())
    }

    /// Leaves before the first token, in the queue or not; `n` clients together.
    fn leaves_early(&mut self, n: u64) -> Result<()> {
        let mut calls = Vec::new();
        for _ in 0..n {
            let (path, body) = self.body("rude", &order("w", &json!({"stall_after": 0})));
            let body = if self.dice.roll(2) == 0 { body } else { streamed(body) };
            calls.push(self.client.begin(&Request::post(path, &body))?);
        }
        // A question behind them, so that most have been read when their clients leave.
        self.client.get("/livez")?;
        add(&self.expected.left_early, n);
        for call in calls {
            if self.dice.roll(2) == 0 { call.reset() } else { drop(call) }
        }
        Ok(())
    }
}

fn ended(s: &Scrape, model: &str, finish: &str) -> f64 {
    s.value("cascadia_generation_duration_seconds_count", &[("model", model), ("finish_reason", finish)])
}

fn all_ended(s: &Scrape, model: &str) -> f64 {
    s.sum("cascadia_generation_duration_seconds_count", &[("model", model)])
}

#[test]
fn two_hundred_requests_of_every_kind_book_one_sample_each() -> Result<()> {
    the_books_balance(&[])
}

#[test]
fn the_books_of_an_isolated_engine_balance_too() -> Result<()> {
    the_books_balance(&["--isolate"])
}

fn the_books_balance(flags: &[&str]) -> Result<()> {
    let seed = setup::seed();
    let fixed = [
        "--model",
        "full=/x",
        "--model",
        "rude=/x",
        "--max-concurrent",
        "4",
        "--max-queued",
        "1000",
        "--queue-timeout",
        "1h",
    ];
    let host = Host::mock(&[&fixed, flags].concat());
    let expected = Expected::default();
    std::thread::scope(|scope| {
        let players: Vec<_> = (0..THREADS)
            .map(|t| {
                let dice = Dice::new(seed, t);
                let mut player =
                    Player { client: host.client(), dice, name: format!("client{t}"), expected: &expected };
                scope.spawn(move || (0..EACH).try_for_each(|i| player.play(i)))
            })
            .collect();
        players.into_iter().try_for_each(|p| p.join().expect("PANIC: a client's assertion failed, see above"))
    })?;
    let s = host.quiet();
    let e = &expected;
    // Those who read everything know exactly how each ended and what they got.
    for (finish, n) in
        [("stop", &e.stop), ("length", &e.length), ("error", &e.error), ("cancelled", &e.cancelled)]
    {
        assert_eq!(ended(&s, "full", finish), read(n), "{finish}");
    }
    assert_eq!(s.value("cascadia_tokens_generated_total", &[("model", "full")]), read(&e.tokens));
    assert_eq!(s.value("cascadia_generation_ttft_seconds_count", &[("model", "full")]), read(&e.firsts));
    // Those who left after tokens were admitted; of the others some may have left before they were read.
    let (midway, early) = (read(&e.left_midway), read(&e.left_early));
    let rude = all_ended(&s, "rude");
    assert!((midway..=midway + early).contains(&rude), "{rude} of {midway} and {early}");
    assert_eq!(ended(&s, "rude", "cancelled"), rude);
    assert!(s.value("cascadia_generation_ttft_seconds_count", &[("model", "rude")]) >= midway);
    // What the HTTP side saw, and what was admitted: the same number.
    let seen: f64 = [CHAT, COMPLETIONS]
        .iter()
        .flat_map(|path| ["200", "499", "500"].map(|status| s.requests(path, status)))
        .sum();
    assert_eq!(s.all_ended(), seen);
    assert_eq!(s.all_rejected(), 0.0);
    for model in ["full", "rude"] {
        let label = [("model", model)];
        assert_eq!(s.value("cascadia_tasks_cancelled_total", &label), ended(&s, model, "cancelled"));
        assert_eq!(s.value("cascadia_tasks_failed_total", &label), ended(&s, model, "error"));
        assert_eq!(ended(&s, model, "teardown"), 0.0);
    }
    assert_eq!(s.sum("cascadia_plugin_protocol_errors_total", &[]), 0.0);
    assert!(s.value("cascadia_queue_wait_seconds_count", &[]) <= s.all_ended());
    assert!(!host.log().contains("panicked"), "a panic in the log");
    Ok(())
}
