//! The composition root: plugins, models, listener, signals, and the end. Nothing else makes a server.

mod reloading;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::api::keys::Keys;
use crate::api::{self, Api};
use crate::config::schema::is_loopback;
use crate::config::{Config, Live, Sources, descriptors, env};
use crate::fleet::choose::{Chosen, choose};
use crate::fleet::desk::{self, Inbox};
use crate::fleet::marker::Marker;
use crate::fleet::{Fleet, Ground};
use crate::http::room::Room;
use crate::http::server;
use crate::http::tls::Certificates;
use crate::lifecycle::Lifecycle;
use crate::lifecycle::notify::Manager;
use crate::models::Models;
use crate::plugins::{code, heap, services};
use crate::sched::{Roster, Unread};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::plugin_metrics::PluginMetrics;

/// Why the host did not serve to its end.
#[derive(Debug)]
pub struct Failed {
    /// One line.
    pub message: String,
    /// The way it was called is at fault.
    pub usage: bool,
}

impl Failed {
    fn usage(message: impl Into<String>) -> Failed {
        Failed { message: message.into(), usage: true }
    }

    fn run(message: impl Into<String>) -> Failed {
        Failed { message: message.into(), usage: false }
    }
}

/// Serves until a signal ends it.
pub fn run(config: Config, sources: Sources) -> Result<(), Failed> {
    let address = config.address().map_err(Failed::usage)?;
    heap::give_back();
    let metrics = Arc::new(Metrics::new());
    let executable = env::executable().map_err(|e| Failed::run(format!("own path is not known: {e}")))?;
    let chosen = choose(&config, &executable, &metrics)
        .map_err(|fault| Failed { message: fault.message, usage: fault.usage })?;
    heap::give_back();
    for (name, value) in chosen.environment(&config) {
        env::set_before_threads(name, value).map_err(Failed::usage)?;
    }
    // One thread for sockets and bodies: more would wake each other for every token. The engines have their own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(4)
        .enable_all()
        .build()
        .map_err(|e| Failed::run(format!("the runtime did not start: {e}")))?;
    let served = runtime.block_on(serve(config, sources, address, metrics, chosen));
    // A plugin that hangs in a blocking call must not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// Many systems start a process with 1,024 descriptors, which is fewer than its clients' connections.
fn raise_descriptors(connections: usize) {
    match descriptors::raise(connections) {
        Ok(bound) if !bound.suffice() => tracing::warn!(
            wanted = bound.wanted,
            allowed = bound.now,
            "too few file descriptors for server.max_connections={connections}: clients beyond them wait; raise the hard \
             limit (ulimit -Hn, LimitNOFILE=), or lower server.max_connections"
        ),
        Ok(bound) if bound.now == bound.before => tracing::debug!(now = bound.now, "file descriptors"),
        Ok(bound) => {
            tracing::info!(before = bound.before, now = bound.now, "raised the bound on file descriptors");
        }
        Err(error) => tracing::warn!(%error, "the bound on file descriptors was not raised"),
    }
}

async fn serve(
    config: Config,
    sources: Sources,
    address: SocketAddr,
    metrics: Arc<Metrics>,
    chosen: Chosen,
) -> Result<(), Failed> {
    let signals = Signals::install().map_err(|e| Failed::run(format!("signals cannot be received: {e}")))?;
    raise_descriptors(config.server.max_connections);
    let listener = TcpListener::bind(address)
        .await
        .map_err(|e| Failed::run(format!("cannot listen on {address}: {e}; choose another with --api")))?;
    let bound = listener.local_addr().unwrap_or(address);
    services::start(
        Arc::new(PluginMetrics::new(Arc::clone(&metrics))),
        config.level().unwrap_or(tracing::Level::INFO),
    );
    let keys = Keys::read(&config.server).map_err(Failed::usage)?;
    let (fleet, inbox) = desk::open();
    let api = Arc::new(Api {
        room: Arc::new(Room::new(Arc::clone(&metrics))),
        unread: Arc::new(Unread::new(Arc::clone(&metrics))),
        models: Arc::new(Models::default()),
        roster: Arc::new(Roster::default()),
        metrics,
        lifecycle: Arc::new(Lifecycle::default()),
        keys,
        loopback: is_loopback(bound.ip()),
        preparing: Arc::new(tokio::sync::Semaphore::new(api::PREPARED_AT_ONCE)),
        live: Arc::new(Live::new(config)),
        fleet,
    });
    // Known before the first request can come, so that none is told that there is no such model.
    for name in chosen.names() {
        api.models.loading(name);
    }
    let (marker, suspects) = Marker::new(env::state_folder(), chosen.plugins());
    let tls = match (&api.config().server.tls_cert, &api.config().server.tls_key) {
        (Some(certificates), Some(key)) => {
            Some(Certificates::read(certificates, key).map_err(Failed::usage)?)
        }
        _ => None,
    };
    let secure = tls.is_some();
    let manager = Arc::new(Manager::at(env::notify_socket()));
    let host = Host { api, sources, tls, marker: Arc::new(marker), manager };
    suggest_isolation(&suspects, &host.api.config());
    host.listen(listener);
    host.show_life(env::watchdog());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), address = %bound, tls = secure, "listening");
    let ended = host.until_signal(chosen, inbox, signals).await;
    host.marker.end();
    ended
}

/// What ran in the process of a run that did not end in good order may have ended it.
fn suggest_isolation(suspects: &[String], config: &Config) {
    let here: Vec<_> =
        suspects.iter().filter(|id| !config.plugins.isolates(id)).map(String::as_str).collect();
    if !here.is_empty() {
        let plugins = here.join(",");
        tracing::warn!(
            plugins,
            "an earlier run ended without a word while these ran in its process; --isolate={plugins} runs them in \
             processes of their own, and a crash is then a restart"
        );
    }
}

struct Host {
    api: Arc<Api>,
    sources: Sources,
    tls: Option<Certificates>,
    marker: Arc<Marker>,
    manager: Arc<Manager>,
}

impl Host {
    fn listen(&self, listener: TcpListener) {
        let (life, live) = (&self.api.lifecycle, Arc::clone(&self.api.live));
        let limits = move || {
            let config = live.get();
            server::Limits {
                connections: config.server.max_connections,
                header_timeout: config.server.header_timeout.0,
                // After the sweep, which knows the generation and books why it ended.
                write_timeout: config.limits.slow_client_timeout.0 + Duration::from_secs(2),
            }
        };
        let service = api::service(Arc::clone(&self.api));
        life.tasks.spawn(server::serve(
            listener,
            limits,
            self.tls.clone(),
            service,
            Arc::clone(&self.api.metrics),
            life.stop.clone(),
            life.tasks.clone(),
        ));
        let (api, stop) = (Arc::clone(&self.api), life.stop.clone());
        life.tasks.spawn(async move {
            loop {
                let config = api.config();
                let patience = config.limits.slow_client_timeout.0;
                let pause = Duration::from_secs(1).min(patience / 2).max(Duration::from_millis(10));
                tokio::select! {
                    () = tokio::time::sleep(pause) => {
                        api.roster.cut_slow(patience);
                        api.roster.make_room(&api.unread, config.limits.max_unread_mb << 20);
                        heap::give_back_old();
                    }
                    () = stop.cancelled() => return,
                }
            }
        });
    }

    /// Shows the service manager that the runtime turns, twice as often as it asks for.
    fn show_life(&self, wanted: Option<Duration>) {
        let Some(wanted) = wanted.filter(|_| self.manager.listens()) else { return };
        let (manager, stop) = (Arc::clone(&self.manager), self.api.lifecycle.stop.clone());
        self.api.lifecycle.tasks.spawn(async move {
            let mut every = tokio::time::interval((wanted / 2).max(Duration::from_millis(1)));
            loop {
                tokio::select! {
                    _ = every.tick() => manager.alive(),
                    () = stop.cancelled() => return,
                }
            }
        });
    }

    async fn until_signal(&self, chosen: Chosen, inbox: Inbox, mut signals: Signals) -> Result<(), Failed> {
        let (settled, mut settling) = tokio::sync::oneshot::channel();
        let ground = Ground {
            config: self.api.config(),
            models: Arc::clone(&self.api.models),
            metrics: Arc::clone(&self.api.metrics),
            marker: Arc::clone(&self.marker),
        };
        self.manager.status("loading models");
        let fleet = Fleet::start(ground, chosen, inbox, settled)
            .map_err(|e| Failed::run(format!("the fleet's thread did not start: {e}")))?;
        let mut is_settled = false;
        loop {
            tokio::select! {
                settled = &mut settling, if !is_settled => {
                    settled.unwrap_or_else(|_| Err("the fleet's thread ended".to_owned())).map_err(Failed::run)?;
                    is_settled = true;
                    self.ready();
                }
                signal = signals.next() => match signal {
                    Told::Reload => tokio::select! {
                        taken = self.reload() => if is_settled {
                            let refused = if taken { "" } else { "; the last reload was refused" };
                            self.manager.ready(&format!("{}{refused}", self.serving()));
                        },
                        _ = signals.stop() => break,
                    },
                    Told::Stop(_) => break,
                },
            }
        }
        self.manager.stopping("draining");
        tokio::select! {
            () = self.drain(fleet) => {}
            number = signals.stop() => {
                tracing::warn!("second signal: ending now");
                self.marker.end();
                crate::plugins::leave(128 + number);
            }
        }
        Ok(())
    }

    fn ready(&self) {
        heap::give_back();
        code::give_back();
        self.api.lifecycle.ready();
        self.manager.ready(&self.serving());
        let models: Vec<_> = self.api.models.serving().iter().map(|m| m.name.clone()).collect();
        match models.is_empty() {
            false => tracing::info!(models = models.join(","), "ready"),
            true => tracing::info!("no model is served yet; the plugin folders are followed"),
        }
    }

    fn serving(&self) -> String {
        let models: Vec<_> = self.api.models.serving().iter().map(|m| m.name.clone()).collect();
        if models.is_empty() {
            "no model is served yet".to_owned()
        } else {
            format!("serving {}", models.join(", "))
        }
    }

    /// Lets running generations end, then ends the rest: error frames, engines, connections, in this order.
    async fn drain(&self, fleet: Fleet) {
        let (api, life) = (&self.api, &self.api.lifecycle);
        life.drain();
        let mut stopped = tokio::task::spawn_blocking(move || fleet.stop());
        let patience = api.config().server.drain_timeout;
        let deadline = Instant::now() + patience.0;
        tracing::info!(running = api.roster.len(), deadline = %patience, "draining");
        wait_until(deadline, || api.roster.is_empty()).await;
        let left = api.roster.len();
        if left > 0 {
            tracing::warn!(left, "drain deadline passed: ending what still runs");
        }
        api.roster.tear_down();
        // The error frames of those that were ended are on their way; a client that does not read is not waited for.
        wait_until(Instant::now() + Duration::from_secs(2), || api.roster.is_empty()).await;
        let drained = match tokio::time::timeout(Duration::from_secs(2), &mut stopped).await {
            Ok(Ok(drained)) => drained,
            Ok(Err(_)) | Err(_) => {
                tracing::warn!("the fleet did not stop in time; models that drain are left behind");
                Vec::new()
            }
        };
        let workers: Vec<_> =
            api.models.serving().iter().chain(&drained).map(|m| Arc::clone(&m.worker)).collect();
        let closed = tokio::task::spawn_blocking(move || {
            // At once: each may take its whole time.
            std::thread::scope(|scope| {
                for worker in &workers {
                    scope.spawn(|| {
                        if !worker.close(Duration::from_secs(5)) {
                            tracing::warn!(worker = worker.id(), "engine did not return; leaving it behind");
                        }
                    });
                }
            });
        });
        if closed.await.is_err() {
            tracing::warn!("closing the engines panicked");
        }
        life.stop.cancel();
        life.tasks.close();
        if tokio::time::timeout(Duration::from_secs(2), life.tasks.wait()).await.is_err() {
            tracing::warn!("connections did not end in time");
        }
        tracing::info!("stopped");
    }
}

async fn wait_until(deadline: Instant, done: impl Fn() -> bool) {
    while !done() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What a signal wants.
enum Told {
    /// End; the signal's number.
    Stop(i32),
    /// Read the configuration again.
    Reload,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn install() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop(libc::SIGTERM),
            _ = self.interrupt.recv() => Told::Stop(libc::SIGINT),
            _ = self.hangup.recv() => Told::Reload,
        }
    }

    /// The number of the next signal to stop. A host that ends does not read its configuration.
    async fn stop(&mut self) -> i32 {
        loop {
            if let Told::Stop(number) = self.next().await {
                return number;
            }
        }
    }
}
