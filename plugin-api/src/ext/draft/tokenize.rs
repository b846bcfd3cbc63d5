//! `cascadia.tokenize/1`: the engine's own tokenizer. Chat templates are not part of it: the host renders them.

use crate::abi::prim::{Array, ErrOut, Str, StrOut};
use core::ffi::c_void;

/// [`TokenizeV1::tokenize`]: texts of special tokens become these tokens; without it they are plain text. For trusted
/// text only: a client could otherwise write a turn of another role.
pub const TOKENIZE_PARSE_SPECIAL: u32 = 1;
/// [`TokenizeV1::tokenize`]: put the tokens in front and behind that the model's files ask for.
pub const TOKENIZE_ADD_SPECIAL: u32 = 2;
/// [`TokenizeV1::detokenize`]: special tokens show as their text; without it they are left out.
pub const DETOKENIZE_SPECIAL: u32 = 1;

/// Kind of a token: no token has this id.
pub const TOKEN_NONE: u32 = 0;
/// Kind of a token: text.
pub const TOKEN_TEXT: u32 = 1;
/// Kind of a token: special; its bytes are what [`DETOKENIZE_SPECIAL`] shows.
pub const TOKEN_SPECIAL: u32 = 2;

table! {
    /// Where token ids go.
    TokensOut as "cascadia_tokens_out" {
        /// The receiver's context.
        ctx: *mut c_void,
        /// Takes token ids (`u32`); a second call replaces the first.
        set: unsafe extern "C" fn(ctx: *mut c_void, tokens: Array),
    }
}

table! {
    /// `cascadia.tokenize/1`. The functions work on the caller's thread, which may take as long as the text is long, and
    /// hold no lock that submit, step or cancel needs.
    TokenizeV1 as "cascadia_tokenize_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[any]` Token ids of a text; `flags` are `TOKENIZE_` bits. UTF-8 text comes back from `detokenize` byte by
        /// byte; other bytes are taken the same way or refused with [`crate::abi::code::INVALID_CONFIG`].
        tokenize: unsafe extern "C" fn(engine: *mut c_void, text: Str, flags: u32, out: TokensOut, err: ErrOut) -> u32,
        /// `[any]` The bytes of token ids (`u32`); may end inside a character. `flags` are `DETOKENIZE_` bits. An id that
        /// no token has is refused with [`crate::abi::code::INVALID_CONFIG`], naming it.
        detokenize: unsafe extern "C" fn(engine: *mut c_void, tokens: Array, flags: u32, out: StrOut, err: ErrOut) -> u32,
        /// `[any]` The bytes of one token as it stands inside a text, and its kind, one of the `TOKEN_` values. An id
        /// that no token has gives [`TOKEN_NONE`], no bytes and code 0, so that a vocabulary with holes can be walked.
        token: unsafe extern "C" fn(engine: *mut c_void, token: u32, out: StrOut, kind: *mut u32, err: ErrOut) -> u32,
    }
}
