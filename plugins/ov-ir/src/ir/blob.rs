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
        let gap = (ALIGN - self.bytes % ALIGN) % ALIGN;
        self.append(&[0; ALIGN as usize][..gap as usize])?;
        let offset = self.bytes;
        self.append(bytes)?;
        Ok(offset)
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
