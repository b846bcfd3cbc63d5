//! Opens a GGUF file as a source of tensors.

use std::fs::File;
use std::path::Path;

use cascadia_gguf::{Gguf, TensorType};

use super::{Format, Source};
use crate::error::Error;

/// Reads the header and the tensor table and checks that the file holds all of it.
pub(crate) fn open(path: &Path) -> Result<(Gguf, Source), Error> {
    let damaged = |source| Error::Gguf { path: path.to_owned(), source };
    let file = File::open(path).map_err(Error::io("open", path))?;
    let len = file.metadata().map_err(Error::io("read", path))?.len();
    let header = Gguf::read(file).map_err(damaged)?;
    header.check_len(len).map_err(damaged)?;
    if header.u64("split.count").map_err(damaged)?.is_some_and(|count| count > 1) {
        return Err(Error::unsupported(path, "a gguf model split over several files (merge it first)"));
    }
    let mut source = Source::new(path, vec![path.to_owned()]);
    for tensor in header.tensors() {
        let (Some(format), Some(range)) = (format(tensor.kind), header.range(tensor)) else {
            let name = format!("{} ({})", tensor.kind.name(), tensor.kind.id());
            source.unreadable.insert(tensor.name.clone(), name);
            continue;
        };
        // GGUF has the fastest-moving dimension first.
        let shape = tensor.dims.iter().rev().map(|dim| usize::try_from(*dim)).collect::<Result<_, _>>();
        let shape = shape.map_err(|_| Error::tensor(path, &tensor.name, "is too large for this machine"))?;
        source.add(tensor.name.clone(), shape, format, 0, range.start);
    }
    Ok((header, source))
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
