//! SHA-256 digests of files, as lower-case hexadecimal text.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::Error;

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// The digest of a file; `count` hears of each piece.
pub(crate) fn file(path: &Path, count: &mut dyn FnMut(u64) -> Result<(), Error>) -> Result<String, Error> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        let read = file.read(&mut piece).map_err(Error::io("read", path))?;
        if read == 0 {
            return Ok(hex(&digest.finalize()));
        }
        digest.update(&piece[..read]);
        count(read as u64)?;
    }
}

/// The digest of what is in memory.
pub(crate) fn of(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes as hexadecimal text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
        .map(char::from)
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_digest_of_abc_is_that_of_the_standard() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(super::of("abc"), expected);
    }
}
