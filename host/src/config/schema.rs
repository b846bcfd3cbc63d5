//! The keys, their meaning and their defaults.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::keys::section;
use super::units::{Size, Span};
use crate::telemetry::logs::Format;

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The listener.
    pub server: Server,
    /// Bounds on what clients may use.
    pub limits: Limits,
    /// Where plugins come from.
    pub plugins: Plugins,
    /// Options of each plugin, by its id; checked against the plugin's own schema.
    pub plugin: BTreeMap<String, BTreeMap<String, toml::Value>>,
    /// What to serve.
    pub model: Vec<Model>,
    /// The log.
    pub log: Log,
}

section! {
    /// The listener.
    pub struct Server {
        /// Address and port; `:8000` is loopback.
        Restart listen: String = "127.0.0.1:8000".to_owned(),
        /// Serve clients without keys on an address that others can reach.
        Restart no_auth: bool = false,
        /// File with the keys of clients, one a line; without it clients need none. Read again with each reload.
        Live api_keys: Option<PathBuf> = None,
        /// File with the keys of administrators, one a line; without it administrators are those on this machine. Read again
        /// with each reload.
        Live admin_keys: Option<PathBuf> = None,
        /// PEM file with the certificate chain for TLS; together with `tls_key`. A reload reads both files again.
        Restart tls_cert: Option<PathBuf> = None,
        /// PEM file with the key of the certificate.
        Restart tls_key: Option<PathBuf> = None,
        /// Ask for a key on `/metrics` too.
        Live metrics_auth: bool = false,
        /// Origins of web pages that may call the API from a browser; `*` is all. Empty: pages of this machine.
        Live cors_origins: Vec<String> = Vec::new(),
        /// Refuse fields of requests that nobody knows, instead of counting them.
        Live strict_fields: bool = false,
        /// Refuse a `max_tokens` for which the model's window has no room, instead of giving as many tokens as fit.
        Live strict_max_tokens: bool = false,
        /// Host names that clients may use besides loopback names, when listening on loopback.
        Live allowed_hosts: Vec<String> = Vec::new(),
        /// Largest request body, and largest rendered prompt, in MiB.
        Live max_body_mb: u64 = 32,
        /// Most bytes of request bodies that are held at once, in MiB, until each was made into tokens; a request over it is
        /// refused with 503. 256 when left out, and never less than twice `max_body_mb`.
        Live max_bodies_mb: Option<u64> = None,
        /// Most connections at once.
        Restart max_connections: usize = 4096,
        /// How long a client may take to send a request's head, with HTTP/2 the first one's, and how long a connection of HTTP/1.1 stays
        /// without a next one; a change holds for new connections.
        Live header_timeout: Span = Span::seconds(15),
        /// How long a client may take to send a request's body.
        Live body_timeout: Span = Span::seconds(60),
        /// How long running generations may go on after the signal to stop, and on a model that is replaced or removed.
        Live drain_timeout: Span = Span::seconds(20),
    }
}

section! {
    /// Bounds on what clients may use.
    pub struct Limits {
        /// Generations that run at once, per model. Fewer than run now: the running ones end first.
        Live max_concurrent: usize = 16,
        /// Generations that may wait for a slot, per model; twice the slots when left out, 0 refuses at once.
        Live max_queued: Option<usize> = None,
        /// How long a generation may wait for a slot.
        Live queue_timeout: Span = Span::seconds(30),
        /// Bytes kept for a stream whose client does not read, in KiB. A stream that holds more is ended once its client
        /// has taken nothing for `slow_client_timeout`, and at once when it holds 16 times as much.
        Live stream_buffer_kb: usize = 1024,
        /// Most bytes that all streams together keep for clients that do not read, in MiB. While there are more, a stream
        /// that holds over 64 KiB, and was not read from for a moment or is over `stream_buffer_kb`, is ended. One of
        /// which nothing has left yet has a second.
        Live max_unread_mb: usize = 256,
        /// How long a client may leave a full buffer unread.
        Live slow_client_timeout: Span = Span::seconds(30),
        /// Most prompts times choices of one request.
        Live max_choices: usize = 128,
        /// How long an engine with tasks may show neither a token nor a heartbeat before it is given up.
        Live stall_timeout: Span = Span::seconds(300),
    }
}

impl Server {
    /// Most bytes of all bodies, in MiB.
    pub fn max_bodies(&self) -> u64 {
        self.max_bodies_mb.unwrap_or_else(|| self.max_body_mb.saturating_mul(2).max(256))
    }
}

impl Limits {
    /// Places in the queue.
    pub fn queue_places(&self) -> usize {
        self.max_queued.unwrap_or(self.max_concurrent.saturating_mul(2))
    }
}

section! {
    /// Where plugins come from.
    pub struct Plugins {
        /// Libraries to load: a path (with a `/`) or a name that is looked for in `dirs` and beside the executable.
        Restart load: Vec<String> = Vec::new(),
        /// Folders whose libraries are all loaded at start, and followed from then on.
        Restart dirs: Vec<PathBuf> = Vec::new(),
        /// Most copies of one plugin that are opened while the host runs; none is ever unloaded.
        Live max_generations: u64 = 16,
        /// Ids of plugins whose engines run in processes of their own; `*` is all of them.
        Restart isolate: Vec<String> = Vec::new(),
        /// Bound on the address space of each such process; none by default. Weights that are mapped and memory that a
        /// driver only reserves count too.
        Restart isolate_memory: Option<Size> = None,
        /// Folder for the private copies of plugins whose own folder may not be written. What such a plugin needs is then
        /// not found beside it.
        Restart cache: Option<PathBuf> = None,
    }
}

impl Plugins {
    /// Whether a plugin's engines run in processes of their own.
    pub fn isolates(&self, id: &str) -> bool {
        self.isolate.iter().any(|wanted| wanted == "*" || wanted == id)
    }
}

section! {
    /// A model to serve. A reload builds models that are new in the list, drains those that are gone, builds those whose
    /// settings changed beside the ones that serve, and leaves the others alone.
    pub struct Model {
        /// The name that clients use; the path's last part without extension when left out.
        Live name: Option<String> = None,
        /// File or folder; some engines need none.
        Live path: Option<PathBuf> = None,
        /// Plugin id, or `plugin/engine`; may be left out when there is one engine.
        Live engine: Option<String> = None,
        /// Short for the engine's option `device`.
        Live device: Option<String> = None,
        /// Options of the engine for this model; they go before those of the plugin.
        Live options: BTreeMap<String, toml::Value> = BTreeMap::new(),
    }
}

section! {
    /// The log.
    pub struct Log {
        /// Most detailed level: error, warn, info, debug or trace.
        Live level: String = "info".to_owned(),
        /// The form of log lines.
        Restart format: Format = Format::Text,
    }
}

impl Config {
    /// The listening address.
    pub fn address(&self) -> Result<SocketAddr, String> {
        let text = &self.server.listen;
        let full = if text.starts_with(':') { format!("127.0.0.1{text}") } else { text.clone() };
        full.replace("localhost", "127.0.0.1")
            .parse()
            .map_err(|_| format!("server.listen {text:?} is not an address; write 127.0.0.1:8000 or :8000"))
    }

    /// The log level.
    pub fn level(&self) -> Result<tracing::Level, String> {
        self.log
            .level
            .parse()
            .map_err(|_| format!("log.level {:?} is none of error, warn, info, debug, trace", self.log.level))
    }

    /// Everything that is wrong with the values: the key at fault and one line.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        self.problems_among(&|_| true)
    }

    /// The same where not all that was given could be read: what one key says of another is told only where both are `known`.
    pub fn problems_among(&self, known: &dyn Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        let known = |keys: &[&str]| keys.iter().all(|key| known(key));
        match self.address() {
            Err(problem) => problems.push(("server.listen", problem)),
            Ok(address)
                if !is_loopback(address.ip())
                    && !self.server.no_auth
                    && self.server.api_keys.is_none()
                    && known(&["server.listen", "server.no_auth", "server.api_keys"]) =>
            {
                let message = format!(
                    "server.listen {address} can be reached by others, and clients need no key: listen on 127.0.0.1, \
                     give --api-keys FILE, or say --no-auth when a gateway in front checks them"
                );
                problems.push(("server.listen", message));
            }
            Ok(_) => {}
        }
        if self.server.tls_cert.is_some() != self.server.tls_key.is_some()
            && known(&["server.tls_cert", "server.tls_key"])
        {
            let message = "server.tls_cert and server.tls_key go together; one of them is missing".to_owned();
            problems.push(("server.tls_cert", message));
        }
        problems.extend(self.level().err().map(|problem| ("log.level", problem)));
        let l = &self.limits;
        // A packed body and what it becomes are there at once. A value that is wrong itself bounds no other.
        let body = self.server.max_body_mb;
        let twice = (1..=MAX_BODY).contains(&body) && known(&["server.max_body_mb"]);
        let (least_bodies, why) =
            if twice { (body.saturating_mul(2), ", twice server.max_body_mb") } else { (1, "") };
        // What is left out follows from another key, whose fault it would be.
        let bodies = self.server.max_bodies_mb.unwrap_or(least_bodies);
        for (key, value, least, most) in [
            ("server.max_body_mb", body, 1, MAX_BODY),
            ("server.max_bodies_mb", bodies, least_bodies, 1 << 20),
            ("server.max_connections", self.server.max_connections as u64, 1, 1_000_000),
            ("limits.max_concurrent", l.max_concurrent as u64, 1, 100_000),
            ("limits.max_queued", l.max_queued.unwrap_or(0) as u64, 0, 1_000_000),
            ("limits.stream_buffer_kb", l.stream_buffer_kb as u64, 1, 1 << 20),
            ("limits.max_unread_mb", l.max_unread_mb as u64, 1, 1 << 20),
            ("limits.max_choices", l.max_choices as u64, 1, 100_000),
            ("plugins.max_generations", self.plugins.max_generations, 1, 100_000),
        ] {
            if value < least {
                let why = if key == "server.max_bodies_mb" { why } else { "" };
                problems.push((key, format!("{key} is {value}; it must be at least {least}{why}")));
            } else if value > most {
                problems.push((key, format!("{key} is {value}; it may be at most {most}")));
            }
        }
        for (key, span) in [
            ("server.header_timeout", self.server.header_timeout),
            ("server.body_timeout", self.server.body_timeout),
            ("limits.slow_client_timeout", l.slow_client_timeout),
            ("limits.stall_timeout", l.stall_timeout),
        ] {
            if span.0 < LEAST_PATIENCE {
                problems.push((key, format!("{key} is {span}; it must be at least {LEAST_PATIENCE:?}")));
            }
        }
        let names: Vec<_> = self.model.iter().filter_map(|m| m.name.as_deref()).collect();
        for (at, name) in names.iter().enumerate() {
            if let Some(problem) = bad_name(name) {
                problems.push(("model", problem));
            }
            if names[..at].contains(name) {
                problems.push(("model", format!("two models are named {name}; give one another name")));
            }
        }
        problems
    }
}

/// Most that `server.max_body_mb` may be.
const MAX_BODY: u64 = 4096;

/// What ends at once what it bounds is never meant.
const LEAST_PATIENCE: Duration = Duration::from_millis(10);

/// Longest name of a model, in bytes.
const MAX_NAME: usize = 200;

/// Why a model cannot have this name.
pub fn bad_name(name: &str) -> Option<String> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Some(format!("a model's name has 1 to {MAX_NAME} bytes, not {}", name.len()));
    }
    let odd = name.chars().find(|c| c.is_control() || c.is_whitespace());
    odd.map(|_| format!("a model's name has no spaces or control characters, and {name:?} has"))
}

/// Whether only this machine reaches the address.
pub fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_loopback(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback()),
    }
}
