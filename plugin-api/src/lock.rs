//! The layout of every table as text. `abi.lock` is the committed copy; a test holds both equal.
//!
//! Each plugin carries the hash of every line in its manifest, and a host refuses a plugin that was built against another
//! draft of a table both know. [`crate::frozen`] says which tables are drafts no more.

use std::fmt::Write;

/// The committed layout: one line per table.
pub const TEXT: &str = include_str!("../abi.lock");

/// One field of a table.
pub struct Field {
    /// Name in Rust and C.
    pub name: &'static str,
    /// Offset in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// Type as written, so that a changed signature shows even where the size does not.
    pub ty: &'static str,
}

/// A struct of the boundary; implemented by the macro that declares it.
pub trait Layout: Sized {
    /// Name in the C header.
    const C_NAME: &'static str;
    /// Its fields in order.
    const FIELDS: &'static [Field];

    /// `name size=N align=N; field@offset:size type; ...`
    fn line() -> String {
        let mut line = format!("{} size={} align={}", Self::C_NAME, size_of::<Self>(), align_of::<Self>());
        for f in Self::FIELDS {
            let ty = f.ty.split_whitespace().collect::<Vec<_>>().join(" ");
            // Writing to a String cannot fail.
            write!(line, "; {}@{}:{} {ty}", f.name, f.offset, f.size).unwrap_or_default();
        }
        line
    }
}

macro_rules! every_table {
    ($with:ident) => {
        $with! {
            crate::abi::prim::Str, crate::abi::prim::Array, crate::abi::prim::Kv, crate::abi::prim::ErrOut,
            crate::abi::prim::StrOut, crate::abi::prim::Progress, crate::abi::entry::Entry, crate::abi::entry::HostV1,
            crate::abi::plugin::EngineInfo, crate::abi::plugin::PluginV1, crate::abi::builder::Shard,
            crate::abi::builder::Peer, crate::abi::builder::BuilderV1, crate::abi::engine::Sink,
            crate::abi::engine::StepOut, crate::abi::engine::EngineV1, crate::abi::task::Trace,
            crate::abi::task::Grammar, crate::abi::task::LogitBias, crate::abi::task::Attachment,
            crate::abi::task::Task, crate::abi::chunk::Chunk, crate::abi::host::LogV1, crate::abi::host::MetricsV1,
            crate::abi::host::ClockV1, crate::abi::host::CancelV1, crate::abi::host::WakeV1,
            crate::abi::host::HeartbeatV1, crate::abi::host::DlopenV1, crate::abi::host::TraceV1,
            crate::abi::host::FaultV1, crate::abi::host::IoVec,
            crate::abi::host::FrameOut, crate::abi::host::TransportV1, crate::ext::ModelCardV1,
            crate::ext::LoadReport, crate::ext::LoadReportV1, crate::ext::draft::kv_events::KvEvent,
            crate::ext::draft::kv_events::KvEventsOut, crate::ext::draft::kv_events::KvEventsV1,
            crate::ext::draft::token_mask::MaskRequest, crate::ext::draft::token_mask::MaskFiller,
            crate::ext::draft::token_mask::TokenMaskV1, crate::ext::draft::tokenize::TokensOut,
            crate::ext::draft::tokenize::TokenizeV1, crate::ext::draft::embeddings::EmbedInput,
            crate::ext::draft::embeddings::EmbedTask, crate::ext::draft::embeddings::Embedding,
            crate::ext::draft::embeddings::EmbedOut, crate::ext::draft::embeddings::EmbedInfo,
            crate::ext::draft::embeddings::EmbeddingsV1, crate::ext::draft::stage::StageRow,
            crate::ext::draft::stage::StageSequence, crate::ext::draft::stage::StageBatch,
            crate::ext::draft::stage::StageToken, crate::ext::draft::stage::StageRefusal,
            crate::ext::draft::stage::StageOut, crate::ext::draft::stage::StageInfo,
            crate::ext::draft::stage::StageV1, crate::ext::draft::kv_state::KvStateOut,
            crate::ext::draft::kv_state::KvStateIn, crate::ext::draft::kv_state::KvStateV1,
            crate::ext::draft::adapters::AdapterSpec, crate::ext::draft::adapters::AdapterInfo,
            crate::ext::draft::adapters::AdaptersOut, crate::ext::draft::adapters::AdaptersV1,
            crate::ext::draft::pause::PauseV1, crate::ext::draft::async_sink::AsyncSinkV1
        }
    };
}
#[cfg(feature = "proof")]
pub(crate) use every_table;

/// The layout as this build sees it, in the form of `abi.lock`.
pub fn current() -> String {
    macro_rules! lines { ($($t:ty),*) => { [$(<$t as Layout>::line()),*] } }
    let mut text = every_table!(lines).join("\n");
    text.push('\n');
    text
}

const fn fnv(text: &[u8], from: usize, to: usize) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = from;
    while i < to {
        hash = (hash ^ text[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// FNV-1a of one line of the lock, as 16 hexadecimal digits; the form the manifest carries.
pub fn hash(line: &str) -> String {
    format!("{:016x}", fnv(line.as_bytes(), 0, line.len()))
}

/// `(table name, hash)` of every line of the committed lock.
pub fn hashes() -> impl Iterator<Item = (&'static str, String)> {
    TEXT.lines().filter_map(|line| line.split_once(' ').map(|(name, _)| (name, hash(line))))
}

/// Length of [`hashes_json`]'s text for the committed lock.
pub(crate) const HASHES_JSON_LEN: usize = write_hashes(&mut []);

/// The committed lock's hashes as the inside of a JSON object, computed by the compiler: `"name":"hash",...`.
pub(crate) const HASHES_JSON: [u8; HASHES_JSON_LEN] = {
    let mut out = [0_u8; HASHES_JSON_LEN];
    write_hashes(&mut out);
    out
};

/// Writes as much as fits into `out`; answers the length that is needed.
const fn write_hashes(out: &mut [u8]) -> usize {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let text = TEXT.as_bytes();
    let (mut at, mut line) = (0, 0);
    while line < text.len() {
        let mut end = line;
        while text[end] != b'\n' {
            end += 1;
        }
        if line > 0 {
            at = put(out, at, b',');
        }
        at = put(out, at, b'"');
        let mut name = line;
        while text[name] != b' ' {
            at = put(out, at, text[name]);
            name += 1;
        }
        at = put(out, at, b'"');
        at = put(out, at, b':');
        at = put(out, at, b'"');
        let hash = fnv(text, line, end);
        let mut shift = 64;
        while shift > 0 {
            shift -= 4;
            at = put(out, at, HEX[(hash >> shift) as usize & 15]);
        }
        at = put(out, at, b'"');
        line = end + 1;
    }
    at
}

const fn put(out: &mut [u8], at: usize, byte: u8) -> usize {
    if at < out.len() {
        out[at] = byte;
    }
    at + 1
}
