//! The rows, the ratios of neighbours, the targets, and all of it in JSON.

use serde_json::{Value, json};

use super::plan::{Case, Found, HALVES, Plan};
use super::subject::Who;
use super::verdict::Verdict;
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
    pub(crate) plan: &'static Plan,
    pub(crate) threads: usize,
    pub(crate) starts: Vec<Start>,
    pub(crate) rows: Vec<Row>,
    pub(crate) idle: Vec<Idle>,
    pub(crate) absent: Absent,
    /// The machine's load average before, at the end of each round, and after.
    pub(crate) loads: Vec<String>,
}

/// A figure of a volley.
pub(crate) type Figure = fn(&Found) -> f64;

const FIGURES: [(&str, Figure); 6] = [
    ("first_token_ms", |f| f.first),
    ("decode_tokens_per_second", |f| f.decode),
    ("total_tokens_per_second", |f| f.total),
    ("cpu_ms_per_token", |f| f.cpu),
    ("host_threads_share", |f| f.others),
    ("resident_mib", |f| f.resident),
];

impl Report {
    /// Of a run that has yet to begin.
    pub(crate) fn new(plan: &'static Plan, threads: usize) -> Report {
        let (starts, rows, idle) = (Vec::new(), Vec::new(), Vec::new());
        Report { plan, threads, starts, rows, idle, absent: Vec::new(), loads: Vec::new() }
    }

    fn row(&self, case: &str, who: Who) -> Option<&Row> {
        self.rows.iter().find(|row| row.case.name == case && row.who == who && !row.rounds.is_empty())
    }

    /// Ours to theirs: the median of the ratios of neighbouring rounds, so that what slowed both is no difference. Of a round
    /// with several volleys it is the geometric mean of theirs.
    pub(crate) fn ratio(&self, case: &str, ours: Who, theirs: Who, figure: Figure) -> Option<Spread> {
        let (ours, theirs) = (self.row(case, ours)?, self.row(case, theirs)?);
        let both = ours.rounds.iter().zip(&theirs.rounds);
        let each: Vec<f64> = both.map(|(one, other)| (figure(one) / figure(other)).ln()).collect();
        let rounds = each.chunks(HALVES);
        Some(Spread::of(rounds.map(|logs| (logs.iter().sum::<f64>() / logs.len() as f64).exp())))
    }

    /// A figure over the rounds.
    pub(crate) fn spread(&self, case: &str, who: Who, figure: Figure) -> Option<Spread> {
        Some(Spread::of(self.row(case, who)?.rounds.iter().map(figure)))
    }

    /// What is told of each volley.
    fn figures(&self) -> impl Iterator<Item = (&'static str, Figure)> {
        FIGURES.iter().chain(self.plan.figures.iter().copied().flatten()).copied()
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
        if !self.plan.figures.is_empty() {
            lines.extend(self.rows.iter().filter_map(|row| self.more(row)));
            lines.push(String::new());
        }
        for start in &self.starts {
            let of = |figure: fn(&(f64, f64)) -> f64| Spread::of(start.rounds.iter().map(figure)).text();
            let (load, resident) = (of(|s| s.0), of(|s| s.1));
            lines.push(format!("{:<20} first answer after {load} s, then {resident} MiB", start.who.name()));
        }
        lines.push(String::new());
        lines.extend((self.plan.judge)(self).iter().map(Verdict::text));
        lines.extend(self.absent.iter().map(|(who, why)| format!("not measured: {who}: {why}")));
        lines.push(format!("load averages: {}", self.loads.join("; ")));
        lines.join("\n")
    }

    /// The plan's own figures of a row, in one line.
    fn more(&self, row: &Row) -> Option<String> {
        let of = |figure: Figure| Spread::of(row.rounds.iter().map(figure));
        let told = |(name, figure): &(&str, Figure)| {
            let found = of(*figure);
            (!found.median.is_nan()).then(|| format!("{name} {:.4}", found.median))
        };
        let all: Vec<_> = self.plan.figures.iter().copied().flatten().filter_map(told).collect();
        (!all.is_empty()).then(|| format!("{}, {}: {}", row.case.name, row.who.name(), all.join(", ")))
    }

    /// Everything.
    pub(crate) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let figures = self
                .figures()
                .map(|(name, figure)| (name.to_owned(), three(Spread::of(row.rounds.iter().map(figure)))));
            let each = row.rounds.iter().map(|found| {
                Value::Object(
                    self.figures().map(|(name, figure)| (name.to_owned(), json!(figure(found)))).collect(),
                )
            });
            json!({
                "case": row.case.name, "streams": row.case.streams, "prompt_tokens": row.case.prompt,
                "answer_tokens": row.case.tokens, "who": row.who.name(), "rounds": each.collect::<Vec<_>>(),
                "figures": Value::Object(figures.collect()),
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
            "targets": (self.plan.judge)(self).iter().map(Verdict::json).collect::<Vec<_>>(),
            "absent": self.absent.iter().map(|(who, why)| json!({ "who": who, "reason": why })).collect::<Vec<_>>(),
        })
    }

    fn pairs(&self) -> Vec<Value> {
        let mut pairs = Vec::new();
        for case in self.plan.cases {
            for &(ours, theirs) in self.plan.pairs {
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

/// For reports.
pub(crate) fn three(spread: Spread) -> Value {
    json!({ "median": spread.median, "low": spread.low, "high": spread.high })
}

fn line(cells: [&str; 7]) -> String {
    let [case, who, first, decode, total, cpu, resident] = cells;
    let text = format!("{case:<22} {who:<20} {first:<20} {decode:<20} {total:<20} {cpu:<20} {resident}");
    text.trim_end().to_owned()
}
