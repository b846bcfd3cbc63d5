//! Where log lines go: standard error, as text for a person and as JSON for a machine.

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Text; coloured on a terminal.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging. Called once, before anything else runs; a second call changes nothing.
pub fn start(level: Level, format: Format) {
    // Only our own targets and the plugins' go below warn: a library's debug lines help nobody here.
    let filter = Targets::new()
        .with_default(Level::WARN.min(level))
        .with_target("cascadia_host", level)
        .with_target("plugin", level);
    let registry = tracing_subscriber::registry().with(filter);
    let started = match format {
        Format::Text => {
            let colour = std::io::stderr().is_terminal() && !no_color();
            registry
                .with(
                    tracing_subscriber::fmt::layer()
                        .with_writer(std::io::stderr)
                        .with_ansi(colour)
                        .with_target(false),
                )
                .try_init()
        }
        Format::Json => registry
            .with(tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr))
            .try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}

fn no_color() -> bool {
    crate::config::env::is_set("NO_COLOR")
}
