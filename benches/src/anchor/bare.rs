//! Tokio and a socket: a write a token.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use crate::beat::Beat;
use crate::{Manner, frames};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

struct Pages {
    manner: Manner,
    beat: Option<Beat>,
    /// Head and role.
    first: Vec<u8>,
    token: Vec<u8>,
    last: Vec<u8>,
}

pub(crate) async fn serve(listener: TcpListener, manner: Manner) -> Result<()> {
    let last = [chunk(&frames::last()).as_slice(), b"0\r\n\r\n"].concat();
    let first = [HEAD, &chunk(&frames::role())].concat();
    let beat = Beat::new(manner.pace_us);
    let pages = Arc::new(Pages { manner, beat, first, token: chunk(&frames::token()), last });
    let tasks = TaskTracker::new();
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let pages = Arc::clone(&pages);
        tasks.spawn(async move {
            // A client that leaves ends its connection, and nobody else's.
            drop(talk(socket, &pages).await);
        });
    }
}

async fn talk(mut socket: TcpStream, pages: &Pages) -> std::io::Result<()> {
    let mut request = vec![0; 4096];
    // The load generator writes a request in one piece, well below this size.
    while socket.read(&mut request).await? > 0 {
        socket.write_all(&pages.first).await?;
        for _ in 0..pages.manner.tokens {
            if let Some(beat) = &pages.beat {
                tokio::time::sleep_until(beat.after(Instant::now()).into()).await;
            }
            socket.write_all(&pages.token).await?;
        }
        socket.write_all(&pages.last).await?;
    }
    Ok(())
}

/// As a chunk of HTTP/1.1.
fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}
