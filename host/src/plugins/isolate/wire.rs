//! The boundary's tasks and chunks as frames: each struct as its bytes, then what it views, in the order of its fields.
//!
//! Both ends are the same program (a child is started from the file of the running host), so the layout is one. What a
//! struct can say the frame can, whatever the host reads of it today.
#![expect(unsafe_code, reason = "reads what the boundary's structs view")]

use std::sync::atomic::{AtomicBool, Ordering};

use cascadia_plugin_api::abi::chunk::{Chunk, FINISH_NONE};
use cascadia_plugin_api::abi::prim::{Array, Kv};
use cascadia_plugin_api::abi::task::{Attachment, LogitBias, Task};
use cascadia_plugin_api::lock::Layout;

use super::frame::Frame;
use super::home::Home;
use super::pack::{Packer, Plain, Short, Unpacker};
use crate::generate::Request;
use crate::plugins::Receiver;
use crate::plugins::failed::Failed;
use crate::plugins::handle::{self, Chunks, EngineHandle};
use crate::plugins::link::Link;

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
// SAFETY: as above.
unsafe impl Plain for Chunk {}

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

impl Chunks for Push<'_> {
    unsafe fn chunks(&mut self, chunks: Array) -> bool {
        self.packer.clear();
        // SAFETY: the caller vouches for the chunks.
        unsafe { pack_chunks(&mut self.packer, chunks) };
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

/// # Safety
/// The array must hold chunks whose views are readable.
pub(super) unsafe fn pack_chunks(out: &mut Packer, chunks: Array) {
    // SAFETY: the caller vouches for the array; an all-zero chunk is valid.
    let chunks = unsafe { chunks.iter::<Chunk>() };
    out.word(chunks.len() as u64);
    for chunk in chunks {
        out.plain(&chunk);
        // SAFETY: as above, for what each chunk views.
        unsafe {
            out.numbers::<u32>(chunk.tokens);
            out.str(chunk.bytes);
            out.numbers::<f32>(chunk.logprobs);
            out.numbers::<u32>(chunk.top_ids);
            out.numbers::<f32>(chunk.top_logprobs);
            out.numbers::<f32>(chunk.prompt_logprobs);
            out.str(chunk.error_message);
            out.str(chunk.error_details);
        }
    }
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
        unsafe { handle::deliver(receiver, chunk) };
    })
}

/// Gives each chunk of a frame; it views the frame.
fn each_chunk(frame: &[u8], mut take: impl FnMut(&Chunk)) -> Result<(), Short> {
    let from = &mut Unpacker::new(frame);
    for _ in 0..from.count()? {
        let mut chunk: Chunk = from.plain()?;
        chunk.tokens = from.numbers::<u32>()?;
        chunk.bytes = from.str()?;
        chunk.logprobs = from.numbers::<f32>()?;
        chunk.top_ids = from.numbers::<u32>()?;
        chunk.top_logprobs = from.numbers::<f32>()?;
        chunk.prompt_logprobs = from.numbers::<f32>()?;
        chunk.error_message = from.str()?;
        chunk.error_details = from.str()?;
        take(&chunk);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Sampling;
    use cascadia_plugin_api::abi::prim::Str;

    fn request() -> Request {
        Request {
            id: "req-1".into(),
            model: "m".into(),
            tokens: (0..1000).collect(),
            max_tokens: 7,
            min_tokens: 1,
            ignore_eos: true,
            stop_tokens: vec![2, 3],
            stops: Vec::new(),
            sampling: Sampling { seed: Some(5), top_k: 40, ..Sampling::default() },
            ..Request::default()
        }
    }

    #[test]
    fn a_task_arrives_whole() {
        let request = request();
        let mut task = handle::task(42, &request);
        let text = |s: &'static str| Str::new(s.as_bytes());
        let biases = [LogitBias { token: 9, bias: -1.5 }];
        let attachments = [Attachment { kind: text("image/png"), bytes: text("\u{1}bytes") }];
        let options = [Kv { key: text("key"), value: text("value") }, Kv { key: text("k"), value: text("") }];
        task.logit_bias = Array::new(&biases);
        task.attachments = Array::new(&attachments);
        task.options = Array::new(&options);
        let mut packer = Packer::default();
        // SAFETY: everything that the task views is above.
        unsafe { pack_task(&mut packer, &task) };
        let unpacked = unpack_task(packer.bytes()).expect("whole");
        let got = unpacked.task();
        // SAFETY: the views are over `packer` and `unpacked`.
        unsafe {
            assert_eq!(got.request_id.text(), "req-1");
            assert_eq!(*got.tokens.scalars::<u32>(), request.tokens);
            assert_eq!(*got.stop_tokens.scalars::<u32>(), [2, 3]);
            let bias = got.logit_bias.iter::<LogitBias>().next().expect("one");
            assert_eq!((bias.token, bias.bias), (9, -1.5));
            let attachment = got.attachments.iter::<Attachment>().next().expect("one");
            assert_eq!(
                (attachment.kind.text().as_ref(), attachment.bytes.bytes()),
                ("image/png", &b"\x01bytes"[..])
            );
            let keys: Vec<_> = got.options.iter::<Kv>().map(|kv| kv.key.text().into_owned()).collect();
            assert_eq!(keys, ["key", "k"]);
        }
        assert_eq!((got.task, got.max_tokens, got.seed, got.top_k), (42, 7, 5, 40));
    }

    #[test]
    fn a_frame_cut_anywhere_is_an_error_and_nothing_worse() {
        let request = request();
        let mut packer = Packer::default();
        // SAFETY: the task views `request`.
        unsafe { pack_task(&mut packer, &handle::task(1, &request)) };
        for end in 0..packer.bytes().len() {
            assert!(unpack_task(&packer.bytes()[..end]).is_err(), "{end}");
        }
        // SAFETY: an all-zero chunk is valid.
        let chunk: Chunk = unsafe { core::mem::zeroed() };
        let tokens = [1_u32, 2];
        let chunk = Chunk { task: 3, tokens: Array::new(&tokens), ..chunk };
        packer.clear();
        // SAFETY: the chunks view `tokens`.
        unsafe { pack_chunks(&mut packer, Array::new(&[chunk, chunk])) };
        for end in 0..packer.bytes().len() {
            assert!(each_chunk(&packer.bytes()[..end], |_| {}).is_err(), "{end}");
        }
        let mut seen = 0;
        each_chunk(packer.bytes(), |chunk| {
            seen += 1;
            // SAFETY: the chunk views the packer's bytes.
            assert_eq!(*unsafe { chunk.tokens.scalars::<u32>() }, tokens);
        })
        .expect("whole");
        assert_eq!(seen, 2);
    }
}
