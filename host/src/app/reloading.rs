//! SIGHUP: the configuration is read again, and the files of keys and certificates, and what may change while the host
//! runs does.
//!
//! What must hold: a configuration with a fault changes nothing, and is told in one line; what needs a restart keeps its
//! old value and is named.

use std::sync::Arc;
use std::time::Duration;

use super::Host;
use crate::api::keys::Keys;
use crate::config::reload;
use crate::config::sources::Resolved;
use crate::fleet::wish::{Changes, Refused};
use crate::plugins::{configured, services};
use crate::telemetry::logs;

/// How long reading the file may take.
const READ: Duration = Duration::from_secs(30);

impl Host {
    /// Reads the configuration again. Answers whether it was taken.
    pub(super) async fn reload(&self) -> bool {
        self.manager.reloading(services::now_ns() / 1000);
        match self.renew().await {
            Err(problem) => {
                tracing::error!("the old configuration stays: {problem}");
                false
            }
            Ok((plan, changes)) => {
                let (now, models) = (plan.now.join(","), told(&changes));
                if !plan.restart.is_empty() {
                    let keys = plan.restart.join(",");
                    tracing::warn!(
                        keys,
                        "changed keys that need a restart; they keep their values until then"
                    );
                }
                tracing::info!(changed = now, models, "configuration was read again");
                true
            }
        }
    }

    async fn renew(&self) -> Result<(reload::Plan, Changes), String> {
        let sources = self.sources.clone();
        let read = reading(move || configured::resolve(&sources)).await?;
        let Resolved { config: read, .. } = read.map_err(|e| e.to_string())?;
        let plan = reload::plan(&self.api.config(), &read);
        // What needs a restart keeps its value, and may not go with what is new: an open address without keys, say.
        let wrong = plan.config.problems().into_iter().map(|(_, what)| what).collect::<Vec<_>>();
        if !wrong.is_empty() {
            return Err(format!("{}; restart the host for this", wrong.join("; ")));
        }
        let (server, tls) = (plan.config.server.clone(), self.tls.clone());
        let secrets = reading(move || {
            let keys = Keys::read(&server)?;
            Ok::<_, String>((keys, tls.map(|tls| tls.renewed()).transpose()?))
        });
        let (keys, certificates) = secrets.await??;
        let config = Arc::new(plan.config.clone());
        // The fleet first: what it cannot serve refuses the whole.
        let changes = self.api.fleet.reload(Arc::clone(&config)).await.map_err(|refused| match refused {
            Refused::Unavailable(why) => why.to_owned(),
            Refused::NoModel(message)
            | Refused::Taken(message)
            | Refused::Engine(message)
            | Refused::Wrong(message) => message,
        })?;
        let level = config.level().unwrap_or(tracing::Level::INFO);
        logs::set_level(level);
        services::set_level(level);
        self.api.keys.replace(keys);
        if let (Some(tls), Some(certificates)) = (&self.tls, certificates) {
            tls.replace(certificates);
        }
        self.api.live.set(config);
        Ok((plan, changes))
    }
}

/// What comes of reading files, which may lie on a disk that is slow, or gone.
async fn reading<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let read = tokio::time::timeout(READ, tokio::task::spawn_blocking(read)).await;
    read.map_err(|_| format!("a file was not read within {READ:?}"))?
        .map_err(|_| "reading a file panicked".to_owned())
}

fn told(changes: &Changes) -> String {
    let each = [("added", &changes.added), ("changed", &changes.changed), ("removed", &changes.removed)];
    let some = each.into_iter().filter(|(_, names)| !names.is_empty());
    some.map(|(what, names)| format!("{what} {}", names.join(" "))).collect::<Vec<_>>().join(", ")
}
