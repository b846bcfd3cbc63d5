//! What must be back to what it was once the load is over, and how the soak ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use cascadia_tests::Host;
use serde_json::json;

use crate::books::Books;
use crate::vitals::{Vitals, slope};

/// How long the host may take to settle: threads of its pools rest for a while before they end.
const SETTLE: Duration = Duration::from_secs(60);
/// Growth over the last two thirds of the soak, in KiB, that is no trend: pages of the allocator, the log's buffers.
const NOISE: f64 = 8.0 * 1024.0;
/// A copy under load may cost so much more than one without: links, flags and series of its engines are for ever too.
const DEARER: f64 = 2.0;
/// Descriptors and threads above those before: an engine more or less that drains, a worker of a pool.
const SPARE: usize = 4;

/// What there was before the load.
pub(crate) struct Rest {
    pub(crate) before: Vitals,
    /// KiB of the host's memory that a copy of a plugin takes.
    pub(crate) copy: f64,
    /// Engines that run in processes of their own.
    pub(crate) isolated: usize,
}

/// Waits for the host to settle, and writes down what does not. Answers lines for people.
pub(crate) fn judge(host: &mut Host, rest: &Rest, looks: &[Vitals], books: &Books) -> Vec<String> {
    let mut lines = Vec::new();
    let mut check = |what: String, good: bool| {
        lines.push(format!("{}  {what}", if good { "ok  " } else { "FAIL" }));
        if !good {
            books.fault(what);
        }
    };
    let quiet = catch_unwind(AssertUnwindSafe(|| host.quiet()));
    check("all gauges are back at zero".to_owned(), quiet.is_ok());
    let (after, back) = settle(host, rest);
    check(
        format!(
            "descriptors {} to {}, threads {} to {}, children {} to {}, zombies {}",
            rest.before.descriptors,
            after.descriptors,
            rest.before.threads,
            after.threads,
            rest.before.children,
            after.children,
            after.zombies
        ),
        back,
    );
    let growth = Growth::of(looks, rest.copy);
    check(growth.text(), growth.is_flat());
    let log = host.log();
    let panics = log.matches("panicked at").count();
    lines.push(format!("      {panics} panics in the log, of which the engines' own are meant"));
    host.signal(libc::SIGTERM);
    let ended = catch_unwind(AssertUnwindSafe(|| host.ended()));
    let text = ended.as_ref().map_or_else(|_| "not at all".to_owned(), |status| status.to_string());
    let good = ended.is_ok_and(|status| status.success());
    lines.push(format!("{}  the host ends on SIGTERM: {text}", if good { "ok  " } else { "FAIL" }));
    if !good {
        books.fault(format!("the host ended on SIGTERM: {text}"));
    }
    lines
}

/// The state once nothing is left over, or when the time for that is up.
fn settle(host: &Host, rest: &Rest) -> (Vitals, bool) {
    let begun = Instant::now();
    loop {
        let now = Vitals::of(host.id());
        let back = now.descriptors <= rest.before.descriptors + SPARE
            && now.threads <= rest.before.threads + SPARE
            && now.children == rest.isolated
            && now.zombies == 0;
        if back || begun.elapsed() > SETTLE {
            return (now, back);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// How memory grew over the last two thirds.
struct Growth {
    minutes: f64,
    /// KiB by the trend, over the whole window.
    all: f64,
    copies: f64,
    /// KiB that the copies explain.
    explained: f64,
}

impl Growth {
    fn of(looks: &[Vitals], copy: f64) -> Growth {
        let window = &looks[looks.len() / 3..];
        let (Some(first), Some(last)) = (window.first(), window.last()) else {
            return Growth { minutes: 0.0, all: 0.0, copies: 0.0, explained: 0.0 };
        };
        let seconds = last.at - first.at;
        let memory: Vec<_> = window.iter().map(|look| (look.at, look.memory)).collect();
        let copies = last.generations - first.generations;
        Growth { minutes: seconds / 60.0, all: slope(&memory) * seconds, copies, explained: copies * copy }
    }

    fn is_flat(&self) -> bool {
        self.all <= self.explained * DEARER + NOISE
    }

    fn text(&self) -> String {
        format!(
            "memory grew by {:.1} MiB in the last {:.1} minutes, {} copies explain {:.1} MiB",
            self.all / 1024.0,
            self.minutes,
            self.copies,
            self.explained / 1024.0
        )
    }
}

/// Prints the end of it.
#[expect(clippy::print_stdout, reason = "the report is the command's answer")]
pub(crate) fn tell(as_json: bool, seed: u64, books: &Books, looks: &[Vitals], lines: &[String]) {
    let (counts, (wrong, faults)) = (books.counts(), books.faults());
    if as_json {
        let looks: Vec<_> = looks
            .iter()
            .map(|l| json!([l.at, l.memory, l.generations, l.descriptors, l.threads, l.children, l.zombies]))
            .collect();
        let all = json!({ "seed": seed, "passed": wrong == 0, "wrong": wrong, "faults": faults, "counts": counts,
            "verdict": lines, "looks": { "columns": ["seconds", "memory_kib", "copies", "descriptors", "threads",
            "children", "zombies"], "rows": looks } });
        println!("{all}");
        return;
    }
    println!();
    counts.iter().for_each(|(what, n)| println!("{n:>8}  {what}"));
    println!();
    lines.iter().for_each(|line| println!("{line}"));
    faults.iter().for_each(|fault| println!("wrong: {fault}"));
    let verdict = if wrong == 0 { "passed".to_owned() } else { format!("FAILED, {wrong} things went wrong") };
    println!("soak {verdict}; seed {seed}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_that_copies_explain_is_none() {
        let looks = |per_copy: f64, leak: f64| -> Vec<Vitals> {
            let look = |i: u32| {
                let (at, generations) = (f64::from(i), f64::from(i / 5));
                Vitals {
                    at,
                    generations,
                    memory: 5e4 + per_copy * generations + leak * at,
                    ..Vitals::default()
                }
            };
            (0..600).map(look).collect()
        };
        assert!(Growth::of(&looks(800.0, 0.0), 800.0).is_flat());
        assert!(!Growth::of(&looks(800.0, 200.0), 800.0).is_flat());
        assert!(!Growth::of(&looks(0.0, 50.0), 0.0).is_flat());
        assert!(Growth::of(&[], 800.0).is_flat());
    }
}
