//! Matrices of 4-bit integers as other programs pack them into safetensors: GPTQ, AWQ and compressed-tensors.
//!
//! Each is several tensors under a prefix: the integers, eight in a word, scales, and perhaps zero points. They become one
//! tensor `PREFIX.weight` of [`Format::Int4`], whose rows are put together as they are read. What must hold: the values are
//! those of the file, `(q - zero) * scale`; what could be read in two ways is refused.

mod words;

use std::ops::Range;

use super::{Format, Info, Integers, Place, Source};
use crate::error::Error;
use crate::quant;
use words::{nibble, nibbles};

/// Rows or columns of a matrix; the largest have below a million.
const MOST: usize = 1 << 24;

/// How a program packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// `qweight [in/8, out]`, `qzeros [groups, out/8]`, `scales [groups, out]`, `g_idx [in]`.
    Gptq {
        /// Zero points are stored less one (the first version of the format).
        less_one: bool,
    },
    /// `qweight [in, out/8]`, `qzeros [groups, out/8]`, `scales [groups, out]`, eight outputs in an order of their own.
    Awq,
    /// `weight_packed [out, in/8]`, `weight_scale [out, groups]`; zero points are all 8.
    Compressed,
}

/// What a configuration says of packed matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packing {
    pub(crate) method: Method,
    /// Elements of a group; a row where none.
    pub(crate) group: Option<usize>,
    /// All zero points are 8.
    pub(crate) symmetric: bool,
}

/// Where the parts of a matrix are.
#[derive(Debug, Clone)]
pub(super) struct Packed {
    packing: Packing,
    prefix: String,
    quants: Integers,
    zeros: Option<Integers>,
    /// Elements of a row and of a group.
    columns: usize,
    group: usize,
}

/// Puts the packed matrices of a source together.
///
/// # Errors
/// A part is missing or has another shape than the others demand, or the order of inputs is not that of the groups.
pub(crate) fn resolve(source: &mut Source, packing: Packing) -> Result<(), Error> {
    let ending = match packing.method {
        Method::Gptq { .. } | Method::Awq => ".qweight",
        Method::Compressed => ".weight_packed",
    };
    let all = source.integers.keys().filter_map(|name| name.strip_suffix(ending));
    let all: Vec<String> = all.map(str::to_owned).collect();
    for prefix in all {
        matrix(source, packing, prefix)?;
    }
    Ok(())
}

fn matrix(source: &mut Source, packing: Packing, prefix: String) -> Result<(), Error> {
    let part = |name: &str| format!("{prefix}.{name}");
    let (quants, scales, zeros) = match packing.method {
        Method::Compressed => ("weight_packed", "weight_scale", None),
        Method::Gptq { .. } | Method::Awq => ("qweight", "scales", Some("qzeros")),
    };
    let quants = integers(source, &part(quants))?;
    let zeros = zeros.map(|zeros| integers(source, &part(zeros))).transpose()?;
    let (rows, columns) = match (packing.method, quants.shape.as_slice()) {
        (Method::Gptq { .. }, &[words, out]) => (out, words.saturating_mul(8)),
        (Method::Awq, &[columns, words]) => (words.saturating_mul(8), columns),
        (Method::Compressed, &[out, words]) => (out, words.saturating_mul(8)),
        (_, shape) => return Err(wrong(source, &prefix, format!("has integers of the shape {shape:?}"))),
    };
    let scale = source.get(&part(scales))?;
    let groups = match (packing.method, scale.shape.as_slice()) {
        (Method::Compressed, &[out, groups]) if out == rows => groups,
        (Method::Gptq { .. } | Method::Awq, &[groups, out]) if out == rows => groups,
        (_, shape) => {
            return Err(wrong(source, &prefix, format!("has scales of the shape {shape:?} for {rows} rows")));
        }
    };
    if !(1..=MOST).contains(&rows) || !(1..=MOST).contains(&columns) {
        return Err(wrong(source, &prefix, format!("has {rows} rows of {columns}")));
    }
    let group = packing.group.unwrap_or(columns);
    if groups == 0
        || !rows.is_multiple_of(8)
        || !group.is_multiple_of(2)
        || groups.checked_mul(group) != Some(columns)
    {
        let problem = format!("has {groups} groups of {group} for {rows} rows of {columns}");
        return Err(wrong(source, &prefix, problem));
    }
    if let Some(zeros) = zeros.as_ref().filter(|zeros| zeros.shape != [groups, rows / 8]) {
        return Err(wrong(source, &prefix, format!("has zero points of the shape {:?}", zeros.shape)));
    }
    in_order(source, &prefix, columns, group)?;
    for name in ["qweight", "qzeros", "g_idx", "weight_packed", "weight_shape", "weight_g_idx"].map(part) {
        source.unreadable.remove(&name);
        source.integers.remove(&name);
    }
    let format = Format::Int4 { group, zeros: !packing.symmetric };
    let scales = source.tensors.remove(&part(scales));
    let name = part("weight");
    let packed = Packed { packing, prefix, quants, zeros, columns, group };
    let (block, bytes) = format.layout();
    let info = Info {
        shape: vec![rows, columns],
        format,
        place: Place::Packed(packed),
        row_bytes: columns / block * bytes,
    };
    if let Some(scales) = scales {
        source.scales.insert(name.clone(), scales);
    }
    source.tensors.insert(name, info);
    Ok(())
}

/// Inputs that were sorted before they were grouped have no groups in a row.
fn in_order(source: &Source, prefix: &str, columns: usize, group: usize) -> Result<(), Error> {
    let name = ["g_idx", "weight_g_idx"].map(|name| format!("{prefix}.{name}"));
    let Some(name) = name.iter().find(|name| source.integers.contains_key(*name)) else { return Ok(()) };
    let place = integers(source, name)?;
    if place.shape != [columns] {
        return Err(wrong(source, prefix, format!("has g_idx of the shape {:?}", place.shape)));
    }
    let mut bytes = vec![0; columns * 4];
    source.file(place.file)?.fill(name, place.start, &mut bytes)?;
    let plain = bytes
        .chunks_exact(4)
        .enumerate()
        .all(|(at, word)| u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as usize == at / group);
    if plain {
        return Ok(());
    }
    Err(Error::unsupported(
        source.path(),
        format!("the order of inputs of {prefix} (desc_act, actorder)"),
        "take weights that were quantized without it, or those before quantization",
    ))
}

fn integers(source: &Source, name: &str) -> Result<Integers, Error> {
    source.integers.get(name).cloned().ok_or_else(|| {
        Error::tensor(source.path(), name, "is missing or holds no 32-bit integers; fetch the model again")
    })
}

fn wrong(source: &Source, prefix: &str, problem: String) -> Error {
    Error::tensor(source.path(), prefix, format!("{problem}, which cannot be; fetch the model again"))
}

impl Packed {
    /// Rows in the form of [`Format::Int4`].
    pub(super) fn read(&self, source: &Source, name: &str, rows: Range<usize>) -> Result<Vec<u8>, Error> {
        let groups = self.columns / self.group;
        // Eight rows share words.
        let wide = rows.start / 8 * 8..rows.end.next_multiple_of(8);
        let scales = self.scales(source, name, &wide, groups)?;
        let quants = self.quants(source, name, &wide)?;
        let zeros = self.zeros(source, name, &wide, groups)?;
        let mut out = Vec::with_capacity(rows.len() * groups * (5 + self.group / 2));
        for row in rows.start - wide.start..rows.end - wide.start {
            for group in 0..groups {
                out.extend(scales[row * groups + group].to_le_bytes());
                out.push(zeros.as_ref().map_or(8, |zeros| zeros[row * groups + group]));
                let quants = &quants[row * self.columns + group * self.group..][..self.group];
                out.extend(quants.chunks_exact(2).map(|two| two[0] | two[1] << 4));
            }
        }
        Ok(out)
    }

    /// Row by row, a scale per group.
    fn scales(
        &self,
        source: &Source,
        name: &str,
        wide: &Range<usize>,
        groups: usize,
    ) -> Result<Vec<f32>, Error> {
        let scales = source.scales.get(name);
        let scales = scales.ok_or_else(|| Error::tensor(source.path(), name, "has no scales"))?;
        let Place::File { file, start } = scales.place else {
            return Err(Error::tensor(source.path(), name, "has scales that are packed"));
        };
        let mut reader = source.file(file)?;
        let width = scales.format.layout().1;
        let mut out = vec![0.0; wide.len() * groups];
        if self.packing.method == Method::Compressed {
            let mut bytes = vec![0; out.len() * width];
            reader.fill(name, start + (wide.start * groups * width) as u64, &mut bytes)?;
            return Ok(quant::decode(scales.format, &bytes));
        }
        let all = scales.columns();
        let mut bytes = vec![0; wide.len() * width];
        for group in 0..groups {
            reader.fill(name, start + ((group * all + wide.start) * width) as u64, &mut bytes)?;
            for (row, scale) in quant::decode(scales.format, &bytes).into_iter().enumerate() {
                out[row * groups + group] = scale;
            }
        }
        Ok(out)
    }

    /// Row by row, a number from 0 to 15 per element.
    fn quants(&self, source: &Source, name: &str, wide: &Range<usize>) -> Result<Vec<u8>, Error> {
        let (file, start, words) = (self.quants.file, self.quants.start, self.quants.shape[1]);
        let mut out = vec![0; wide.len() * self.columns];
        let mut reader = source.file(file)?;
        let mut part = |at: usize, count: usize| -> Result<Vec<u8>, Error> {
            let mut bytes = vec![0; count * 4];
            reader.fill(name, start + at as u64 * 4, &mut bytes)?;
            Ok(bytes)
        };
        match self.packing.method {
            Method::Compressed => return Ok(nibbles(&part(wide.start * words, wide.len() * words)?)),
            Method::Gptq { .. } => {
                for eight in 0..self.columns / 8 {
                    let bytes = part(eight * words + wide.start, wide.len())?;
                    for (row, word) in bytes.chunks_exact(4).enumerate() {
                        out[row * self.columns + eight * 8..][..8].copy_from_slice(&nibbles(word));
                    }
                }
            }
            Method::Awq => {
                for column in 0..self.columns {
                    let bytes = part(column * words + wide.start / 8, wide.len() / 8)?;
                    for row in 0..wide.len() {
                        out[row * self.columns + column] = nibble(&bytes, row / 8, words::AWQ[row % 8]);
                    }
                }
            }
        }
        Ok(out)
    }

    /// Row by row, a zero point per group; none where all are 8 and none are stored.
    fn zeros(
        &self,
        source: &Source,
        name: &str,
        wide: &Range<usize>,
        groups: usize,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(zeros) = &self.zeros else { return Ok(None) };
        let mut out = vec![0; wide.len() * groups];
        let mut bytes = vec![0; wide.len() / 2];
        let mut reader = source.file(zeros.file)?;
        for group in 0..groups {
            let at = group * zeros.shape[1] + wide.start / 8;
            reader.fill(name, zeros.start + at as u64 * 4, &mut bytes)?;
            for row in 0..wide.len() {
                let stored = match self.packing.method {
                    Method::Awq => nibble(&bytes, row / 8, words::AWQ[row % 8]),
                    _ => nibble(&bytes, row / 8, row % 8),
                };
                out[row * groups + group] = self.zero(source, stored, wide.start + row)?;
            }
        }
        Ok(Some(out))
    }

    fn zero(&self, source: &Source, stored: u8, row: usize) -> Result<u8, Error> {
        let wrong = |problem: String| {
            let instead = "take the weights before quantization";
            Error::unsupported(source.path(), format!("row {row} of {}, {problem},", self.prefix), instead)
        };
        let zero = match self.packing.method {
            Method::Gptq { less_one: true } if stored == 15 => {
                return Err(wrong("whose zero point is 0 to some programs and 16 to others".into()));
            }
            Method::Gptq { less_one: true } => stored + 1,
            _ => stored,
        };
        if self.packing.symmetric && zero != 8 {
            return Err(wrong(format!("whose zero point is {zero} and not the 8 of symmetric ones")));
        }
        Ok(zero)
    }
}
