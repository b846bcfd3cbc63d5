//! Writes a GGUF file of vectors in F32 and matrices in F16, which every loader takes.

const ALIGNMENT: usize = 32;
const F32: u32 = 0;
const F16: u32 = 1;

/// A matrix, or a vector.
pub(super) struct Tensor {
    pub(super) name: &'static str,
    /// Length of a row, then the number of rows; vectors have one row.
    pub(super) shape: [u64; 2],
    pub(super) values: Vec<f32>,
}

/// The keys and values of a GGUF.
#[derive(Default)]
pub(super) struct Pairs {
    count: u64,
    bytes: Vec<u8>,
}

impl Pairs {
    fn key(&mut self, name: &str, kind: u32) {
        self.count += 1;
        string(&mut self.bytes, name);
        self.bytes.extend(kind.to_le_bytes());
    }

    pub(super) fn number(&mut self, name: &str, value: u32) {
        self.key(name, 4);
        self.bytes.extend(value.to_le_bytes());
    }

    pub(super) fn real(&mut self, name: &str, value: f32) {
        self.key(name, 6);
        self.bytes.extend(value.to_le_bytes());
    }

    pub(super) fn flag(&mut self, name: &str, value: bool) {
        self.key(name, 7);
        self.bytes.push(value.into());
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.key(name, 8);
        string(&mut self.bytes, value);
    }

    fn list(&mut self, name: &str, kind: u32, count: u64) {
        self.key(name, 9);
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(count.to_le_bytes());
    }

    pub(super) fn texts(&mut self, name: &str, values: &[String]) {
        self.list(name, 8, values.len() as u64);
        values.iter().for_each(|value| string(&mut self.bytes, value));
    }

    pub(super) fn integers(&mut self, name: &str, values: &[i32]) {
        self.list(name, 5, values.len() as u64);
        values.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
    }
}

fn string(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

/// Header, pairs, table of tensors, and the tensors, each at an aligned place.
pub(super) fn file(pairs: &Pairs, tensors: &[Tensor]) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend(pairs.count.to_le_bytes());
    file.extend(&pairs.bytes);
    let mut data = Vec::new();
    for Tensor { name, shape, values } in tensors {
        string(&mut file, name);
        let dimensions = if shape[1] == 1 { &shape[..1] } else { &shape[..] };
        file.extend((dimensions.len() as u32).to_le_bytes());
        dimensions.iter().for_each(|length| file.extend(length.to_le_bytes()));
        // Vectors are F32 everywhere, matrices F16: what every loader takes.
        file.extend(if shape[1] == 1 { F32 } else { F16 }.to_le_bytes());
        file.extend((data.len() as u64).to_le_bytes());
        for value in values {
            if shape[1] == 1 {
                data.extend(value.to_le_bytes());
            } else {
                data.extend(half(*value).to_le_bytes());
            }
        }
        data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
    }
    file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
    file.extend(data);
    file
}

/// As a half, cut towards zero; what is below its normal numbers becomes zero.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    let sign = (bits >> 16 & 0x8000) as u16;
    if exponent <= 0 { sign } else { sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_those_of_the_standard() {
        for (value, bits) in
            [(1.0, 0x3c00), (-2.0, 0xc000), (8.0, 0x4800), (0.1, 0x2e66), (0.0, 0), (1e-9, 0)]
        {
            assert_eq!(half(value), bits, "{value}");
        }
    }
}
