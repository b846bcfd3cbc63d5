//! What a process holds, as the system tells it: memory, descriptors, threads, children; and the trend of a figure.

use std::fs;
use std::path::Path;

/// One look.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Vitals {
    /// Seconds since the soak began.
    pub(crate) at: f64,
    /// Resident memory that is no file's, in KiB.
    pub(crate) memory: f64,
    /// Open descriptors.
    pub(crate) descriptors: usize,
    /// Threads.
    pub(crate) threads: usize,
    /// Children that run.
    pub(crate) children: usize,
    /// Children that have ended and were not waited for.
    pub(crate) zombies: usize,
    /// Copies of plugins that stay in the host's memory.
    pub(crate) generations: f64,
}

impl Vitals {
    /// Of a process now; the caller adds time and generations.
    pub(crate) fn of(process: u32) -> Vitals {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let memory = memory.and_then(|text| text.trim().split(' ').next()?.parse().ok());
        let entries = |what: &str| fs::read_dir(format!("/proc/{process}/{what}")).map_or(0, Iterator::count);
        let (mut running, mut zombies) = (0, 0);
        for child in children(process) {
            match state(child) {
                Some('Z') => zombies += 1,
                Some(_) => running += 1,
                None => {}
            }
        }
        Vitals {
            memory: memory.unwrap_or(0.0),
            descriptors: entries("fd"),
            threads: entries("task"),
            children: running,
            zombies,
            ..Vitals::default()
        }
    }
}

/// The children of a process, of all its threads.
fn children(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Its letter in the process table.
fn state(process: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// The child of a host that has opened the plugin of that file, by the folder in which its private copy lay. The youngest,
/// where there are several.
pub(crate) fn child_of(host: u32, file: &Path) -> Option<u32> {
    let copy = file.with_file_name(".gen-").display().to_string();
    let has = |child: &u32| {
        fs::read_to_string(format!("/proc/{child}/maps")).is_ok_and(|maps| maps.contains(&copy))
    };
    children(host).into_iter().filter(has).max()
}

/// Slope of the straight line nearest to the points, per unit of the first; 0 of fewer than two.
pub(crate) fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |part: fn(&(f64, f64)) -> f64| points.iter().map(part).sum::<f64>() / n.max(1.0);
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let (mut both, mut square) = (0.0, 0.0);
    for point in points {
        both += (point.0 - x) * (point.1 - y);
        square += (point.0 - x).powi(2);
    }
    if square > 0.0 { both / square } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_slope_and_a_point_has_none() {
        let line: Vec<_> = (0..10).map(|i| (f64::from(i), 5.0 + 3.0 * f64::from(i))).collect();
        assert!((slope(&line) - 3.0).abs() < 1e-9);
        assert_eq!((slope(&line[..1]), slope(&[])), (0.0, 0.0));
    }

    #[test]
    fn this_process_has_memory_descriptors_and_a_thread() {
        let vitals = Vitals::of(std::process::id());
        assert!(vitals.memory > 0.0 && vitals.descriptors > 2 && vitals.threads > 0, "{vitals:?}");
    }
}
