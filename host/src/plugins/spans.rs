//! The spans that a worker's plugin has open.
//!
//! What must hold: there are at most [`MOST`], however the plugin forgets to end them; a handle is never used again.

use std::collections::HashMap;
use std::time::Instant;

use tracing::Span;

/// Most open spans of a worker; one more is not kept.
const MOST: usize = 4096;

/// A span that is open.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) span: Span,
    pub(super) name: String,
    pub(super) begun: Instant,
}

/// The open spans of a worker.
#[derive(Default)]
pub(super) struct Spans {
    open: HashMap<u64, Open>,
    last: u64,
}

impl Spans {
    /// Keeps a span; its handle, 0 where there are too many.
    pub(super) fn keep(&mut self, span: Span, name: String) -> u64 {
        if self.open.len() >= MOST {
            return 0;
        }
        self.last += 1;
        self.open.insert(self.last, Open { span, name, begun: Instant::now() });
        self.last
    }

    /// The open span of that handle.
    pub(super) fn get(&self, handle: u64) -> Option<Open> {
        self.open.get(&handle).cloned()
    }

    /// Ends keeping a span.
    pub(super) fn take(&mut self, handle: u64) -> Option<Open> {
        self.open.remove(&handle)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_keeps_a_bounded_number_of_spans() {
        let mut spans = Spans::default();
        let handles: Vec<_> = (0..MOST + 3).map(|_| spans.keep(Span::none(), String::new())).collect();
        assert_eq!(handles[..2], [1, 2]);
        assert_eq!(handles[MOST..], [0, 0, 0]);
        assert!(spans.take(1).is_some() && spans.get(1).is_none() && spans.get(2).is_some());
        assert!(
            spans.keep(Span::none(), String::new()) > MOST as u64,
            "an ended one makes room, and its handle is not used again"
        );
        assert_eq!(spans.len(), MOST);
    }
}
