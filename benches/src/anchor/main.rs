//! The anchors of `cargo xtask bench tokens`: the least that a server of event streams can do, at the same pace as the host.
//!
//! `bare` writes each frame to its socket with tokio alone, no HTTP library, no engine, no thread between. `hyper` has an
//! engine's thread that appends frames to a buffer a stream, and hyper that sends what waits. Frames are made beforehand; no
//! request is parsed beyond its end, nothing is limited, counted or logged. What the host costs above them is what it does.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command that talks to who started it")]

mod bare;
mod beat;
mod frames;
mod plain;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

/// How an anchor answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Tokens of each answer.
    pub(crate) tokens: u32,
    /// Microseconds between two tokens; 0 is as fast as it goes.
    pub(crate) pace_us: u64,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, tokens, pace_us] = words.as_slice() else {
        bail!("usage: cascadia-anchor bare|hyper TOKENS PACE_US");
    };
    let manner = Manner {
        tokens: tokens.parse().context("TOKENS is a number")?,
        pace_us: pace_us.parse().context("PACE_US is a number")?,
    };
    // One worker, as the host has.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, 1], 0).into())?;
        let listener = socket.listen(4096)?;
        println!("{}", listener.local_addr()?);
        match kind.as_str() {
            "bare" => bare::serve(listener, manner).await,
            "hyper" => plain::serve(listener, manner).await,
            other => bail!("no anchor is called {other}; there are bare and hyper"),
        }
    })
}
