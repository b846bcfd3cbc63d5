//! Writes the files of a compiled model, the manifest last.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use cascadia_gguf::{Gguf, VOCABULARY};

use super::cache;
use crate::cut::Ready;
use crate::digest;
use crate::error::Error;
use crate::graph::{self, Failure, Tally};
use crate::manifest::{
    BIN, Entry, MANIFEST, Manifest, Origin, Quantized, Shape, Stored, WRITER, Weights, XML,
};
use crate::model::Model;
use crate::opened::{Content, Kind, Opened};
use crate::progress::{Step, Work};
use crate::source::Source;

/// What is to be written into a folder.
pub(super) struct Job<'a> {
    pub(super) folder: &'a Path,
    pub(super) range: Range<usize>,
    pub(super) rounding: graph::Request,
    pub(super) key: String,
    pub(super) origin: Origin,
    /// Digests of the source's files, in their order.
    pub(super) digests: Vec<String>,
}

/// What the manifest is made of, beside what is known before.
struct Done {
    shape: Shape,
    weights: Weights,
    bin: Entry,
    text: String,
}

/// Writes all files.
pub(super) fn write(job: Job, opened: &Opened, work: &mut Work) -> Result<Manifest, Error> {
    work.begin(Step::Weights, cache::length(&opened.files)?)?;
    let done = match &opened.content {
        Content::Model(model, source) => draw(&job, model, source, work)?,
        Content::Network(ready) => cut(&job, ready, work)?,
    };
    let mut files: BTreeMap<String, Entry> = [(BIN.to_owned(), done.bin)].into();
    for (path, sha256) in
        opened.files.iter().zip(&job.digests).filter(|(path, _)| opened.copied.contains(path))
    {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let copy = job.folder.join(&name);
        let bytes = fs::copy(path, &copy).map_err(Error::io("write", &copy))?;
        files.insert(name, Entry { bytes, sha256: sha256.clone() });
    }
    if opened.kind == Kind::Gguf {
        files.insert(VOCABULARY.to_owned(), vocabulary(&opened.files[0], job.folder)?);
    }
    let xml = Entry { bytes: done.text.len() as u64, sha256: digest::of(&done.text) };
    put(&job.folder.join(XML), done.text.as_bytes())?;
    files.insert(XML.to_owned(), xml);
    let manifest = Manifest {
        writer: WRITER,
        key: job.key,
        source: job.origin,
        model: done.shape,
        weights: done.weights,
        files,
    };
    // PANIC: the manifest has text keys and finite numbers only.
    let text = serde_json::to_string_pretty(&manifest).expect("a manifest is json");
    put(&job.folder.join(MANIFEST), text.as_bytes())?;
    work.finish()?;
    Ok(manifest)
}

fn draw(job: &Job, model: &Model, source: &Source, work: &mut Work) -> Result<Done, Error> {
    let path = job.folder.join(BIN);
    let file = File::create(&path).map_err(Error::io("create", &path))?;
    let mut count = |bytes| work.add(bytes);
    let data = BufWriter::with_capacity(1 << 20, file);
    let drawn = graph::draw(model, source, job.range.clone(), job.rounding, data, &mut count);
    let drawn = drawn.map_err(|failure| match failure {
        Failure::Write(error) => Error::io("write", &path)(error),
        Failure::Other(error) => error,
    })?;
    let written = drawn.data;
    let file = written.data.into_inner().map_err(|e| Error::io("write", &path)(e.into_error()))?;
    file.sync_all().map_err(Error::io("write", &path))?;
    let shape = Shape {
        family: model.family.clone(),
        hidden: model.hidden,
        vocab: model.vocab,
        context: model.context,
        layers: model.blocks.len(),
        first: job.range.start,
        end: job.range.end,
        paged: !model.caps_scores(),
    };
    let bin = Entry { bytes: written.bytes, sha256: digest::hex(&written.digest) };
    let weights = Weights { left_out: model.left_out.clone(), ..weights(drawn.tally) };
    Ok(Done { shape, weights, bin, text: drawn.text })
}

/// What the model's folder is served with by itself: the tokens, and the template of chats.
fn vocabulary(gguf: &Path, folder: &Path) -> Result<Entry, Error> {
    let open = || File::open(gguf).map_err(Error::io("open", gguf));
    let header = Gguf::read(open()?).map_err(|source| Error::Gguf { path: gguf.to_owned(), source })?;
    let mut bytes = Vec::new();
    header.copy_metadata(open()?, &mut bytes).map_err(Error::io("read", gguf))?;
    put(&folder.join(VOCABULARY), &bytes)?;
    Ok(Entry { bytes: bytes.len() as u64, sha256: digest::of(&bytes) })
}

/// A stage has the constants of the whole: another name of the same file where the system can, a copy elsewhere.
fn cut(job: &Job, ready: &Ready, work: &mut Work) -> Result<Done, Error> {
    let text = ready.stage(&job.range)?;
    let path = job.folder.join(BIN);
    let original = fs::canonicalize(&ready.bin).map_err(Error::io("open", &ready.bin))?;
    if fs::hard_link(&original, &path).is_err() {
        fs::copy(&original, &path).map_err(Error::io("write", &path))?;
    }
    let bytes = fs::metadata(&path).map_err(Error::io("read", &path))?.len();
    work.add(bytes)?;
    let shape = Shape {
        family: "network".into(),
        hidden: ready.hidden,
        vocab: ready.vocab,
        context: None,
        layers: ready.layers,
        first: job.range.start,
        end: job.range.end,
        paged: true,
    };
    let weights =
        Weights { formats: [].into(), rounded_zeros: 0, quantized: Vec::new(), left_out: [].into() };
    let sha256 = job.digests.get(1).cloned().unwrap_or_default();
    Ok(Done { shape, weights, bin: Entry { bytes, sha256 }, text })
}

fn weights(tally: Tally) -> Weights {
    let formats = tally
        .formats
        .into_iter()
        .map(|(format, (tensors, bytes))| (format.name(), Stored { tensors, bytes }));
    let quantized = tally.rounded.into_iter().map(|(tensor, error)| Quantized { tensor, error }).collect();
    Weights { formats: formats.collect(), rounded_zeros: tally.rounded_zeros, quantized, left_out: [].into() }
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file = File::create(path).map_err(Error::io("create", path))?;
    file.write_all(bytes).map_err(Error::io("write", path))?;
    file.sync_all().map_err(Error::io("write", path))
}
