//! What an engine pushes: the sink of a step. Chunks come out as `generate::Piece`, or, for the child of an isolated plugin,
//! as the boundary's own [`wire::Chunk`].
#![expect(unsafe_code, reason = "reads what plugins lend")]

use core::ffi::c_void;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cascadia_plugin_api::abi::chunk as wire;
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::engine::{SINK_GO_ON, SINK_STOP};
use cascadia_plugin_api::abi::prim::{Array, Str};

use super::breach;
use super::engine::Receiver;
use super::failed::failure;
use super::link::Link;
use super::strict;
use crate::generate::{Finish, Logprobs, More, Piece};

/// Takes the boundary's chunks as they are pushed.
///
/// # Safety
/// Each implementor has a number of its own, from 1 on: by it a push knows whose address it was given.
pub(super) unsafe trait Chunks {
    const KIND: u8;

    /// A batch, lent for the call; false when the engine should return at once.
    ///
    /// # Safety
    /// Every chunk must view memory that is readable for the call.
    unsafe fn chunks(&mut self, chunks: &Array) -> bool;
}

/// Who receives on this thread. A plugin that pushes outside `step`, or from another thread, finds nobody: the address
/// it holds is the link's, which lives for ever, and never that of something on a stack.
pub(super) struct Inside {
    /// The link's address and, in the bits that its alignment leaves, the kind of receiver; 0 where nobody receives.
    whose: Cell<usize>,
    receiver: Cell<*mut c_void>,
}

thread_local! {
    static INSIDE: Inside = const { Inside { whose: Cell::new(0), receiver: Cell::new(std::ptr::null_mut()) } };
}

/// What [`Inside`] says while a step of the link's engine gives its chunks to a `C`.
fn whose<C: Chunks>(link: *const Link) -> usize {
    const { assert!(C::KIND > 0 && (C::KIND as usize) < align_of::<Link>()) };
    link as usize | C::KIND as usize
}

/// Ends the reception when the step returns.
#[must_use = "the reception is over when this is dropped"]
pub(super) struct Leave(&'static Link);

impl Inside {
    /// From here until the answer is dropped what the link's engine pushes on this thread goes to `receiver`.
    #[inline]
    pub(super) fn enter<C: Chunks>(link: &'static Link, receiver: &mut C) -> Leave {
        link.strict.stepping(true);
        INSIDE.with(|inside| {
            inside.receiver.set(std::ptr::from_mut(receiver).cast());
            inside.whose.set(whose::<C>(link));
        });
        Leave(link)
    }
}

impl Drop for Leave {
    #[inline]
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.whose.set(0));
        self.0.strict.stepping(false);
    }
}

/// The sink of the steps whose chunks go to a `C`: the whole way of a batch is one function.
pub(super) unsafe extern "C" fn push<C: Chunks>(ctx: *mut c_void, chunks: Array) -> u32 {
    let pushed = catch_unwind(AssertUnwindSafe(|| {
        let _push = strict::pushing();
        let (inside, receiver) = INSIDE.with(|inside| (inside.whose.get(), inside.receiver.get()));
        if inside != whose::<C>(ctx.cast()) {
            breach::stray_push(ctx as usize);
            return SINK_STOP;
        }
        // SAFETY: set by `enter` on this thread for a `C`, whose number it is, and unset before the step ends that the
        // receiver is borrowed for.
        let receiver = unsafe { &mut *receiver.cast::<C>() };
        // SAFETY: the plugin lends the array for the call.
        if unsafe { receiver.chunks(&chunks) } { SINK_GO_ON } else { SINK_STOP }
    }));
    pushed.unwrap_or(SINK_STOP)
}

/// Gives a receiver the pieces of the chunks.
pub(super) struct Pieces<'a>(pub(super) &'a mut dyn Receiver);

// SAFETY: the number is no other's.
unsafe impl Chunks for Pieces<'_> {
    const KIND: u8 = 1;

    #[inline]
    unsafe fn chunks(&mut self, chunks: &Array) -> bool {
        // SAFETY: the caller vouches for the array and for what each chunk views; an all-zero chunk is valid.
        unsafe {
            match chunks.only::<wire::Chunk>() {
                Some(place) => deliver_at(self.0, place),
                None => deliver_all(self.0, *chunks),
            }
        }
        self.0.go_on()
    }
}

/// A batch of more or fewer than one: out of the way of the one, which has less to keep in registers.
///
/// # Safety
/// The caller vouches for the array and for what each chunk views.
#[inline(never)]
unsafe fn deliver_all(receiver: &mut dyn Receiver, chunks: Array) {
    // SAFETY: the caller vouches for it; an all-zero chunk is valid.
    unsafe {
        match chunks.places::<wire::Chunk>() {
            Some(places) => places.for_each(|place| deliver_at(receiver, place)),
            None => deliver_older(receiver, chunks),
        }
    }
}

/// Chunks that are shorter than the host's: an older plugin's.
///
/// # Safety
/// The caller vouches for the array and for what each chunk views.
#[cold]
#[inline(never)]
unsafe fn deliver_older(receiver: &mut dyn Receiver, chunks: Array) {
    // SAFETY: the caller vouches for it; an all-zero chunk is valid.
    unsafe { chunks.iter::<wire::Chunk>().for_each(|chunk| deliver(receiver, &chunk)) }
}

/// What the chunk at a place says, in the host's terms. Only what is looked at is read: nearly every chunk is tokens and
/// nothing else, and its nearly three hundred bytes stay where they are.
///
/// # Safety
/// A whole chunk must be readable there, aligned or not, and what it views.
#[inline(always)]
unsafe fn deliver_at(receiver: &mut dyn Receiver, place: *const wire::Chunk) {
    macro_rules! read {
        ($field:ident $(. $inner:ident)*) => {
            // SAFETY: the caller vouches for the chunk.
            unsafe { (&raw const (*place).$field $(. $inner)*).read_unaligned() }
        };
    }
    const RARE: u32 = wire::HAS_PROMPT_TOKENS | wire::HAS_CACHED_TOKENS;
    let plain = read!(finish) == wire::FINISH_NONE
        && read!(flags) & RARE == 0
        && read!(logprobs.len) == 0
        && read!(prompt_logprobs.len) == 0;
    if !plain {
        // SAFETY: the caller vouches for the chunk.
        return unsafe { deliver_rare(receiver, place) };
    }
    let (task, tokens, bytes) = (read!(task), read!(tokens), read!(bytes));
    // SAFETY: the caller vouches for what the chunk views.
    match unsafe { tokens.slice::<u32>() } {
        Some(tokens) if !tokens.is_empty() => {
            // SAFETY: as above.
            let bytes = unsafe { bytes.bytes() };
            receiver.piece(task, Piece { tokens, bytes, more: More::NONE });
        }
        // SAFETY: as above.
        _ => unsafe { deliver_rare(receiver, place) },
    }
}

/// As [`deliver`], of a chunk that lies anywhere.
///
/// # Safety
/// As [`deliver_at`].
#[cold]
#[inline(never)]
unsafe fn deliver_rare(receiver: &mut dyn Receiver, place: *const wire::Chunk) {
    // SAFETY: the caller vouches for it.
    unsafe { deliver(receiver, &place.read_unaligned()) }
}

/// What a chunk says, in the host's terms.
///
/// # Safety
/// What the chunk views must be readable for the call.
#[cold]
pub(super) unsafe fn deliver(receiver: &mut dyn Receiver, chunk: &wire::Chunk) {
    // SAFETY: the caller vouches for it.
    let (tokens, bytes) = unsafe { (chunk.tokens.scalars::<u32>(), chunk.bytes.bytes()) };
    // SAFETY: as above.
    let (chosen, top_ids, top, prompt_logprobs) = unsafe {
        let (ids, top) = (chunk.top_ids.scalars::<u32>(), chunk.top_logprobs.scalars::<f32>());
        (chunk.logprobs.scalars::<f32>(), ids, top, chunk.prompt_logprobs.scalars::<f32>())
    };
    let has = |bit: u32| chunk.flags & bit != 0;
    let finish = match chunk.finish {
        wire::FINISH_NONE => None,
        // SAFETY: as above.
        number => match unsafe { finish(number, chunk.error, chunk.error_message, chunk.error_details) } {
            None => return receiver.broken(),
            some => some,
        },
    };
    let more = More {
        prompt_tokens: has(wire::HAS_PROMPT_TOKENS).then_some(chunk.prompt_tokens),
        cached_tokens: has(wire::HAS_CACHED_TOKENS).then_some(chunk.cached_tokens),
        logprobs: Logprobs { chosen: &chosen, top_ids: &top_ids, top: &top, k: chunk.top_k as usize },
        prompt_logprobs: &prompt_logprobs,
        finish,
    };
    receiver.piece(chunk.task, Piece { tokens: &tokens, bytes, more: &more });
}

/// How a chunk ends its task; none for a number that is none of the boundary's.
///
/// # Safety
/// Both texts must be readable for the call.
#[cold]
unsafe fn finish(number: u32, error: u32, message: Str, details: Str) -> Option<Finish> {
    Some(match number {
        wire::FINISH_STOP => Finish::Stop,
        wire::FINISH_LENGTH => Finish::Length,
        wire::FINISH_CANCELLED => Finish::Cancelled,
        wire::FINISH_ERROR => {
            // SAFETY: the caller vouches for it.
            let (message, details) = unsafe { (message.text(), details.text()) };
            let number = if error == code::OK { code::BACKEND } else { error };
            Finish::Error(failure(number, message.into_owned(), details.into_owned()))
        }
        _ => return None,
    })
}
