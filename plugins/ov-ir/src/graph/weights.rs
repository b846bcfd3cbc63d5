//! Brings weights from the source into the network: read, put in order, encoded, stored, and widened again by
//! operations that OpenVINO takes into the matrix product.
//!
//! Invariant: of the weights only a piece of a few MiB is in memory at a time, and the scales of one matrix. A tensor that is used twice (tied embeddings) is stored once; each use
//! has widening operations of its own, since shared ones would not be fused.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;

use super::{Draw, Failure};
use crate::error::Error;
use crate::float;
use crate::ir::{Kind, Net, Value};
use crate::model::{Linear, Norm, RowOrder, Weight};
use crate::quant::{self, Encoder, Factors, Integer, Rounding};
use crate::source::{Format, Source};

/// What is rounded on request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) plain: Option<Plain>,
    /// See [`crate::Request::symmetric`].
    pub(crate) symmetric: bool,
}

/// How floating-point matrices are rounded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain {
    /// Matrices of the layers.
    pub(crate) layers: Rounding,
    /// Embeddings and head, which suffer most.
    pub(crate) tables: Rounding,
}

/// What became of the weights.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Tensors and their bytes in the source, by how they were stored there.
    pub(crate) formats: BTreeMap<Format, (usize, u64)>,
    /// Tensors whose offsets became rounded zero points.
    pub(crate) rounded_zeros: usize,
    /// Tensors rounded on request with their share of lost energy.
    pub(crate) rounded: Vec<(String, f64)>,
}

/// Reads and stores weights.
pub(crate) struct Weights<'a> {
    source: &'a Source,
    request: Request,
    count: &'a mut dyn FnMut(u64) -> Result<(), Error>,
    stored: HashMap<Weight, Stored>,
    tally: Tally,
}

/// Constants of a matrix.
#[derive(Clone)]
enum Stored {
    Plain(Value),
    Grouped { quants: Value, scales: Value, zeros: Option<Value>, rows: i64, columns: i64 },
}

impl<'a> Weights<'a> {
    pub(crate) fn new(
        source: &'a Source,
        request: Request,
        count: &'a mut dyn FnMut(u64) -> Result<(), Error>,
    ) -> Self {
        Self { source, request, count, stored: HashMap::new(), tally: Tally::default() }
    }

    pub(crate) fn finish(self) -> Tally {
        self.tally
    }

    /// A table `[vocab, hidden]` in f32, of which rows are taken or which is the head.
    pub(super) fn table<W: io::Write>(
        &mut self,
        net: &mut Net<W>,
        name: &str,
        weight: &Weight,
    ) -> Result<Value, Failure> {
        self.matrix(net, name, weight, self.request.plain.map(|plain| plain.tables))
    }

    fn matrix<W: io::Write>(
        &mut self,
        net: &mut Net<W>,
        name: &str,
        weight: &Weight,
        rounding: Option<Rounding>,
    ) -> Result<Value, Failure> {
        let stored = match self.stored.get(weight) {
            Some(stored) => stored.clone(),
            None => {
                let stored = self.store(net, &format!("{name}.weight"), weight, rounding)?;
                self.stored.insert(weight.clone(), stored.clone());
                stored
            }
        };
        Ok(widen(net, &format!("{name}.weight"), &stored)?)
    }

    fn store<W: io::Write>(
        &mut self,
        net: &mut Net<W>,
        name: &str,
        weight: &Weight,
        rounding: Option<Rounding>,
    ) -> Result<Stored, Failure> {
        let source = self.source;
        let info = source.get(&weight.tensor)?;
        let (format, columns) = (info.format, info.columns());
        let all = weight.rows.clone().unwrap_or(0..info.rows());
        let wrong = |problem| Error::tensor(source.path(), &weight.tensor, problem);
        let rounding = match format.is_plain() {
            true => rounding,
            false => self.request.symmetric.then(|| Rounding::symmetric(format, columns)).flatten(),
        };
        let mut encoder = Encoder::new(format, all.len(), columns, rounding).map_err(wrong)?;
        let dims = [all.len() as i64, columns as i64];
        let form = encoder.form().map(|(integer, group)| (integer, group as i64));
        let (label, kind, shape) = match form {
            None => (name.to_owned(), plain(format), dims.to_vec()),
            Some((integer, group)) => (format!("{name}/quants"), kind(integer), groups(dims, group, group)),
        };
        let quants = net.streamed::<Failure>(&label, kind, &shape, |data| {
            for piece in pieces(&all, weight.order, info.row_bytes()) {
                let count = piece.len();
                let bytes = source.read(&weight.tensor, piece)?;
                (self.count)(bytes.len() as u64)?;
                let bytes = order(bytes, count, part_of(weight.order, count, all.len()));
                data.put(&encoder.rows(bytes).map_err(wrong)?)?;
            }
            Ok(())
        })?;
        let entry = self.tally.formats.entry(format).or_default();
        *entry = (entry.0 + 1, entry.1 + (all.len() * info.row_bytes()) as u64);
        if let Some(loss) = encoder.loss() {
            self.tally.rounded.push((weight.tensor.clone(), loss));
        }
        let (Some((_, group)), Some(Factors { scales, zeros })) = (form, encoder.finish()) else {
            return Ok(Stored::Plain(quants));
        };
        self.tally.rounded_zeros += usize::from(zeros.is_some());
        let one = groups(dims, group, 1);
        let scales = factors(net, &format!("{name}/scales"), &one, &scales)?;
        let zeros = zeros.map(|zeros| factors(net, &format!("{name}/zeros"), &one, &zeros)).transpose()?;
        Ok(Stored::Grouped { quants, scales, zeros, rows: dims[0], columns: dims[1] })
    }

    /// A vector `[elements]` in f32.
    fn vector(&mut self, weight: &Weight) -> Result<Vec<f32>, Error> {
        let format = self.source.get(&weight.tensor)?.format;
        let bytes = self.source.read(&weight.tensor, 0..1)?;
        (self.count)(bytes.len() as u64)?;
        let mut all = quant::decode(format, &bytes);
        if let Some(rows) = &weight.rows {
            all = all.get(rows.clone()).map(<[f32]>::to_vec).unwrap_or_default();
        }
        let count = all.len().max(1);
        let bytes = all.iter().flat_map(|x| x.to_le_bytes()).collect();
        Ok(float::floats(&order(bytes, count, weight.order)).collect())
    }

    /// The gain of a norm.
    pub(super) fn gain(&mut self, norm: &Norm) -> Result<Vec<f32>, Error> {
        let mut gain = self.vector(&Weight::whole(&norm.weight))?;
        if norm.plus_one {
            for value in &mut gain {
                *value += 1.0;
            }
        }
        Ok(gain)
    }
}

impl<W: io::Write> Draw<'_, W> {
    /// `x · Wᵀ + b`.
    pub(super) fn linear(&mut self, name: &str, linear: &Linear, x: &Value) -> Result<Value, Failure> {
        let rounding = self.weights.request.plain.map(|plain| plain.layers);
        let matrix = self.weights.matrix(&mut self.net, name, &linear.weight, rounding)?;
        let product = self.net.matmul(name, x, &matrix, true);
        let Some(bias) = &linear.bias else { return Ok(product) };
        let bias = self.weights.vector(bias)?;
        let bias = self.net.f32s(&format!("{name}.bias"), &[1, 1, bias.len() as i64], &bias)?;
        Ok(self.net.add(&format!("{name}/biased"), &product, &bias))
    }

    /// The head's product.
    pub(super) fn head_matrix(&mut self, x: &Value) -> Result<Value, Failure> {
        let head = &self.model.head;
        let matrix = self.weights.table(&mut self.net, "lm_head", &head.weight)?;
        Ok(self.net.matmul("lm_head", x, &matrix, true))
    }
}

/// Bytes of the source that are read at a time, unless a head or a row is longer.
const PIECE: usize = 4 << 20;

/// Rows in pieces; those of a head that must be put in order stay together.
fn pieces(all: &Range<usize>, order: RowOrder, row_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let unit = match order {
        RowOrder::HalfSplit => 1,
        RowOrder::Interleaved { heads, .. } => (all.len() / heads).max(1),
    };
    let step = (PIECE / (unit * row_bytes).max(1)).max(1) * unit;
    let end = all.end;
    all.clone().step_by(step).map(move |from| from..end.min(from + step))
}

/// The order of a piece of `count` rows out of `all`.
fn part_of(order: RowOrder, count: usize, all: usize) -> RowOrder {
    match order {
        RowOrder::Interleaved { heads, rotated } => {
            RowOrder::Interleaved { heads: (count * heads / all.max(1)).max(1), rotated }
        }
        other => other,
    }
}

fn kind(integer: Integer) -> Kind {
    match integer {
        Integer::I4 => Kind::I4,
        Integer::U4 => Kind::U4,
        Integer::I8 => Kind::I8,
        Integer::U8 => Kind::U8,
    }
}

/// `[rows, groups, of each]`, without the middle one where a group is a row.
fn groups([rows, columns]: [i64; 2], group: i64, each: i64) -> Vec<i64> {
    if group == columns { vec![rows, each] } else { vec![rows, columns / group, each] }
}

/// Numbers per group, as f16 where that loses nothing.
fn factors<W: io::Write>(net: &mut Net<W>, name: &str, dims: &[i64], values: &[f32]) -> io::Result<Value> {
    let small = values.iter().all(|value| float::fits_f16(*value));
    let kind = if small { Kind::F16 } else { Kind::F32 };
    net.streamed(name, kind, dims, |data| {
        values.chunks(1 << 16).try_for_each(|values| {
            let bytes: Vec<u8> = match small {
                true => values.iter().flat_map(|value| float::to_f16(*value).to_le_bytes()).collect(),
                false => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            };
            data.put(&bytes)
        })
    })
}

/// The matrix in f32, `(quants - zeros) · scales`.
fn widen<W: io::Write>(net: &mut Net<W>, name: &str, stored: &Stored) -> io::Result<Value> {
    let wide = |net: &mut Net<W>, part: &str, value: &Value| match value.kind {
        Kind::F32 => value.clone(),
        _ => net.convert(&format!("{name}/{part}"), value, Kind::F32),
    };
    match stored {
        Stored::Plain(value) => Ok(wide(net, "wide", value)),
        Stored::Grouped { quants, scales, zeros, rows, columns } => {
            let mut x = wide(net, "wide", quants);
            if let Some(zeros) = zeros {
                let zeros = wide(net, "zeros/wide", zeros);
                x = net.subtract(&format!("{name}/shifted"), &x, &zeros);
            }
            let scales = wide(net, "scales/wide", scales);
            let x = net.multiply(&format!("{name}/scaled"), &x, &scales);
            if x.dims.len() == 2 {
                return Ok(x);
            }
            net.reshape(&format!("{name}/matrix"), &x, &[*rows, *columns])
        }
    }
}

fn plain(format: Format) -> Kind {
    match format {
        Format::F16 => Kind::F16,
        Format::BF16 => Kind::BF16,
        _ => Kind::F32,
    }
}

/// Rows of equal length put into half-split order.
fn order(bytes: Vec<u8>, count: usize, order: RowOrder) -> Vec<u8> {
    let RowOrder::Interleaved { heads, rotated } = order else { return bytes };
    let width = bytes.len() / count;
    let head = count / heads;
    let mut out = Vec::with_capacity(bytes.len());
    for row in 0..count {
        let (base, at) = (row / head * head, row % head);
        let from = match at {
            at if at < rotated / 2 => 2 * at,
            at if at < rotated => 2 * (at - rotated / 2) + 1,
            at => at,
        };
        out.extend_from_slice(&bytes[(base + from) * width..][..width]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_pairs_move_half_the_rotated_width_apart() {
        // Two heads of six rows of one byte; four rows of each are rotated.
        let rows: Vec<u8> = (0..12).collect();
        let got = order(rows.clone(), 12, RowOrder::Interleaved { heads: 2, rotated: 4 });
        assert_eq!(got, [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]);
        assert_eq!(order(rows.clone(), 12, RowOrder::HalfSplit), rows);
    }

    #[test]
    fn pieces_are_whole_heads_and_in_them_rows_are_put_in_order_as_in_the_whole() {
        let (heads, head, width) = (10, 6, PIECE / 15);
        let whole = RowOrder::Interleaved { heads, rotated: 4 };
        let cut: Vec<_> = pieces(&(12..72), whole, width).collect();
        assert_eq!(cut, [12..24, 24..36, 36..48, 48..60, 60..72]);
        let rows: Vec<u8> = (0..60).collect();
        let apart: Vec<u8> = cut
            .iter()
            .flat_map(|piece| {
                let bytes = rows[piece.start - 12..piece.end - 12].to_vec();
                order(bytes, piece.len(), part_of(whole, piece.len(), heads * head))
            })
            .collect();
        assert_eq!(apart, order(rows, 60, whole));
        // A row is a piece where it is longer than one.
        let long: Vec<_> = pieces(&(0..3), RowOrder::HalfSplit, 2 * PIECE).collect();
        assert_eq!(long, [0..1, 1..2, 2..3]);
        let short: Vec<_> = pieces(&(0..1000), RowOrder::HalfSplit, 8).collect();
        assert_eq!(short, vec![0..1000; 1]);
    }
}
