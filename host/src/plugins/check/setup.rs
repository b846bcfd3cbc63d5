//! A builder in hand, called in the order of the contract. Freed when dropped.
#![expect(unsafe_code, reason = "calls the plugin's builder")]

use core::ffi::c_void;
use std::collections::BTreeMap;

use cascadia_plugin_api::abi::builder::{Peer, Shard};
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::prim::{Array, Kv, Progress, Str, StrOut};

use super::note::note;
use super::said::Said;
use super::subject::Subject;
use super::{Fault, Plan};
use crate::plugins::link::Link;
use crate::plugins::strict::Call;

/// How the reason begins for which a test was skipped that needs an engine, when there is none without a model.
pub(super) const NEEDS_MODEL: &str = "it needs a model, give --model PATH";

/// A builder.
pub(super) struct Setup {
    pub(super) subject: &'static Subject,
    pub(super) link: &'static Link,
    builder: *mut c_void,
    /// An engine was built of it, which closes its links.
    built: std::cell::Cell<bool>,
}

impl Setup {
    /// A builder for the plan's engine.
    pub(super) fn new(subject: &'static Subject, plan: &Plan) -> Result<Setup, Fault> {
        let name = subject.engine_name(plan)?;
        let link = Link::new(&subject.manifest.id);
        let mut said = Said::default();
        let builder = new_builder(subject, name.as_bytes(), link, &mut said);
        if builder.is_null() {
            return Err(Fault::Failed(format!("new_builder failed: {}", said.words(said.code))));
        }
        Ok(Setup { subject, link, builder, built: std::cell::Cell::new(false) })
    }

    /// Gives the options.
    pub(super) fn configure(&self, options: &BTreeMap<String, String>) -> Result<(), String> {
        let (code, said) = self.configure_code(options);
        said.expect_ok("configure", code)
    }

    /// Gives the options; the code and what was said.
    pub(super) fn configure_code(&self, options: &BTreeMap<String, String>) -> (u32, Said) {
        let text = |s: &String| Str::new(s.as_bytes());
        let pairs: Vec<_> = options.iter().map(|(k, v)| Kv { key: text(k), value: text(v) }).collect();
        // SAFETY: the pairs outlive the call.
        unsafe { self.configure_with(Array::new(&pairs)) }
    }

    /// # Safety
    /// `pairs` must be readable as options, with all that they view.
    pub(super) unsafe fn configure_with(&self, pairs: Array) -> (u32, Said) {
        note("configure");
        let mut said = Said::default();
        let _call = self.link.strict.enter(Call::Configure);
        // SAFETY: the builder is alive and used by this thread only; the caller vouches for the pairs.
        let code = unsafe { (self.subject.builder.configure)(self.builder, pairs, said.out()) };
        (code, said)
    }

    /// Opens the listener of a stage; where peers find it. Skipped where the engine has no pipeline.
    pub(super) fn listen(&self, address: &str) -> Result<String, Fault> {
        unsafe extern "C" fn set(ctx: *mut c_void, text: Str) {
            // SAFETY: `ctx` is the text below, alive for the call; what comes is lent for it.
            unsafe { *ctx.cast::<String>() = text.text().into_owned() }
        }
        note("listen");
        let (mut bound, mut said) = (String::new(), Said::default());
        let out = StrOut { ctx: (&raw mut bound).cast(), set };
        let address = Str::new(address.as_bytes());
        // SAFETY: the builder is alive and used by this thread only; texts and callbacks outlive the call.
        let code = unsafe { (self.subject.builder.listen)(self.builder, address, out, said.out()) };
        if code == code::UNSUPPORTED {
            return Err(Fault::Skipped(format!("it is no stage of a pipeline: {}", said.words(code))));
        }
        said.expect_ok("listen", code)?;
        if bound.is_empty() {
            return Err("listen answered ok and did not say where it listens".into());
        }
        Ok(bound)
    }

    /// Connects to the stage of rank 1.
    pub(super) fn connect(&self, address: &str) -> Result<(), String> {
        note("connect_peers");
        let peers = [Peer { rank: 1, flags: 0, address: Str::new(address.as_bytes()) }];
        let mut said = Said::default();
        // SAFETY: as above; the peers outlive the call.
        let code =
            unsafe { (self.subject.builder.connect_peers)(self.builder, Array::new(&peers), said.out()) };
        said.expect_ok("connect_peers", code)
    }

    /// Loads the plan's model.
    pub(super) fn load(&self, plan: &Plan) -> Result<(), Fault> {
        self.load_as(plan, (0, 1))
    }

    /// Loads the plan's model as the stage `rank.0` of `rank.1`.
    pub(super) fn load_as(&self, plan: &Plan, rank: (u32, u32)) -> Result<(), Fault> {
        let shard = Shard { rank: rank.0, stages: rank.1, ..shard(plan) };
        // SAFETY: the shard outlives the call.
        let (code, said) = unsafe { self.load_code(&raw const shard, going_on()) };
        let no_model = matches!(code, code::MODEL_NOT_FOUND | code::SHARD_REJECTED | code::INVALID_CONFIG);
        if no_model && plan.model.is_none() {
            let why = format!("{NEEDS_MODEL}: {}", said.words(code));
            return Err(Fault::Skipped(why));
        }
        if rank.1 > 1 && matches!(code, code::SHARD_REJECTED | code::UNSUPPORTED) {
            return Err(Fault::Skipped(format!("it does not split this model: {}", said.words(code))));
        }
        Ok(said.expect_ok("load_shard", code)?)
    }

    /// # Safety
    /// `shard` must be readable as far as its `struct_size` says, and all it views.
    pub(super) unsafe fn load_code(&self, shard: *const Shard, progress: Progress) -> (u32, Said) {
        note("load_shard");
        let mut said = Said::default();
        let _call = self.link.strict.enter(Call::LoadShard);
        // SAFETY: the builder is alive and used by this thread only; the caller vouches for the shard.
        let code = unsafe { (self.subject.builder.load_shard)(self.builder, shard, progress, said.out()) };
        (code, said)
    }

    /// Makes the engine; the builder is used up.
    pub(super) fn build(&self) -> Result<*mut c_void, String> {
        let (code, engine, said) = self.build_code();
        said.expect_ok("build", code)?;
        if engine.is_null() { Err("build answered ok and gave no engine".to_owned()) } else { Ok(engine) }
    }

    /// The code, the engine if any, and what was said.
    pub(super) fn build_code(&self) -> (u32, *mut c_void, Said) {
        note("build");
        let (mut said, mut engine) = (Said::default(), core::ptr::null_mut());
        let building = self.link.strict.enter(Call::Build);
        // SAFETY: as above; `engine` outlives the call.
        let code = unsafe { (self.subject.builder.build)(self.builder, &raw mut engine, said.out()) };
        self.built.set(!engine.is_null());
        drop(building);
        if code == code::OK {
            self.link.strict.born();
        }
        (code, engine, said)
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        note("destroy of the builder");
        let _call = self.link.strict.enter(Call::DestroyBuilder);
        // SAFETY: made by `new_builder`, destroyed once.
        unsafe { (self.subject.builder.destroy)(self.builder) }
        if !self.built.get() {
            self.link.close_links();
        }
        self.link.strict.builder_gone();
    }
}

/// A builder for an engine of that name, null when there is none.
pub(super) fn new_builder(
    subject: &Subject,
    name: &[u8],
    link: &'static Link,
    said: &mut Said,
) -> *mut c_void {
    note("new_builder");
    let worker = std::ptr::from_ref(link).cast_mut().cast();
    // SAFETY: text and callback outlive the call; the link lives for ever.
    unsafe { (subject.plugin.new_builder)(Str::new(name), worker, said.out()) }
}

/// The whole model of the plan, as one shard; it views the plan.
pub(super) fn shard(plan: &Plan) -> Shard {
    let path = plan.model.as_ref().map(|p| p.as_os_str().as_encoded_bytes()).unwrap_or_default();
    Shard {
        struct_size: size_of::<Shard>() as u32,
        flags: 0,
        path: Str::new(path),
        model_id: Str::new(b"check"),
        layer_first: 0,
        layer_end: 0,
        rank: 0,
        stages: 1,
    }
}

/// Progress that wants the call to go on.
pub(super) fn going_on() -> Progress {
    unsafe extern "C" fn report(_ctx: *mut c_void, _phase: Str, _done: u64, _total: u64) -> u32 {
        0
    }
    Progress { ctx: core::ptr::null_mut(), report }
}

/// Progress that wants the call to give up.
pub(super) fn giving_up() -> Progress {
    unsafe extern "C" fn report(_ctx: *mut c_void, _phase: Str, _done: u64, _total: u64) -> u32 {
        1
    }
    Progress { ctx: core::ptr::null_mut(), report }
}
