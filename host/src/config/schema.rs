//! The keys, their meaning and their defaults.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::units::{Size, Span};
use crate::telemetry::logs::Format;

/// The whole configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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

/// The listener.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Address and port; `:8000` is loopback. Restart.
    pub listen: String,
    /// Serve clients without keys on an address that others can reach. Restart.
    pub no_auth: bool,
    /// File with the keys of clients, one a line; without it clients need none.
    pub api_keys: Option<PathBuf>,
    /// File with the keys of administrators, one a line; without it administrators are those on this machine.
    pub admin_keys: Option<PathBuf>,
    /// PEM file with the certificate chain for TLS; together with `tls_key`.
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the key of the certificate.
    pub tls_key: Option<PathBuf>,
    /// Ask for a key on `/metrics` too.
    pub metrics_auth: bool,
    /// Origins of web pages that may call the API from a browser; `*` is all. Empty: pages of this machine.
    pub cors_origins: Vec<String>,
    /// Refuse fields of requests that nobody knows, instead of counting them.
    pub strict_fields: bool,
    /// Host names that clients may use besides loopback names, when listening on loopback.
    pub allowed_hosts: Vec<String>,
    /// Largest request body, and largest rendered prompt, in MiB.
    pub max_body_mb: u64,
    /// Most connections at once.
    pub max_connections: usize,
    /// How long a client may take to send a request's head.
    pub header_timeout: Span,
    /// How long a client may take to send a request's body.
    pub body_timeout: Span,
    /// How long running generations may go on after the signal to stop.
    pub drain_timeout: Span,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            listen: "127.0.0.1:8000".to_owned(),
            no_auth: false,
            api_keys: None,
            admin_keys: None,
            tls_cert: None,
            tls_key: None,
            metrics_auth: false,
            cors_origins: Vec::new(),
            strict_fields: false,
            allowed_hosts: Vec::new(),
            max_body_mb: 32,
            max_connections: 4096,
            header_timeout: Span::seconds(15),
            body_timeout: Span::seconds(60),
            drain_timeout: Span::seconds(20),
        }
    }
}

/// Bounds on what clients may use.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Generations that run at once, per model.
    pub max_concurrent: usize,
    /// Generations that may wait for a slot, per model; twice the slots when left out.
    pub max_queued: Option<usize>,
    /// How long a generation may wait for a slot.
    pub queue_timeout: Span,
    /// Bytes kept for a stream whose client does not read, in KiB; more ends it.
    pub stream_buffer_kb: usize,
    /// How long a client may leave a full buffer unread.
    pub slow_client_timeout: Span,
    /// Most prompts times choices of one request.
    pub max_choices: usize,
    /// How long an engine with tasks may show neither a token nor a heartbeat before it is given up.
    pub stall_timeout: Span,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_concurrent: 16,
            max_queued: None,
            queue_timeout: Span::seconds(30),
            stream_buffer_kb: 1024,
            slow_client_timeout: Span::seconds(30),
            max_choices: 128,
            stall_timeout: Span::seconds(300),
        }
    }
}

impl Limits {
    /// Places in the queue.
    pub fn queue_places(&self) -> usize {
        self.max_queued.unwrap_or(self.max_concurrent * 2)
    }
}

/// Where plugins come from.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plugins {
    /// Libraries to load: a path (with a `/`) or a name that is looked for in `dirs` and beside the executable.
    pub load: Vec<String>,
    /// Folders whose libraries are all loaded at start, and followed from then on.
    pub dirs: Vec<PathBuf>,
    /// Most copies of one plugin that are opened while the host runs; none is ever unloaded.
    pub max_generations: u32,
    /// Ids of plugins whose engines run in processes of their own; `*` is all of them.
    pub isolate: Vec<String>,
    /// Bound on the address space of each such process, as `64GiB`; none by default. Weights that are mapped and memory
    /// that a driver only reserves count too.
    pub isolate_memory: Option<Size>,
    /// Folder for the private copies of plugins whose own folder may not be written. What such a plugin needs is then not
    /// found beside it.
    pub cache: Option<PathBuf>,
}

impl Plugins {
    /// Whether a plugin's engines run in processes of their own.
    pub fn isolates(&self, id: &str) -> bool {
        self.isolate.iter().any(|wanted| wanted == "*" || wanted == id)
    }
}

impl Default for Plugins {
    fn default() -> Plugins {
        Plugins {
            load: Vec::new(),
            dirs: Vec::new(),
            max_generations: 16,
            isolate: Vec::new(),
            isolate_memory: None,
            cache: None,
        }
    }
}

/// A model to serve.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name that clients use; the path's last part without extension when left out.
    #[serde(default)]
    pub name: Option<String>,
    /// File or folder; some engines need none.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// Plugin id, or `plugin/engine`; may be left out when there is one engine.
    #[serde(default)]
    pub engine: Option<String>,
    /// Short for the engine's option `device`.
    #[serde(default)]
    pub device: Option<String>,
}

/// The log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Most detailed level: error, warn, info, debug or trace.
    pub level: String,
    /// Text or JSON.
    pub format: Format,
}

impl Default for Log {
    fn default() -> Log {
        Log { level: "info".to_owned(), format: Format::Text }
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

    /// Everything that is wrong, one line each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        match self.address() {
            Err(problem) => problems.push(problem),
            Ok(address)
                if !is_loopback(address.ip()) && !self.server.no_auth && self.server.api_keys.is_none() =>
            {
                problems.push(format!(
                    "server.listen {address} can be reached by others, and clients need no key: listen on 127.0.0.1, \
                     give --api-keys FILE, or say --no-auth when a gateway in front checks them"
                ));
            }
            Ok(_) => {}
        }
        if self.server.tls_cert.is_some() != self.server.tls_key.is_some() {
            problems
                .push("server.tls_cert and server.tls_key go together; one of them is missing".to_owned());
        }
        problems.extend(self.level().err());
        let l = &self.limits;
        for (key, value) in [
            ("server.max_body_mb", self.server.max_body_mb),
            ("server.max_connections", self.server.max_connections as u64),
            ("limits.max_concurrent", l.max_concurrent as u64),
            ("limits.stream_buffer_kb", l.stream_buffer_kb as u64),
            ("limits.max_choices", l.max_choices as u64),
        ] {
            if value == 0 {
                problems.push(format!("{key} is 0; it must be at least 1"));
            }
        }
        if self.server.max_body_mb > 4096 {
            problems.push(format!("server.max_body_mb {} is over 4096", self.server.max_body_mb));
        }
        if l.max_concurrent > 100_000 || l.queue_places() > 1_000_000 {
            problems
                .push("limits.max_concurrent is over 100000, or limits.max_queued over 1000000".to_owned());
        }
        problems
    }
}

/// Whether only this machine reaches the address.
pub fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_loopback(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback()),
    }
}
