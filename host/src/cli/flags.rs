//! The real flags. Each sets one key of the configuration; everything else goes through `--set`.

use std::path::PathBuf;

use clap::Args;
use toml::{Table, Value};

use crate::config::setting::{Origin, Setting};
use crate::config::variables;

/// Flags of `serve`.
#[derive(Args, Default)]
pub(super) struct ServeFlags {
    /// Plugin to load: a path with a /, or a name that is looked for in each --plugin-dir, beside the executable and in
    /// its plugins/ folder. Repeatable.
    #[arg(long, value_name = "PATH|NAME")]
    plugin: Vec<String>,
    /// Folder whose plugins are all loaded at start and followed from then on: what is dropped in is served, a newer
    /// version takes over, what is removed drains. Repeatable.
    #[arg(long, value_name = "DIR")]
    plugin_dir: Vec<PathBuf>,
    /// Most copies of one plugin opened while the host runs [default: 16]
    #[arg(long, value_name = "N")]
    plugin_max_generations: Option<u64>,
    /// Run the engines of these plugins, or of all, in processes of their own: one that crashes takes nothing else down.
    #[arg(long, value_name = "ID,...", num_args = 0..=1, require_equals = true, default_missing_value = "*", value_delimiter = ',')]
    isolate: Vec<String>,
    /// Folder for the private copies of plugins whose own folder may not be written.
    #[arg(long, value_name = "DIR")]
    plugin_cache: Option<PathBuf>,
    /// Option of a plugin, checked against its manifest. Repeatable.
    #[arg(long, value_name = "ID.KEY=VALUE")]
    plugin_opt: Vec<String>,
    /// Model to serve: a path, or NAME=PATH[,engine=ID]. Repeatable.
    #[arg(long, value_name = "PATH|NAME=PATH")]
    model: Vec<String>,
    /// Name that clients use for the model; its file name otherwise.
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// Engine for the model, when the plugins bring several: PLUGIN or PLUGIN/ENGINE.
    #[arg(long, value_name = "ID")]
    engine: Option<String>,
    /// Device for the engine, as the engine names it: CPU, GPU, NPU, ...
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Address to listen on; :8000 is loopback [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR:PORT")]
    api: Option<String>,
    /// Largest request body and rendered prompt, in MiB [default: 32]
    #[arg(long, value_name = "MIB")]
    api_max_body_mb: Option<u64>,
    /// Generations that run at once, per model [default: 16]
    #[arg(long, value_name = "N")]
    max_concurrent: Option<u64>,
    /// Generations that may wait for a slot, per model; 0 refuses at once [default: twice --max-concurrent]
    #[arg(long, value_name = "N")]
    max_queued: Option<u64>,
    /// How long a generation may wait for a slot [default: 30s]
    #[arg(long, value_name = "TIME")]
    queue_timeout: Option<String>,
    /// How long running generations may go on after SIGTERM [default: 20s]
    #[arg(long, value_name = "TIME")]
    drain_timeout: Option<String>,
    /// File with the keys of clients, one a line; without it clients need none.
    #[arg(long, value_name = "FILE")]
    api_keys: Option<PathBuf>,
    /// File with the keys of administrators; without it they are those on this machine.
    #[arg(long, value_name = "FILE")]
    admin_keys: Option<PathBuf>,
    /// PEM file with the certificate chain for TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Serve clients without keys on an address that others can reach.
    #[arg(long)]
    no_auth: bool,
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Any key of the configuration. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Most detailed log level: error, warn, info, debug, trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Form of log lines: text or json [default: text]
    #[arg(long, value_name = "FORM")]
    log_format: Option<String>,
}

impl ServeFlags {
    /// What the flags set.
    pub(super) fn settings(&self) -> Result<Vec<Setting>, String> {
        let mut all = Vec::new();
        let mut put = |flag: &str, path: &[&str], value: Value| all.push(Setting::flag(flag, path, value));
        for (flag, path, text) in [
            ("--api", ["server", "listen"], &self.api),
            ("--queue-timeout", ["limits", "queue_timeout"], &self.queue_timeout),
            ("--drain-timeout", ["server", "drain_timeout"], &self.drain_timeout),
            ("--log-level", ["log", "level"], &self.log_level),
            ("--log-format", ["log", "format"], &self.log_format),
        ] {
            if let Some(text) = text {
                put(flag, &path, text.as_str().into());
            }
        }
        for (flag, path, number) in [
            ("--api-max-body-mb", ["server", "max_body_mb"], self.api_max_body_mb),
            ("--max-concurrent", ["limits", "max_concurrent"], self.max_concurrent),
            ("--max-queued", ["limits", "max_queued"], self.max_queued),
            ("--plugin-max-generations", ["plugins", "max_generations"], self.plugin_max_generations),
        ] {
            if let Some(n) = number {
                let n = i64::try_from(n).map_err(|_| format!("{flag} is {n}, which is too large"))?;
                put(flag, &path, n.into());
            }
        }
        for (key, file) in [
            ("api_keys", &self.api_keys),
            ("admin_keys", &self.admin_keys),
            ("tls_cert", &self.tls_cert),
            ("tls_key", &self.tls_key),
        ] {
            if let Some(file) = file {
                let flag = format!("--{}", key.replace('_', "-"));
                put(&flag, &["server", key], file.display().to_string().into());
            }
        }
        if self.no_auth {
            put("--no-auth", &["server", "no_auth"], true.into());
        }
        if !self.plugin.is_empty() {
            put("--plugin", &["plugins", "load"], list(self.plugin.iter().cloned()));
        }
        if !self.plugin_dir.is_empty() {
            let dirs = list(self.plugin_dir.iter().map(|d| d.display().to_string()));
            put("--plugin-dir", &["plugins", "dirs"], dirs);
        }
        if !self.isolate.is_empty() {
            put("--isolate", &["plugins", "isolate"], list(self.isolate.iter().cloned()));
        }
        if let Some(cache) = &self.plugin_cache {
            put("--plugin-cache", &["plugins", "cache"], cache.display().to_string().into());
        }
        for text in &self.set {
            let (key, value) =
                text.split_once('=').ok_or_else(|| format!("--set {text:?} is not KEY=VALUE"))?;
            let path: Vec<_> = key.trim().split('.').map(str::to_owned).collect();
            let value = variables::read(&path, value);
            all.push(Setting { path, value, origin: Origin::Flag("--set".to_owned()) });
        }
        for text in &self.plugin_opt {
            let bad = || format!("--plugin-opt {text:?} is not ID.KEY=VALUE");
            let (key, value) = text.split_once('=').ok_or_else(bad)?;
            let (id, key) =
                key.split_once('.').filter(|(i, k)| !i.is_empty() && !k.is_empty()).ok_or_else(bad)?;
            // Text as it is: the plugin's own schema says what it means.
            all.push(Setting::flag("--plugin-opt", &["plugin", id, key], value.into()));
        }
        if let Some(models) = self.models()? {
            all.push(Setting::flag("--model", &["model"], models));
        }
        for (flag, name, value) in [
            ("--served-model-name", "name", &self.served_model_name),
            ("--engine", "engine", &self.engine),
            ("--device", "device", &self.device),
        ] {
            if let Some(value) = value {
                all.push(Setting::flag(flag, &["model", "*", name], value.as_str().into()));
            }
        }
        Ok(all)
    }

    fn models(&self) -> Result<Option<Value>, String> {
        if self.model.is_empty() {
            return Ok(None);
        }
        if self.model.len() > 1
            && (self.served_model_name.is_some() || self.device.is_some() || self.engine.is_some())
        {
            return Err("--served-model-name, --engine and --device go with one --model; write \
                        --model NAME=PATH,engine=ID, or use a configuration file"
                .to_owned());
        }
        let models = self.model.iter().map(|text| model(text)).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(Value::Array(models.into_iter().map(Value::Table).collect())))
    }
}

fn list(items: impl Iterator<Item = String>) -> Value {
    Value::Array(items.map(Value::String).collect())
}

/// `PATH`, or `NAME=PATH[,engine=ID]`.
fn model(text: &str) -> Result<Table, String> {
    let mut table = Table::new();
    // A path with = in it has a / before it, a name never has.
    let (name, rest) = match text.split_once('=') {
        Some((name, rest)) if !name.contains('/') && !name.is_empty() => (Some(name), rest),
        _ => (None, text),
    };
    let (path, engine) = match (name, rest.rsplit_once(",engine=")) {
        (Some(_), Some((path, engine))) => (path, Some(engine)),
        _ => (rest, None),
    };
    if path.is_empty() {
        return Err(format!("--model {text:?} has no path"));
    }
    for (key, value) in [("name", name), ("path", Some(path)), ("engine", engine)] {
        if let Some(value) = value {
            table.insert(key.to_owned(), value.into());
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_a_path_or_a_name_with_a_path() {
        let text = |t: &Table, k: &str| t.get(k).and_then(Value::as_str).map(str::to_owned);
        let plain = model("/m/a=b.gguf").expect("a path");
        assert_eq!((text(&plain, "name"), text(&plain, "path")), (None, Some("/m/a=b.gguf".into())));
        let named = model("smol=/m/x.gguf,engine=ov-genai").expect("named");
        assert_eq!(text(&named, "name").as_deref(), Some("smol"));
        assert_eq!(text(&named, "path").as_deref(), Some("/m/x.gguf"));
        assert_eq!(text(&named, "engine").as_deref(), Some("ov-genai"));
        assert!(model("smol=").is_err());
    }

    #[test]
    fn flags_become_the_keys_they_stand_for() {
        let flags = ServeFlags {
            api: Some(":9".into()),
            max_queued: Some(0),
            plugin_opt: vec!["mock.script=[\"a=b\"]".into()],
            set: vec!["server.max_connections=7".into()],
            ..ServeFlags::default()
        };
        let settings = flags.settings().expect("valid");
        let told: Vec<_> =
            settings.iter().map(|s| format!("{} = {} ({})", s.key(), s.value, s.origin)).collect();
        assert_eq!(
            told,
            [
                "server.listen = \":9\" (flag --api)",
                "limits.max_queued = 0 (flag --max-queued)",
                "server.max_connections = 7 (flag --set)",
                "plugin.mock.script = '[\"a=b\"]' (flag --plugin-opt)",
            ]
        );
    }
}
