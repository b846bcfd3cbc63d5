//! What the threads of a process have used, each alone: whose work it was is in their names.
//!
//! The library's own threads have the name of the one that opened the model; the worker's thread calls the library, so most of
//! its time is the library's too. All others are the host's.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

/// Beginnings of the names of threads in which the engine computes.
const ENGINE: [&str; 2] = ["engine", "build"];

/// Name and processor time of each thread, by its id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Threads(BTreeMap<u32, (String, Duration)>);

/// Processor time between two looks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Shares {
    /// Of the threads in which the engine computes.
    pub(crate) engine: Duration,
    /// Of all others.
    pub(crate) others: Duration,
}

impl Threads {
    /// Of a process now. A thread that ends while they are listed is left out.
    pub(crate) fn of(process: u32) -> Result<Threads> {
        let folder = format!("/proc/{process}/task");
        let tasks = std::fs::read_dir(&folder).with_context(|| format!("list {folder}"))?.flatten();
        let look = |task: std::fs::DirEntry| {
            let id = task.file_name().to_str()?.parse().ok()?;
            let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
            // Nanoseconds on a processor, before two numbers about waiting.
            let times = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            let nanos = times.split(' ').next()?.parse().ok()?;
            Some((id, (name.trim_end().to_owned(), Duration::from_nanos(nanos))))
        };
        Ok(Threads(tasks.filter_map(look).collect()))
    }

    /// What was used since `before`. What a thread that has ended used is in neither part.
    pub(crate) fn since(&self, before: &Threads) -> Shares {
        let mut shares = Shares::default();
        for (id, (name, now)) in &self.0 {
            let then = before.0.get(id).map_or(Duration::ZERO, |(_, then)| *then);
            let engine = ENGINE.iter().any(|beginning| name.starts_with(beginning));
            *(if engine { &mut shares.engine } else { &mut shares.others }) += now.saturating_sub(then);
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_work_of_a_thread_counts_where_its_name_says() {
        let (begin, begun) = mpsc::sync_channel::<()>(1);
        let (done, ended) = mpsc::sync_channel::<()>(1);
        let work = move || {
            begun.recv().expect("a start");
            let sum = (0..20_000_000_u64).fold(0, |a, b| std::hint::black_box(a ^ b));
            done.send(()).expect("a listener");
            begun.recv().expect("an end");
            sum
        };
        let thread =
            std::thread::Builder::new().name("engine of a test".into()).spawn(work).expect("a thread");
        let before = Threads::of(std::process::id()).expect("a look");
        begin.send(()).expect("a worker");
        ended.recv().expect("an end");
        let used = Threads::of(std::process::id()).expect("a look").since(&before);
        begin.send(()).expect("a worker");
        thread.join().expect("a sum");
        assert!(used.engine > Duration::ZERO, "{used:?}");
    }
}
