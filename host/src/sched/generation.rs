//! The owner of a generation on the client's side, from admission to the end. It books, exactly once, whatever happens:
//! booking is in its drop.

use std::sync::Arc;
use std::time::Instant;

use super::flight::{Flight, Ready};
use super::worker::Worker;
use crate::generate::{Cause, End};
use crate::telemetry::metrics::Metrics;

/// One admitted generation. Move-only; lives in the handler, then in the body.
pub struct Generation {
    flight: Arc<Flight>,
    worker: Arc<Worker>,
    metrics: Arc<Metrics>,
    request: String,
    admitted: Instant,
    first: Option<Instant>,
    last: Option<Instant>,
    delivered: u64,
    /// Set when the last bytes were handed over.
    end: Option<End>,
}

impl Generation {
    /// The moment of admission: a slot or a queue place is about to be taken.
    pub fn admit(flight: Arc<Flight>, worker: Arc<Worker>, request: String) -> Generation {
        let metrics = worker.metrics();
        metrics.inflight.inc();
        Generation {
            flight,
            worker,
            metrics,
            request,
            admitted: Instant::now(),
            first: None,
            last: None,
            delivered: 0,
            end: None,
        }
    }

    /// The shared state.
    pub fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// Ends it from the client's side, if it has not ended.
    pub fn cancel(&self, cause: Cause) {
        if self.flight.end(End::Cancelled(cause)) {
            self.worker.cancel(self.flight.task);
        }
    }

    /// Bytes are being handed to the client's connection. The first with tokens is the time to first token, each later
    /// one is as many equal samples as it has tokens.
    pub fn hand_over(&mut self, ready: &Ready, now: Instant) {
        self.stamp(ready.tokens, now);
        if let Some(end) = &ready.end {
            self.end = Some(end.clone());
        }
    }

    /// As [`Generation::hand_over`], of bytes that are not the last.
    pub fn hand_over_part(&mut self, tokens: u32, now: Instant) {
        self.stamp(tokens, now);
    }

    /// A collected answer is being handed over; its tokens are stamped with the times they were collected at.
    pub fn hand_over_collected(&mut self, stamps: &[(Instant, u32)], end: End) {
        for (at, tokens) in stamps {
            self.stamp(*tokens, *at);
        }
        self.end = Some(end);
    }

    fn stamp(&mut self, tokens: u32, now: Instant) {
        if tokens == 0 {
            return;
        }
        match self.last {
            None => {
                self.first = Some(now);
                self.worker
                    .model_metrics()
                    .ttft
                    .observe(now.saturating_duration_since(self.admitted).as_secs_f64());
            }
            Some(last) => {
                let each = now.saturating_duration_since(last).as_secs_f64() / f64::from(tokens);
                for _ in 0..tokens {
                    self.worker.model_metrics().inter_token.observe(each);
                }
            }
        }
        self.last = Some(now);
        self.delivered += u64::from(tokens);
        self.worker.model_metrics().generated.inc_by(u64::from(tokens));
    }

    fn book(&mut self) {
        let outcome = self.flight.outcome();
        let end = match (self.end.take(), outcome.end, outcome.cut) {
            (_, _, Some(cause)) => End::Cancelled(cause),
            (Some(end), ..) => end,
            // The answer was complete, and the client did not take it.
            (None, Some(End::Stop | End::Length) | None, None) => End::Cancelled(Cause::ClientGone),
            (None, Some(end), None) => end,
        };
        if outcome.accepted {
            self.worker.model_metrics().prompt.inc_by(u64::from(outcome.usage.prompt));
        }
        let seconds = self.admitted.elapsed().as_secs_f64();
        if let Some(reason) = end.finish_reason() {
            self.worker.model_metrics().duration(reason).observe(seconds);
        }
        let cause = match &end {
            End::Rejected(error) => {
                if let Some(reason) = error.code.reason() {
                    self.metrics.reject(reason);
                }
                error.code.name()
            }
            End::Cancelled(cause) => {
                self.worker.model_metrics().cancelled.inc();
                if *cause == Cause::SlowClient {
                    self.metrics.slow_clients.inc();
                }
                cause.name()
            }
            End::Error(failure) => {
                self.worker.model_metrics().failed.inc();
                failure.code
            }
            End::Stop | End::Length | End::Teardown => "",
        };
        self.log(&end, cause, outcome.usage, seconds);
    }

    fn log(&self, end: &End, cause: &str, usage: crate::generate::Usage, seconds: f64) {
        let ttft = self.first.map(|at| at.saturating_duration_since(self.admitted).as_secs_f64());
        let finish = end.finish_reason().map_or("rejected", |r| r.name());
        let (model, worker, request) = (self.worker.served(), self.worker.id(), &self.request);
        let (prompt, generated, delivered) = (usage.prompt, usage.completion, self.delivered);
        if let End::Error(failure) = end {
            let error = &failure.message;
            tracing::warn!(%request, model, worker, finish, cause, error, prompt, generated, delivered, ttft, seconds, "generation failed");
        } else if matches!(end, End::Cancelled(Cause::SlowClient)) {
            // The host ends it of its own accord: whoever is told so by the client finds it here.
            tracing::info!(%request, model, worker, finish, cause, prompt, generated, delivered, ttft, seconds, "its client does not read: cut");
        } else {
            tracing::debug!(%request, model, worker, finish, cause, prompt, generated, delivered, ttft, seconds, "generation ended");
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // Nobody will read any more: the engine must not work on.
        self.cancel(Cause::ClientGone);
        self.book();
        self.flight.discard();
        self.metrics.inflight.dec();
    }
}
