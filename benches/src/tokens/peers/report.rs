//! The rows, what they say of each pair, and both in JSON.

use serde_json::{Value, json};

use super::plan::{Case, Found};
use super::server::Who;
use crate::spread::Spread;

/// All rounds of one server in one case.
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) who: Who,
    pub(crate) rounds: Vec<Found>,
    /// Why there are no more of them.
    pub(crate) reason: Option<String>,
}

impl Row {
    /// A figure over the rounds.
    fn spread(&self, figure: impl Fn(&Found) -> f64) -> Spread {
        Spread::of(self.rounds.iter().map(figure))
    }

    /// The figure that is compared.
    fn own(&self, found: &Found) -> f64 {
        if self.who.is_router() { found.front } else { found.all }
    }

    /// One line of the table.
    pub(crate) fn text(&self) -> String {
        let failed: f64 = self.rounds.iter().map(|f| f.failed).sum();
        if let (Some(reason), true) = (&self.reason, self.rounds.is_empty()) {
            return line([self.case.name, &self.streams(), self.who.name(), "-", "-", "", "", "", reason]);
        }
        let millis = |figure: fn(&Found) -> [f64; 2]| {
            let [middle, most] = [0, 1].map(|i| self.spread(|f| figure(f)[i] / 1e3).median);
            format!("{middle:.2} / {most:.2}")
        };
        line([
            self.case.name,
            &self.streams(),
            self.who.name(),
            &self.spread(|f| f.front).text(),
            &self.spread(|f| f.all).text(),
            &self.spread(|f| f.tokens_per_second).text(),
            &millis(|f| f.first),
            &millis(|f| f.whole),
            &if failed > 0.0 { format!("{failed} FAILED") } else { self.reason.clone().unwrap_or_default() },
        ])
    }

    fn streams(&self) -> String {
        self.case.manner.streams.to_string()
    }

    fn json(&self) -> Value {
        let three = |figure: &dyn Fn(&Found) -> f64| {
            let Spread { median, low, high } = self.spread(figure);
            json!({ "median": median, "low": low, "high": high })
        };
        json!({
            "case": self.case.name, "streams": self.case.manner.streams, "who": self.who.name(),
            "rounds": self.rounds.len(), "seconds": self.case.seconds, "reason": self.reason,
            "cpu_us_per_token": { "front": three(&|f| f.front), "all": three(&|f| f.all) },
            "core_share": three(&|f| f.core), "tokens_per_second": three(&|f| f.tokens_per_second),
            "answers_per_second": three(&|f| f.answers_per_second), "failed": three(&|f| f.failed),
            "first_token_us": { "p50": three(&|f| f.first[0]), "p99": three(&|f| f.first[1]) },
            "answer_us": { "p50": three(&|f| f.whole[0]), "p99": three(&|f| f.whole[1]) },
            "gap_us_p99": three(&|f| f.gap),
            "rss_kib": { "front": three(&|f| f.resident[0]), "all": three(&|f| f.resident[1]) },
        })
    }
}

/// The table's head.
pub(crate) fn head() -> String {
    let cells =
        ["case", "streams", "who", "CPU us/token, front", "all parts", "tokens/s", "first ms p50/p99"];
    let [case, streams, who, front, all, tokens, first] = cells;
    line([case, streams, who, front, all, tokens, first, "answer ms p50/p99", ""])
}

fn line(cells: [&str; 9]) -> String {
    let [case, streams, who, front, all, tokens, first, whole, more] = cells;
    let text = format!(
        "{case:<22} {streams:>7}  {who:<17} {front:<22} {all:<22} {tokens:<24} {first:<17} {whole:<19} {more}"
    );
    text.trim_end().to_owned()
}

/// Ours beside one of theirs, in the same rounds.
pub(crate) struct Pair {
    case: Case,
    theirs: Who,
    /// Processor time for a token, ours to theirs.
    cpu: Spread,
    /// Tokens a second, ours to theirs.
    rate: Spread,
    /// Microseconds from request to end of an answer: theirs less ours.
    longer: Spread,
}

impl Pair {
    /// For people.
    pub(crate) fn text(&self) -> String {
        format!(
            "{}, {} streams: to {} the host has CPU a token {} times, tokens/s {} times; theirs takes {} us longer an answer",
            self.case.name,
            self.case.manner.streams,
            self.theirs.name(),
            self.cpu.text(),
            self.rate.text(),
            self.longer.text(),
        )
    }

    fn json(&self) -> Value {
        let three = |s: &Spread| json!({ "median": s.median, "low": s.low, "high": s.high });
        json!({
            "case": self.case.name, "streams": self.case.manner.streams, "to": self.theirs.name(),
            "cpu_ratio": three(&self.cpu), "tokens_per_second_ratio": three(&self.rate),
            "answer_longer_us": three(&self.longer),
        })
    }
}

/// The pairs of one case: rounds stand beside each other in time, so their ratios are taken, then the median of these.
pub(crate) fn pairs(rows: &[Row]) -> Vec<Pair> {
    let Some((ours, theirs)) = rows.split_first() else { return Vec::new() };
    let there = |row: &&Row| !row.rounds.is_empty() && !ours.rounds.is_empty();
    let pair = |row: &Row| {
        let both = || ours.rounds.iter().zip(&row.rounds);
        Pair {
            case: row.case,
            theirs: row.who,
            cpu: Spread::of(both().map(|(o, t)| ours.own(o) / row.own(t))),
            rate: Spread::of(both().map(|(o, t)| o.tokens_per_second / t.tokens_per_second)),
            longer: Spread::of(both().map(|(o, t)| t.whole[0] - o.whole[0])),
        }
    };
    theirs.iter().filter(there).map(pair).collect()
}

/// Everything.
pub(crate) fn json(
    rows: &[Row],
    pairs: &[Pair],
    absent: &[(String, String)],
    threads: usize,
    load: [&str; 2],
) -> Value {
    let absent: Vec<Value> = absent.iter().map(|(who, why)| json!({ "who": who, "reason": why })).collect();
    json!({
        "load_before": load[0], "load_after": load[1], "absent": absent, "engine_threads": threads,
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "pairs": pairs.iter().map(Pair::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::plan::cases;
    use super::*;

    fn row(who: Who, figures: &[(f64, f64)]) -> Row {
        let found = |(front, all): &(f64, f64)| Found { front: *front, all: *all, ..Found::default() };
        Row { case: cases(false)[0], who, rounds: figures.iter().map(found).collect(), reason: None }
    }

    #[test]
    fn a_router_is_held_against_us_without_what_it_routes_to() {
        let rows =
            [row(Who::Host, &[(2.0, 2.0)]), row(Who::Smg, &[(4.0, 10.0)]), row(Who::Dynamo, &[(4.0, 10.0)])];
        let pairs = pairs(&rows);
        assert_eq!(pairs.iter().map(|pair| pair.cpu.median).collect::<Vec<_>>(), [0.5, 0.2]);
    }

    #[test]
    fn ratios_are_of_neighbouring_rounds_and_need_some() {
        let mut gone = row(Who::Smg, &[]);
        gone.reason = Some("no such package".to_owned());
        let rows =
            [row(Who::Host, &[(1.0, 1.0), (9.0, 9.0)]), row(Who::Sglang, &[(2.0, 0.0), (18.0, 0.0)]), gone];
        let pairs = pairs(&rows);
        assert_eq!((pairs.len(), pairs[0].cpu.median), (1, 0.5));
        assert!(rows[2].text().ends_with("no such package"));
    }
}
