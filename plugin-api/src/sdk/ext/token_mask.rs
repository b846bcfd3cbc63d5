//! `cascadia.token-mask/1` for authors: ask before sampling, keep to the answer.
#![expect(unsafe_code, reason = "calls the host's filler")]

use core::ffi::c_void;

use super::with_extension;
use crate::abi::code;
use crate::abi::prim::{Array, ErrOut};
use crate::ext::draft::token_mask as wire;
use crate::sdk::{Error, Result};

/// An engine that keeps to masks.
pub trait TokenMask {
    /// Takes the filler, once, before the first submit. Tasks of the kind [`crate::sdk::GrammarKind::Mask`] are asked for.
    fn attach(&self, filler: MaskFiller) -> Result<()>;
}

/// What one task needs.
#[derive(Debug, Clone, Copy, Default)]
pub struct MaskRequest<'a> {
    /// The task.
    pub task: u64,
    /// Tokens that became part of the answer since the last request.
    pub taken: &'a [u32],
    /// Tokens that a draft proposes after them; each takes a row more.
    pub drafts: &'a [u32],
    /// So many of the tokens told before are withdrawn; counted before `taken`.
    pub rollback: u32,
}

/// The host's side. Ask from inside `step` only, with no lock held that submit or cancel needs.
#[derive(Clone, Copy)]
pub struct MaskFiller(wire::MaskFiller);

// SAFETY: the host's callback and context; they live as long as the engine, and the thread of `step` may change.
unsafe impl Send for MaskFiller {}
// SAFETY: as above.
unsafe impl Sync for MaskFiller {}

/// The answers to one call, kept from step to step.
#[derive(Debug, Default)]
pub struct Masks {
    bits: Vec<u32>,
    states: Vec<u32>,
    words: usize,
}

/// Which tokens may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskRow<'a> {
    /// All.
    All,
    /// Those whose bit is set: bit `t % 32` of word `t / 32`.
    Some(&'a [u32]),
    /// None: the task ends with an error.
    DeadEnd,
    /// A draft before it is not allowed.
    Unreached,
}

impl MaskFiller {
    /// Asks for all `requests` at once, for a vocabulary of `vocabulary` tokens. The rows are in `masks`, those of the
    /// first request first. An error ends every task that was asked for.
    pub fn fill(&self, requests: &[MaskRequest<'_>], vocabulary: usize, masks: &mut Masks) -> Result<()> {
        let rows = requests.iter().map(|r| 1 + r.drafts.len()).sum::<usize>();
        masks.words = vocabulary.div_ceil(32);
        masks.bits.clear();
        masks.bits.resize(rows * masks.words, 0);
        masks.states.clear();
        masks.states.resize(rows, wire::MASK_ALL);
        let wire: Vec<_> = requests
            .iter()
            .map(|r| wire::MaskRequest {
                task: r.task,
                taken: Array::new(r.taken),
                drafts: Array::new(r.drafts),
                rollback: r.rollback,
                flags: 0,
            })
            .collect();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        // SAFETY: the host's callback; requests and both buffers live through the call and have the sizes that are told.
        let answer = unsafe {
            (self.0.fill)(
                self.0.ctx,
                Array::new(&wire),
                masks.bits.as_mut_ptr(),
                count(masks.words),
                masks.states.as_mut_ptr(),
                count(rows),
            )
        };
        match answer {
            code::OK => Ok(()),
            other => Err(Error::new(other, "the host gave no token mask")),
        }
    }
}

impl Masks {
    /// The answer in row `row`; all where there is no such row.
    pub fn row(&self, row: usize) -> MaskRow<'_> {
        match self.states.get(row) {
            Some(&wire::MASK_SOME) => MaskRow::Some(&self.bits[row * self.words..][..self.words]),
            Some(&wire::MASK_DEAD_END) => MaskRow::DeadEnd,
            Some(&wire::MASK_UNREACHED) => MaskRow::Unreached,
            _ => MaskRow::All,
        }
    }
}

impl MaskRow<'_> {
    /// Whether the token may come.
    pub fn allows(self, token: u32) -> bool {
        match self {
            MaskRow::All => true,
            MaskRow::Some(words) => {
                words.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
            }
            MaskRow::DeadEnd | MaskRow::Unreached => false,
        }
    }

    /// The smallest token that may come.
    pub fn first(self) -> Option<u32> {
        match self {
            MaskRow::All => Some(0),
            MaskRow::Some(words) => {
                let at = words.iter().position(|word| *word != 0)?;
                u32::try_from(at).ok().map(|at| at * 32 + words[at as usize].trailing_zeros())
            }
            MaskRow::DeadEnd | MaskRow::Unreached => None,
        }
    }
}

pub(super) static TABLE: wire::TokenMaskV1 =
    wire::TokenMaskV1 { struct_size: size_of::<wire::TokenMaskV1>() as u32, flags: 0, attach };

unsafe extern "C" fn attach(engine: *mut c_void, filler: wire::MaskFiller, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_extension!(engine, Some(err), token_mask, "token masks", |masks| masks
            .attach(MaskFiller(filler)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn fill(
        _ctx: *mut c_void,
        requests: Array,
        masks: *mut u32,
        words: u32,
        states: *mut u32,
        rows: u32,
    ) -> u32 {
        assert_eq!((words, rows), (2, 3));
        // SAFETY: the sizes are those that were told.
        unsafe {
            let drafts = requests.iter::<wire::MaskRequest>().map(|r| r.drafts.len).collect::<Vec<_>>();
            assert_eq!(drafts, [1, 0]);
            *masks.add(1) = 1 << 3;
            *states = wire::MASK_SOME;
            *states.add(1) = wire::MASK_UNREACHED;
        }
        code::OK
    }

    #[test]
    fn a_row_says_which_tokens_may_come() {
        let filler = MaskFiller(wire::MaskFiller { ctx: core::ptr::null_mut(), fill });
        let requests = [
            MaskRequest { task: 1, drafts: &[7], ..Default::default() },
            MaskRequest { task: 2, ..Default::default() },
        ];
        let mut masks = Masks::default();
        filler.fill(&requests, 40, &mut masks).expect("it fills");
        assert_eq!(masks.row(0).first(), Some(35));
        assert!(masks.row(0).allows(35) && !masks.row(0).allows(3) && !masks.row(0).allows(900));
        assert_eq!((masks.row(1), masks.row(2)), (MaskRow::Unreached, MaskRow::All));
    }
}
