//! Ten million tokens with the null backend; memory and blocks stay where they are.
//!
//! `cargo test --release -p cascadia-batching ten_million -- --ignored --nocapture`

use std::time::Instant;

use super::backend::{Backend, plain};
use super::entry;
use crate::{Drafts, Id, Limits, Outcome, Scheduler};

const TOKENS: usize = 10_000_000;

/// Repeats what came before: right now and then.
struct Echo;

impl Drafts for Echo {
    fn propose(&mut self, id: Id, tokens: &[u32], most: usize, out: &mut Vec<u32>) {
        if id.0.is_multiple_of(4) {
            out.extend(tokens.iter().rev().take(most.min(2)));
        }
    }
}

/// Resident memory in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// The numbers of a linear congruence, for lengths and texts.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
#[ignore = "takes a minute in release; run it after a change to what lives longer than a step"]
fn ten_million_tokens_leave_memory_and_blocks_where_they_were() {
    // Too few blocks for all that run, so that sequences give way too.
    let limits = Limits { blocks: 96, sequences: 32, waiting: 64, ..Limits::default() };
    let mut backend = Backend::new(limits.blocks, limits.block_size);
    let mut scheduler = Scheduler::new(limits).unwrap();
    let log = scheduler.log();
    let mut dice = Dice(1);
    let mut texts: std::collections::HashMap<Id, (usize, usize, Vec<u32>)> = std::collections::HashMap::new();
    let (mut answers, mut outcomes) = (Vec::new(), Vec::new());
    let (mut number, mut told, mut computed, mut steps, mut read) = (0_u64, 0, 0, 0_u64, 0);
    let (mut early, mut planning) = (0, 0.0);
    while told < TOKENS {
        while texts.len() < 48 {
            let shared = dice.below(20) as u32;
            let length = 32 + dice.below(160) as usize;
            let mut prompt: Vec<u32> = (0..length as u32).map(|place| (place * 7 + shared) % 40).collect();
            prompt.extend((0..dice.below(20)).map(|_| dice.below(40) as u32));
            let more = 16 + dice.below(384) as usize;
            number += 1;
            scheduler.add(entry(number, &prompt, more), steps).unwrap();
            texts.insert(Id(number), (prompt.len(), prompt.len() + more, prompt));
        }
        let begun = Instant::now();
        let batch = scheduler.plan(steps, &mut Echo).unwrap();
        planning += begun.elapsed().as_secs_f64();
        computed += batch.ids.len();
        backend.infer(batch, &mut answers);
        outcomes.clear();
        for part in &batch.parts {
            if part.next == 0 {
                outcomes.push(Outcome::Computed);
                continue;
            }
            let (prompt, most, text) = texts.get_mut(&part.id).unwrap();
            let said = &answers[part.next_sampled()];
            let drafts = batch.drafts(part).iter().zip(said);
            let accepted = drafts.take_while(|(draft, said)| **draft == i64::from(**said)).count();
            text.extend_from_slice(&said[..=accepted]);
            told += accepted + 1;
            let accepted = accepted as u32;
            if text.len() < *most {
                outcomes.push(Outcome::Token { accepted, token: said[accepted as usize] });
                continue;
            }
            outcomes.push(Outcome::Ended { accepted });
            assert_eq!(*text, plain(&text[..*prompt], *most - *prompt));
            texts.remove(&part.id);
        }
        let begun = Instant::now();
        scheduler.commit(&outcomes).unwrap();
        planning += begun.elapsed().as_secs_f64();
        steps += 1;
        // Now and then somebody leaves, and somebody reads the log.
        if steps.is_multiple_of(50) {
            let id = *texts.keys().min().unwrap();
            scheduler.cancel(id);
            texts.remove(&id);
            read += log.read(read + 1, 10_000).len() as u64;
        }
        if told > TOKENS / 5 && early == 0 {
            early = resident();
        }
    }
    let load = scheduler.load();
    for id in texts.keys() {
        scheduler.cancel(*id);
    }
    let grown = resident().saturating_sub(early);
    println!(
        "{told} tokens told, {computed} rows in {steps} steps; plan and commit took {planning:.2} s, {:.0} ns a token, \
         {:.0} ns a row, {:.1} us a step; {} gave way, {} of {} tokens of prompts were cached, {read} events; \
         {} bytes resident, grown by {grown} in the last four fifths",
        planning * 1e9 / told as f64,
        planning * 1e9 / computed as f64,
        planning * 1e6 / steps as f64,
        load.preemptions,
        load.hit_tokens,
        load.query_tokens,
        resident(),
    );
    assert!(grown < 2 << 20, "memory grew by {grown} bytes");
    assert!(load.preemptions > 0 && load.hit_tokens > 0);
    let load = scheduler.load();
    assert_eq!((load.held, load.running, load.waiting), (0, 0, 0));
    assert_eq!(load.free + load.cached, load.blocks);
    scheduler.check_all();
}
