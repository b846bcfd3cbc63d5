//! What a plugin does against the boundary's rules, in every build: refused where it happens, counted by its kind, and told
//! once per kind and worker.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::link::Link;
use super::register::Register;
use crate::telemetry::labels::Protocol;

static METRICS: OnceLock<Arc<dyn Register>> = OnceLock::new();

/// The kinds that came in this process since the last [`take_seen`], a bit each.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Gives breaches the metrics they are counted in. Called once, before the first plugin is opened.
pub(super) fn start(metrics: &Arc<dyn Register>) {
    METRICS.get_or_init(|| Arc::clone(metrics));
}

/// A push into the sink at `address` that no step on this thread waits for.
pub(super) fn stray_push(address: usize) {
    let Some(link) = Link::at(address) else { return unknown("push") };
    let kind = if link.strict.is_stepping() { Protocol::PushOtherThread } else { Protocol::PushOutsideStep };
    count(kind);
    say(link, kind);
}

/// The worker that a plugin names in a call of `service`. One that is gone is answered all the same, with what is left
/// of it: its link is for ever.
pub(super) fn worker(service: &'static str, address: usize) -> Option<&'static Link> {
    let link = Link::at(address);
    match link {
        None => unknown(service),
        Some(link) if link.strict.is_gone() => {
            count(Protocol::ServiceAfterDestroy);
            say(link, Protocol::ServiceAfterDestroy);
        }
        Some(_) => {}
    }
    link
}

/// There is no worker to tell it of: told once in the process.
fn unknown(service: &'static str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let kind = Protocol::UnknownWorker;
    count(kind);
    SEEN.fetch_or(1 << kind as u32, Ordering::Relaxed);
    if !TOLD.swap(true, Ordering::Relaxed) {
        tracing::warn!(service, kind = kind.name(), "a plugin broke a rule of the boundary: {}", rule(kind));
    }
}

fn count(kind: Protocol) {
    if let Some(metrics) = METRICS.get() {
        metrics.breach(kind, 1);
    }
}

/// Tells a breach that was counted already, when it is the worker's first of its kind.
pub fn say(link: &Link, kind: Protocol) {
    SEEN.fetch_or(1 << kind as u32, Ordering::Relaxed);
    if link.strict.is_first(kind as u32) {
        let plugin = &link.plugin;
        tracing::warn!(plugin, kind = kind.name(), "a plugin broke a rule of the boundary: {}", rule(kind));
    }
}

/// The rules that plugins broke in this process since this was asked last.
pub(super) fn take_seen() -> Vec<&'static str> {
    let seen = SEEN.swap(0, Ordering::Relaxed);
    Protocol::ALL.iter().filter(|kind| seen & (1 << **kind as u32) != 0).map(|kind| rule(*kind)).collect()
}

/// The rule that was broken.
fn rule(kind: Protocol) -> &'static str {
    match kind {
        Protocol::UnknownTask => "a chunk belongs to a task that was taken and has had no finish",
        Protocol::UnknownToken => "a token has text, from the engine or from the tokenizer",
        Protocol::BadChunk => "a chunk's finish is one of those that the contract lists",
        Protocol::PushOutsideStep => "the sink is pushed into while step runs, never before or after",
        Protocol::PushOtherThread => "the sink is pushed into by the thread that runs step",
        Protocol::UnknownWorker => "a worker is named by the address that new_builder was given",
        Protocol::ServiceAfterDestroy => "no service is called for a worker whose engine was destroyed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(link: &'static Link) -> usize {
        std::ptr::from_ref(link) as usize
    }

    #[test]
    fn a_push_that_no_step_waits_for_is_told_apart() {
        let link = Link::new("stray");
        stray_push(address(link));
        assert!(!link.strict.is_first(Protocol::PushOutsideStep as u32));
        link.strict.stepping(true);
        let other = Link::new("stray");
        other.strict.stepping(true);
        stray_push(address(other));
        assert!(!other.strict.is_first(Protocol::PushOtherThread as u32));
        assert!(other.strict.is_first(Protocol::PushOutsideStep as u32));
        // An address that never was a worker's is nobody's.
        stray_push(64);
        assert!(take_seen().contains(&rule(Protocol::UnknownWorker)));
    }

    #[test]
    fn a_worker_is_gone_with_its_engine_or_with_a_builder_that_gave_none() {
        let gone = Protocol::ServiceAfterDestroy as u32;
        let living = Link::new("gone");
        living.strict.born();
        living.strict.builder_gone();
        assert!(worker("wake", address(living)).is_some());
        assert!(living.strict.is_first(gone), "it lives");
        let destroyed = Link::new("gone");
        destroyed.strict.born();
        destroyed.strict.gone();
        assert!(worker("wake", address(destroyed)).is_some(), "it is answered, for its link is for ever");
        assert!(!destroyed.strict.is_first(gone));
        let never = Link::new("gone");
        assert!(worker("wake", address(never)).is_some());
        assert!(!never.strict.is_gone(), "it is being built");
        never.strict.builder_gone();
        assert!(worker("wake", address(never)).is_some());
        assert!(!never.strict.is_first(gone));
        assert!(worker("wake", 8).is_none());
    }
}
