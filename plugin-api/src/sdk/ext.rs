//! What an engine may offer beside generating: a trait for each extension, and [`Extensions`] to hand them out by.
//!
//! Honest in two steps: [`super::Plugin::extensions`] lists the ids for which the library gives a table at all, and
//! [`super::Engine::extensions`] says which of them this engine has. A call for one it lacks answers `unsupported`.

mod adapters;
mod async_sink;
mod embeddings;
mod kv_events;
mod kv_state;
mod pause;
mod stage;
mod token_mask;
mod tokenize;

pub use adapters::{Adapter, AdapterSpec, Adapters};
pub use async_sink::{AsyncSink, OpenSink};
pub use embeddings::{EmbedInfo, EmbedInput, EmbedOut, EmbedTask, Embedding, Embeddings, Pooling};
pub use kv_events::{KvChange, KvEvent, KvEvents, KvTier};
pub use kv_state::{KvReader, KvState, KvWriter};
pub use pause::Pause;
pub use stage::{Refusal, Row, Sequence, Stage, StageBatch, StageInfo, StageOut, StageToken};
pub use token_mask::{MaskFiller, MaskRequest, MaskRow, Masks, TokenMask};
pub use tokenize::{TokenKind, Tokenize};

use core::ffi::c_void;

use crate::abi::ids;

/// The extensions of one engine; `..Extensions::default()` leaves out what it has not.
#[derive(Clone, Copy, Default)]
pub struct Extensions<'a> {
    /// `cascadia.kv-events/1`.
    pub kv_events: Option<&'a dyn KvEvents>,
    /// `cascadia.token-mask/1`.
    pub token_mask: Option<&'a dyn TokenMask>,
    /// `cascadia.tokenize/1`.
    pub tokenize: Option<&'a dyn Tokenize>,
    /// `cascadia.embeddings/1`.
    pub embeddings: Option<&'a dyn Embeddings>,
    /// `cascadia.stage/1`.
    pub stage: Option<&'a dyn Stage>,
    /// `cascadia.kv-state/1`.
    pub kv_state: Option<&'a dyn KvState>,
    /// `cascadia.adapters/1`.
    pub adapters: Option<&'a dyn Adapters>,
    /// `cascadia.pause/1`.
    pub pause: Option<&'a dyn Pause>,
    /// `cascadia.async-sink/1`.
    pub async_sink: Option<&'a dyn OpenSink>,
}

/// The table of that id, where the SDK knows it.
pub(super) fn table(id: &[u8]) -> Option<*const c_void> {
    fn at<T>(table: &'static T) -> *const c_void {
        std::ptr::from_ref(table).cast()
    }
    let tables: [(&str, *const c_void); 9] = [
        (ids::KV_EVENTS, at(&kv_events::TABLE)),
        (ids::TOKEN_MASK, at(&token_mask::TABLE)),
        (ids::TOKENIZE, at(&tokenize::TABLE)),
        (ids::EMBEDDINGS, at(&embeddings::TABLE)),
        (ids::STAGE, at(&stage::TABLE)),
        (ids::KV_STATE, at(&kv_state::TABLE)),
        (ids::ADAPTERS, at(&adapters::TABLE)),
        (ids::PAUSE, at(&pause::TABLE)),
        (ids::ASYNC_SINK, at(&async_sink::TABLE)),
    ];
    tables.into_iter().find(|(known, _)| known.as_bytes() == id).map(|(_, table)| table)
}

/// Calls an engine's extension behind the guard; `unsupported` where the engine lacks it. Unsafe as `with_engine` is.
macro_rules! with_extension {
    ($engine:expr, $err:expr, $field:ident, $what:literal, |$found:ident| $body:expr) => {
        crate::sdk::export::with_engine($engine, $err, |engine| match engine.extensions().$field {
            Some($found) => $body,
            None => Err(crate::sdk::Error::unsupported($what)),
        })
    };
}
use with_extension;

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "calls the tables as a host does")]

    use std::time::Duration;

    use super::*;
    use crate::abi::code;
    use crate::abi::prim::{ErrOut, Str};
    use crate::ext::draft::adapters::{AdaptersOut, AdaptersV1};
    use crate::ext::draft::pause::PauseV1;
    use crate::sdk::export::get_extension;
    use crate::sdk::{
        Builder, Card, Engine, EngineInfo, Error, Load, Next, Plugin, Progress, Result, Sink, Task, Worker,
    };

    struct Bare;
    struct Holding;

    fn no_builder() -> Result<Box<dyn Builder>> {
        Err(Error::unsupported("builder"))
    }

    impl Plugin for Bare {
        fn engines() -> &'static [EngineInfo] {
            &[]
        }
        fn builder(_: &str, _: Worker) -> Result<Box<dyn Builder>> {
            no_builder()
        }
    }

    impl Plugin for Holding {
        fn engines() -> &'static [EngineInfo] {
            &[]
        }
        fn extensions() -> &'static [&'static str] {
            &[ids::PAUSE, ids::ADAPTERS, "unknown/1"]
        }
        fn builder(_: &str, _: Worker) -> Result<Box<dyn Builder>> {
            no_builder()
        }
    }

    /// Has adapters that panic, and no pause though the library offers it.
    struct Mine;

    impl Engine for Mine {
        fn submit(&self, _: Task) -> Result<()> {
            Ok(())
        }
        fn step(&self, _: Duration, _: &mut Sink) -> Result<Next> {
            Ok(Next::Idle)
        }
        fn cancel(&self, _: u64) {}
        fn card(&self) -> Card {
            Card::default()
        }
        fn load(&self) -> Load {
            Load::default()
        }
        fn extensions(&self) -> Extensions<'_> {
            Extensions { adapters: Some(self), ..Extensions::default() }
        }
    }

    impl Adapters for Mine {
        fn load(&self, _: AdapterSpec, _: &Progress) -> Result<()> {
            Ok(())
        }
        fn unload(&self, _: &str) -> Result<()> {
            Ok(())
        }
        fn list(&self) -> Vec<Adapter> {
            panic!("no list today")
        }
    }

    fn has<P: Plugin>(id: &str) -> bool {
        // SAFETY: the text outlives the call.
        !unsafe { get_extension::<P>(Str::new(id.as_bytes())) }.is_null()
    }

    #[test]
    fn a_library_has_the_tables_that_it_lists_and_no_others() {
        let all =
            [ids::KV_EVENTS, ids::TOKEN_MASK, ids::TOKENIZE, ids::EMBEDDINGS, ids::STAGE, ids::KV_STATE];
        for id in all.into_iter().chain([ids::ASYNC_SINK, "unknown/1", "cascadia.pause/2"]) {
            assert!(!has::<Bare>(id) && !has::<Holding>(id), "{id}");
        }
        for id in [ids::PAUSE, ids::ADAPTERS] {
            assert!(!has::<Bare>(id) && has::<Holding>(id), "{id}");
        }
        assert!(has::<Bare>(ids::ENGINE) && has::<Bare>(ids::LOAD_REPORT));
    }

    #[test]
    fn an_engine_that_lacks_it_says_so_and_a_panic_stays_inside() {
        unsafe extern "C" fn set(ctx: *mut c_void, code: u32, message: Str, _details: Str) {
            // SAFETY: `ctx` is the pair below, alive for the call; the text is lent.
            unsafe { *ctx.cast::<(u32, String)>() = (code, message.text().into_owned()) }
        }
        unsafe extern "C" fn list(_ctx: *mut c_void, _adapters: crate::abi::prim::Array) {}
        let mut engine: Box<dyn Engine> = Box::new(Mine);
        let engine = std::ptr::from_mut(&mut engine).cast();
        let mut said = (0, String::new());
        // SAFETY: each id names its type; the engine is of the form that `build` gives and outlives the calls.
        unsafe {
            let table = get_extension::<Holding>(Str::new(ids::PAUSE.as_bytes())).cast::<PauseV1>();
            assert_eq!(((*table).pause)(engine, 1), code::UNSUPPORTED);
            let table = get_extension::<Holding>(Str::new(ids::ADAPTERS.as_bytes())).cast::<AdaptersV1>();
            let err = ErrOut { ctx: std::ptr::from_mut(&mut said).cast(), set };
            let out = AdaptersOut { ctx: core::ptr::null_mut(), set: list };
            assert_eq!(((*table).list)(engine, out, err), code::PANIC);
            assert_eq!(((*table).list)(core::ptr::null_mut(), out, err), code::CLOSED);
        }
        assert_eq!(said.0, code::CLOSED);
    }
}
