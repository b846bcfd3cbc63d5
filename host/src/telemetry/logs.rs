//! Where log lines go: standard error, as text for a person and as JSON for a machine.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing::Level;
use tracing::span::{Attributes, Id};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
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
    let (filter, handle) = reload::Layer::new(filter(level));
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
    match started {
        Ok(()) => drop(HANDLE.set(handle)),
        Err(_) => tracing::debug!("logging was started before"),
    }
}

static HANDLE: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Changes the most detailed level of what [`start`] or [`forward`] writes.
pub fn set_level(level: Level) {
    if let Some(Err(error)) = HANDLE.get().map(|handle| handle.reload(filter(level))) {
        tracing::warn!(%error, "the log level was not changed");
    }
}

/// Only our own targets and the plugins' go below warn: a library's debug lines help nobody here.
fn filter(level: Level) -> Targets {
    Targets::new()
        .with_default(Level::WARN.min(level))
        .with_target("cascadia_host", level)
        .with_target("plugin", level)
}

/// A line as one text.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// Its level.
    pub level: Level,
    /// Its target.
    pub target: &'a str,
    /// The plugin's part that wrote it.
    pub part: Option<&'a str>,
    /// What the innermost span around it says of itself.
    pub span: Option<&'a str>,
    /// The words with their fields.
    pub text: &'a str,
}

/// Takes lines.
pub type Forward = dyn Fn(&Line<'_>) + Send + Sync;

/// Starts logging into `write`, for a process whose lines another one prints.
pub fn forward(level: Level, write: Box<Forward>) {
    let (filter, handle) = reload::Layer::new(filter(level));
    match tracing_subscriber::registry().with(filter).with(Forwarder(write)).try_init() {
        Ok(()) => drop(HANDLE.set(handle)),
        Err(_) => tracing::debug!("logging was started before"),
    }
}

struct Forwarder(Box<Forward>);

/// What a span says of itself.
struct SpanWords(String);

impl<S> tracing_subscriber::Layer<S> for Forwarder
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut words = Words::default();
        span.record(&mut words);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanWords(words.fields.trim_start().to_owned()));
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let mut words = Words::default();
        event.record(&mut words);
        let around = context.event_span(event);
        let span = around.and_then(|span| span.extensions().get::<SpanWords>().map(|words| words.0.clone()));
        let (meta, text) = (event.metadata(), format!("{}{}", words.message, words.fields));
        (self.0)(&Line {
            level: *meta.level(),
            target: meta.target(),
            part: words.part.as_deref(),
            span: span.as_deref(),
            text: &text,
        });
    }
}

/// The words of an event. What names the plugin is left out: the reader knows whose line it is.
#[derive(Default)]
struct Words {
    message: String,
    part: Option<String>,
    fields: String,
}

impl Words {
    fn field(&mut self, name: &str, value: String) {
        match name {
            "message" => self.message = value,
            "part" => self.part = Some(value),
            "plugin" => {}
            _ if value.is_empty() => {}
            _ => {
                for piece in [" ", name, "=", &value] {
                    self.fields.push_str(piece);
                }
            }
        }
    }
}

impl tracing::field::Visit for Words {
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.field(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.field(field.name(), format!("{value:?}"));
    }
}

fn no_color() -> bool {
    crate::config::env::is_set("NO_COLOR")
}
