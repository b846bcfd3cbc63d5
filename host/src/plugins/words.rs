//! The tokenizer of an engine in this process, through `cascadia.tokenize/1`.
//!
//! Invariant: a call holds the engine's lock for reading, so that the engine is not destroyed under it; after that
//! every call fails.
#![expect(unsafe_code, reason = "calls the extension's table")]

use core::ffi::c_void;
use std::sync::Arc;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::prim::{Array, ErrOut, Str, StrOut};
use cascadia_plugin_api::ext::draft::tokenize::{
    DETOKENIZE_SPECIAL, TOKEN_NONE, TOKEN_SPECIAL, TOKENIZE_ADD_SPECIAL, TOKENIZE_PARSE_SPECIAL, TokenizeV1,
    TokensOut,
};
use parking_lot::RwLock;

use super::failed::Failed;
use super::instance::Instance;
use crate::prompt::words::{Token, Words};

/// The table, and the engine while it lives.
pub(super) struct EngineWords {
    table: &'static TokenizeV1,
    engine: Arc<RwLock<Option<Instance>>>,
}

impl EngineWords {
    pub(super) fn new(table: &'static TokenizeV1, engine: Arc<RwLock<Option<Instance>>>) -> EngineWords {
        EngineWords { table, engine }
    }

    fn call(&self, call: impl FnOnce(*mut c_void, ErrOut) -> u32) -> Result<(), String> {
        let engine = self.engine.read_recursive();
        let Some(engine) = engine.as_ref() else { return Err("the engine is closed".to_owned()) };
        let mut failed = Failed::default();
        match call(engine.0, failed.out()) {
            code::OK => Ok(()),
            other => Err(failed.into_message(other)),
        }
    }
}

impl Words for EngineWords {
    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, String> {
        unsafe extern "C" fn set(ctx: *mut c_void, tokens: Array) {
            // SAFETY: `ctx` is the vector below, alive for the call; the tokens are lent.
            unsafe { *ctx.cast::<Vec<u32>>() = tokens.scalars::<u32>().into_owned() }
        }
        let mut tokens: Vec<u32> = Vec::new();
        let out = TokensOut { ctx: std::ptr::from_mut(&mut tokens).cast(), set };
        let flags = TOKENIZE_PARSE_SPECIAL | if add_special { TOKENIZE_ADD_SPECIAL } else { 0 };
        // SAFETY: the engine lives while its lock is held; the text and the callbacks outlive the call.
        self.call(|engine, err| unsafe {
            (self.table.tokenize)(engine, Str::new(text.as_bytes()), flags, out, err)
        })?;
        Ok(tokens)
    }

    fn decode(&self, tokens: &[u32]) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let out = collect(&mut bytes);
        // SAFETY: as above.
        self.call(|engine, err| unsafe {
            (self.table.detokenize)(engine, Array::new(tokens), DETOKENIZE_SPECIAL, out, err)
        })?;
        Ok(bytes)
    }

    fn token(&self, token: u32) -> Result<Option<Token>, String> {
        let (mut bytes, mut kind) = (Vec::new(), TOKEN_NONE);
        let out = collect(&mut bytes);
        // SAFETY: as above; `kind` outlives the call.
        self.call(|engine, err| unsafe { (self.table.token)(engine, token, out, &raw mut kind, err) })?;
        Ok((kind != TOKEN_NONE).then_some(Token { bytes, special: kind == TOKEN_SPECIAL }))
    }
}

fn collect(bytes: &mut Vec<u8>) -> StrOut {
    unsafe extern "C" fn set(ctx: *mut c_void, text: Str) {
        // SAFETY: `ctx` is the vector that the caller keeps for the call; the text is lent.
        unsafe { *ctx.cast::<Vec<u8>>() = text.bytes().to_vec() }
    }
    StrOut { ctx: std::ptr::from_mut(bytes).cast(), set }
}
