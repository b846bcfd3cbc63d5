//! Compiles a model into a folder, or finds it compiled.
//!
//! What must hold: the folder appears under its name complete or not at all; a source that is not supported is refused
//! before anything is written; what was compiled from the same content by the same writer is not compiled again; of
//! several that ask for the same at once, one works and the others wait.

mod cache;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::digest;
use crate::error::Error;
use crate::families::Choices;
use crate::graph::{self, Failure, Tally};
use crate::manifest::{
    BIN, Entry, MANIFEST, Manifest, Origin, Quantized, Shape, Stored, WRITER, Weights, XML,
};
use crate::opened::{Opened, open};
use crate::progress::{Progress, Step, Work};
use crate::quant::{Integer, Rounding};

use cache::Lock;

/// What is to be compiled.
#[derive(Debug, Clone)]
pub struct Request {
    /// A GGUF file, or a folder with `config.json` and safetensors.
    pub source: PathBuf,
    /// Where it goes.
    pub target: Target,
    /// The layers; all where none. The part with layer 0 has the embeddings, the one with the last layer the head.
    pub layers: Option<Range<usize>>,
    /// Rounds floating-point matrices to integers; quantized ones stay as they are.
    pub quantize: Option<Quantize>,
    /// Positions that will be used; decides between the two sets of factors of LongRoPE models.
    pub context: Option<u64>,
}

/// Where a compiled model goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// This folder. It must not exist, or hold exactly what is asked for.
    Folder(PathBuf),
    /// A folder of its own below this one, named by its key; what is damaged there is compiled again.
    Cache(PathBuf),
}

/// How floating-point matrices are rounded: symmetric integers with a scale per group. Embeddings and head get 8 bits and
/// a scale per row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantize {
    /// Of the layers' matrices.
    pub bits: Bits,
    /// Elements of a group; must divide each row. One scale per row where none.
    pub group: Option<NonZeroUsize>,
}

/// Widths of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    /// -8 to 7.
    Four,
    /// -127 to 127.
    Eight,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The folder with `openvino_model.xml`, `openvino_model.bin` and the manifest.
    pub folder: PathBuf,
    /// What it holds.
    pub manifest: Manifest,
    /// Whether it was there already.
    pub cached: bool,
}

/// Compiles a model, or finds it compiled. The lengths of files that are found are checked, their digests only by
/// [`crate::verify`].
///
/// # Errors
/// The source is damaged or not supported, the request is impossible, something cannot be read or written, or
/// `progress` said stop. Nothing is left behind under the target's name.
pub fn compile(request: &Request, progress: &mut dyn Progress) -> Result<Report, Error> {
    let opened = open(&request.source, Choices { context: request.context })?;
    let range = range(request, &opened)?;
    let rounding = request.quantize.map(rounding);
    check_rounding(rounding, &opened, &range)?;
    let mut work = Work::new(progress, &request.source);
    let (parent, known) = match &request.target {
        Target::Cache(folder) => (folder.clone(), Some(folder.join("digests"))),
        Target::Folder(folder) => (parent(folder)?, None),
    };
    let sha256 = cache::digest(&opened.files, known.as_deref(), &mut work)?;
    let key = key(&opened, &sha256, &range, request.quantize);
    let (folder, name) = match &request.target {
        Target::Cache(folder) => (folder.join(&key), key.clone()),
        Target::Folder(folder) => {
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            (folder.clone(), name.unwrap_or_default())
        }
    };
    fs::create_dir_all(&parent).map_err(Error::io("create", &parent))?;
    let lock = Lock::take(&parent.join(format!(".{name}.lock")), &mut work)?;
    if let Some(manifest) = found(request, &folder, &key)? {
        lock.remove_after(&request.target);
        return Ok(Report { folder, manifest, cached: true });
    }
    let partial = cache::Partial::new(&parent, &name)?;
    let origin = Origin { name: file_name(&request.source), kind: opened.kind, sha256 };
    let manifest = write(partial.path(), &opened, range, rounding, (key, origin), &mut work)?;
    partial.publish(&folder)?;
    lock.remove_after(&request.target);
    Ok(Report { folder, manifest, cached: false })
}

fn range(request: &Request, opened: &Opened) -> Result<Range<usize>, Error> {
    let all = opened.model.blocks.len();
    let range = request.layers.clone().unwrap_or(0..all);
    if range.start >= range.end || range.end > all {
        let problem = format!(
            "layers {}..{} of {} are asked for, it has {all}",
            range.start,
            range.end,
            request.source.display()
        );
        return Err(Error::Request(problem));
    }
    Ok(range)
}

fn rounding(quantize: Quantize) -> graph::Request {
    let integer = match quantize.bits {
        Bits::Four => Integer::I4,
        Bits::Eight => Integer::I8,
    };
    graph::Request {
        layers: Rounding { integer, group: quantize.group.map(NonZeroUsize::get) },
        tables: Rounding { integer: Integer::I8, group: None },
    }
}

/// Finds out before anything is written whether the groups divide the rows.
fn check_rounding(
    rounding: Option<graph::Request>,
    opened: &Opened,
    range: &Range<usize>,
) -> Result<(), Error> {
    let Some(rounding) = rounding else { return Ok(()) };
    for block in &opened.model.blocks[range.clone()] {
        let (a, m) = (&block.attention, &block.mlp);
        for linear in [&a.query, &a.key, &a.value, &a.output, &m.gate, &m.up, &m.down] {
            let plain = opened.source.get(&linear.weight.tensor)?.format.is_plain();
            if let Some(problem) = rounding.layers.misfit(linear.inputs).filter(|_| plain) {
                return Err(Error::tensor(opened.source.path(), &linear.weight.tensor, problem));
            }
        }
    }
    Ok(())
}

/// Names all that decides what is written.
fn key(opened: &Opened, sha256: &str, range: &Range<usize>, quantize: Option<Quantize>) -> String {
    let ropes: Vec<String> = opened
        .model
        .ropes
        .iter()
        .map(|rope| {
            let bits: Vec<u32> = rope.frequencies().iter().map(|x| x.to_bits()).collect();
            format!("{bits:?} {:?}", rope.scale().to_bits())
        })
        .collect();
    let all = format!("{WRITER} {sha256} {range:?} {quantize:?} {ropes:?}");
    digest::text(&all)[..32].to_owned()
}

/// What the target holds already.
fn found(request: &Request, folder: &Path, key: &str) -> Result<Option<Manifest>, Error> {
    if !folder.exists() {
        return Ok(None);
    }
    let state = Manifest::open(folder);
    match (&request.target, state) {
        (_, Ok(manifest)) if manifest.key == key => Ok(Some(manifest)),
        (Target::Cache(_), _) => {
            fs::remove_dir_all(folder).map_err(Error::io("remove damaged", folder))?;
            Ok(None)
        }
        (Target::Folder(_), state) => {
            let what = match state {
                Ok(_) => "holds another model".to_owned(),
                Err(error) => format!("exists and is no such model ({error})"),
            };
            Err(Error::Request(format!("{} {what}; remove it or choose another folder", folder.display())))
        }
    }
}

/// Writes all files of the folder, the manifest last.
fn write(
    folder: &Path,
    opened: &Opened,
    range: Range<usize>,
    rounding: Option<graph::Request>,
    (key, source): (String, Origin),
    work: &mut Work,
) -> Result<Manifest, Error> {
    let path = folder.join(BIN);
    let file = File::create(&path).map_err(Error::io("create", &path))?;
    work.begin(Step::Weights, cache::length(&opened.files)?)?;
    let mut count = |bytes| work.add(bytes);
    let data = BufWriter::with_capacity(1 << 20, file);
    let model = &opened.model;
    let drawn = graph::draw(model, &opened.source, range.clone(), rounding, data, &mut count);
    let drawn = drawn.map_err(|failure| match failure {
        Failure::Write(error) => Error::io("write", &path)(error),
        Failure::Other(error) => error,
    })?;
    let written = drawn.data;
    let file = written.data.into_inner().map_err(|e| Error::io("write", &path)(e.into_error()))?;
    file.sync_all().map_err(Error::io("write", &path))?;
    let bin = Entry { bytes: written.bytes, sha256: digest::hex(&written.digest) };
    let xml = Entry { bytes: drawn.text.len() as u64, sha256: digest::text(&drawn.text) };
    put(&folder.join(XML), drawn.text.as_bytes())?;
    let shape = Shape {
        family: model.family.clone(),
        hidden: model.hidden,
        vocab: model.vocab,
        context: model.context,
        layers: model.blocks.len(),
        first: range.start,
        end: range.end,
        paged: !model.caps_scores(),
    };
    let files = [(BIN.to_owned(), bin), (XML.to_owned(), xml)].into();
    let manifest =
        Manifest { writer: WRITER, key, source, model: shape, weights: weights(drawn.tally), files };
    // PANIC: the manifest has text keys and finite numbers only.
    let text = serde_json::to_string_pretty(&manifest).expect("a manifest is json");
    put(&folder.join(MANIFEST), text.as_bytes())?;
    Ok(manifest)
}

fn weights(tally: Tally) -> Weights {
    let formats = tally
        .formats
        .into_iter()
        .map(|(format, (tensors, bytes))| (format!("{format:?}"), Stored { tensors, bytes }));
    let quantized = tally.rounded.into_iter().map(|(tensor, error)| Quantized { tensor, error }).collect();
    Weights { formats: formats.collect(), rounded_zeros: tally.rounded_zeros, quantized }
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file = File::create(path).map_err(Error::io("create", path))?;
    file.write_all(bytes).map_err(Error::io("write", path))?;
    file.sync_all().map_err(Error::io("write", path))
}

fn parent(folder: &Path) -> Result<PathBuf, Error> {
    match (folder.parent(), folder.file_name()) {
        (Some(parent), Some(_)) if parent.as_os_str().is_empty() => Ok(PathBuf::from(".")),
        (Some(parent), Some(_)) => Ok(parent.to_owned()),
        _ => Err(Error::Request(format!("{} names no folder to write to", folder.display()))),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
