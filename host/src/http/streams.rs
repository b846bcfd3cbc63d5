//! The streams of an HTTP/2 connection. Each is a task with a token of its own: one whose client does not read is ended
//! with a reset, and the connection's others go on.
//!
//! Relies on hyper's asking for an answer and handing over its stream in one go, as its HTTP/2 server does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Runs the streams of one connection; clones are the same.
#[derive(Clone)]
pub(super) struct Streams {
    connection: CancellationToken,
    tasks: TaskTracker,
    /// The token of the stream that is handed over next.
    next: Arc<Mutex<Option<CancellationToken>>>,
    /// There was one.
    begun: Arc<AtomicBool>,
}

impl Streams {
    /// None yet; all end with `connection` and are tracked by `tasks`.
    pub(super) fn new(connection: CancellationToken, tasks: TaskTracker) -> Streams {
        Streams { connection, tasks, next: Arc::default(), begun: Arc::default() }
    }

    /// The token of the stream whose answer is asked for now.
    pub(super) fn begin(&self) -> CancellationToken {
        let token = self.connection.child_token();
        *self.next.lock() = Some(token.clone());
        self.begun.store(true, Ordering::Relaxed);
        token
    }

    /// Whether the client has asked for anything yet.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let token = self.next.lock().take().unwrap_or_else(|| self.connection.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                _ = stream => {}
                // What is dropped unfinished is reset.
                () = token.cancelled() => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_stream_ends_alone_and_all_end_with_their_connection() {
        let connection = CancellationToken::new();
        let streams = Streams::new(connection.clone(), TaskTracker::new());
        let begin = || {
            let (held, dropped) = oneshot::channel::<()>();
            let token = streams.begin();
            streams.execute(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
            (token, dropped)
        };
        let ((first, mut a), (_, mut b), (_, mut c)) = (begin(), begin(), begin());
        let soon = Duration::from_secs(10);
        first.cancel();
        assert!(tokio::time::timeout(soon, &mut a).await.expect("ends").is_err());
        assert!(b.try_recv() == Err(oneshot::error::TryRecvError::Empty), "others go on");
        connection.cancel();
        assert!(tokio::time::timeout(soon, &mut b).await.expect("ends").is_err());
        assert!(tokio::time::timeout(soon, &mut c).await.expect("ends").is_err());
    }
}
