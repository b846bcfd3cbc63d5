//! The spans that a worker's plugin has open.
//!
//! What must hold: there are at most [`MOST`], however the plugin forgets to end them; a handle is never used again.

use std::collections::HashMap;
use std::time::Instant;

use tracing::Span;

/// Most open spans of a worker; one more is not kept.
const MOST: usize = 4096;

/// The open spans of a worker.
#[derive(Default)]
pub(super) struct Spans {
    open: HashMap<u64, (Span, Instant)>,
    last: u64,
}

impl Spans {
    /// Keeps a span; its handle, 0 where there are too many.
    pub(super) fn keep(&mut self, span: Span) -> u64 {
        if self.open.len() >= MOST {
            return 0;
        }
        self.last += 1;
        self.open.insert(self.last, (span, Instant::now()));
        self.last
    }

    /// The open span of that handle.
    pub(super) fn get(&self, handle: u64) -> Option<Span> {
        self.open.get(&handle).map(|(span, _)| span.clone())
    }

    /// Ends keeping a span; the span, and when it was opened.
    pub(super) fn take(&mut self, handle: u64) -> Option<(Span, Instant)> {
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
        let handles: Vec<_> = (0..MOST + 3).map(|_| spans.keep(Span::none())).collect();
        assert_eq!(handles[..2], [1, 2]);
        assert_eq!(handles[MOST..], [0, 0, 0]);
        assert!(spans.take(1).is_some() && spans.get(1).is_none() && spans.get(2).is_some());
        assert!(
            spans.keep(Span::none()) > MOST as u64,
            "an ended one makes room, and its handle is not used again"
        );
        assert_eq!(spans.len(), MOST);
    }
}
