//! `cascadia.tokenize/1`: what goes in comes out.
#![expect(unsafe_code, reason = "calls the extension's table")]

use core::ffi::c_void;

use cascadia_plugin_api::abi::prim::{Array, Str, StrOut};
use cascadia_plugin_api::abi::{code, ids};
use cascadia_plugin_api::ext::draft::tokenize::{
    DETOKENIZE_SPECIAL, TOKEN_NONE, TOKENIZE_ADD_SPECIAL, TokenizeV1, TokensOut,
};

use super::super::note::note;
use super::super::rig::Rig;
use super::super::said::Said;
use super::super::{Fault, Outcome, Plan, Test, passed};
use super::{done, refused};

pub(in super::super) const TESTS: &[Test] = &[
    Test { name: "tokenize: a text comes back from its tokens, byte by byte", run: round_trip },
    Test { name: "tokenize: bytes that are no UTF-8 are kept or refused", run: not_text },
    Test { name: "tokenize: the bytes of single tokens join to the text", run: single },
    Test { name: "tokenize: an id that no token has is told apart", run: unknown },
    Test { name: "tokenize: it works from many threads beside a step", run: beside },
];

/// A tokenizer in hand, usable from any thread as its rig is.
struct Words<'a> {
    rig: &'a Rig,
    table: &'static TokenizeV1,
}

impl Words<'_> {
    fn of(rig: &Rig) -> Result<Words<'_>, Fault> {
        // SAFETY: the id names the type.
        Ok(Words { rig, table: unsafe { rig.subject.offered(ids::TOKENIZE) }? })
    }

    fn try_tokens(&self, text: &[u8], flags: u32) -> (u32, Vec<u32>, Said) {
        unsafe extern "C" fn set(ctx: *mut c_void, tokens: Array) {
            // SAFETY: `ctx` is the vector below, alive for the call; the tokens are lent.
            unsafe { *ctx.cast::<Vec<u32>>() = tokens.scalars::<u32>().into_owned() }
        }
        let (mut tokens, mut said) = (Vec::new(), Said::default());
        let out = TokensOut { ctx: std::ptr::from_mut(&mut tokens).cast(), set };
        // SAFETY: the engine lives; the text and the callbacks outlive the call.
        let code =
            unsafe { (self.table.tokenize)(self.rig.engine(), Str::new(text), flags, out, said.out()) };
        (code, tokens, said)
    }

    fn tokens(&self, text: &[u8], flags: u32) -> Result<Vec<u32>, Fault> {
        let (code, tokens, said) = self.try_tokens(text, flags);
        done(&format!("tokenize of {} bytes", text.len()), code, &said)?;
        Ok(tokens)
    }

    fn try_bytes(&self, tokens: &[u32], flags: u32) -> (u32, Vec<u8>, Said) {
        let (mut bytes, mut said) = (Vec::new(), Said::default());
        // SAFETY: the engine lives; tokens and callbacks outlive the call.
        let code = unsafe {
            let out = collect(&mut bytes);
            (self.table.detokenize)(self.rig.engine(), Array::new(tokens), flags, out, said.out())
        };
        (code, bytes, said)
    }

    fn bytes(&self, tokens: &[u32], flags: u32) -> Result<Vec<u8>, Fault> {
        let (code, bytes, said) = self.try_bytes(tokens, flags);
        done(&format!("detokenize of {} tokens", tokens.len()), code, &said)?;
        Ok(bytes)
    }

    fn token(&self, token: u32) -> Result<(Vec<u8>, u32), Fault> {
        let (mut bytes, mut kind, mut said) = (Vec::new(), u32::MAX, Said::default());
        // SAFETY: as above.
        let code = unsafe {
            let out = collect(&mut bytes);
            (self.table.token)(self.rig.engine(), token, out, &raw mut kind, said.out())
        };
        done(&format!("token {token}"), code, &said)?;
        Ok((bytes, kind))
    }
}

fn collect(bytes: &mut Vec<u8>) -> StrOut {
    unsafe extern "C" fn set(ctx: *mut c_void, text: Str) {
        // SAFETY: `ctx` is the vector of the caller, alive for the call; the text is lent.
        unsafe { *ctx.cast::<Vec<u8>>() = text.bytes().to_vec() }
    }
    StrOut { ctx: std::ptr::from_mut(bytes).cast(), set }
}

/// Texts that tokenizers get wrong.
fn hard() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        "a",
        " a  b ",
        "\n\n\t x",
        "na\u{ef}ve cafe\u{301}",
        "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} \u{1f1ea}\u{1f1fa}",
        "\u{4f60}\u{597d}\u{ff0c}\u{4e16}\u{754c}",
        "\u{202e}right to left\u{202c}\u{feff}",
        "nul \0 byte",
        "<|im_end|><s></s>[INST]",
        "1234567890 3.14159 0x7f",
    ]
    .map(str::to_owned)
    .into();
    texts.push("the \u{1f98a} jumps. ".repeat(60_000));
    texts
}

fn round_trip(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let words = Words::of(&rig)?;
    let mut most = 0;
    for text in hard() {
        let shown: String = text.chars().take(20).collect();
        note(&format!("tokenize {} bytes", text.len()));
        let tokens = words.tokens(text.as_bytes(), 0)?;
        let back = words.bytes(&tokens, DETOKENIZE_SPECIAL)?;
        if back != text.as_bytes() {
            let back = String::from_utf8_lossy(&back);
            let back: String = back.chars().take(20).collect();
            return Err(format!("{shown:?} comes back as {back:?}").into());
        }
        if text.is_empty() != tokens.is_empty() {
            return Err(format!("{shown:?} has {} tokens", tokens.len()).into());
        }
        most = most.max(tokens.len());
    }
    words.tokens(b"x", TOKENIZE_ADD_SPECIAL)?;
    Ok(format!("up to {most} tokens"))
}

fn not_text(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let words = Words::of(&rig)?;
    // An engine without a tokenizer says so, and that is no answer to broken text.
    words.tokens(b"a", 0)?;
    let mut kept = 0;
    for bytes in [&b"\x80"[..], b"\xf0\x9f", b"a\xffb", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok \xe2\x82"]
    {
        let (code, tokens, said) = words.try_tokens(bytes, 0);
        if code != code::OK {
            refused("tokenize of broken UTF-8", code, &said, &[code::INVALID_CONFIG])?;
            continue;
        }
        let back = words.bytes(&tokens, DETOKENIZE_SPECIAL)?;
        if back != bytes {
            return Err(format!("{bytes:x?} is taken and comes back as {back:x?}").into());
        }
        kept += 1;
    }
    Ok(format!("{kept} kept, {} refused", 6 - kept))
}

fn single(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let words = Words::of(&rig)?;
    let text = "Single tokens, joined: 1 \u{e9} \u{1f98a}!";
    let tokens = words.tokens(text.as_bytes(), 0)?;
    let mut joined = Vec::new();
    for token in &tokens {
        let (bytes, kind) = words.token(*token)?;
        if kind == TOKEN_NONE {
            return Err(format!("token {token} of a text is said not to exist").into());
        }
        joined.extend(bytes);
    }
    // Some tokenizers put a space before the first word.
    let trimmed = joined.strip_prefix(b" ").unwrap_or(&joined);
    if joined != text.as_bytes() && trimmed != text.as_bytes() {
        return Err(format!("the tokens join to {:?}", String::from_utf8_lossy(&joined)).into());
    }
    passed()
}

fn unknown(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let words = Words::of(&rig)?;
    for id in [u32::MAX, u32::MAX - 1] {
        let (bytes, kind) = words.token(id)?;
        if kind != TOKEN_NONE || !bytes.is_empty() {
            return Err(format!("id {id} is said to be a token of kind {kind}").into());
        }
        let (code, _, said) = words.try_bytes(&[id], 0);
        refused(&format!("detokenize of id {id}"), code, &said, &[code::INVALID_CONFIG])?;
    }
    if !words.bytes(&[], 0)?.is_empty() {
        return Err("no tokens have bytes".into());
    }
    passed()
}

fn beside(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let words = Words::of(&rig)?;
    let text = "the same text from every thread \u{1f98a}".repeat(200);
    let expected = words.tokens(text.as_bytes(), 0)?;
    let task = rig.submit(&super::super::ask::Ask::short(&rig.card))?;
    std::thread::scope(|scope| -> Result<(), Fault> {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| (0..8).all(|_| words.tokens(text.as_bytes(), 0).is_ok_and(|t| t == expected)))
            })
            .collect();
        rig.finish(&[task])?;
        for thread in threads {
            if !thread.join().map_err(|_| "the test panicked")? {
                return Err("a thread got other tokens".into());
            }
        }
        Ok(())
    })?;
    passed()
}
