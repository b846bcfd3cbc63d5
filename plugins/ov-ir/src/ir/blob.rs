//! The binary file beside the XML: data of constants, hashed as it is written.

use std::io::{self, Write};

use sha2::{Digest, Sha256};

/// Alignment of each constant; OpenVINO maps the file and reads vectors from it.
const ALIGN: u64 = 64;

/// The file under construction.
pub(crate) struct Blob<W> {
    data: W,
    bytes: u64,
    digest: Sha256,
}

/// The finished file.
pub(crate) struct Written<W> {
    pub(crate) data: W,
    pub(crate) bytes: u64,
    /// SHA-256 of all bytes.
    pub(crate) digest: [u8; 32],
}

impl<W: Write> Blob<W> {
    pub(super) fn new(data: W) -> Self {
        Self { data, bytes: 0, digest: Sha256::new() }
    }

    /// Appends data and gives its offset.
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let offset = self.align()?;
        self.append(bytes)?;
        Ok(offset)
    }

    /// Begins data that comes in pieces; nothing is written as long as it has no more than `held` bytes.
    pub(super) fn pieces(&mut self, held: usize) -> Pieces<'_, W> {
        Pieces { blob: self, most: held, held: Vec::new(), offset: None }
    }

    fn align(&mut self) -> io::Result<u64> {
        let gap = (ALIGN - self.bytes % ALIGN) % ALIGN;
        self.append(&[0; ALIGN as usize][..gap as usize])?;
        Ok(self.bytes)
    }

    pub(super) fn finish(mut self) -> io::Result<Written<W>> {
        self.data.flush()?;
        Ok(Written { data: self.data, bytes: self.bytes, digest: self.digest.finalize().into() })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.data.write_all(bytes)?;
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Data of one constant on its way into the file.
pub(crate) struct Pieces<'a, W> {
    blob: &'a mut Blob<W>,
    most: usize,
    held: Vec<u8>,
    offset: Option<u64>,
}

/// Where data that came in pieces is.
pub(super) enum Place {
    /// In the file, at an offset and so long.
    Written(u64, u64),
    /// Here, since it is so little.
    Held(Vec<u8>),
}

impl<W: Write> Pieces<'_, W> {
    /// Appends a piece.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.offset.is_some() {
            return self.blob.append(bytes);
        }
        if self.held.len() + bytes.len() <= self.most {
            self.held.extend_from_slice(bytes);
            return Ok(());
        }
        self.offset = Some(self.blob.align()?);
        let held = std::mem::take(&mut self.held);
        self.blob.append(&held)?;
        self.blob.append(bytes)
    }

    pub(super) fn finish(self) -> Place {
        match self.offset {
            Some(offset) => Place::Written(offset, self.blob.bytes - offset),
            None => Place::Held(self.held),
        }
    }
}
