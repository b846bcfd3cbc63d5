//! Prints what 16 rows of 49,152 logits cost on one core, for each kind of passes: the median of 31 rounds, and the least.
//! Before each round something else passes through the core's own caches, as a model does.
//!
//! `cargo run --release -p cascadia-sampling --example rows [PART OF A NAME]`
#![expect(clippy::print_stdout, reason = "an example that prints what it measured")]

use cascadia_sampling::{Kernel, Row, Sampler, Scratch, Settings};
use std::error::Error;
use std::time::Instant;

const ROWS: usize = 16;
const VOCAB: usize = 49_152;
const ROUNDS: usize = 31;
/// More than a core's own caches hold.
const ELSEWHERE: usize = 16 << 20;

/// Even numbers from 0 to 1.
struct Noise(u64);

impl Noise {
    fn even(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }

    /// About normal, with deviation 1.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.even()).sum::<f32>() - 6.0
    }
}

fn peaked() -> Vec<f32> {
    let mut noise = Noise(1);
    let mut rows: Vec<f32> = (0..ROWS * VOCAB).map(|_| noise.normal() * 2.5).collect();
    for row in rows.chunks_mut(VOCAB) {
        for _ in 0..5 {
            row[(noise.even() * (VOCAB - 1) as f32) as usize] += 12.0;
        }
    }
    rows
}

fn flat() -> Vec<f32> {
    let mut noise = Noise(2);
    (0..ROWS * VOCAB).map(|_| noise.normal() * 0.3).collect()
}

/// Median and least time of a round, in microseconds.
fn microseconds(
    settings: &Settings,
    rows: &[f32],
    mask: Option<&[u32]>,
    scratch: &mut Scratch,
) -> Result<(f64, f64), Box<dyn Error>> {
    let prompt: Vec<u32> = (0..500).map(|t| t * 7).collect();
    let mut samplers = Vec::new();
    for row in 0..ROWS as u64 {
        let settings = Settings { seed: row, ..settings.clone() };
        samplers.push(Sampler::new(settings, VOCAB, &prompt, prompt.len())?);
    }
    let mut took = Vec::new();
    let mut elsewhere = vec![0_u8; ELSEWHERE];
    for _ in 0..ROUNDS {
        elsewhere.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        std::hint::black_box(&elsewhere);
        let begin = Instant::now();
        for (sampler, logits) in samplers.iter_mut().zip(rows.chunks(VOCAB)) {
            let choice = sampler.sample(Row { logits, mask }, scratch)?;
            sampler.accept(choice.token);
        }
        took.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    took.sort_by(f64::total_cmp);
    Ok((took[ROUNDS / 2], took[0]))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (peaked, flat) = (peaked(), flat());
    let mut noise = Noise(3);
    let mask: Vec<u32> = (0..VOCAB / 32).map(|_| (noise.even() * u32::MAX as f32) as u32).collect();
    let greedy = Settings::default();
    let full = Settings { temperature: 0.8, top_p: 0.95, alternatives: Some(0), ..Settings::default() };
    let cases = [
        ("greedy", greedy, &peaked, None),
        ("temperature 0.8, top_p 0.95, log-probability", full.clone(), &peaked, None),
        ("same, 20 alternatives", Settings { alternatives: Some(20), ..full.clone() }, &peaked, None),
        ("same, mask", full.clone(), &peaked, Some(&mask[..])),
        (
            "same, penalties over a prompt of 500",
            Settings { repetition_penalty: 1.1, presence_penalty: 0.5, ..full.clone() },
            &peaked,
            None,
        ),
        ("same, temperature 1.5", Settings { temperature: 1.5, ..full.clone() }, &peaked, None),
        ("same, flat rows", full.clone(), &flat, None),
        ("temperature alone", Settings { top_p: 1.0, alternatives: None, ..full.clone() }, &peaked, None),
        ("top_k 40, top_p 0.95", Settings { top_k: 40, alternatives: None, ..full.clone() }, &peaked, None),
        (
            "min_p 0.05",
            Settings { top_p: 1.0, min_p: 0.05, alternatives: None, ..full.clone() },
            &peaked,
            None,
        ),
        ("typical_p 0.9", Settings { top_p: 1.0, typical_p: 0.9, alternatives: None, ..full }, &peaked, None),
    ];
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for kernel in Kernel::ALL {
        let Some(mut scratch) = Scratch::with(kernel) else { continue };
        println!("{kernel:?}: microseconds for {ROWS} rows of {VOCAB}");
        for (name, settings, rows, mask) in cases.iter().filter(|case| case.0.contains(&wanted)) {
            let (median, least) = microseconds(settings, rows, *mask, &mut scratch)?;
            println!("  {median:>8.0} {least:>8.0}  {name}");
        }
    }
    Ok(())
}
