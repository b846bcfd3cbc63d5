//! What a child tells beside its tasks: its log, its series, its links, its load. Taken at any time, by whoever reads from it.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::frame::{Frame, Line, Series};
use super::ledger::Mirror;
use super::pack::{Packer, Short, Unpacker};
use crate::plugins::Load;
use crate::plugins::link::Link;
use crate::plugins::services;
use crate::telemetry::labels::Protocol;
use crate::telemetry::transport::carried;

/// Longest line that is printed.
const MAX_LINE: usize = 8 * 1024;

/// The host's side of it.
pub(super) struct News {
    link: &'static Link,
    mirror: Mirror,
    links: carried::Mirror,
    /// Heartbeats of the child that were added to the link's.
    beats: u64,
}

/// A frame that is not what its kind says.
#[derive(Debug, thiserror::Error)]
pub(super) enum Garbled {
    #[error("{0}")]
    Short(#[from] Short),
    #[error("a message that cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

impl News {
    pub(super) fn new(link: &'static Link) -> News {
        News { link, mirror: Mirror::default(), links: carried::Mirror::default(), beats: 0 }
    }

    /// Takes a frame that is news; false when it is something else.
    pub(super) fn take(&mut self, kind: Frame, bytes: &[u8], load: &Mutex<Load>) -> Result<bool, Garbled> {
        let plugin = &self.link.plugin;
        match (kind, services::register()) {
            (Frame::Line, _) => print(plugin, &serde_json::from_slice::<Line>(bytes)?),
            (Frame::Series, Some(register)) => {
                let series: Series = serde_json::from_slice(bytes)?;
                if let Err(reason) = self.mirror.series(plugin, series, register) {
                    tracing::warn!(plugin, reason, "metric not registered");
                }
            }
            (Frame::Values, Some(register)) => self.mirror.values(bytes, register)?,
            (Frame::Breaches, Some(register)) => {
                let mut from = Unpacker::new(bytes);
                for kind in Protocol::ALL {
                    register.breach(*kind, from.word()?);
                }
            }
            (Frame::Links, Some(register)) => {
                self.links.take(plugin, serde_json::from_slice(bytes)?, register.transport());
            }
            (Frame::Series | Frame::Values | Frame::Breaches | Frame::Links, None) => {}
            (Frame::Report, _) => {
                let (report, beats, steps) = unpack_report(bytes)?;
                self.link.steps.add(steps);
                *load.lock() = report;
                // Only what is new counts as a sign of life.
                let new = beats.saturating_sub(self.beats);
                self.beats = self.beats.max(beats);
                self.link.heartbeat.fetch_add(new, Ordering::Relaxed);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The child is gone.
    pub(super) fn end(&mut self, load: &Mutex<Load>) {
        *load.lock() = Load::default();
        self.links.end();
        if let Some(register) = services::register() {
            self.mirror.end(register);
        }
    }
}

fn print(plugin: &str, line: &Line) {
    let one_line = |text: &str| text[..text.floor_char_boundary(MAX_LINE)].replace(['\n', '\r'], " ");
    let (text, span) = (one_line(&line.text), line.span.as_deref().map(one_line));
    let part = line.part.as_deref().unwrap_or("process");
    match line.level {
        1 => tracing::error!(target: "plugin", plugin, part, span, "{text}"),
        2 => tracing::warn!(target: "plugin", plugin, part, span, "{text}"),
        3 => tracing::info!(target: "plugin", plugin, part, span, "{text}"),
        4 => tracing::debug!(target: "plugin", plugin, part, span, "{text}"),
        _ => tracing::trace!(target: "plugin", plugin, part, span, "{text}"),
    }
}

/// Writes a report: the load, all heartbeats, and the steps since the last report.
pub(super) fn pack_report(out: &mut Packer, load: &Load, beats: u64, steps: u64) {
    out.word(load.running.into());
    out.word(load.waiting.into());
    out.word(load.kv_blocks_used);
    out.word(load.kv_blocks_total);
    out.word(load.tokens_cached);
    out.word(beats);
    out.word(steps);
}

pub(super) fn unpack_report(bytes: &[u8]) -> Result<(Load, u64, u64), Short> {
    let mut from = Unpacker::new(bytes);
    let mut small = || Ok(u32::try_from(from.word()?).unwrap_or(u32::MAX));
    let (running, waiting) = (small()?, small()?);
    let load = Load {
        running,
        waiting,
        kv_blocks_used: from.word()?,
        kv_blocks_total: from.word()?,
        tokens_cached: from.word()?,
    };
    Ok((load, from.word()?, from.word()?))
}
