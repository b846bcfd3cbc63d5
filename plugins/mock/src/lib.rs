//! The scripted engine: deterministic answers for tests and demonstrations, and every fault that the host defends against.
//!
//! [`builder`] turns [`options`] into an [`engine`]. A task is an [`order`] (its `@mock` line over the engine's defaults)
//! that plays a [`script`] or the echo of its [`prompt`]; [`inbox`] has the waiting tasks, [`run`] is one in progress,
//! [`batch`] all of those. They are pure: time is passed in and output is left in a [`tray`]. Only `engine` and `builder` know clocks, locks and the host.
//! What breaks the contract against the SDK's types is in [`breach`].
//! [`ext`] has what it does beside generating.
//! A new fault is a field of [`order::Order`] and the line in `run`, `batch` or `engine` that acts on it.

mod batch;
mod breach;
mod builder;
mod cache;
mod card;
mod code;
mod control;
mod crash;
mod engine;
mod ext;
#[cfg(test)]
mod fixture;
mod inbox;
mod meter;
mod options;
mod order;
mod plan;
mod prompt;
mod relay;
mod run;
mod script;
mod tray;
mod writer;

cascadia_plugin_api::export_plugin! {
    plugin: builder::Mock,
    id: "mock",
    about: include_str!("../manifest.json"),
}
