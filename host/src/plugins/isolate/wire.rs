//! The boundary's tasks and chunks as frames: each struct as its bytes, then what it views, in the order of its fields.
//!
//! Both ends are the same program (a child is started from the file of the running host), so the layout is one. What a
//! struct can say the frame can, whatever the host reads of it today.
#![expect(unsafe_code, reason = "reads what the boundary's structs view")]

use std::sync::atomic::{AtomicBool, Ordering};

use cascadia_plugin_api::abi::chunk::{Chunk, FINISH_NONE};
use cascadia_plugin_api::abi::prim::{Array, Kv, Str};
use cascadia_plugin_api::abi::task::{Attachment, LogitBias, Task};
use cascadia_plugin_api::lock::Layout;

use super::frame::Frame;
use super::home::Home;
use super::pack::{Packer, Plain, Short, Unpacker};
use crate::generate::Request;
use crate::plugins::Receiver;
use crate::plugins::failed::Failed;
use crate::plugins::handle::{self, EngineHandle};
use crate::plugins::link::Link;
use crate::plugins::receive::{self, Chunks};

/// Whether the fields fill the struct: then it has no padding.
const fn is_filled<T: Layout>() -> bool {
    let (mut at, mut sum) = (0, 0);
    while at < T::FIELDS.len() {
        sum += T::FIELDS[at].size;
        at += 1;
    }
    sum == size_of::<T>()
}

const _: () = assert!(is_filled::<Task>() && is_filled::<Chunk>() && is_filled::<LogitBias>());

// SAFETY: no padding, as asserted above; numbers and pointers only.
unsafe impl Plain for Task {}

/// # Safety
/// What the task views must be readable.
pub(super) unsafe fn pack_task(out: &mut Packer, task: &Task) {
    out.plain(task);
    // SAFETY: the caller vouches for every view; each array holds what its field says.
    unsafe {
        out.str(task.request_id);
        out.str(task.session_id);
        out.str(task.model);
        out.numbers::<u32>(task.tokens);
        out.str(task.text);
        out.numbers::<LogitBias>(task.logit_bias);
        out.numbers::<u32>(task.banned);
        out.numbers::<u32>(task.allowed);
        out.numbers::<u32>(task.stop_tokens);
        out.str(task.grammar.text);
        out.str(task.cache_salt);
        out.str(task.adapter);
        let attachments = task.attachments.iter::<Attachment>();
        out.word(attachments.len() as u64);
        for attachment in attachments {
            out.str(attachment.kind);
            out.str(attachment.bytes);
        }
        let options = task.options.iter::<Kv>();
        out.word(options.len() as u64);
        for option in options {
            out.str(option.key);
            out.str(option.value);
        }
    }
}

/// A request as the boundary's task.
pub(super) fn pack_request(out: &mut Packer, id: u64, request: &Request) {
    // SAFETY: the task views the request.
    unsafe { pack_task(out, &handle::task(id, request)) }
}

/// A task over a frame, which must outlive it.
pub(super) struct Unpacked {
    task: Task,
    attachments: Vec<Attachment>,
    options: Vec<Kv>,
}

impl Unpacked {
    /// The task; it views this and the frame.
    pub(super) fn task(&self) -> Task {
        Task { attachments: Array::new(&self.attachments), options: Array::new(&self.options), ..self.task }
    }
}

impl Unpacked {
    /// Hands the task to an engine; answers its id and what the engine said.
    pub(super) fn submit(&self, engine: &EngineHandle) -> (u64, Result<(), (u32, Failed)>) {
        let task = self.task();
        // SAFETY: the task views this and the frame, which outlive the call.
        (task.task, unsafe { engine.submit_task(&task) })
    }
}

/// The id of a frame's task.
pub(super) fn task_id(frame: &[u8]) -> Option<u64> {
    Unpacker::new(frame).plain::<Task>().ok().map(|task| task.task)
}

/// Sends what an engine pushes: one push is one frame.
pub(super) struct Push<'a> {
    home: &'a Home,
    link: &'static Link,
    closing: &'a AtomicBool,
    packer: Packer,
}

impl<'a> Push<'a> {
    pub(super) fn new(home: &'a Home, link: &'static Link, closing: &'a AtomicBool) -> Push<'a> {
        Push { home, link, closing, packer: Packer::default() }
    }
}

// SAFETY: the number is no other's.
unsafe impl Chunks for Push<'_> {
    const KIND: u8 = 2;

    unsafe fn chunks(&mut self, chunks: &Array) -> bool {
        self.packer.clear();
        // SAFETY: the caller vouches for the chunks.
        unsafe { pack_chunks(&mut self.packer, *chunks) };
        self.home.send(Frame::Chunks, self.packer.bytes());
        // SAFETY: as above; an all-zero chunk is valid.
        for chunk in unsafe { chunks.iter::<Chunk>() }.filter(|chunk| chunk.finish != FINISH_NONE) {
            self.link.forget(chunk.task);
        }
        !self.closing.load(Ordering::Relaxed)
    }
}

pub(super) fn unpack_task(frame: &[u8]) -> Result<Unpacked, Short> {
    let from = &mut Unpacker::new(frame);
    let mut task: Task = from.plain()?;
    task.request_id = from.str()?;
    task.session_id = from.str()?;
    task.model = from.str()?;
    task.tokens = from.numbers::<u32>()?;
    task.text = from.str()?;
    task.logit_bias = from.numbers::<LogitBias>()?;
    task.banned = from.numbers::<u32>()?;
    task.allowed = from.numbers::<u32>()?;
    task.stop_tokens = from.numbers::<u32>()?;
    task.grammar.text = from.str()?;
    task.cache_salt = from.str()?;
    task.adapter = from.str()?;
    let (mut attachments, mut options) = (Vec::new(), Vec::new());
    for _ in 0..from.count()? {
        attachments.push(Attachment { kind: from.str()?, bytes: from.str()? });
    }
    for _ in 0..from.count()? {
        options.push(Kv { key: from.str()?, value: from.str()? });
    }
    (task.attachments, task.options) = (Array::EMPTY, Array::EMPTY);
    Ok(Unpacked { task, attachments, options })
}

/// Words of a chunk.
const WORDS: usize = size_of::<Chunk>() / 8;
/// In the word before a chunk, the first bit that is about a view; those below are about the chunk's own words.
const VIEWS: usize = 32;

const _: () = assert!(size_of::<Chunk>() == WORDS * 8 && WORDS <= VIEWS);

/// Writes chunks: of each only what is not zero, since that is a fifth of a chunk and often less. A word before it tells which
/// of its words and views follow.
///
/// # Safety
/// The array must hold chunks whose views are readable.
pub(super) unsafe fn pack_chunks(out: &mut Packer, chunks: Array) {
    // SAFETY: the caller vouches for the array; an all-zero chunk is valid.
    let chunks = unsafe { chunks.iter::<Chunk>() };
    out.word(chunks.len() as u64);
    for chunk in chunks {
        let words = words(&Chunk {
            tokens: Array::EMPTY,
            bytes: Str::EMPTY,
            logprobs: Array::EMPTY,
            top_ids: Array::EMPTY,
            top_logprobs: Array::EMPTY,
            prompt_logprobs: Array::EMPTY,
            error_message: Str::EMPTY,
            error_details: Str::EMPTY,
            ..chunk
        });
        let mut mask = 0_u64;
        for (i, word) in words.iter().enumerate() {
            mask |= u64::from(*word != 0) << i;
        }
        for (i, len) in lengths(&chunk).into_iter().enumerate() {
            mask |= u64::from(len != 0) << (VIEWS + i);
        }
        out.word(mask);
        let mut left = mask & ((1 << WORDS) - 1);
        while left != 0 {
            out.word(words[left.trailing_zeros() as usize]);
            left &= left - 1;
        }
        // SAFETY: as above, for what each chunk views.
        unsafe {
            // A log-probability is as many bytes as an id, and only bytes are copied.
            let (ids, top) = ([chunk.tokens, chunk.logprobs], [chunk.top_ids, chunk.top_logprobs]);
            for array in ids.into_iter().chain(top).chain([chunk.prompt_logprobs]) {
                if array.len != 0 {
                    out.numbers::<u32>(array);
                }
            }
            for text in [chunk.bytes, chunk.error_message, chunk.error_details] {
                if text.len != 0 {
                    out.str(text);
                }
            }
        }
    }
}

/// Lengths of a chunk's views, in the order in which they are written.
fn lengths(c: &Chunk) -> [usize; 8] {
    [
        c.tokens.len,
        c.logprobs.len,
        c.top_ids.len,
        c.top_logprobs.len,
        c.prompt_logprobs.len,
        c.bytes.len,
        c.error_message.len,
        c.error_details.len,
    ]
}

fn words(chunk: &Chunk) -> [u64; WORDS] {
    // SAFETY: a chunk is plain and as many words long, as asserted above.
    unsafe { core::mem::transmute_copy(chunk) }
}

/// Gives a receiver what each chunk of a frame says; `seen` is told its task first.
pub(super) fn deliver(
    frame: &[u8],
    receiver: &mut dyn Receiver,
    mut seen: impl FnMut(u64),
) -> Result<(), Short> {
    each_chunk(frame, |chunk| {
        seen(chunk.task);
        // SAFETY: its views are over the frame.
        unsafe { receive::deliver(receiver, chunk) };
    })
}

/// Gives each chunk of a frame; it views the frame.
fn each_chunk(frame: &[u8], mut take: impl FnMut(&Chunk)) -> Result<(), Short> {
    let from = &mut Unpacker::new(frame);
    for _ in 0..from.count()? {
        let mask = from.word()?;
        let mut words = [0_u64; WORDS];
        let mut left = mask & ((1 << WORDS) - 1);
        while left != 0 {
            words[left.trailing_zeros() as usize] = from.word()?;
            left &= left - 1;
        }
        // SAFETY: a chunk is plain: any bytes are one, and it is as many words long, as asserted above.
        let told: Chunk = unsafe { core::mem::transmute(words) };
        let has = |i: usize| mask & (1 << (VIEWS + i)) != 0;
        let mut numbers = |i| if has(i) { from.numbers::<u32>() } else { Ok(Array::EMPTY) };
        let (tokens, logprobs, top_ids) = (numbers(0)?, numbers(1)?, numbers(2)?);
        let (top_logprobs, prompt_logprobs) = (numbers(3)?, numbers(4)?);
        let mut text = |i| if has(i) { from.str() } else { Ok(Str::EMPTY) };
        let (bytes, error_message, error_details) = (text(5)?, text(6)?, text(7)?);
        // Whatever the words said, nothing points anywhere but into the frame.
        take(&Chunk {
            tokens,
            bytes,
            logprobs,
            top_ids,
            top_logprobs,
            prompt_logprobs,
            error_message,
            error_details,
            ..told
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
