//! The rows, the ratios of neighbours, the targets, and all of it in JSON.

use serde_json::{Value, json};

use super::plan::{CASES, Case, Found};
use super::subject::Who;
use crate::spread::Spread;

/// All volleys of one subject in one case.
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) who: Who,
    pub(crate) rounds: Vec<Found>,
}

/// All starts of one subject.
pub(crate) struct Start {
    pub(crate) who: Who,
    /// Seconds until the first answer of one token, and MiB resident then.
    pub(crate) rounds: Vec<(f64, f64)>,
}

/// What the host costs without an engine, for each case in which that was asked.
pub(crate) struct Idle {
    pub(crate) streams: usize,
    /// Milliseconds of processor time for a token.
    pub(crate) cpu: Spread,
}

/// Who was not measured, and why.
pub(crate) type Absent = Vec<(String, String)>;

/// All that was found.
pub(crate) struct Report {
    pub(crate) threads: usize,
    pub(crate) starts: Vec<Start>,
    pub(crate) rows: Vec<Row>,
    pub(crate) idle: Vec<Idle>,
    pub(crate) absent: Absent,
    /// The machine's load average before, at the end of each round, and after.
    pub(crate) loads: Vec<String>,
}

/// A figure of a volley.
type Figure = fn(&Found) -> f64;

const FIGURES: [(&str, Figure); 6] = [
    ("first_token_ms", |f| f.first),
    ("decode_tokens_per_second", |f| f.decode),
    ("total_tokens_per_second", |f| f.total),
    ("cpu_ms_per_token", |f| f.cpu),
    ("host_threads_share", |f| f.others),
    ("resident_mib", |f| f.resident),
];

impl Report {
    fn row(&self, case: &str, who: Who) -> Option<&Row> {
        self.rows.iter().find(|row| row.case.name == case && row.who == who && !row.rounds.is_empty())
    }

    /// Ours to theirs: the median of the ratios of neighbouring rounds, so that what slowed both is no difference.
    pub(crate) fn ratio(&self, case: &str, ours: Who, theirs: Who, figure: Figure) -> Option<Spread> {
        let (ours, theirs) = (self.row(case, ours)?, self.row(case, theirs)?);
        let both = ours.rounds.iter().zip(&theirs.rounds);
        Some(Spread::of(both.map(|(one, other)| figure(one) / figure(other))))
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut lines =
            vec![line(["case", "who", "first ms", "decode /s", "total /s", "CPU ms/token", "MiB"])];
        for row in &self.rows {
            let of = |figure: Figure| Spread::of(row.rounds.iter().map(figure)).text();
            let [first, decode, total] = [of(|f| f.first), of(|f| f.decode), of(|f| f.total)];
            let (cpu, resident) = (of(|f| f.cpu), of(|f| f.resident));
            lines.push(line([row.case.name, row.who.name(), &first, &decode, &total, &cpu, &resident]));
        }
        lines.push(String::new());
        for start in &self.starts {
            let of = |figure: fn(&(f64, f64)) -> f64| Spread::of(start.rounds.iter().map(figure)).text();
            let (load, resident) = (of(|s| s.0), of(|s| s.1));
            lines.push(format!("{:<20} first answer after {load} s, then {resident} MiB", start.who.name()));
        }
        lines.push(String::new());
        lines.extend(self.verdicts().iter().map(Verdict::text));
        lines.extend(self.absent.iter().map(|(who, why)| format!("not measured: {who}: {why}")));
        lines.push(format!("load averages: {}", self.loads.join("; ")));
        lines.join("\n")
    }

    /// The targets of which something was measured.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let mut all = Vec::new();
        let mut judge = |what: String, found: Option<Spread>, bound: Bound| {
            all.extend(found.map(|found| Verdict { what, found, bound }));
        };
        for case in CASES.iter().filter(|case| case.prompt < 100) {
            let rate: Figure = if case.streams == 1 { |f| f.decode } else { |f| f.total };
            let rates = |ours, theirs| self.ratio(case.name, ours, theirs, rate);
            let name = case.name;
            judge(
                format!("{name}, tokens/s of host --cb to the library in process"),
                rates(Who::Batch, Who::Library),
                Bound::Least(0.95),
            );
            judge(
                format!("{name}, tokens/s of host to the library in process"),
                rates(Who::Single, Who::Library),
                Bound::Least(0.95),
            );
            if case.streams > 1 {
                let found = rates(Who::Batch, Who::Llama);
                judge(
                    format!("{name}, tokens/s of host --cb to llama.cpp's server"),
                    found,
                    Bound::Least(1.0),
                );
            }
            let outside = self.outside(case.streams);
            judge(format!("{name}, host's share of its processor time"), outside, Bound::Most(0.02));
        }
        all
    }

    /// The host's part of what host and engine use together: at most what it uses with an engine that only waits.
    fn outside(&self, streams: usize) -> Option<Spread> {
        let idle = self.idle.iter().find(|idle| idle.streams == streams)?.cpu;
        let row = self.rows.iter().find(|row| {
            row.who == Who::Batch
                && row.case.streams == streams
                && row.case.prompt < 100
                && !row.rounds.is_empty()
        })?;
        let whole = Spread::of(row.rounds.iter().map(|f| f.cpu)).median;
        Some(Spread { median: idle.median / whole, low: idle.low / whole, high: idle.high / whole })
    }

    /// Everything.
    pub(crate) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let figures = FIGURES
                .map(|(name, figure)| (name.to_owned(), three(Spread::of(row.rounds.iter().map(figure)))));
            let each = row.rounds.iter().map(|found| {
                Value::Object(
                    FIGURES
                        .map(|(name, figure)| (name.to_owned(), json!(figure(found))))
                        .into_iter()
                        .collect(),
                )
            });
            json!({
                "case": row.case.name, "streams": row.case.streams, "prompt_tokens": row.case.prompt,
                "answer_tokens": row.case.tokens, "who": row.who.name(), "rounds": each.collect::<Vec<_>>(),
                "figures": Value::Object(figures.into_iter().collect()),
            })
        });
        let starts = self.starts.iter().map(|start| {
            json!({
                "who": start.who.name(), "rounds": start.rounds.len(),
                "first_answer_s": three(Spread::of(start.rounds.iter().map(|s| s.0))),
                "resident_mib": three(Spread::of(start.rounds.iter().map(|s| s.1))),
            })
        });
        let idle = self
            .idle
            .iter()
            .map(|idle| json!({ "streams": idle.streams, "cpu_ms_per_token": three(idle.cpu) }));
        json!({
            "engine_threads": self.threads, "load_averages": self.loads, "starts": starts.collect::<Vec<_>>(),
            "rows": rows.collect::<Vec<_>>(), "pairs": self.pairs(), "host_without_engine": idle.collect::<Vec<_>>(),
            "targets": self.verdicts().iter().map(Verdict::json).collect::<Vec<_>>(),
            "absent": self.absent.iter().map(|(who, why)| json!({ "who": who, "reason": why })).collect::<Vec<_>>(),
        })
    }

    fn pairs(&self) -> Vec<Value> {
        let mut pairs = Vec::new();
        for case in CASES {
            for (ours, theirs) in [
                (Who::Batch, Who::Library),
                (Who::Single, Who::Library),
                (Who::Batch, Who::Llama),
                (Who::Single, Who::Llama),
            ] {
                let ratios = FIGURES.iter().filter(|(name, _)| *name != "host_threads_share").filter_map(
                    |(name, figure)| {
                        Some(((*name).to_owned(), three(self.ratio(case.name, ours, theirs, *figure)?)))
                    },
                );
                let ratios: serde_json::Map<String, Value> = ratios.collect();
                if !ratios.is_empty() {
                    let (ours, theirs) = (ours.name(), theirs.name());
                    pairs
                        .push(json!({ "case": case.name, "ours": ours, "theirs": theirs, "ratios": ratios }));
                }
            }
        }
        pairs
    }
}

fn three(spread: Spread) -> Value {
    json!({ "median": spread.median, "low": spread.low, "high": spread.high })
}

fn line(cells: [&str; 7]) -> String {
    let [case, who, first, decode, total, cpu, resident] = cells;
    let text = format!("{case:<22} {who:<20} {first:<20} {decode:<20} {total:<20} {cpu:<20} {resident}");
    text.trim_end().to_owned()
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    Least(f64),
    Most(f64),
}

/// A target and what was found.
pub(crate) struct Verdict {
    what: String,
    found: Spread,
    bound: Bound,
}

impl Verdict {
    /// What is not a number is not met.
    fn is_met(&self) -> bool {
        match self.bound {
            Bound::Least(least) => self.found.median >= least,
            Bound::Most(most) => self.found.median <= most,
        }
    }

    fn text(&self) -> String {
        let verdict = if self.is_met() { "met   " } else { "MISSED" };
        let bound = match self.bound {
            Bound::Least(least) => format!("at least {least}"),
            Bound::Most(most) => format!("at most {most}"),
        };
        let Spread { median, low, high } = self.found;
        format!("{verdict}  {}: {bound}, {median:.4} ({low:.4}-{high:.4}) found", self.what)
    }

    fn json(&self) -> Value {
        let (bound, name) = match self.bound {
            Bound::Least(least) => (least, "least"),
            Bound::Most(most) => (most, "most"),
        };
        json!({ "what": self.what, name: bound, "found": three(self.found), "met": self.is_met() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ours: &[f64], theirs: &[f64], idle: f64) -> Report {
        let row = |who, totals: &[f64]| {
            let found = |total: &f64| Found { total: *total, cpu: 10.0, ..Found::default() };
            Row { case: CASES[2], who, rounds: totals.iter().map(found).collect() }
        };
        Report {
            threads: 2,
            starts: Vec::new(),
            rows: vec![row(Who::Batch, ours), row(Who::Library, theirs)],
            idle: vec![Idle { streams: 8, cpu: Spread { median: idle, low: idle, high: idle } }],
            absent: Vec::new(),
            loads: Vec::new(),
        }
    }

    #[test]
    fn rounds_are_compared_with_their_neighbours() {
        // The last round was four times as slow for both.
        let verdicts = report(&[100.0, 96.0, 24.0], &[100.0, 100.0, 25.0], 0.1).verdicts();
        assert_eq!(verdicts.iter().map(Verdict::is_met).collect::<Vec<_>>(), [true, true]);
        assert!((verdicts[0].found.median - 0.96).abs() < 1e-9, "{}", verdicts[0].text());
    }

    #[test]
    fn a_missed_target_is_told_and_what_was_not_run_is_not() {
        let report = report(&[90.0], &[100.0], 0.3);
        let missed = report.verdicts().iter().filter(|verdict| !verdict.is_met()).count();
        assert_eq!((report.verdicts().len(), missed), (2, 2));
        assert!(report.text().contains("MISSED  8 streams, host's share"), "{}", report.text());
        assert_eq!(report.json()["pairs"].as_array().map(Vec::len), Some(1));
    }
}
