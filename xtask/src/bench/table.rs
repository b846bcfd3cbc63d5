//! The rows of the bench: figures with their quartiles, and whether the target was met.

use serde_json::Value;

/// A figure of the host's report that a target speaks of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Figure {
    /// Processor time of the host in nanoseconds per token: on a quiet machine the wall time, on a busy one without what the
    /// neighbours took.
    Cpu,
    /// Share of one core at 50,000 tokens a second.
    Core,
}

/// What a median may be at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Target {
    pub(super) figure: Figure,
    pub(super) most: f64,
}

/// One line.
pub(super) struct Row {
    name: String,
    batch: u64,
    wall: [f64; 3],
    host: [f64; 3],
    child: Option<[f64; 3]>,
    core: [f64; 3],
    target: Option<Target>,
}

impl Row {
    /// From a batch of the host's report.
    pub(super) fn new(name: &str, isolated: bool, batch: u64, report: &Value, target: Option<Target>) -> Row {
        let of = |name: &str| {
            ["median", "low", "high"].map(|part| report[name][part].as_f64().unwrap_or(f64::NAN))
        };
        Row {
            name: if isolated { format!("{name} (isolated)") } else { name.to_owned() },
            batch,
            wall: of("wall_ns_per_token"),
            host: of("host_cpu_ns_per_token"),
            child: report["child_cpu_ns_per_token"].is_object().then(|| of("child_cpu_ns_per_token")),
            core: of("core_share_at_50000").map(|share| share * 100.0),
            target,
        }
    }

    pub(super) fn text(&self) -> String {
        let child = self.child.map_or_else(|| "-".to_owned(), shown);
        let verdict = match (self.target, self.missed()) {
            (None, _) => String::new(),
            (Some(target), None) => format!("ok, {}", target.text()),
            (Some(target), Some(_)) => format!("MISSED, {}", target.text()),
        };
        let [wall, host, core] = [self.wall, self.host, self.core].map(shown);
        line([&self.name, &self.batch.to_string(), &wall, &host, &child, &core, &verdict])
    }

    /// Why the target is missed, if it is. What was not measured is missed.
    pub(super) fn missed(&self) -> Option<String> {
        let target = self.target?;
        let (found, scale) = match target.figure {
            Figure::Cpu => (self.host[0], 1.0),
            Figure::Core => (self.core[0], 100.0),
        };
        let met = found <= target.most * scale;
        (!met).then(|| format!("{}, batch {}: {}, {found:.2} found", self.name, self.batch, target.text()))
    }
}

impl Target {
    fn text(&self) -> String {
        match self.figure {
            Figure::Cpu => format!("at most {} ns", self.most),
            Figure::Core => format!("at most {} % of a core", self.most * 100.0),
        }
    }
}

pub(super) fn head() -> String {
    line(["engine", "batch", "wall ns", "host CPU ns", "child CPU ns", "% of a core at 50,000/s", "target"])
}

fn line(cells: [&str; 7]) -> String {
    let [name, batch, wall, host, child, core, target] = cells;
    let text = format!("{name:<30} {batch:>5}  {wall:<24} {host:<24} {child:<24} {core:<25} {target}");
    text.trim_end().to_owned()
}

fn shown([median, low, high]: [f64; 3]) -> String {
    let digits = if low >= 100.0 {
        0
    } else if low >= 10.0 {
        1
    } else {
        2
    };
    format!("{median:.digits$} ({low:.digits$}-{high:.digits$})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(wall: f64, core: f64, target: Target) -> Row {
        let three = |n: f64| json!({"median": n, "low": n, "high": n});
        let report = json!({"wall_ns_per_token": three(wall), "host_cpu_ns_per_token": three(wall),
            "core_share_at_50000": three(core), "child_cpu_ns_per_token": null});
        Row::new("x", true, 16, &report, Some(target))
    }

    #[test]
    fn a_missed_target_is_named_with_what_was_found() {
        let cpu = Target { figure: Figure::Cpu, most: 4.0 };
        assert_eq!(row(4.0, 0.1, cpu).missed(), None);
        let said = row(4.5, 0.1, cpu).missed().unwrap();
        assert_eq!(said, "x (isolated), batch 16: at most 4 ns, 4.50 found");
        let core = Target { figure: Figure::Core, most: 0.03 };
        assert_eq!(row(4.5, 0.03, core).missed(), None);
        assert!(row(4.5, 0.031, core).text().ends_with("MISSED, at most 3 % of a core"));
        assert!(row(f64::NAN, 0.0, cpu).missed().is_some(), "what was not measured is not met");
    }
}
