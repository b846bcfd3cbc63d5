//! Every metric of the host: name, type, labels, help, buckets. `docs/METRICS.md` is made from this table.
//!
//! The families of [`Origin::Contract`] are fixed: names, types, labels and buckets do not change.

/// What kind of family it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// Where a family comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The published metric contract: dashboards rely on it.
    Contract,
    /// This host's own.
    Own,
}

/// One family.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Full name.
    pub name: &'static str,
    /// Type.
    pub ty: Type,
    /// Label names in order.
    pub labels: &'static [&'static str],
    /// One sentence; also the HELP line.
    pub help: &'static str,
    /// Upper bounds of a histogram.
    pub buckets: &'static [f64],
    /// Where it comes from.
    pub origin: Origin,
}

/// Time to first token, in seconds.
pub const TTFT_BUCKETS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];
/// Time between tokens, in seconds.
pub const INTER_TOKEN_BUCKETS: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0];
/// Generations and HTTP requests, in seconds.
pub const DURATION_BUCKETS: &[f64] = &[0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Frames between stages, in seconds.
pub const FRAME_BUCKETS: &[f64] = &[0.0001, 0.001, 0.01, 0.05, 0.1, 0.5, 1.0];
/// Waits in the queue, in seconds.
pub const QUEUE_BUCKETS: &[f64] = &[0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

macro_rules! families {
    ($($konst:ident: $origin:ident $ty:ident $name:literal [$($label:literal),*] $buckets:expr, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $konst: Family = Family {
                name: $name, ty: Type::$ty, labels: &[$($label),*], help: $help, buckets: $buckets,
                origin: Origin::$origin,
            };
        )*
        /// All of them, in the order of the reference.
        pub const ALL: &[Family] = &[$($konst),*];
    };
}

families! {
    HTTP_REQUESTS: Contract Counter "cascadia_http_requests_total" ["endpoint", "status"] &[],
        "Requests by route template and status code; a stream counts when its head is sent.";
    HTTP_DURATION: Contract Histogram "cascadia_http_request_duration_seconds" ["endpoint"] DURATION_BUCKETS,
        "Request latency; for a stream the time until its head is sent.";
    INFLIGHT: Contract Gauge "cascadia_inflight_tasks" [] &[],
        "Generation requests admitted whose response has not finished or been dropped.";
    REJECTED: Contract Counter "cascadia_api_rejected_total" ["reason"] &[],
        "Requests rejected before generation started.";
    TTFT: Contract Histogram "cascadia_generation_ttft_seconds" ["model"] TTFT_BUCKETS,
        "Time from admission until the first token is handed to the client's connection.";
    INTER_TOKEN: Contract Histogram "cascadia_generation_inter_token_seconds" ["model"] INTER_TOKEN_BUCKETS,
        "Time between consecutive tokens of one generation, measured at delivery.";
    DURATION: Contract Histogram "cascadia_generation_duration_seconds" ["model", "finish_reason"] DURATION_BUCKETS,
        "Time from admission to the end; exactly one sample for each admitted generation.";
    TOKENS_GENERATED: Contract Counter "cascadia_tokens_generated_total" ["model"] &[],
        "Tokens delivered to clients.";
    TOKENS_PROMPT: Contract Counter "cascadia_tokens_prompt_total" ["model"] &[],
        "Prompt tokens of generations that an engine accepted.";
    TASKS_CANCELLED: Contract Counter "cascadia_tasks_cancelled_total" ["model"] &[],
        "Generations stopped early by the cancel route or by the client going away.";
    TASKS_FAILED: Contract Counter "cascadia_tasks_failed_total" ["model"] &[],
        "Generations that ended with an engine error.";
    MODEL_LOAD: Contract Gauge "cascadia_engine_model_load_duration_seconds" ["model", "device"] &[],
        "Time to load weights and build the engine, without connecting to other stages.";
    WARMUP: Contract Gauge "cascadia_engine_warmup_duration_seconds" ["model", "device"] &[],
        "Time of the engine's warm-up.";
    TRANSPORT_SENT: Contract Counter "cascadia_transport_sent_bytes_total" ["kind"] &[],
        "Bytes sent between stages, complete frames only.";
    TRANSPORT_RECV: Contract Counter "cascadia_transport_recv_bytes_total" ["kind"] &[],
        "Bytes received between stages, complete frames only.";
    TRANSPORT_SEND_SECONDS: Contract Histogram "cascadia_transport_send_seconds" [] FRAME_BUCKETS,
        "Time to send a tensor frame, including flush.";
    TRANSPORT_RECV_SECONDS: Contract Histogram "cascadia_transport_recv_payload_seconds" [] FRAME_BUCKETS,
        "Time from a tensor frame's header to its full payload.";

    LINK_UP: Own Gauge "cascadia_link_up" ["plugin", "side", "address"] &[],
        "Links between stages that are up, by the address they were opened to or accepted at; 0 once they broke.";
    LINK_FRAMES: Own Counter "cascadia_link_frames_total" ["plugin", "side", "address", "direction"] &[],
        "Whole frames that went over links.";
    LINK_BYTES: Own Counter "cascadia_link_bytes_total" ["plugin", "side", "address", "direction"] &[],
        "Bytes that went over links, those of unfinished frames too.";
    LINK_UNFINISHED: Own Gauge "cascadia_link_unfinished_frames" ["plugin", "side", "address", "direction"] &[],
        "Frames that have begun and are not whole; above 0 while the bytes stand still, the link is stalled, else idle.";
    LINK_LAST_FRAME: Own Gauge "cascadia_link_last_frame_timestamp_seconds" ["plugin", "side", "address", "direction"] &[],
        "When the last whole frame went over, in Unix time; 0 before the first.";
    LINK_BLOCKED: Own Counter "cascadia_link_send_blocked_seconds_total" ["plugin", "side", "address"] &[],
        "Time that sends waited for the peer to read.";
    LINK_ERRORS: Own Counter "cascadia_link_errors_total" ["reason"] &[],
        "Peers that were refused or refused us, and links that ended otherwise than by an orderly close.";
    QUEUE_DEPTH: Own Gauge "cascadia_queue_depth" [] &[],
        "Generation requests that wait for a slot.";
    QUEUE_WAIT: Own Histogram "cascadia_queue_wait_seconds" [] QUEUE_BUCKETS,
        "Time from admission until a slot was free; 0 for those that found one at once.";
    ENGINE_RUNNING: Own Gauge "cascadia_engine_requests_running" ["model", "worker"] &[],
        "Tasks that the engine is generating, as it reports.";
    ENGINE_WAITING: Own Gauge "cascadia_engine_requests_waiting" ["model", "worker"] &[],
        "Tasks that the engine has accepted and not begun, as it reports.";
    ENGINE_KV_TOTAL: Own Gauge "cascadia_engine_kv_blocks" ["model", "worker"] &[],
        "KV-cache blocks that the engine has; 0 when it has none to count.";
    ENGINE_KV_USAGE: Own Gauge "cascadia_engine_kv_cache_usage_ratio" ["model", "worker"] &[],
        "Part of the KV-cache blocks in use, 0 to 1.";
    ENGINE_TOKENS_CACHED: Own Gauge "cascadia_engine_tokens_cached" ["model", "worker"] &[],
        "Tokens that the engine holds for reuse by its prefix cache.";
    WORKER_UP: Own Gauge "cascadia_worker_up" ["model", "worker"] &[],
        "1 while the worker takes requests, 0 once it failed; absent before it is built and after it is closed.";
    ENGINE_STEPS: Own Counter "cascadia_engine_steps_total" ["model", "worker"] &[],
        "Calls of the engine's step function.";
    WORKER_RESTARTS: Own Counter "cascadia_worker_restarts_total" ["model", "reason"] &[],
        "Engines that were replaced: after a failure, a stall, or by a newer plugin.";
    MODEL_UP: Own Gauge "cascadia_model_up" ["model"] &[],
        "1 while the model answers, 0 while it loads, its engine is down, or it waits for its plugin; also where no worker is left to say so.";
    PLUGIN_GENERATIONS: Own Gauge "cascadia_plugin_generations" ["plugin"] &[],
        "Copies of the plugin that are open in this process; none is ever unloaded. Isolated ones are not among them.";
    PLUGIN_LOAD_ERRORS: Own Counter "cascadia_plugin_load_errors_total" ["stage"] &[],
        "Plugins that could not be brought up, by the stage that failed.";
    PLUGIN_PROTOCOL: Own Counter "cascadia_plugin_protocol_errors_total" ["kind"] &[],
        "Chunks that broke the rules of the plugin boundary and were dropped or repaired.";
    UNKNOWN_FIELDS: Own Counter "cascadia_api_unknown_fields_total" [] &[],
        "Fields of requests that nobody knows and that were ignored; many mean a client that expects another server.";
    BODY_BYTES: Own Gauge "cascadia_request_body_bytes" [] &[],
        "Bytes of request bodies that are held, until each was made into tokens; server.max_bodies_mb bounds them.";
    UNREAD: Own Gauge "cascadia_stream_unread_bytes" [] &[],
        "Bytes of streams that wait for their clients to read, to 4 KiB for each; limits.max_unread_mb bounds them.";
    SLOW_CLIENTS: Own Counter "cascadia_slow_clients_total" [] &[],
        "Streams ended because the client did not read.";
    CONNECTIONS: Own Counter "cascadia_connections_total" [] &[],
        "Connections of clients accepted. Less those that have ended: what is open, which server.max_connections bounds.";
    CONNECTIONS_ENDED: Own Counter "cascadia_connections_ended_total" ["reason"] &[],
        "Connections of clients that have ended, by how.";
    BUILD_INFO: Own Gauge "cascadia_build_info" ["version"] &[],
        "1, with the version of the host.";
}
