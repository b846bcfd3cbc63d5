//! Reads a streamed answer as cheaply as it can be read and still be checked: status, chunks of HTTP/1.1, number of events,
//! and `[DONE]` at the end. An event is two line feeds outside the framing: JSON has none.

use anyhow::{Result, bail, ensure};

/// What an answer ends with.
const DONE: &[u8] = b"data: [DONE]\n\n";
/// A head is shorter than this.
const HEAD: usize = 16 << 10;

/// One answer as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    state: State,
    head: Vec<u8>,
    /// Bytes of the chunk that are still to come, or the digits of its size so far.
    left: usize,
    feeds: u64,
    comments: u64,
    /// The last bytes of the body, up to the length of [`DONE`].
    tail: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Head,
    Size,
    /// Before the first byte of a chunk.
    Begin,
    Data,
    /// The line's end behind a chunk.
    After,
    /// The empty line behind the last chunk.
    Last,
    Over,
}

impl Answer {
    /// Events so far, without comments.
    pub(crate) fn events(&self) -> u64 {
        (self.feeds / 2).saturating_sub(self.comments)
    }

    /// Whether nothing of it has come.
    pub(crate) fn is_new(&self) -> bool {
        self.state == State::Head && self.head.is_empty()
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether it ended as an answer does.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_over() && self.tail == DONE
    }

    /// Begins anew.
    pub(crate) fn reset(&mut self) {
        self.head.clear();
        self.tail.clear();
        (self.state, self.left, self.feeds, self.comments) = (State::Head, 0, 0, 0);
    }

    /// Takes what came.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        while let Some(&first) = bytes.first() {
            let used = match self.state {
                State::Head => self.head(bytes)?,
                State::Size => self.size(first)?,
                State::Begin => {
                    // A proxy may cut an event at any byte, so a chunk may begin within a line.
                    let begins = self.tail.last().is_none_or(|last| *last == b'\n');
                    self.comments += u64::from(begins && first == b':');
                    self.state = State::Data;
                    0
                }
                State::Data => self.data(bytes),
                State::After if first == b'\n' => self.go(State::Size),
                State::Last if first == b'\n' => self.go(State::Over),
                State::After | State::Last if first == b'\r' => 1,
                State::After | State::Last => bail!("byte {first} where a line should end"),
                State::Over => bail!("{} bytes behind the end", bytes.len()),
            };
            bytes = &bytes[used..];
        }
        Ok(())
    }

    fn go(&mut self, state: State) -> usize {
        (self.state, self.left) = (state, 0);
        1
    }

    fn head(&mut self, bytes: &[u8]) -> Result<usize> {
        let before = self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD)]);
        let from = before.saturating_sub(3);
        let Some(at) = self.head[from..].windows(4).position(|four| four == b"\r\n\r\n") else {
            ensure!(self.head.len() < HEAD, "no end of the head");
            return Ok(self.head.len() - before);
        };
        let end = from + at + 4;
        let good = self.head.starts_with(b"HTTP/1.1 200");
        ensure!(good, "not answered: {}", String::from_utf8_lossy(&self.head));
        self.go(State::Size);
        Ok(end - before)
    }

    fn size(&mut self, byte: u8) -> Result<usize> {
        match (byte, char::from(byte).to_digit(16)) {
            (b'\r', _) => {}
            (b'\n', _) if self.left == 0 => self.state = State::Last,
            (b'\n', _) => self.state = State::Begin,
            (_, Some(digit)) if self.left < 1 << 24 => self.left = self.left * 16 + digit as usize,
            _ => bail!("byte {byte} in the size of a chunk"),
        }
        Ok(1)
    }

    fn data(&mut self, bytes: &[u8]) -> usize {
        let part = &bytes[..bytes.len().min(self.left)];
        self.feeds += part.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.tail.extend_from_slice(&part[part.len().saturating_sub(DONE.len())..]);
        let over = self.tail.len().saturating_sub(DONE.len());
        self.tail.drain(..over);
        self.left -= part.len();
        if self.left == 0 {
            self.state = State::After;
        }
        part.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
        e\r\n: keep-alive\n\n\r\n1A\r\ndata: {\"a\":1}\n\ndata: {}\n\n\r\n4\r\ndata\r\na\r\n: [DONE]\n\n\r\n0\r\n\r\n";

    fn read(step: usize) -> Answer {
        let mut answer = Answer::default();
        for part in WHOLE.as_bytes().chunks(step) {
            assert!(!answer.is_over());
            answer.feed(part).expect("a good answer");
        }
        answer
    }

    #[test]
    fn an_answer_is_read_however_it_is_cut() {
        for step in 1..=WHOLE.len() {
            let answer = read(step);
            assert!(answer.is_whole(), "{step}: {answer:?}");
            assert_eq!(answer.events(), 3, "{step}");
        }
    }

    #[test]
    fn it_can_be_used_again() {
        let mut answer = read(1000);
        answer.reset();
        assert_eq!((answer.events(), answer.is_over()), (0, false));
        answer.feed(WHOLE.as_bytes()).expect("a good answer");
        assert!(answer.is_whole());
    }

    #[test]
    fn what_is_no_answer_is_told() {
        let refused = Answer::default().feed(b"HTTP/1.1 503 Service Unavailable\r\n\r\n{}").expect_err("503");
        assert!(refused.to_string().contains("503"), "{refused}");
        let mut cut = Answer::default();
        cut.feed(b"HTTP/1.1 200 OK\r\n\r\n2\r\nab\r\n0\r\n\r\n").expect("framed well");
        assert!(cut.is_over() && !cut.is_whole());
        assert!(cut.feed(b"x").is_err());
        assert!(Answer::default().feed(b"HTTP/1.1 200 OK\r\n\r\nzz").is_err());
    }
}
