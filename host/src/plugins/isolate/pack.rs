//! Bytes of one frame: words, texts and arrays, each at a multiple of eight. Pure.
//!
//! What must hold: reading believes nothing. A length beyond the frame is an error, never a panic or an allocation.
#![expect(unsafe_code, reason = "views of the boundary over a frame's bytes")]

use cascadia_plugin_api::abi::prim::{Array, Str};

/// A frame that does not hold what it should.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {length} bytes is cut short")]
pub(super) struct Short {
    length: usize,
}

/// A struct of the boundary that may be sent as its bytes: it has no padding, and any bytes are one.
///
/// # Safety
/// Both must hold. What it points to is sent beside it, and its pointers are replaced by the receiver.
pub(super) unsafe trait Plain: Copy {}

/// Writes a frame's bytes.
#[derive(Default)]
pub(super) struct Packer(Vec<u8>);

impl Packer {
    /// Forgets what was written, keeps the memory.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What was written.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        self.word(text.len() as u64);
        self.0.extend_from_slice(text);
        self.pad();
    }

    pub(super) fn plain<T: Plain>(&mut self, value: &T) {
        // SAFETY: a plain value has no padding: all of its bytes are initialised.
        let bytes =
            unsafe { core::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) };
        self.0.extend_from_slice(bytes);
        self.pad();
    }

    /// # Safety
    /// The view must be readable.
    pub(super) unsafe fn str(&mut self, text: Str) {
        // SAFETY: passed on.
        self.text(unsafe { text.bytes() });
    }

    /// An array of numbers.
    ///
    /// # Safety
    /// The array must hold readable `T`s.
    pub(super) unsafe fn numbers<T: Copy>(&mut self, array: Array) {
        // SAFETY: passed on.
        let items = unsafe { array.scalars::<T>() };
        self.word(items.len() as u64);
        // SAFETY: numbers have no padding.
        let bytes = unsafe { core::slice::from_raw_parts(items.as_ptr().cast::<u8>(), size_of_val(&*items)) };
        self.0.extend_from_slice(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }
}

/// Reads a frame's bytes.
pub(super) struct Unpacker<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Unpacker<'a> {
        Unpacker { bytes, at: 0 }
    }

    /// Whether all was read.
    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], Short> {
        let end = self.at.checked_add(n);
        let part =
            end.and_then(|end| self.bytes.get(self.at..end)).ok_or(Short { length: self.bytes.len() })?;
        self.at = (self.at + n).next_multiple_of(8);
        Ok(part)
    }

    pub(super) fn word(&mut self) -> Result<u64, Short> {
        let mut word = [0; 8];
        word.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(word))
    }

    /// A word that counts something in memory.
    pub(super) fn count(&mut self) -> Result<usize, Short> {
        usize::try_from(self.word()?).map_err(|_| Short { length: self.bytes.len() })
    }

    pub(super) fn text(&mut self) -> Result<&'a [u8], Short> {
        let n = self.count()?;
        self.take(n)
    }

    pub(super) fn line(&mut self) -> Result<String, Short> {
        Ok(String::from_utf8_lossy(self.text()?).into_owned())
    }

    /// The value; its pointers point nowhere until they are replaced.
    pub(super) fn plain<T: Plain>(&mut self) -> Result<T, Short> {
        let bytes = self.take(size_of::<T>())?;
        // SAFETY: as many bytes as the type has, and any bytes are a plain value.
        Ok(unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }

    /// A view, valid as long as the frame's bytes.
    pub(super) fn str(&mut self) -> Result<Str, Short> {
        Ok(Str::new(self.text()?))
    }

    /// A view, valid as long as the frame's bytes.
    pub(super) fn numbers<T: Copy>(&mut self) -> Result<Array, Short> {
        let len = self.count()?;
        let size = len.checked_mul(size_of::<T>()).ok_or(Short { length: self.bytes.len() })?;
        let bytes = self.take(size)?;
        Ok(Array { ptr: bytes.as_ptr().cast(), len, stride: size_of::<T>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let mut packer = Packer::default();
        packer.word(7);
        packer.text("twelve bytes".as_bytes());
        // SAFETY: the array views the slice beside it.
        unsafe { packer.numbers::<u32>(Array::new(&[1_u32, 2, 3])) };
        packer.text(b"");
        let mut unpacker = Unpacker::new(packer.bytes());
        assert_eq!(unpacker.word(), Ok(7));
        assert_eq!(unpacker.line().as_deref(), Ok("twelve bytes"));
        let numbers = unpacker.numbers::<u32>().expect("numbers");
        // SAFETY: the array views the frame.
        assert_eq!(*unsafe { numbers.scalars::<u32>() }, [1, 2, 3]);
        assert_eq!(unpacker.text(), Ok(&b""[..]));
        assert!(unpacker.word().is_err());
    }

    #[test]
    fn a_length_beyond_the_frame_is_an_error() {
        for length in [1, 8, u64::MAX, u64::MAX / 4] {
            let mut packer = Packer::default();
            packer.word(length);
            assert!(Unpacker::new(packer.bytes()).text().is_err(), "{length}");
            assert!(Unpacker::new(packer.bytes()).numbers::<u32>().is_err(), "{length}");
        }
    }
}
