//! The test that engines come and go without leaving anything behind: memory, descriptors, threads.
//!
//! What must hold: a leak is what grows with every engine, in the first half of the cycles and in the second; what grows
//! once is a cache.
#![expect(unsafe_code, reason = "asks the C library about its heap")]

use std::fs;
use std::time::{Duration, Instant};

use super::ask::Ask;
use super::note::note;
use super::rig::Rig;
use super::{Fault, Outcome, Plan, Test};

pub(super) const TESTS: &[Test] =
    &[Test { name: "engines come and go, and leave no memory, files or threads", run: cycles }];

/// Engines at least, where there is time for them.
const CYCLES: usize = 50;
/// Engines at most, where each takes next to none.
const MANY: usize = 600;
/// How long more engines are built than [`CYCLES`].
const MORE: Duration = Duration::from_secs(3);
/// Cycles before the first look: caches, pools and lazy tables fill.
const WARM: usize = 8;
/// Engines in each half from which on every single one is held to account.
const HALF: u64 = 16;
/// What one cycle may leave on the heap: the test itself keeps the ear and the link of each engine.
const OWN: u64 = 5 << 10;

#[derive(Debug, Clone, Copy)]
struct Use {
    kib: u64,
    /// Bytes that were allocated and not freed; 0 where the C library does not say.
    heap: u64,
    files: usize,
    threads: u64,
}

/// Bytes of the C library's heap that are in use.
fn heap() -> u64 {
    type Ask = unsafe extern "C" fn() -> libc::mallinfo2;
    // SAFETY: the name is text; a C library that is older has no such function, and one that has it has it of this type.
    let info = unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr());
        if found.is_null() {
            return 0;
        }
        core::mem::transmute::<*mut libc::c_void, Ask>(found)()
    };
    (info.uordblks + info.hblkhd) as u64
}

impl Use {
    fn now() -> Use {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |key: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default();
            line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        let files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Use { kib: number("VmRSS:"), heap: heap(), files, threads: number("Threads:") }
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
    let enough = (Instant::now() + MORE).min(deadline);
    let mut done = 0;
    let mut seen = Vec::new();
    loop {
        let now = Instant::now();
        if done >= MANY || now > deadline && done >= 4 || now > enough && done >= CYCLES {
            break;
        }
        note(&format!("engine {}", done + 1));
        cycle(plan)?;
        done += 1;
        // An engine that takes seconds to build has no time for eight of them.
        if done >= WARM || !seen.is_empty() || Instant::now() + plan.timeout * 4 / 10 > deadline {
            seen.push(Use::now());
        }
    }
    let first = *seen.first().unwrap_or(&Use::now());
    let middle = *seen.get(seen.len() / 2).unwrap_or(&first);
    verdict(first, middle, Use::settled(first), seen.len().saturating_sub(1) as u64)
}

fn verdict(first: Use, middle: Use, last: Use, cycles: u64) -> Outcome {
    if last.threads > first.threads {
        return Err(format!("{} threads became {} in {cycles} engines", first.threads, last.threads).into());
    }
    if last.files > first.files {
        return Err(format!("{} open files became {} in {cycles} engines", first.files, last.files).into());
    }
    let half = (cycles / 2).max(1);
    // The smaller of two is what every engine leaves; the larger may have filled a cache.
    let each = |of: fn(&Use) -> u64| {
        let grown = |from: &Use, to: &Use| of(to).saturating_sub(of(from)) / half;
        grown(&first, &middle).min(grown(&middle, &last))
    };
    let heap = each(|u| u.heap);
    if half >= HALF && heap > OWN {
        return Err(format!("every one of {cycles} engines leaves {heap} bytes on the heap").into());
    }
    // An allocator keeps some of what was freed; a part of the whole is its share.
    let grown = last.kib.saturating_sub(first.kib);
    let most = 4096 + first.kib / 20 + cycles * OWN / 1024;
    if grown > most && each(|u| u.kib) > 0 {
        let each = grown / cycles.max(1);
        return Err(format!("memory grew by {grown} KiB in {cycles} engines, {each} KiB each").into());
    }
    Ok(format!("{cycles} engines, {grown} KiB, {heap} bytes of the heap each"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_named() {
        let before = Use { kib: 100_000, heap: 50_000_000, files: 9, threads: 3 };
        let with = |change: fn(&mut Use)| {
            let (mut middle, mut after) = (before, before);
            change(&mut middle);
            change(&mut after);
            change(&mut after);
            match verdict(before, middle, after, 40) {
                Err(Fault::Failed(why)) => why,
                other => format!("{other:?}"),
            }
        };
        assert!(with(|u| u.threads += 1).contains("3 threads became 5"));
        assert!(with(|u| u.files += 1).contains("9 open files became 11"));
        assert!(with(|u| u.kib += 20_000).contains("1000 KiB each"));
        assert!(with(|u| u.heap += 20 * (OWN + 100)).contains("leaves 5220 bytes"));
        assert!(with(|u| u.kib += 250).contains("Ok"));
    }

    #[test]
    fn what_grows_once_is_a_cache() {
        let before = Use { kib: 100_000, heap: 50_000_000, files: 9, threads: 3 };
        let filled = Use { kib: 200_000, heap: 150_000_000, ..before };
        assert!(verdict(before, filled, filled, 40).is_ok());
        assert!(verdict(before, before, filled, 40).is_ok());
    }

    #[test]
    fn the_heap_knows_what_is_in_use() {
        let before = heap();
        let kept = vec![1_u8; 8 << 20];
        assert!(before == 0 || heap() >= before + kept.len() as u64 / 2);
    }
}
