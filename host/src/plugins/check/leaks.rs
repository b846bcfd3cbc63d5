//! The test that engines come and go without leaving anything behind: memory, descriptors, threads.

use std::fs;
use std::time::{Duration, Instant};

use super::ask::Ask;
use super::note::note;
use super::rig::Rig;
use super::{Fault, Outcome, Plan, Test};

pub(super) const TESTS: &[Test] =
    &[Test { name: "fifty engines come and go, and leave no memory, files or threads", run: cycles }];

const CYCLES: usize = 50;
/// Cycles before the first look: caches, pools and lazy tables fill.
const WARM: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Use {
    kib: u64,
    files: usize,
    threads: u64,
}

impl Use {
    fn now() -> Use {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |key: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default();
            line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        let files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Use { kib: number("VmRSS:"), files, threads: number("Threads:") }
    }

    /// Once threads had the time to leave: at most those of `before`, or as many as there are.
    fn settled(before: Use) -> Use {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let now = Use::now();
            let quiet = now.threads <= before.threads && now.files <= before.files;
            if quiet || Instant::now() > deadline {
                return now;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn cycle(plan: &Plan) -> Result<(), Fault> {
    let rig = Rig::build(plan)?;
    let task = rig.submit(&Ask { max_tokens: 2, ..Ask::short(&rig.card) })?;
    Ok(rig.finish(&[task])?)
}

fn cycles(plan: &Plan) -> Outcome {
    let deadline = Instant::now() + plan.timeout * 6 / 10;
    let mut done = 0;
    let mut first = None;
    while done < CYCLES && (Instant::now() < deadline || done < 4) {
        note(&format!("engine {} of {CYCLES}", done + 1));
        cycle(plan)?;
        done += 1;
        // An engine that takes seconds to build has no time for eight of them.
        if first.is_none() && (done == WARM || Instant::now() + plan.timeout * 4 / 10 > deadline) {
            first = Some((done, Use::now()));
        }
    }
    let (from, before) = first.unwrap_or((done, Use::now()));
    let (after, cycles) = (Use::settled(before), (done - from).max(1) as u64);
    verdict(before, after, cycles)
}

fn verdict(before: Use, after: Use, cycles: u64) -> Outcome {
    if after.threads > before.threads {
        return Err(format!("{} threads became {} in {cycles} engines", before.threads, after.threads).into());
    }
    if after.files > before.files {
        return Err(format!("{} open files became {} in {cycles} engines", before.files, after.files).into());
    }
    // An allocator keeps some of what was freed; a part of the whole is its share.
    let grown = after.kib.saturating_sub(before.kib);
    let (each, most) = (grown / cycles, 4096 + before.kib / 20);
    if grown > most {
        return Err(format!("memory grew by {grown} KiB in {cycles} engines, {each} KiB each").into());
    }
    Ok(format!("{cycles} engines, {grown} KiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_named() {
        let before = Use { kib: 100_000, files: 9, threads: 3 };
        let with = |change: fn(&mut Use)| {
            let mut after = before;
            change(&mut after);
            match verdict(before, after, 40) {
                Err(Fault::Failed(why)) => why,
                other => format!("{other:?}"),
            }
        };
        assert!(with(|u| u.threads = 4).contains("3 threads became 4"));
        assert!(with(|u| u.files = 10).contains("9 open files became 10"));
        assert!(with(|u| u.kib += 40_000).contains("1000 KiB each"));
        assert!(with(|u| u.kib += 500).contains("Ok"));
    }
}
