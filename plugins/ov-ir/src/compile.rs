//! Compiles a model into a folder, or finds it compiled.
//!
//! What must hold: the folder appears under its name complete or not at all; a source that is not supported is refused
//! before anything is written; what was compiled from the same content by the same writer is not compiled again; of
//! several that ask for the same at once, one works and the others wait.

mod cache;
mod write;

use std::fs;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::digest;
use crate::error::Error;
use crate::families::Choices;
use crate::graph;
use crate::manifest::{Manifest, Origin, WRITER};
use crate::opened::{Content, Opened, open};
use crate::progress::{Progress, Work};
use crate::prune;
use crate::quant::{Integer, Rounding};
use crate::verify::whole;

pub(crate) use cache::Lock;
use write::Job;

/// What is to be compiled.
#[derive(Debug, Clone)]
pub struct Request {
    /// A GGUF file, a folder with `config.json` and safetensors, or one with a ready-made network, which is cut.
    pub source: PathBuf,
    /// Where it goes.
    pub target: Target,
    /// The layers; all where none. The part with layer 0 has the embeddings, the one with the last layer the head.
    pub layers: Option<Range<usize>>,
    /// Rounds floating-point matrices to integers; quantized ones stay as they are.
    pub quantize: Option<Quantize>,
    /// Rounds those quantized matrices to signed integers of 8 bits in groups of 32 whose own groups have an offset or are smaller. These,
    /// and no others, OpenVINO's CPU device multiplies with activations of 8 bits, where it computes in f32.
    pub symmetric: bool,
    /// Positions that will be used; decides between the two sets of factors of LongRoPE models.
    pub context: Option<u64>,
}

impl Request {
    /// All of a model, with its weights as they are.
    #[must_use]
    pub fn whole(source: PathBuf, target: Target) -> Self {
        Self { source, target, layers: None, quantize: None, symmetric: false, context: None }
    }
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

/// Compiles a model, or finds it compiled. What a cache has is compared with its digests, so that nothing damaged is
/// handed out; of a folder of the caller's only the lengths of files are checked (see [`crate::verify`]).
///
/// # Errors
/// The source is damaged or not supported, the request is impossible, something cannot be read or written, or
/// `progress` said stop. Nothing is left behind under the target's name.
pub fn compile(request: &Request, progress: &mut dyn Progress) -> Result<Report, Error> {
    let opened = open(&request.source, Choices { context: request.context })?;
    let range = range(request, &opened)?;
    let rounding = graph::Request { plain: request.quantize.map(rounding), symmetric: request.symmetric };
    check_rounding(rounding.plain, &opened, &range)?;
    let mut work = Work::new(progress, &request.source);
    let (parent, known) = match &request.target {
        Target::Cache(folder) => (folder.clone(), Some(folder.join("digests"))),
        Target::Folder(folder) => (parent(folder)?, None),
    };
    let digests = cache::digests(&opened.files, known.as_deref(), &mut work)?;
    let sha256 = match digests.as_slice() {
        [one] => one.clone(),
        all => digest::of(all.join("\n")),
    };
    let key = key(&opened, &sha256, &range, request);
    let (folder, name) = match &request.target {
        Target::Cache(folder) => (folder.join(&key), key.clone()),
        Target::Folder(folder) => {
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            (folder.clone(), name.unwrap_or_default())
        }
    };
    fs::create_dir_all(&parent).map_err(Error::io("create", &parent))?;
    let lock = Lock::take(&parent.join(format!(".{name}.lock")), &mut work)?;
    if let Some(manifest) = found(request, &folder, &key, &mut work)? {
        lock.remove_after(&request.target);
        return Ok(Report { folder, manifest, cached: true });
    }
    let partial = cache::Partial::new(&parent, &name)?;
    let origin = Origin { name: file_name(&request.source), kind: opened.kind, sha256 };
    let job = Job { folder: partial.path(), range, rounding, key, origin, digests };
    let manifest = write::write(job, &opened, &mut work)?;
    partial.publish(&folder)?;
    lock.remove_after(&request.target);
    Ok(Report { folder, manifest, cached: false })
}

fn range(request: &Request, opened: &Opened) -> Result<Range<usize>, Error> {
    let all = opened.layers();
    let range = request.layers.clone().unwrap_or(0..all);
    let rounds = request.quantize.is_some() || request.symmetric;
    if matches!(opened.content, Content::Network(_)) && (range == (0..all) || rounds) {
        let problem = format!(
            "{} is compiled already; it can be cut into layers, nothing else",
            request.source.display()
        );
        return Err(Error::Request(problem));
    }
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

fn rounding(quantize: Quantize) -> graph::Plain {
    let integer = match quantize.bits {
        Bits::Four => Integer::I4,
        Bits::Eight => Integer::I8,
    };
    graph::Plain {
        layers: Rounding { integer, group: quantize.group.map(NonZeroUsize::get) },
        tables: Rounding { integer: Integer::I8, group: None },
    }
}

/// Finds out before anything is written whether the groups divide the rows.
fn check_rounding(
    rounding: Option<graph::Plain>,
    opened: &Opened,
    range: &Range<usize>,
) -> Result<(), Error> {
    let (Some(rounding), Content::Model(model, source)) = (rounding, &opened.content) else {
        return Ok(());
    };
    for block in &model.blocks[range.clone()] {
        let (a, m) = (&block.attention, &block.mlp);
        for linear in [&a.query, &a.key, &a.value, &a.output, &m.gate, &m.up, &m.down] {
            let plain = source.get(&linear.weight.tensor)?.format.is_plain();
            if let Some(problem) = rounding.layers.misfit(linear.inputs).filter(|_| plain) {
                return Err(Error::tensor(source.path(), &linear.weight.tensor, problem));
            }
        }
    }
    Ok(())
}

/// Names all that decides what is written.
fn key(opened: &Opened, sha256: &str, range: &Range<usize>, request: &Request) -> String {
    let ropes = match &opened.content {
        Content::Model(model, _) => model.ropes.as_slice(),
        Content::Network(_) => &[],
    };
    let ropes: Vec<String> = ropes
        .iter()
        .map(|rope| {
            let bits: Vec<u32> = rope.frequencies().iter().map(|x| x.to_bits()).collect();
            format!("{bits:?} {:?}", rope.scale().to_bits())
        })
        .collect();
    let (quantize, symmetric) = (request.quantize, if request.symmetric { " symmetric" } else { "" });
    let all = format!("{WRITER} {sha256} {range:?} {quantize:?} {ropes:?}{symmetric}");
    digest::of(&all)[..32].to_owned()
}

/// What the target holds already.
fn found(request: &Request, folder: &Path, key: &str, work: &mut Work) -> Result<Option<Manifest>, Error> {
    if !folder.exists() {
        return Ok(None);
    }
    let state = match &request.target {
        Target::Cache(_) => whole(folder, work),
        Target::Folder(_) => Manifest::open(folder),
    };
    match (&request.target, state) {
        (_, Err(stopped @ Error::Cancelled { .. })) => Err(stopped),
        (Target::Cache(_), Ok(manifest)) if manifest.key == key => {
            prune::touch(folder);
            Ok(Some(manifest))
        }
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
