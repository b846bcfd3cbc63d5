//! `model compile`, `inspect` and `verify`: model files without a host, by the compiler's library.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;

use cascadia_ov_ir::{
    self as ov_ir, Bits, Description, Inspection, Manifest, Quantize, Request, Step, Stored, Target,
};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{USAGE, complain, say};

/// What to compile.
#[derive(Args)]
pub(in crate::cli) struct Compile {
    /// A GGUF file, the first of several (m-00001-of-00003.gguf), or a folder with config.json and safetensors.
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// The folder to write; it must not exist, or hold exactly this.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Write to a folder below FOLDER that is named by the content, unless it is there already.
    #[arg(long)]
    cache: bool,
    /// Only these layers, the second not included; for a stage of a pipeline.
    #[arg(long, value_name = "FIRST..END", value_parser = layers)]
    layers: Option<Range<usize>>,
    /// Round floating-point matrices to integers. Those that are quantized stay as they are.
    #[arg(long, value_name = "TYPE")]
    quantize: Option<Width>,
    /// Elements that share a scale; a whole row where this is not given.
    #[arg(long, value_name = "N", requires = "quantize")]
    group: Option<NonZeroUsize>,
    /// Round what was quantized with offsets or in groups of 16 to 8 bits in groups of 32, as the profile fast does.
    #[arg(long)]
    symmetric: bool,
    /// Positions that will be used, for models with factors for short and for long texts.
    #[arg(long, value_name = "N")]
    context: Option<u64>,
    /// Print the manifest as JSON.
    #[arg(long)]
    json: bool,
}

/// What to describe.
#[derive(Args)]
pub(in crate::cli) struct Inspect {
    /// A GGUF file, the first of several, a folder with safetensors or a compiled model.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What to verify.
#[derive(Args)]
pub(in crate::cli) struct Verify {
    /// A compiled model.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Print the manifest as JSON.
    #[arg(long)]
    json: bool,
}

/// Integers to round to.
#[derive(Clone, Copy, ValueEnum)]
enum Width {
    Int4,
    Int8,
}

fn layers(text: &str) -> Result<Range<usize>, String> {
    let (first, end) = text.split_once("..").ok_or("give them as FIRST..END")?;
    let number = |part: &str| part.parse::<usize>().map_err(|_| format!("{part:?} is no number"));
    Ok(number(first)?..number(end)?)
}

pub(super) fn compile(flags: &Compile) -> i32 {
    let target = match flags.cache {
        true => Target::Cache(flags.folder.clone()),
        false => Target::Folder(flags.folder.clone()),
    };
    let quantize = flags.quantize.map(|width| Quantize {
        bits: match width {
            Width::Int4 => Bits::Four,
            Width::Int8 => Bits::Eight,
        },
        group: flags.group,
    });
    let (source, layers, context) = (flags.source.clone(), flags.layers.clone(), flags.context);
    let request = Request { source, target, layers, quantize, symmetric: flags.symmetric, context };
    let report = match ov_ir::compile(&request, &mut show) {
        Ok(report) => report,
        Err(error) => return failed(error),
    };
    if flags.json {
        return json(&report.manifest);
    }
    let found = if report.cached { ", found" } else { "" };
    say(&format!("{}{found}\n{}", report.folder.display(), manifest(&report.manifest)));
    0
}

pub(super) fn inspect(flags: &Inspect) -> i32 {
    match ov_ir::inspect(&flags.path) {
        Err(error) => failed(error),
        Ok(found) if flags.json => json(&found),
        Ok(Inspection::Compiled(found)) => {
            say(&manifest(&found));
            0
        }
        Ok(Inspection::Network { layers, hidden, vocab }) => {
            say(&format!("network    {layers} layers, hidden {hidden}, vocabulary {vocab}"));
            0
        }
        Ok(Inspection::Source(found)) => {
            say(&source(&found));
            0
        }
    }
}

pub(super) fn verify(flags: &Verify) -> i32 {
    match ov_ir::verify(&flags.folder, &mut show) {
        Err(error) => failed(error),
        Ok(found) if flags.json => json(&found),
        Ok(found) => {
            say(&format!("{} is what was written\n{}", flags.folder.display(), manifest(&found)));
            0
        }
    }
}

/// A line that is written over, where a person watches.
fn show(step: Step, done: u64, total: u64) -> ControlFlow<()> {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let what = match step {
            Step::Digest => "reading",
            Step::Wait => "waiting for another that compiles the same",
            Step::Weights => "writing",
        };
        let share = (done * 100).checked_div(total).map_or(String::new(), |share| format!(" {share} %"));
        let end = if total > 0 && done == total { "\r\x1b[K" } else { "" };
        drop(write!(out, "\r\x1b[K{what}{share}{end}"));
    }
    ControlFlow::Continue(())
}

/// An error with its sources; those of the library name the file, the sources what the system said.
fn failed(error: ov_ir::Error) -> i32 {
    let usage = matches!(error, ov_ir::Error::Request(_));
    let mut text = error.to_string();
    let mut next = std::error::Error::source(&error);
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    complain(&text, if usage { USAGE } else { 1 })
}

fn json(value: &impl Serialize) -> i32 {
    match serde_json::to_string_pretty(value) {
        Ok(text) => {
            say(&text);
            0
        }
        Err(error) => complain(&error.to_string(), 1),
    }
}

fn manifest(m: &Manifest) -> String {
    let s = &m.model;
    let mut lines = vec![
        format!("from       {} (sha256 {})", m.source.name, m.source.sha256),
        format!("family     {}, layers {}..{} of {}", s.family, s.first, s.end, s.layers),
        format!("sizes      hidden {}, vocabulary {}", s.hidden, s.vocab),
        format!("batching   {}", batching(s.paged)),
    ];
    lines.extend(m.weights.formats.iter().map(|(name, stored)| {
        format!("weights    {name}: {} matrices, {} bytes", stored.tensors, stored.bytes)
    }));
    if m.weights.rounded_zeros > 0 {
        let count = m.weights.rounded_zeros;
        lines.push(format!("rounded    zero points of {count} matrices, by at most 2^-24 of the offset"));
    }
    if let Some(worst) = m.weights.quantized.iter().max_by(|a, b| a.error.total_cmp(&b.error)) {
        let count = m.weights.quantized.len();
        let text =
            format!("quantized  {count} matrices; the worst, {}, lost {:.2e}", worst.tensor, worst.error);
        lines.push(text);
    }
    lines.extend(left_out(&m.weights.left_out));
    lines.extend(
        m.files.iter().map(|(name, e)| format!("file       {name}: {} bytes, {}", e.bytes, e.sha256)),
    );
    lines.join("\n")
}

fn source(d: &Description) -> String {
    let known = d.context.map_or("not said".to_owned(), |n| n.to_string());
    let table = if d.tied { ", tied" } else { "" };
    let mut lines = vec![
        format!("family     {}, {} layers", d.family, d.layers),
        format!("sizes      hidden {}, vocabulary {}{table}, context {known}", d.hidden, d.vocab),
        format!("heads      {} of {}, {} for keys and values", d.heads, d.head_dim, d.kv_heads),
        format!("batching   {}", batching(d.paged)),
    ];
    lines.extend(d.windows.iter().map(|(window, count)| format!("window     {window} in {count} layers")));
    lines.extend(
        d.formats.iter().map(|(name, s)| format!("tensors    {name}: {}, {} bytes", s.tensors, s.bytes)),
    );
    lines.extend(left_out(&d.left_out));
    lines.join("\n")
}

/// What of a model is not compiled: the part that takes pictures.
fn left_out(parts: &BTreeMap<String, Stored>) -> impl Iterator<Item = String> {
    parts.iter().map(|(name, stored)| {
        format!(
            "left out   {name}: {} tensors, {} bytes; it takes text, no pictures",
            stored.tensors, stored.bytes
        )
    })
}

fn batching(paged: bool) -> &'static str {
    if paged { "continuous" } else { "one at a time (capped attention scores)" }
}
