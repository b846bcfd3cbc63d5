//! The scheduler against a model that reads its text through the blocks, and against naive counts of everything.

mod backend;
mod check;
mod moving;
mod order;
mod parts;
mod replay;
mod rig;
mod sharing;
mod soak;
mod walk;

use std::sync::Arc;

use crate::{Entry, Id, Scope};

/// A plain entry that generates `more` tokens.
fn entry(id: u64, tokens: &[u32], more: usize) -> Entry {
    Entry {
        id: Id(id),
        tokens: tokens.to_vec(),
        generated_from: tokens.len(),
        most: tokens.len() + more,
        scope: Arc::new(Scope::default()),
        priority: 0,
        deadline_ns: 0,
        score: false,
    }
}
