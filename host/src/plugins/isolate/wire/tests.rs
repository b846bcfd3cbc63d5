//! What is packed arrives whole, and what is cut is an error.

use super::*;
use crate::generate::Sampling;

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
    let logprobs = [-0.5_f32, -1.5];
    let chunk = Chunk {
        task: 3,
        tokens: Array::new(&tokens),
        logprobs: Array::new(&logprobs),
        bytes: Str::new(b"8 bytes!"),
        stop_token: 9,
        timestamp_ns: 77,
        ..chunk
    };
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
        unsafe {
            assert_eq!(*chunk.tokens.scalars::<u32>(), tokens);
            assert_eq!(*chunk.logprobs.scalars::<f32>(), logprobs);
            assert_eq!((chunk.bytes.bytes(), chunk.error_message.len), (&b"8 bytes!"[..], 0));
        }
        assert_eq!((chunk.task, chunk.stop_token, chunk.timestamp_ns), (3, 9, 77));
    })
    .expect("whole");
    assert_eq!(seen, 2);
}
