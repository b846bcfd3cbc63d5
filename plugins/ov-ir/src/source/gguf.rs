//! Opens a GGUF file, or the files of a model that is split over several, as a source of tensors.

use std::fs::File;
use std::path::{Path, PathBuf};

use cascadia_gguf::{Gguf, Split, TensorType};

use super::{Format, Source};
use crate::error::Error;

/// Reads the headers and tensor tables and checks that the files hold all of it. The header is that of the first file,
/// which has the metadata.
pub(crate) fn open(path: &Path) -> Result<(Gguf, Source), Error> {
    let (header, others) = headers(path)?;
    let files = std::iter::once(path.to_owned()).chain(others.iter().map(|(path, _)| path.clone()));
    let mut source = Source::new(path, files.collect());
    for (number, header) in std::iter::once(&header).chain(others.iter().map(|(_, h)| h)).enumerate() {
        add(&mut source, number, header)?;
    }
    Ok((header, source))
}

/// The files of a GGUF model, all there and each as long as its header says.
///
/// # Errors
/// The file is no GGUF file or not the first part of its model; a part is missing, cut short, or of another model.
pub fn parts(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let (_, others) = headers(path)?;
    Ok(std::iter::once(path.to_owned()).chain(others.into_iter().map(|(path, _)| path)).collect())
}

/// The header of the file, and the paths and headers of the other parts.
fn headers(path: &Path) -> Result<(Gguf, Vec<(PathBuf, Gguf)>), Error> {
    let first = header(path)?;
    let Some(split) = first.opening().map_err(damaged(path))? else { return Ok((first, Vec::new())) };
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let names = cascadia_gguf::part_names(&name).filter(|names| names.len() as u64 == split.count);
    let names = names.ok_or_else(|| {
        let ending = format!("-00001-of-{:05}.gguf", split.count);
        let problem = format!(
            "is part 1 of {} of a model, but its name does not end in {ending}, by which the others are found; give \
             all parts the names that they had",
            split.count
        );
        Error::damaged(path, problem)
    })?;
    let others = names.iter().enumerate().skip(1).map(|(no, name)| {
        let other = path.with_file_name(name);
        part(&other, &first, Split { no: no as u64, ..split }).map(|header| (other, header))
    });
    let others = others.collect::<Result<Vec<_>, _>>()?;
    let found =
        first.tensors().len() + others.iter().map(|(_, header)| header.tensors().len()).sum::<usize>();
    match split.tensors {
        Some(tensors) if tensors != found as u64 => {
            let problem = format!(
                "says that its {} parts have {tensors} tensors, they have {found}; they are not of one model, fetch all \
                 of them from one place",
                split.count
            );
            Err(Error::damaged(path, problem))
        }
        _ => Ok((first, others)),
    }
}

fn damaged(path: &Path) -> impl Fn(cascadia_gguf::Error) -> Error {
    move |source| Error::Gguf { path: path.to_owned(), source }
}

fn header(path: &Path) -> Result<Gguf, Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let len = file.metadata().map_err(Error::io("read", path))?.len();
    let header = Gguf::read(file).map_err(damaged(path))?;
    header.check_len(len).map_err(damaged(path))?;
    Ok(header)
}

/// The header of another part than the first, which must be what its name says.
fn part(path: &Path, first: &Gguf, expected: Split) -> Result<Gguf, Error> {
    let (no, count) = (expected.no + 1, expected.count);
    if !path.exists() {
        let problem = format!(
            "is missing; it is part {no} of {count} of the model, fetch it and lay it beside the first"
        );
        return Err(Error::damaged(path, problem));
    }
    let header = header(path)?;
    match header.split().map_err(damaged(path))? {
        Some(found) if (found.no, found.count) == (expected.no, count) => {}
        Some(found) => {
            let problem = format!(
                "has the name of part {no} of {count} and is part {} of {}; fetch it again",
                found.no + 1,
                found.count
            );
            return Err(Error::damaged(path, problem));
        }
        None => {
            let problem =
                format!("has the name of part {no} of {count} and is a whole model; fetch the part again");
            return Err(Error::damaged(path, problem));
        }
    }
    // Parts need not have the model's metadata, but where they have some it is the same.
    for key in ["general.architecture", "general.name"] {
        let found = header.str(key).map_err(damaged(path))?;
        let wanted = first.str(key).map_err(damaged(path))?;
        if let (Some(found), Some(wanted)) = (found, wanted)
            && found != wanted
        {
            let problem = format!(
                "is a part of another model: its {key} is {found:?}, that of part 1 {wanted:?}; fetch all parts from one \
                 place"
            );
            return Err(Error::damaged(path, problem));
        }
    }
    Ok(header)
}

fn add(source: &mut Source, number: usize, header: &Gguf) -> Result<(), Error> {
    let path = source.files[number].clone();
    for tensor in header.tensors() {
        if source.has(&tensor.name) {
            let problem =
                "is in an earlier part too; they are not of one model, fetch all parts from one place";
            return Err(Error::tensor(&path, &tensor.name, problem));
        }
        let (Some(format), Some(range)) = (format(tensor.kind), header.range(tensor)) else {
            let name = format!("{} ({})", tensor.kind.name(), tensor.kind.id());
            source.unreadable.insert(tensor.name.clone(), name);
            continue;
        };
        // GGUF has the fastest-moving dimension first.
        let shape = tensor.dims.iter().rev().map(|dim| usize::try_from(*dim)).collect::<Result<_, _>>();
        let shape = shape.map_err(|_| Error::tensor(&path, &tensor.name, "is too large for this machine"))?;
        source.add(tensor.name.clone(), shape, format, number, range.start);
    }
    Ok(())
}

fn format(kind: TensorType) -> Option<Format> {
    Some(match kind {
        TensorType::F32 => Format::F32,
        TensorType::F16 => Format::F16,
        TensorType::BF16 => Format::BF16,
        TensorType::Q4_0 => Format::Q4_0,
        TensorType::Q4_1 => Format::Q4_1,
        TensorType::Q5_0 => Format::Q5_0,
        TensorType::Q5_1 => Format::Q5_1,
        TensorType::Q8_0 => Format::Q8_0,
        TensorType::Q2_K => Format::Q2_K,
        TensorType::Q3_K => Format::Q3_K,
        TensorType::Q4_K => Format::Q4_K,
        TensorType::Q5_K => Format::Q5_K,
        TensorType::Q6_K => Format::Q6_K,
        TensorType::IQ4_NL => Format::IQ4_NL,
        TensorType::IQ4_XS => Format::IQ4_XS,
        _ => return None,
    })
}
