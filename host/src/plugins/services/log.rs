//! `cascadia.host.log/1`: a plugin's lines in the host's log, under the target `plugin`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use cascadia_plugin_api::abi::host::{LogV1, level};
use cascadia_plugin_api::abi::prim::{Array, Kv, Str};

use super::guarded;

static LEVEL: AtomicU32 = AtomicU32::new(level::INFO);

/// Sets the most detailed level that plugins write.
pub fn set_level(max: tracing::Level) {
    LEVEL.store(number(max), Ordering::Relaxed);
}

/// The most detailed level that plugins write.
pub fn level() -> tracing::Level {
    named(LEVEL.load(Ordering::Relaxed))
}

/// A level as the boundary numbers them.
pub fn number(level: tracing::Level) -> u32 {
    match level {
        tracing::Level::ERROR => level::ERROR,
        tracing::Level::WARN => level::WARN,
        tracing::Level::INFO => level::INFO,
        tracing::Level::DEBUG => level::DEBUG,
        tracing::Level::TRACE => level::TRACE,
    }
}

/// The level of a number; of one that means nothing the most detailed.
pub fn named(number: u32) -> tracing::Level {
    match number {
        level::ERROR => tracing::Level::ERROR,
        level::WARN => tracing::Level::WARN,
        level::INFO => tracing::Level::INFO,
        level::DEBUG => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    }
}

pub(super) fn table() -> &'static LogV1 {
    static TABLE: OnceLock<LogV1> = OnceLock::new();
    TABLE.get_or_init(|| LogV1 {
        struct_size: size_of::<LogV1>() as u32,
        flags: 0,
        level: LEVEL.as_ptr(),
        log: write,
    })
}

/// Longest line that is kept; what a plugin says is not unbounded.
const MAX_LINE: usize = 8 * 1024;

unsafe extern "C" fn write(level: u32, plugin: Str, target: Str, message: Str, fields: Array) {
    guarded("log", (), || {
        // SAFETY: the plugin lends the texts and the fields for the call.
        let (plugin, part, mut line) = unsafe { (plugin.text(), target.text(), message.text().into_owned()) };
        // SAFETY: as above; a zero Kv is two empty texts.
        for kv in unsafe { fields.iter::<Kv>() }.take(64) {
            // SAFETY: as above.
            let (key, value) = unsafe { (kv.key.text(), kv.value.text()) };
            line.push_str(&format!(" {key}={value}"));
        }
        if line.len() > MAX_LINE {
            line.truncate(line.floor_char_boundary(MAX_LINE));
        }
        // A newline would let a plugin write lines that look like the host's.
        let line = line.replace(['\n', '\r'], " ");
        match level {
            level::ERROR => tracing::error!(target: "plugin", plugin = %plugin, part = %part, "{line}"),
            level::WARN => tracing::warn!(target: "plugin", plugin = %plugin, part = %part, "{line}"),
            level::INFO => tracing::info!(target: "plugin", plugin = %plugin, part = %part, "{line}"),
            level::DEBUG => tracing::debug!(target: "plugin", plugin = %plugin, part = %part, "{line}"),
            _ => tracing::trace!(target: "plugin", plugin = %plugin, part = %part, "{line}"),
        }
    });
}
