//! A model that is compiled into the cache, or found there.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use cascadia_ov_ir::{self as ov_ir, Manifest, Report, Request, Step, Target};
use cascadia_plugin_api::sdk::{Error, Level, Progress, Result, log};

use super::{Keep, Ready, refused};
use crate::surroundings;

/// Between two words to the host, which answers whether to go on.
const TELL: Duration = Duration::from_millis(100);

/// See [`super::Source::ready`].
pub(super) fn ready(path: &Path, keep: &Keep, progress: &Progress) -> Result<Ready> {
    let cache = match &keep.cache_dir {
        Some(folder) => folder.clone(),
        None => surroundings::user_cache().ok_or_else(|| {
            Error::config(
                "neither XDG_CACHE_HOME nor HOME is set; name a folder for compiled models with --cache-dir",
            )
        })?,
    };
    let request = Request {
        symmetric: keep.symmetric,
        context: (keep.context_length > 0).then_some(keep.context_length.into()),
        ..Request::whole(path.to_owned(), Target::Cache(cache.clone()))
    };
    let begun = Instant::now();
    let mut teller = Teller { progress, last: None };
    let mut report = ov_ir::compile(&request, &mut teller);
    if report.as_ref().is_err_and(is_full) && prune(&cache, keep.cache_limit) {
        report = ov_ir::compile(&request, &mut teller);
    }
    let report = report.map_err(|e| refused(&e))?;
    tell(&report, begun.elapsed());
    prune(&cache, keep.cache_limit);
    Ok(Ready { note: Some(note(&report.manifest)), path: report.folder })
}

/// Passes on how far it is, not more often than anyone can read.
struct Teller<'a> {
    progress: &'a Progress,
    last: Option<(Step, Instant)>,
}

impl ov_ir::Progress for Teller<'_> {
    fn at(&mut self, step: Step, done: u64, total: u64) -> ControlFlow<()> {
        let now = Instant::now();
        let quiet =
            |(last, at): (Step, Instant)| last == step && now.duration_since(at) < TELL && done < total;
        if self.last.is_some_and(quiet) {
            return ControlFlow::Continue(());
        }
        self.last = Some((step, now));
        let phase = match step {
            Step::Digest => "digest",
            Step::Wait => "wait for another that compiles the same",
            Step::Weights => "compile",
        };
        match self.progress.report(phase, done, total) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

fn tell(report: &Report, took: Duration) {
    let message = if report.cached { "compiled model found in the cache" } else { "model compiled" };
    let bytes: u64 = report.manifest.files.values().map(|file| file.bytes).sum();
    let (folder, bytes) = (report.folder.display().to_string(), bytes.to_string());
    let seconds = format!("{:.1}", took.as_secs_f64());
    log(Level::Info, "compile", message, &[("folder", &folder), ("bytes", &bytes), ("seconds", &seconds)]);
}

/// What became of the weights, for the card.
fn note(manifest: &Manifest) -> String {
    let formats: Vec<String> =
        manifest.weights.formats.iter().map(|(name, stored)| format!("{name} {}", stored.tensors)).collect();
    let rounded = match manifest.weights.rounded_zeros {
        0 => String::new(),
        n => format!("; the zero points of {n} are rounded to f32"),
    };
    let left_out: Vec<&str> = manifest.weights.left_out.keys().map(String::as_str).collect();
    let left_out = match left_out.as_slice() {
        [] => String::new(),
        names => format!("; text only, {} left out", names.join(" and ")),
    };
    let (family, formats) = (&manifest.model.family, formats.join(", "));
    let (how, symmetric) = match manifest.weights.quantized.len() {
        0 => (" as they are stored", String::new()),
        n => ("", format!("; {n} of them rounded to 8 bits without zero points")),
    };
    format!("weights compiled{how} ({family}; matrices by type: {formats}{symmetric}{rounded}{left_out})")
}

fn is_full(error: &ov_ir::Error) -> bool {
    matches!(error, ov_ir::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
}

/// Whether something was removed. A cache over its bound is a nuisance, no reason not to serve.
fn prune(cache: &Path, gigabytes: u64) -> bool {
    if gigabytes == 0 {
        return false;
    }
    match ov_ir::prune(cache, gigabytes.saturating_mul(1_000_000_000)) {
        Ok(pruned) if pruned.removed.is_empty() => false,
        Ok(pruned) => {
            let (names, left) = (pruned.removed.join(" "), pruned.left.to_string());
            let fields = [("removed", names.as_str()), ("bytes_left", &left)];
            log(Level::Info, "compile", "compiled models removed from the cache", &fields);
            true
        }
        Err(error) => {
            let error = refused(&error).message;
            log(Level::Warn, "compile", "the cache of compiled models was not pruned", &[("error", &error)]);
            false
        }
    }
}
