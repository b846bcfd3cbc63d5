//! The mock's own series on the host's `/metrics`, under `cascadia_plugin_mock_`. All exist at zero from the start.

use cascadia_plugin_api::sdk::{Metric, Worker};

use crate::script::End;
use crate::tray::{Delivery, Ending};

/// The series of one engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    steps: Metric,
    tokens: Metric,
    stop: Metric,
    length: Metric,
    cancelled: Metric,
    error: Metric,
    lost: Metric,
    refused: Metric,
}

impl Meter {
    /// Registers the series.
    pub(crate) fn new(worker: Worker) -> Meter {
        let task =
            |outcome| worker.counter("tasks_total", "Tasks by how they ended.", &[("outcome", outcome)]);
        Meter {
            steps: worker.counter("steps_total", "Steps of the engine.", &[]),
            tokens: worker.counter("tokens_total", "Tokens pushed.", &[]),
            stop: task("stop"),
            length: task("length"),
            cancelled: task("cancelled"),
            error: task("error"),
            lost: task("lost"),
            refused: task("refused"),
        }
    }

    /// Books a step: what it pushed, and the tasks that ended in it without the host's knowledge.
    pub(crate) fn book(self, pushed: &[Delivery], lost: u64) {
        self.steps.add(1.0);
        let mut tokens = 0;
        for delivery in pushed {
            tokens += delivery.tokens.len();
            match &delivery.ending {
                Ending::No => {}
                Ending::End(End::Stop) => self.stop.add(1.0),
                Ending::End(End::Length) => self.length.add(1.0),
                Ending::End(End::Cancelled) => self.cancelled.add(1.0),
                Ending::Error(_) => self.error.add(1.0),
            }
        }
        if tokens > 0 {
            self.tokens.add(tokens as f64);
        }
        if lost > 0 {
            self.lost.add(lost as f64);
        }
    }

    /// Books tasks that ended with the engine.
    pub(crate) fn book_failed(self, tasks: usize) {
        self.error.add(tasks as f64);
    }

    /// Books a refused submit.
    pub(crate) fn book_refused(self) {
        self.refused.add(1.0);
    }
}
