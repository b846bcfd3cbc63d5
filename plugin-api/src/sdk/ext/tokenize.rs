//! `cascadia.tokenize/1` for authors.
#![expect(unsafe_code, reason = "the plugin's side of the table")]

use core::ffi::c_void;

use super::with_extension;
use crate::abi::prim::{Array, ErrOut, Str, StrOut};
use crate::ext::draft::tokenize as wire;
use crate::sdk::Result;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum TokenKind {
    /// No token has this id.
    None = wire::TOKEN_NONE,
    /// Text.
    Text = wire::TOKEN_TEXT,
    /// A special token.
    Special = wire::TOKEN_SPECIAL,
}

/// An engine with a tokenizer. The calls come from any thread; hold no lock that submit, step or cancel needs.
pub trait Tokenize {
    /// Token ids of a text, which is nearly always UTF-8. `parse_special`: texts of special tokens become these tokens;
    /// `add_special`: with the tokens in front and behind that the model wants.
    fn tokenize(&self, text: &[u8], parse_special: bool, add_special: bool) -> Result<Vec<u32>>;

    /// The bytes of tokens; special ones only where `special` is set.
    fn detokenize(&self, tokens: &[u32], special: bool) -> Result<Vec<u8>>;

    /// The bytes of one token and its kind.
    fn token(&self, token: u32) -> Result<(Vec<u8>, TokenKind)>;
}

pub(super) static TABLE: wire::TokenizeV1 = wire::TokenizeV1 {
    struct_size: size_of::<wire::TokenizeV1>() as u32,
    flags: 0,
    tokenize,
    detokenize,
    token,
};

unsafe extern "C" fn tokenize(
    engine: *mut c_void,
    text: Str,
    flags: u32,
    out: wire::TokensOut,
    err: ErrOut,
) -> u32 {
    let on = |bit: u32| flags & bit != 0;
    // SAFETY: the host's promise: text and callback are lent for the call.
    unsafe {
        with_extension!(engine, Some(err), tokenize, "tokenizer", |words| {
            let ids = words.tokenize(
                text.bytes(),
                on(wire::TOKENIZE_PARSE_SPECIAL),
                on(wire::TOKENIZE_ADD_SPECIAL),
            )?;
            (out.set)(out.ctx, Array::new(&ids));
            Ok(())
        })
    }
}

unsafe extern "C" fn detokenize(
    engine: *mut c_void,
    tokens: Array,
    flags: u32,
    out: StrOut,
    err: ErrOut,
) -> u32 {
    // SAFETY: the host's promise: tokens and callback are lent for the call.
    unsafe {
        with_extension!(engine, Some(err), tokenize, "tokenizer", |words| {
            let bytes = words.detokenize(&tokens.scalars::<u32>(), flags & wire::DETOKENIZE_SPECIAL != 0)?;
            (out.set)(out.ctx, Str::new(&bytes));
            Ok(())
        })
    }
}

unsafe extern "C" fn token(engine: *mut c_void, token: u32, out: StrOut, kind: *mut u32, err: ErrOut) -> u32 {
    // SAFETY: the host's promise: `kind` and the callback are lent for the call.
    unsafe {
        with_extension!(engine, Some(err), tokenize, "tokenizer", |words| {
            let (bytes, found) = words.token(token)?;
            if let Some(kind) = kind.as_mut() {
                *kind = found as u32;
            }
            (out.set)(out.ctx, Str::new(&bytes));
            Ok(())
        })
    }
}
