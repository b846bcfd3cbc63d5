//! The header of a frame: pure bytes to meaning and back, with every rule of the contract that concerns one frame.
//!
//! ```text
//! 0  4  magic "CFR1"
//! 4  1  kind: 1 tensor, 2 raw
//! 5  1  element type, 0 of raw frames
//! 6  1  number of dimensions, 0 to 8
//! 7  1  0
//! 8  8  bytes of the payload, little-endian
//! 16 8n dimensions, little-endian; then the payload
//! ```
//! What must hold: a header that was read or made has a payload within the limits, of exactly the size that its type and
//! dimensions say.

use cascadia_plugin_api::abi::host::{FRAME_RAW, FRAME_TENSOR, dtype};

use crate::telemetry::labels::FrameKind;

const MAGIC: [u8; 4] = *b"CFR1";
/// Bytes before the dimensions.
pub(super) const FIXED: usize = 16;
/// Most dimensions of a tensor.
pub(super) const MAX_RANK: usize = 8;
/// Longest header.
pub(super) const MAX_HEAD: usize = FIXED + 8 * MAX_RANK;

/// Largest payloads, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) tensor: u64,
    pub(super) raw: u64,
}

/// What a header is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// Against the rules.
    #[error("{0}")]
    Broken(String),
    /// Within the rules, and too large.
    #[error("a frame of {have} bytes is over the limit of {max}")]
    Oversize {
        /// Bytes of the payload.
        have: u64,
        /// Most there may be.
        max: u64,
    },
}

/// A frame's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: FrameKind,
    pub(super) dtype: u32,
    pub(super) dims: Vec<u64>,
    pub(super) len: u64,
}

/// The part of a header that says how long the rest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fixed {
    kind: u32,
    dtype: u32,
    rank: usize,
    len: u64,
}

impl Fixed {
    /// Reads the first bytes of a header; a payload over the limit is found here, before anything of it came.
    pub(super) fn read(bytes: &[u8; FIXED], sizes: Sizes) -> Result<Fixed, Fault> {
        let [m0, m1, m2, m3, kind, dtype, rank, zero, len @ ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC || zero != 0 {
            return Err(Fault::Broken("what came is no frame".to_owned()));
        }
        let rank = usize::from(rank);
        if rank > MAX_RANK {
            return Err(Fault::Broken(format!(
                "a frame has {rank} dimensions, at most {MAX_RANK} are taken"
            )));
        }
        let fixed = Fixed { kind: kind.into(), dtype: dtype.into(), rank, len: u64::from_le_bytes(len) };
        limit(kind_of(fixed.kind)?, fixed.len, sizes)?;
        Ok(fixed)
    }

    /// Bytes of the whole header.
    pub(super) fn head_len(self) -> usize {
        FIXED + 8 * self.rank
    }

    /// The header with its dimensions, of which `dims` has the bytes.
    pub(super) fn with_dims(self, dims: &[u8], sizes: Sizes) -> Result<Head, Fault> {
        let (words, _) = dims.as_chunks::<8>();
        let dims: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        if dims.len() != self.rank {
            return Err(Fault::Broken(format!("{} of {} dimensions came", dims.len(), self.rank)));
        }
        Head::new(self.kind, self.dtype, dims, self.len, sizes)
    }
}

impl Head {
    /// A header for a payload of `len` bytes, if the rules allow it.
    pub(super) fn new(kind: u32, dtype: u32, dims: Vec<u64>, len: u64, sizes: Sizes) -> Result<Head, Fault> {
        let kind = kind_of(kind)?;
        match kind {
            FrameKind::Raw if dtype != 0 || !dims.is_empty() => {
                return Err(Fault::Broken("a raw frame has no element type and no dimensions".to_owned()));
            }
            FrameKind::Raw => {}
            FrameKind::Tensor => shape(dtype, &dims, len)?,
        }
        limit(kind, len, sizes)?;
        Ok(Head { kind, dtype, dims, len })
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAX_HEAD);
        out.extend(MAGIC);
        // All three were checked to fit when the header was made.
        out.extend([wire_kind(self.kind) as u8, self.dtype as u8, self.dims.len() as u8, 0]);
        out.extend(self.len.to_le_bytes());
        self.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
        out
    }

    /// Bytes of header and payload.
    pub(super) fn whole(&self) -> u64 {
        (FIXED + 8 * self.dims.len()) as u64 + self.len
    }
}

/// The boundary's number of a kind.
pub(super) fn wire_kind(kind: FrameKind) -> u32 {
    match kind {
        FrameKind::Tensor => FRAME_TENSOR,
        FrameKind::Raw => FRAME_RAW,
    }
}

fn kind_of(kind: u32) -> Result<FrameKind, Fault> {
    match kind {
        FRAME_TENSOR => Ok(FrameKind::Tensor),
        FRAME_RAW => Ok(FrameKind::Raw),
        other => Err(Fault::Broken(format!("{other} is no kind of frame"))),
    }
}

fn limit(kind: FrameKind, have: u64, sizes: Sizes) -> Result<(), Fault> {
    let max = match kind {
        FrameKind::Tensor => sizes.tensor,
        FrameKind::Raw => sizes.raw,
    };
    if have > max { Err(Fault::Oversize { have, max }) } else { Ok(()) }
}

fn shape(dtype: u32, dims: &[u64], len: u64) -> Result<(), Fault> {
    let Some(size) = dtype::size(dtype) else {
        return Err(Fault::Broken(format!("{dtype} is no element type")));
    };
    if dims.len() > MAX_RANK {
        let n = dims.len();
        return Err(Fault::Broken(format!("a frame has {n} dimensions, at most {MAX_RANK} are taken")));
    }
    // A dimension of 0 makes the tensor empty, however large the others are.
    let product = || dims.iter().try_fold(size, |all, dim| all.checked_mul(*dim));
    let needed = if dims.contains(&0) { Some(0) } else { product() };
    match needed {
        Some(needed) if needed == len => Ok(()),
        Some(needed) => {
            Err(Fault::Broken(format!("a tensor of {dims:?} has {needed} bytes, the frame has {len}")))
        }
        None => Err(Fault::Broken(format!("a tensor of {dims:?} has more bytes than can be counted"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { tensor: 1 << 20, raw: 1 << 10 };

    fn read(bytes: &[u8]) -> Result<Head, Fault> {
        let fixed = Fixed::read(bytes[..FIXED].try_into().expect("long enough"), SIZES)?;
        fixed.with_dims(bytes.get(FIXED..fixed.head_len()).unwrap_or_default(), SIZES)
    }

    #[test]
    fn what_is_written_is_read_back() {
        let cases = [
            (FRAME_TENSOR, dtype::F32, vec![], 4),
            (FRAME_TENSOR, dtype::BF16, vec![1, 3, 5], 30),
            (FRAME_TENSOR, dtype::I64, vec![0, u64::MAX, u64::MAX], 0),
            (FRAME_TENSOR, dtype::U8, vec![1, 1, 1, 1, 1, 1, 1, 1 << 20], 1 << 20),
            (FRAME_RAW, 0, vec![], 0),
            (FRAME_RAW, 0, vec![], 1 << 10),
        ];
        for (kind, dtype, dims, len) in cases {
            let head = Head::new(kind, dtype, dims, len, SIZES).expect("within the rules");
            assert_eq!(read(&head.bytes()).as_ref(), Ok(&head));
            assert_eq!(head.bytes().len() as u64 + len, head.whole());
        }
    }

    #[test]
    fn what_is_against_the_rules_is_named() {
        let cases = [
            (FRAME_TENSOR, 0, vec![1], 4, "0 is no element type"),
            (FRAME_TENSOR, 99, vec![1], 4, "99 is no element type"),
            (FRAME_TENSOR, dtype::F32, vec![2], 4, "has 8 bytes, the frame has 4"),
            (FRAME_TENSOR, dtype::F32, vec![u64::MAX, 2], 0, "can be counted"),
            (FRAME_TENSOR, dtype::U8, vec![1; 9], 1, "9 dimensions"),
            (FRAME_RAW, dtype::U8, vec![], 1, "raw frame has no element type"),
            (FRAME_RAW, 0, vec![1], 1, "raw frame has no element type"),
            (3, 0, vec![], 0, "3 is no kind"),
            (FRAME_RAW, 0, vec![], 1025, "over the limit of 1024"),
            (FRAME_TENSOR, dtype::U8, vec![(1 << 20) + 1], (1 << 20) + 1, "over the limit"),
        ];
        for (kind, dtype, dims, len, expected) in cases {
            let error = Head::new(kind, dtype, dims, len, SIZES).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    /// A small generator, so that the same bytes are tried each time.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn any_bytes_are_either_refused_or_a_frame_within_the_rules() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let sound = Head::new(FRAME_TENSOR, dtype::F16, vec![2, 3], 12, SIZES).expect("sound").bytes();
        for _ in 0..20_000 {
            let mut bytes = sound.clone();
            bytes.resize(MAX_HEAD, 0);
            for _ in 0..=random(&mut state) % 3 {
                let at = random(&mut state) as usize % MAX_HEAD;
                bytes[at] = random(&mut state) as u8;
            }
            if let Ok(head) = read(&bytes) {
                assert!(head.len <= SIZES.tensor && head.dims.len() <= MAX_RANK);
                assert_eq!(head.bytes(), bytes[..head.bytes().len()]);
            }
        }
    }

    #[test]
    fn a_length_over_the_limit_is_found_in_the_first_bytes() {
        let mut bytes = Head::new(FRAME_RAW, 0, vec![], 0, SIZES).expect("sound").bytes();
        bytes[8..16].fill(0xff);
        let fixed: &[u8; FIXED] = bytes[..FIXED].try_into().expect("long enough");
        assert_eq!(Fixed::read(fixed, SIZES), Err(Fault::Oversize { have: u64::MAX, max: 1024 }));
    }
}
