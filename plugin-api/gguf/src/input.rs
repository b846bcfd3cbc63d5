//! A counting, bounded reader of little-endian primitives.
//!
//! Invariant: `at` is the number of bytes taken so far and never exceeds the byte limit; a string is allocated only as
//! fast as its bytes arrive.

use std::io::Read;

use crate::error::Error;

/// Bytes that a claim alone may allocate, before any of them was seen.
const TRUST: usize = 64 * 1024;

pub(crate) struct Input<R> {
    reader: R,
    at: u64,
    limit: u64,
    /// What is being read, for messages.
    pub(crate) place: String,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(reader: R, limit: u64) -> Self {
        Self { reader, at: 0, limit, place: "the header".to_owned() }
    }

    /// Number of bytes taken so far.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        self.fill(&mut out)?;
        Ok(out)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// A count of `what`, refused above `limit`.
    pub(crate) fn count(&mut self, what: &'static str, limit: u64) -> Result<u64, Error> {
        let found = self.u64()?;
        self.check(what, found, limit)?;
        Ok(found)
    }

    pub(crate) fn check(&self, what: &'static str, found: u64, limit: u64) -> Result<(), Error> {
        if found > limit {
            return Err(Error::Limit { at: self.at, place: self.place.clone(), what, found, limit });
        }
        Ok(())
    }

    /// A string with a 64-bit length in front.
    pub(crate) fn string(&mut self, what: &'static str, limit: u64) -> Result<String, Error> {
        let len = self.count(what, limit)?;
        self.check("header bytes", self.at.saturating_add(len), self.limit)?;
        let mut left = usize::try_from(len).unwrap_or(usize::MAX);
        let mut out = Vec::with_capacity(left.min(TRUST));
        while left > 0 {
            let (old, step) = (out.len(), left.min(TRUST));
            out.resize(old + step, 0);
            self.fill(&mut out[old..])?;
            left -= step;
        }
        String::from_utf8(out).map_err(|_| Error::Utf8 { at: self.at, place: self.place.clone() })
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), Error> {
        self.check("header bytes", self.at.saturating_add(out.len() as u64), self.limit)?;
        let mut done = 0;
        while done < out.len() {
            match self.reader.read(&mut out[done..]) {
                Ok(0) => return Err(Error::Truncated { at: self.at, place: self.place.clone() }),
                Ok(n) => {
                    done += n;
                    self.at += n as u64;
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Io { at: self.at, place: self.place.clone(), source }),
            }
        }
        Ok(())
    }
}
