//! What travels between the host and the child of an isolated plugin, and the control messages among it as values.
//!
//! A frame is its length (4 bytes), its kind (4 bytes) and as many bytes, rounded up to a multiple of eight.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::pack::{Packer, Short, Unpacker};
use crate::generate::Failure;
use crate::plugins::Card;
use crate::plugins::failed::{Failed, failure};

/// Longest frame; what is longer is refused before it is sent, and ends the child when it comes from there.
pub(super) const MAX: usize = 64 << 20;
/// Bytes before a frame's own.
pub(super) const HEAD: usize = 8;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// Kind of a frame.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub(super) enum Frame { $($(#[$doc])* $name = $number,)* }

        impl Frame {
            pub(super) fn of(number: u32) -> Option<Frame> {
                match number { $($number => Some(Frame::$name),)* _ => None }
            }
        }
    };
}

kinds! {
    /// To the child: [`Build`].
    Build = 1,
    /// To the child: a task.
    Submit = 2,
    /// To the child: id of a task.
    Cancel = 3,
    /// To the child: the build is not wanted any more.
    GiveUp = 4,
    /// To the child: end within so many milliseconds.
    Close = 5,
    /// To the child: the number of the most detailed log level.
    Level = 6,
    /// The engine is built: [`Built`].
    Built = 16,
    /// It is not: [`Unbuilt`].
    Unbuilt = 17,
    /// What became of a submitted task: its id, then a code with its words.
    Taken = 18,
    /// A push.
    Chunks = 19,
    /// The engine as a whole failed: a code with its words.
    Failed = 20,
    /// Load and heartbeats.
    Report = 21,
    /// A series of the plugin's: [`Series`].
    Series = 22,
    /// Values of series.
    Values = 23,
    /// A line for the log: [`Line`].
    Line = 24,
    /// Breaches of the boundary's rules, a word for each kind.
    Breaches = 26,
    /// What is counted of links between stages: [`crate::telemetry::transport::carried::Told`].
    Links = 27,
    /// The engine has ended: a code with its words.
    Closed = 25,
}

/// What to build.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Build {
    /// The plugin's file; its bytes come apart from it.
    pub(super) library: PathBuf,
    /// Where a private copy may lie when it may not lie beside the file.
    pub(super) cache: Option<PathBuf>,
    pub(super) engine: String,
    pub(super) options: BTreeMap<String, String>,
    pub(super) path: Option<PathBuf>,
    pub(super) model: String,
}

/// An engine that was built.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Built {
    pub(super) card: Card,
    pub(super) load_us: u64,
    pub(super) warmup_us: u64,
    pub(super) proved: bool,
}

/// Why none was built.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Unbuilt {
    /// Who is at fault: file or id.
    pub(super) plugin: String,
    /// Name of the stage.
    pub(super) stage: String,
    pub(super) message: String,
    pub(super) code: Option<u32>,
}

/// A series that the plugin registered.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Series {
    /// The child's handle.
    pub(super) handle: u64,
    pub(super) kind: crate::telemetry::plugin_metrics::Kind,
    pub(super) name: String,
    pub(super) help: String,
    pub(super) labels: Vec<(String, String)>,
    pub(super) buckets: Vec<f64>,
}

/// A line of the child's log.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Line {
    /// 1 = error ... 5 = trace.
    pub(super) level: u32,
    /// The part of the plugin, or empty for the host's own code in the child.
    pub(super) part: Option<String>,
    /// What the span around it says of itself.
    pub(super) span: Option<String>,
    pub(super) text: String,
}

/// Writes a code with its words.
pub(super) fn pack_failure(out: &mut Packer, code: u32, message: &str, details: &str) {
    out.word(code.into());
    out.text(message.as_bytes());
    out.text(details.as_bytes());
}

/// As [`pack_failure`], for what a call into the plugin answered.
pub(super) fn pack_answer(out: &mut Packer, answer: Result<(), (u32, Failed)>) {
    match answer {
        Ok(()) => pack_failure(out, 0, "", ""),
        Err((code, failed)) => {
            let (message, details) = failed.into_parts();
            pack_failure(out, code, &message, &details);
        }
    }
}

/// Reads a code with its words; success is none.
pub(super) fn unpack_failure(from: &mut Unpacker<'_>) -> Result<Option<Failure>, Short> {
    let code = u32::try_from(from.word()?).unwrap_or(u32::MAX);
    let (message, details) = (from.line()?, from.line()?);
    Ok((code != 0).then(|| failure(code, message, details)))
}
