//! How a generation ends. Whoever ends it first decides; the rest is ignored.

use super::piece::Failure;
use crate::error::ApiError;
use crate::telemetry::labels::FinishReason;

/// Why a generation was cancelled; a log field, not a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The connection or the request was dropped.
    ClientGone,
    /// `/v1/cancel`.
    CancelRoute,
    /// The client did not read.
    SlowClient,
    /// Another choice of the same answer failed.
    Sibling,
}

impl Cause {
    /// The word in the log.
    pub fn name(self) -> &'static str {
        match self {
            Cause::ClientGone => "client_gone",
            Cause::CancelRoute => "cancel_route",
            Cause::SlowClient => "slow_client",
            Cause::Sibling => "sibling_failed",
        }
    }
}

/// How a generation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It never ran: books a rejection by the error's code, and no duration.
    Rejected(ApiError),
    /// The model ended, or a stop string matched.
    Stop,
    /// The token limit or the window was reached.
    Length,
    /// Stopped early.
    Cancelled(Cause),
    /// The engine failed after it took the task.
    Error(Failure),
    /// The host shut down.
    Teardown,
}

impl End {
    /// The duration sample to book; a rejection books none.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        match self {
            End::Rejected(_) => None,
            End::Stop => Some(FinishReason::Stop),
            End::Length => Some(FinishReason::Length),
            End::Cancelled(_) => Some(FinishReason::Cancelled),
            End::Error(_) => Some(FinishReason::Error),
            End::Teardown => Some(FinishReason::Teardown),
        }
    }

    /// Whether the answer so far stands as an answer.
    pub fn is_answer(&self) -> bool {
        matches!(self, End::Stop | End::Length | End::Cancelled(_))
    }
}
