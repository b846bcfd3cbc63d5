//! `cascadia.host.trace/1`: spans and events of plugins, at debug level under the target `plugin`.
//!
//! What must hold: a handle that is not that of an open span of the worker is ignored. Names are the plugin's, so they are
//! fields: those of `tracing` are constants. Events carry the span's name as their part, so that the lines of an isolated
//! plugin, which come with the words of the innermost span and not under one, tell it too.

use core::ffi::c_void;
use std::fmt::Write;

use cascadia_plugin_api::abi::host::TraceV1;
use cascadia_plugin_api::abi::prim::{Array, Kv, Str};
use cascadia_plugin_api::abi::task::Trace;

use super::guarded;
use crate::plugins::link::Link;
use crate::plugins::spans::Open;

/// Longest text of a name or of all fields.
const MAX_TEXT: usize = 1024;

pub(super) static TABLE: TraceV1 =
    TraceV1 { struct_size: size_of::<TraceV1>() as u32, flags: 0, span_start, span_end, event };

unsafe extern "C" fn span_start(
    worker: *mut c_void,
    parent: Trace,
    under: u64,
    name: Str,
    fields: Array,
) -> u64 {
    guarded("trace", 0, || {
        let Some(link) = Link::at(worker as usize) else { return 0 };
        if !tracing::enabled!(target: "plugin", tracing::Level::DEBUG) {
            return 0;
        }
        // SAFETY: the plugin lends the texts for the call.
        let (name, fields) = unsafe { (clip(&name.text()), line(fields)) };
        // The subscriber is called outside of the lock: it may take its time. The outer span is held until the new one
        // is made: the id of one that has closed meanwhile means nothing.
        let outer = link.spans.lock().get(under);
        let (trace_id, parent_id) = (hex(&parent.trace_id), hex(&parent.span_id));
        let span = tracing::debug_span!(
            target: "plugin", parent: outer.as_ref().and_then(|open| open.span.id()), "plugin",
            plugin = link.plugin, span_name = name.as_str(), trace_id, parent_id, fields
        );
        link.spans.lock().keep(span, name)
    })
}

unsafe extern "C" fn span_end(worker: *mut c_void, span: u64) {
    guarded("trace", (), || {
        let Some(link) = Link::at(worker as usize) else { return };
        let ended = link.spans.lock().take(span);
        if let Some(Open { span, name, begun }) = ended {
            let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            tracing::debug!(target: "plugin", parent: &span, plugin = link.plugin, part = name, took_us, "span ended");
        }
    });
}

unsafe extern "C" fn event(worker: *mut c_void, span: u64, name: Str, fields: Array) {
    guarded("trace", (), || {
        let Some(link) = Link::at(worker as usize) else { return };
        if !tracing::enabled!(target: "plugin", tracing::Level::DEBUG) {
            return;
        }
        // SAFETY: the plugin lends the texts for the call.
        let (name, fields) = unsafe { (clip(&name.text()), line(fields)) };
        let inside = link.spans.lock().get(span);
        match inside {
            Some(open) => {
                tracing::debug!(target: "plugin", parent: &open.span, plugin = link.plugin, part = open.name, fields, "{name}");
            }
            None if span == 0 => {
                tracing::debug!(target: "plugin", plugin = link.plugin, fields, "{name}");
            }
            None => {}
        }
    });
}

/// `key=value` pairs in one line.
///
/// # Safety
/// `fields` must be readable [`Kv`]s.
unsafe fn line(fields: Array) -> String {
    let mut line = String::new();
    // SAFETY: the caller's promise; a zero Kv is two empty texts.
    for kv in unsafe { fields.iter::<Kv>() }.take(64) {
        // SAFETY: as above.
        let (key, value) = unsafe { (kv.key.text(), kv.value.text()) };
        let space = if line.is_empty() { "" } else { " " };
        // Writing to a String cannot fail.
        write!(line, "{space}{key}={value}").unwrap_or_default();
        if line.len() > MAX_TEXT {
            break;
        }
    }
    clip(&line)
}

/// One line of bounded length: a newline would let a plugin write lines that look like the host's.
fn clip(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT)].replace(['\n', '\r'], " ")
}

fn hex(bytes: &[u8]) -> String {
    if bytes.iter().all(|byte| *byte == 0) {
        return String::new();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_and_unknown_handles_are_ignored() {
        let link = Link::new("trace-test");
        let worker = std::ptr::from_ref(link).cast_mut().cast();
        let trace = Trace { trace_id: [1; 16], span_id: [2; 8], flags: 1 };
        let name = Str::new(b"a\nb");
        // SAFETY: texts and worker live through the calls; the second worker is no address of a link.
        unsafe {
            assert_eq!(span_start(8 as *mut c_void, trace, 0, name, Array::EMPTY), 0);
            span_end(worker, 99);
            event(worker, 99, name, Array::EMPTY);
            event(core::ptr::null_mut(), 0, name, Array::EMPTY);
        }
        assert_eq!(clip("a\nb"), "a b");
        assert_eq!((hex(&[0; 8]), hex(&[0, 255])), (String::new(), "00ff".to_owned()));
    }

    #[test]
    fn a_span_is_open_until_it_ends() {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(std::io::sink)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let link = Link::new("trace-test");
            let worker = std::ptr::from_ref(link).cast_mut().cast();
            let trace = Trace { trace_id: [0; 16], span_id: [0; 8], flags: 0 };
            // SAFETY: texts and worker live through the calls.
            unsafe {
                let outer = span_start(worker, trace, 0, Str::new(b"outer"), Array::EMPTY);
                let inner = span_start(worker, trace, outer, Str::new(b"inner"), Array::EMPTY);
                assert_eq!((outer, inner), (1, 2));
                event(worker, inner, Str::new(b"here"), Array::EMPTY);
                span_end(worker, outer);
                span_end(worker, outer);
                assert_eq!(link.spans.lock().len(), 1);
                span_end(worker, inner);
            }
            assert_eq!(link.spans.lock().len(), 0);
        });
    }
}
