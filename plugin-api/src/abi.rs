//! The tables. Each file is one object of the contract; [`ids`] lists the names they are found by.

pub mod builder;
pub mod chunk;
pub mod code;
pub mod engine;
pub mod entry;
pub mod host;
pub mod plugin;
pub mod prim;
pub mod task;

/// The id of every table: `name/revision`. A revision is never edited once frozen.
pub mod ids {
    /// [`super::plugin::PluginV1`], asked of the entry.
    pub const PLUGIN: &str = "cascadia.plugin/1";
    /// [`super::builder::BuilderV1`], asked of the entry.
    pub const BUILDER: &str = "cascadia.builder/1";
    /// [`super::engine::EngineV1`], asked of the entry.
    pub const ENGINE: &str = "cascadia.engine/1";
    /// [`crate::ext::ModelCardV1`], asked of the entry; optional.
    pub const MODEL_CARD: &str = "cascadia.model-card/1";
    /// [`crate::ext::LoadReportV1`], asked of the entry; optional.
    pub const LOAD_REPORT: &str = "cascadia.load-report/1";
    /// [`crate::ext::draft::kv_events::KvEventsV1`], asked of the entry; optional, a draft.
    pub const KV_EVENTS: &str = "cascadia.kv-events/1";
    /// [`crate::ext::draft::token_mask::TokenMaskV1`], asked of the entry; optional, a draft.
    pub const TOKEN_MASK: &str = "cascadia.token-mask/1";
    /// [`crate::ext::draft::tokenize::TokenizeV1`], asked of the entry; optional, a draft.
    pub const TOKENIZE: &str = "cascadia.tokenize/1";
    /// [`crate::ext::draft::embeddings::EmbeddingsV1`], asked of the entry; optional, a draft.
    pub const EMBEDDINGS: &str = "cascadia.embeddings/1";
    /// [`crate::ext::draft::stage::StageV1`], asked of the entry; optional, a draft.
    pub const STAGE: &str = "cascadia.stage/1";
    /// [`crate::ext::draft::kv_state::KvStateV1`], asked of the entry; optional, a draft.
    pub const KV_STATE: &str = "cascadia.kv-state/1";
    /// [`crate::ext::draft::adapters::AdaptersV1`], asked of the entry; optional, a draft.
    pub const ADAPTERS: &str = "cascadia.adapters/1";
    /// [`crate::ext::draft::pause::PauseV1`], asked of the entry; optional, a draft.
    pub const PAUSE: &str = "cascadia.pause/1";
    /// [`crate::ext::draft::async_sink::AsyncSinkV1`], asked of the entry; optional, a draft.
    pub const ASYNC_SINK: &str = "cascadia.async-sink/1";

    /// [`super::host::LogV1`], asked of the host.
    pub const HOST_LOG: &str = "cascadia.host.log/1";
    /// [`super::host::MetricsV1`], asked of the host.
    pub const HOST_METRICS: &str = "cascadia.host.metrics/1";
    /// [`super::host::ClockV1`], asked of the host.
    pub const HOST_CLOCK: &str = "cascadia.host.clock/1";
    /// [`super::host::CancelV1`], asked of the host.
    pub const HOST_CANCEL: &str = "cascadia.host.cancel/1";
    /// [`super::host::WakeV1`], asked of the host.
    pub const HOST_WAKE: &str = "cascadia.host.wake/1";
    /// [`super::host::HeartbeatV1`], asked of the host.
    pub const HOST_HEARTBEAT: &str = "cascadia.host.heartbeat/1";
    /// [`super::host::DlopenV1`], asked of the host.
    pub const HOST_DLOPEN: &str = "cascadia.host.dlopen/1";
    /// [`super::host::TraceV1`], asked of the host.
    pub const HOST_TRACE: &str = "cascadia.host.trace/1";
    /// [`super::host::FaultV1`], asked of the host.
    pub const HOST_FAULT: &str = "cascadia.host.fault/1";
    /// [`super::host::TransportV1`], asked of the host; null on a host without links.
    pub const HOST_TRANSPORT: &str = "cascadia.host.transport/1";
}
