//! `plugin bench`: drives a plugin's engine and prints what its tokens cost, as a table or as JSON.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tracing::Level;

use super::{has_engine, library, model, pairs, say};
use crate::config::env;
use crate::plugins::bench::{self, Amount, Measured, Plan, Spread};
use crate::plugins::build::Order;
use crate::plugins::load::{self, Candidate};
use crate::plugins::{LoadError, Opened, options, services};
use crate::telemetry::logs::{self, Format};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::plugin_metrics::PluginMetrics;

/// The rate at which the share of a core is told: what a large machine serves.
const RATE: f64 = 50_000.0;
/// The name that requests carry.
const MODEL: &str = "bench";

/// What to measure, and how.
#[derive(Args)]
pub(in crate::cli) struct Flags {
    /// The plugin: a path with a /, or a name.
    #[arg(value_name = "LIB")]
    library: String,
    /// Engine of the plugin; the first when left out.
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Option of the plugin. Repeatable.
    #[arg(long = "option", value_name = "KEY=VALUE")]
    options: Vec<String>,
    /// Model for the engine, where it needs one.
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Tasks at once. Repeatable; 1 and 16 when left out.
    #[arg(long, value_name = "N")]
    batch: Vec<usize>,
    /// Tokens that a round measures.
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    tokens: Option<u64>,
    /// How long a round measures, about.
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,
    /// Rounds of each batch; the median is told.
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
    /// Run the engine in a process of its own.
    #[arg(long)]
    isolate: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The shortest round whose counts mean something in a process of its own.
const ISOLATED: Duration = Duration::from_millis(500);

impl Flags {
    fn amount(&self) -> Result<Amount, String> {
        match self.tokens {
            Some(0) => Err("--tokens is 0; give at least 1".to_owned()),
            Some(tokens) => Ok(Amount::Tokens(tokens)),
            None => match Duration::try_from_secs_f64(self.seconds) {
                // The child tells its counts every tenth of a second.
                Ok(time) if self.isolate && time < ISOLATED => Err(format!(
                    "--seconds is {}; with --isolate give at least {}",
                    self.seconds,
                    ISOLATED.as_secs_f64()
                )),
                Ok(time) if !time.is_zero() => Ok(Amount::Time(time)),
                _ => Err(format!("--seconds is {}; give more than 0", self.seconds)),
            },
        }
    }

    fn batches(&self) -> Result<Vec<usize>, String> {
        match self.batch.as_slice() {
            [] => Ok(vec![1, 16]),
            some if some.contains(&0) => Err("--batch is 0; give at least 1".to_owned()),
            some => Ok(some.to_vec()),
        }
    }
}

pub(super) fn run(flags: &Flags) -> Result<i32, String> {
    let (amount, batches) = (flags.amount()?, flags.batches()?);
    if flags.rounds == 0 {
        return Err("--rounds is 0; give at least 1".to_owned());
    }
    let path = library(&flags.library, &[])?;
    let given = pairs(&flags.options)?;
    let candidate = match load::inspect(&path) {
        Ok(candidate) => candidate,
        Err(error) => return Ok(failed(&error.to_string())),
    };
    let manifest = candidate.manifest.clone();
    let options =
        options::check(&manifest.id, &manifest.about.options, &given).map_err(|all| all.join("\n"))?;
    let engine = match (&flags.engine, manifest.about.engines.first()) {
        (Some(engine), _) => {
            has_engine(&manifest, engine)?;
            engine.as_str()
        }
        (None, Some(first)) => first.name.as_str(),
        (None, None) => return Err(format!("{} has no engine", manifest.id)),
    };
    let weights = model(flags.model.as_deref())?;
    if !flags.isolate {
        for (name, value) in &manifest.about.env {
            env::set_before_threads(name, value)?;
        }
    }
    logs::start(Level::WARN, Format::Text);
    services::start(Arc::new(PluginMetrics::new(Arc::new(Metrics::new()))), Level::WARN);
    let give_up = AtomicBool::new(false);
    let order = Order {
        engine,
        options: &options,
        path: weights.as_deref(),
        model: MODEL,
        give_up: &give_up,
        stop_before_weights: None,
    };
    let built = open(candidate, flags.isolate).and_then(|opened| opened.build(&order));
    let built = match built {
        Ok(built) => built,
        Err(error) => return Ok(failed(&error.to_string())),
    };
    let plan = Plan { batches: &batches, rounds: flags.rounds, amount };
    let measured = match bench::run(&built, MODEL, &plan) {
        Ok(measured) => measured,
        Err(error) => return Ok(failed(&format!("plugin {}: {error}", manifest.id))),
    };
    if flags.json {
        let all = json!({
            "file": path.display().to_string(), "id": manifest.id, "version": manifest.version,
            "engine": engine, "host": env!("CARGO_PKG_VERSION"), "isolated": flags.isolate,
            "rounds": flags.rounds, "batches": measured.iter().map(object).collect::<Vec<_>>(),
        });
        say(&serde_json::to_string_pretty(&all).map_err(|e| e.to_string())?);
    } else {
        let place = if flags.isolate { "a process of its own" } else { "this process" };
        say(&format!(
            "{} {}, engine {engine}, in {place}; {} rounds, median (quartiles)\n",
            manifest.id, manifest.version, flags.rounds
        ));
        measured.iter().for_each(|one| say(&text(one)));
    }
    Ok(0)
}

fn open(candidate: Candidate, isolate: bool) -> Result<Opened, LoadError> {
    if isolate { Opened::apart(candidate, None, Level::WARN) } else { Opened::here(candidate) }
}

fn failed(message: &str) -> i32 {
    super::super::complain(message, 1)
}

/// The figures of a batch: name, as a table shows it, and how it comes from a round.
fn figures(measured: &Measured) -> Vec<(&'static str, &'static str, Spread)> {
    let mut all = vec![
        ("tokens_per_second", "tokens/s", measured.spread(|r| r.per_second(r.tokens))),
        ("steps_per_second", "steps/s", measured.spread(|r| r.per_second(r.steps))),
        ("chunks_per_push", "chunks/push", measured.spread(|r| r.chunks as f64 / r.pushes.max(1) as f64)),
        ("wall_ns_per_token", "wall ns/token", measured.spread(|r| r.per_token(r.wall))),
        ("host_cpu_ns_per_token", "host CPU ns/token", measured.spread(|r| r.per_token(r.host))),
        ("core_share_at_50000", "", measured.spread(|r| r.per_token(r.host) * RATE / 1e9)),
    ];
    if measured.rounds.iter().any(|round| round.child.is_some()) {
        let child = measured.spread(|r| r.per_token(r.child.unwrap_or_default()));
        all.push(("child_cpu_ns_per_token", "child CPU ns/token", child));
    }
    all
}

fn text(measured: &Measured) -> String {
    let mut lines = vec![format!("batch {}", measured.batch)];
    for (_, name, spread) in figures(measured) {
        let (name, scale, unit) =
            if name.is_empty() { ("host at 50,000/s", 100.0, " % of a core") } else { (name, 1.0, "") };
        let [median, low, high] = [spread.median, spread.low, spread.high].map(|n| number(n * scale));
        lines.push(format!("  {name:<20} {median:>12} ({low} to {high}){unit}"));
    }
    lines.push(format!("  {:<20} {:>12}", "receiver ns/token", number(measured.receiver_ns)));
    lines.join("\n")
}

/// Three digits that matter, and no more behind the point than that.
fn number(n: f64) -> String {
    match n.abs() {
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n if n >= 1.0 => format!("{n:.2}"),
        _ => format!("{n:.3}"),
    }
}

fn object(measured: &Measured) -> Value {
    let mut all = json!({
        "batch": measured.batch, "tokens": measured.tokens(), "receiver_ns_per_token": measured.receiver_ns,
        "child_cpu_ns_per_token": null,
    });
    for (name, _, spread) in figures(measured) {
        all[name] = json!({ "median": spread.median, "low": spread.low, "high": spread.high });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::bench::Round;

    #[test]
    fn a_batch_is_told_per_token_and_as_a_share_of_a_core() {
        let round = Round {
            tokens: 1000,
            chunks: 1000,
            pushes: 250,
            steps: 250,
            wall: Duration::from_micros(100),
            host: Duration::from_micros(40),
            child: None,
        };
        let measured = Measured { batch: 4, rounds: vec![round; 3], receiver_ns: 2.5 };
        let object = object(&measured);
        assert_eq!(object["wall_ns_per_token"]["median"], 100.0);
        assert_eq!(object["chunks_per_push"]["median"], 4.0);
        assert_eq!(object["core_share_at_50000"]["median"], 0.002);
        assert_eq!((&object["tokens"], &object["child_cpu_ns_per_token"]), (&json!(3000), &Value::Null));
        let text = text(&measured);
        assert!(text.contains("0.200 (0.200 to 0.200) % of a core"), "{text}");
        assert!(text.contains("40.0"), "{text}");
    }
}
