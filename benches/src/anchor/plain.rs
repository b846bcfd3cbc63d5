//! Hyper, a buffer a stream, and a thread that stands for an engine: the host's shape without anything that a host does.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http_body::Frame;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::{Condvar, Mutex};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::beat::Beat;
use crate::{Manner, frames};

/// A stream whose client does not read gets no more than this.
const FULL: usize = 64 << 10;

#[derive(Default)]
struct Line(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    ended: bool,
    waker: Option<Waker>,
}

struct Engine {
    mailbox: Mutex<Vec<Arc<Line>>>,
    rung: Condvar,
    manner: Manner,
}

pub(crate) async fn serve(listener: TcpListener, manner: Manner) -> Result<()> {
    let engine = Arc::new(Engine { mailbox: Mutex::default(), rung: Condvar::new(), manner });
    let driven = Arc::clone(&engine);
    std::thread::Builder::new().name("engine".to_owned()).spawn(move || driven.drive())?;
    let tasks = TaskTracker::new();
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let engine = Arc::clone(&engine);
        let answer = service_fn(move |request| answer(Arc::clone(&engine), request));
        let served =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), answer);
        tasks.spawn(async move {
            // A client that leaves ends its connection, and nobody else's.
            drop(served.await);
        });
    }
}

async fn answer(engine: Arc<Engine>, request: Request<Incoming>) -> Result<Response<Answer>, Infallible> {
    let mut body = request.into_body();
    while poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_some() {}
    let line = Arc::new(Line::default());
    engine.mailbox.lock().push(Arc::clone(&line));
    engine.rung.notify_one();
    // The head waits for the first token, as the host's does: one write for both.
    poll_fn(|cx| line.poll(cx, |waiting| !waiting.bytes.is_empty())).await;
    let mut response = Response::new(Answer { line, over: false });
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

impl Line {
    fn poll(&self, cx: &Context<'_>, is_ready: impl Fn(&Waiting) -> bool) -> Poll<()> {
        let mut waiting = self.0.lock();
        if is_ready(&waiting) {
            return Poll::Ready(());
        }
        waiting.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

struct Answer {
    line: Arc<Line>,
    over: bool,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.over {
            return Poll::Ready(None);
        }
        let mut waiting = this.line.0.lock();
        if waiting.bytes.is_empty() {
            waiting.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        this.over = waiting.ended;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(std::mem::take(&mut waiting.bytes))))))
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }
}

/// A stream in progress, with its tokens to go.
struct Run(Arc<Line>, u32);

impl Engine {
    /// Steps for ever: a token for each stream, then the wait for the beat.
    fn drive(&self) {
        let (role, token, last) = (frames::role(), frames::token(), frames::last());
        let (beat, mut runs) = (Beat::new(self.manner.pace_us), Vec::new());
        loop {
            self.admit(&mut runs);
            if let Some(beat) = &beat {
                let now = Instant::now();
                std::thread::sleep(beat.after(now) - now);
            }
            let mut moved = false;
            runs.retain_mut(|Run(line, left)| {
                let mut waiting = line.0.lock();
                if waiting.bytes.len() > FULL {
                    return true;
                }
                moved = true;
                if *left == self.manner.tokens {
                    waiting.bytes.extend_from_slice(&role);
                }
                waiting.bytes.extend_from_slice(&token);
                *left -= 1;
                if *left == 0 {
                    waiting.bytes.extend_from_slice(&last);
                    waiting.ended = true;
                }
                let waker = waiting.waker.take();
                drop(waiting);
                if let Some(waker) = waker {
                    waker.wake();
                }
                *left > 0
            });
            if !moved {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// Takes new streams; waits for one where there is none.
    fn admit(&self, runs: &mut Vec<Run>) {
        let mut mailbox = self.mailbox.lock();
        while runs.is_empty() && mailbox.is_empty() {
            self.rung.wait(&mut mailbox);
        }
        runs.extend(mailbox.drain(..).map(|line| Run(line, self.manner.tokens)));
    }
}
