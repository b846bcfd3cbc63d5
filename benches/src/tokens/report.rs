//! The rows, the targets, and both in JSON.

use serde_json::{Value, json};

use crate::plan::{Case, Found};
use crate::spread::Spread;
use crate::subject::Who;

/// All rounds of one subject in one case.
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) who: Who,
    pub(crate) rounds: Vec<Found>,
}

impl Row {
    /// A figure over the rounds.
    fn spread(&self, figure: fn(&Found) -> f64) -> Spread {
        Spread::of(self.rounds.iter().map(figure))
    }

    /// One line of the table.
    pub(crate) fn text(&self) -> String {
        let late = [self.spread(|f| f.late[0]), self.spread(|f| f.late[1])].map(|s| s.median / 1e3);
        let rates = [self.spread(|f| f.tokens_per_second), self.spread(|f| f.answers_per_second)];
        let failed: f64 = self.rounds.iter().map(|f| f.failed).sum();
        line([
            self.case.name,
            &self.case.manner.streams.to_string(),
            self.who.name(),
            &if self.case.manner.idle { "-".to_owned() } else { self.spread(|f| f.cpu).text() },
            &format!("{:.1}", self.spread(|f| f.core).median * 100.0),
            &format!("{:.0}", rates[0].median),
            &format!("{:.0}", rates[1].median),
            &format!("{:.2} / {:.2}", late[0], late[1]),
            &format!("{:.1}", self.spread(|f| f.each).median),
            &if failed > 0.0 { format!("{failed} FAILED") } else { String::new() },
        ])
    }

    fn json(&self) -> Value {
        let three = |figure: fn(&Found) -> f64| {
            let Spread { median, low, high } = self.spread(figure);
            json!({ "median": median, "low": low, "high": high })
        };
        json!({
            "case": self.case.name, "streams": self.case.manner.streams, "who": self.who.name(),
            "rounds": self.rounds.len(), "seconds": self.case.seconds,
            "cpu_us_per_token": three(|f| f.cpu), "core_share": three(|f| f.core),
            "tokens_per_second": three(|f| f.tokens_per_second),
            "answers_per_second": three(|f| f.answers_per_second), "failed": three(|f| f.failed),
            "late_us": { "p50": three(|f| f.late[0]), "p99": three(|f| f.late[1]), "max": three(|f| f.late[2]) },
            "first_token_us": { "p50": three(|f| f.first[0]), "p99": three(|f| f.first[1]) },
            "ready_ms": three(|f| f.ready), "rss_at_start_kib": three(|f| f.at_start),
            "kib_per_stream": three(|f| f.each),
        })
    }
}

/// The table's head.
pub(crate) fn head() -> String {
    let cells = ["case", "streams", "who", "CPU us/token", "% core", "tokens/s", "answers/s"];
    let [case, streams, who, cpu, core, tokens, answers] = cells;
    line([case, streams, who, cpu, core, tokens, answers, "late ms p50/p99", "KiB/stream", ""])
}

fn line(cells: [&str; 10]) -> String {
    let [case, streams, who, cpu, core, tokens, answers, late, each, failed] = cells;
    let text = format!(
        "{case:<16} {streams:>7}  {who:<17} {cpu:<20} {core:>6} {tokens:>9} {answers:>9}  {late:<16} {each:>10} {failed}"
    );
    text.trim_end().to_owned()
}

/// A target and what was found.
pub(crate) struct Verdict {
    what: String,
    found: f64,
    most: f64,
}

impl Verdict {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let verdict = if self.is_met() { "met   " } else { "MISSED" };
        format!("{verdict}  {}: at most {}, {:.2} found", self.what, self.most, self.found)
    }

    /// What was not measured is not met.
    fn is_met(&self) -> bool {
        self.found <= self.most
    }

    fn json(&self) -> Value {
        json!({ "what": self.what, "most": self.most, "found": self.found, "met": self.is_met() })
    }
}

/// The targets of which there are rows.
pub(crate) fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let row = |case: &str, streams: usize, who: Who| {
        rows.iter().find(|r| r.case.name == case && r.case.manner.streams == streams && r.who == who)
    };
    let mut all = Vec::new();
    let mut judge = |what: &str, found: Option<f64>, most: f64| {
        all.extend(found.map(|found| Verdict { what: what.to_owned(), found, most }));
    };
    // Run in turn, so that a round compares with its neighbour.
    let ratio = |case: &str, anchor: Who| {
        let (host, anchor) = (row(case, 256, Who::Host)?, row(case, 256, anchor)?);
        Some(Spread::of(host.rounds.iter().zip(&anchor.rounds).map(|(h, a)| h.cpu / a.cpu)).median)
    };
    judge("flat out, 256 streams, host to hyper writer", ratio("flat out", Who::Hyper), 1.3);
    judge("paced, 256 streams, host to bare writer", ratio("paced, 5 ms", Who::Bare), 1.2);
    for streams in [1, 16, 256] {
        let late = row("paced, 5 ms", streams, Who::Host).map(|row| row.spread(|f| f.late[1]).median / 1e3);
        judge(&format!("gap beyond the pace, p99 in ms, {streams} streams"), late, 40.0);
    }
    let idle = row("idle", 10_000, Who::Host);
    judge("memory of an idle stream in kB", idle.map(|r| r.spread(|f| f.each * 1.024).median), 13.0);
    let slow = row("a token a second", 10_000, Who::Host);
    judge(
        "10,000 streams, a token a second, share of a core",
        slow.map(|r| r.spread(|f| f.core).median),
        0.2,
    );
    let start = rows.iter().find(|r| r.who == Who::Host && r.case.manner.streams == 16);
    judge("memory at start in MiB", start.map(|r| r.spread(|f| f.at_start / 1024.0).median), 12.0);
    all
}

/// Everything.
pub(crate) fn json(rows: &[Row], verdicts: &[Verdict], load: [&str; 2]) -> Value {
    json!({
        "load_before": load[0], "load_after": load[1],
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "targets": verdicts.iter().map(Verdict::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cases;

    fn row(who: Who, cpu: &[f64]) -> Row {
        let case = cases(true)[1];
        Row { case, who, rounds: cpu.iter().map(|cpu| Found { cpu: *cpu, ..Found::default() }).collect() }
    }

    #[test]
    fn ratios_are_of_neighbouring_rounds() {
        // Everything was twice as slow in the second round: no difference between the two.
        let rows = [row(Who::Host, &[1.0, 2.0, 1.1]), row(Who::Hyper, &[1.0, 2.0, 1.0])];
        let verdicts = verdicts(&rows);
        assert_eq!(verdicts.len(), 1, "nothing is said of what was not run");
        assert!(verdicts[0].is_met() && verdicts[0].found == 1.0);
    }

    #[test]
    fn what_is_not_a_number_is_missed() {
        let rows = [row(Who::Host, &[f64::NAN]), row(Who::Hyper, &[1.0])];
        assert!(verdicts(&rows)[0].text().starts_with("MISSED"));
    }
}
