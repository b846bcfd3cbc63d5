//! Splits a GGUF file over several, as llama.cpp's splitter does: the first part has the metadata, every part says which it
//! is, and names end in `-00001-of-00003.gguf`. Shares no code with the reader.

use std::path::{Path, PathBuf};

/// Little-endian numbers and texts from a place on.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn number(&mut self, width: usize) -> usize {
        let mut all = [0; 8];
        all[..width].copy_from_slice(&self.bytes[self.at..self.at + width]);
        self.at += width;
        u64::from_le_bytes(all) as usize
    }

    fn text(&mut self) {
        let length = self.number(8);
        self.at += length;
    }

    /// Goes over a value of the metadata.
    fn value(&mut self, kind: usize) {
        match kind {
            8 => self.text(),
            9 => {
                let (kind, count) = (self.number(4), self.number(8));
                (0..count).for_each(|_| self.value(kind));
            }
            kind => self.at += [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8][kind],
        }
    }
}

/// A row of the tensor table without its offset, and the data.
struct Tensor {
    row: Vec<u8>,
    data: Vec<u8>,
}

/// Writes the parts `NAME-00001-of-0000N.gguf` into a folder, with so many tensors each and the rest in one more, and gives
/// the path of the first.
pub(crate) fn split(file: &Path, folder: &Path, name: &str, counts: &[usize]) -> PathBuf {
    let bytes = std::fs::read(file).expect("the file to split");
    let mut cursor = Cursor { bytes: &bytes, at: 8 };
    let (tensors, keys) = (cursor.number(8), cursor.number(8));
    for _ in 0..keys {
        cursor.text();
        let kind = cursor.number(4);
        cursor.value(kind);
    }
    let metadata = &bytes[24..cursor.at];
    let mut rows: Vec<(usize, Vec<u8>)> = (0..tensors)
        .map(|_| {
            let from = cursor.at;
            cursor.text();
            let rank = cursor.number(4);
            cursor.at += 8 * rank + 4;
            let row = bytes[from..cursor.at].to_vec();
            (cursor.number(8), row)
        })
        .collect();
    let base = cursor.at.next_multiple_of(32);
    rows.sort_by_key(|(offset, _)| *offset);
    let ends: Vec<usize> = rows.iter().skip(1).map(|(at, _)| base + at).chain([bytes.len()]).collect();
    let mut left: Vec<Tensor> = rows
        .into_iter()
        .zip(ends)
        .map(|((at, row), end)| Tensor { row, data: bytes[base + at..end].to_vec() })
        .collect();
    let count = counts.len() + 1;
    let path = |no: usize| folder.join(format!("{name}-{:05}-of-{count:05}.gguf", no + 1));
    for no in 0..count {
        let rest = left.split_off(counts.get(no).copied().unwrap_or(left.len()).min(left.len()));
        let own = std::mem::replace(&mut left, rest);
        let metadata = if no == 0 { (keys, metadata) } else { (0, &[][..]) };
        std::fs::write(path(no), part(metadata, &own, [no, count, tensors])).expect("a part is written");
    }
    path(0)
}

fn part((keys, metadata): (usize, &[u8]), own: &[Tensor], [no, count, tensors]: [usize; 3]) -> Vec<u8> {
    let mut head = b"GGUF\x03\0\0\0".to_vec();
    head.extend((own.len() as u64).to_le_bytes());
    head.extend((keys as u64 + 3).to_le_bytes());
    head.extend(metadata);
    for (key, kind, value) in [
        ("split.no", 2u32, (no as u16).to_le_bytes().to_vec()),
        ("split.count", 2, (count as u16).to_le_bytes().to_vec()),
        ("split.tensors.count", 5, (tensors as i32).to_le_bytes().to_vec()),
    ] {
        head.extend((key.len() as u64).to_le_bytes());
        head.extend(key.as_bytes());
        head.extend(kind.to_le_bytes());
        head.extend(value);
    }
    let mut data = Vec::new();
    for tensor in own {
        head.extend(&tensor.row);
        head.extend((data.len() as u64).to_le_bytes());
        data.extend(&tensor.data);
        data.resize(data.len().next_multiple_of(32), 0);
    }
    head.resize(head.len().next_multiple_of(32), 0);
    [head, data].concat()
}
