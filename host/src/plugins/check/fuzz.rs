//! Random sequences of calls, from a seed: the same seed makes the same calls.

use super::ask::Ask;
use super::note::note;
use super::rig::Rig;
use super::{Outcome, Plan, Test, skip};

pub(super) const TESTS: &[Test] =
    &[Test { name: "random submits, cancels and steps leave every task with one finish", run: fuzz }];

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        // Zero would stay zero.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(word).unwrap_or_default() % n.max(1)
    }
}

fn fuzz(plan: &Plan) -> Outcome {
    const CALLS: usize = 400;
    let Some(seed) = plan.fuzz else { return skip("give --fuzz SEED") };
    let mut random = Random::new(seed);
    let rig = Rig::build(plan)?;
    let (mut tasks, mut refused) = (Vec::new(), 0);
    let room = usize::try_from(rig.card.context_length).ok().filter(|n| *n > 0).unwrap_or(256).min(256);
    for call in 0..CALLS {
        match random.below(10) {
            0..3 => {
                let ask = Ask {
                    max_tokens: 1 + random.below(8) as u32,
                    ..Ask::of(&rig.card, 1 + random.below(room / 2))
                };
                note(&format!("call {call} of seed {seed}: submit of {} tokens", ask.tokens.len()));
                match rig.submit(&ask) {
                    Ok(task) => tasks.push(task),
                    Err(refusal) => {
                        refusal.said.is_clean("submit", refusal.code)?;
                        refused += 1;
                    }
                }
            }
            3..5 => {
                note(&format!("call {call} of seed {seed}: cancel"));
                match tasks.get(random.below(tasks.len() + 1)) {
                    Some(task) => rig.cancel(*task),
                    None => rig.cancel(rig.fresh_id()),
                }
            }
            _ => {
                note(&format!("call {call} of seed {seed}: step"));
                rig.step()?;
            }
        }
    }
    note(&format!("the end of seed {seed}: step"));
    rig.finish(&tasks)?;
    rig.step()?;
    let wrong = tasks.iter().map(|t| rig.answer(*t)).find(|a| a.finishes.len() != 1 || a.after > 0);
    if let Some(answer) = wrong {
        let (n, after) = (answer.finishes.len(), answer.after);
        return Err(format!("with seed {seed} a task has {n} finishes and {after} chunks after one").into());
    }
    if let Some((task, _)) = rig.ear.look(|heard| heard.strangers) {
        return Err(format!("with seed {seed} a chunk came for {task:#x}, which is no task").into());
    }
    Ok(format!("seed {seed}: {CALLS} calls, {} tasks, {refused} refused", tasks.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_numbers_and_another_makes_others() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..32).map(|_| random.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(0).iter().any(|n| *n != draw(0)[0]));
    }
}
