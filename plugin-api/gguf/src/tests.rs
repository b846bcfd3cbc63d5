//! The reader against small files made here: each type, each lie a header can tell, and every truncation.

#![allow(clippy::unwrap_used)]

use crate::{Array, Error, Gguf, Limits, Split, TensorType, Value, model_name, part_names};

/// Writes the format from nothing, so that reader and writer share no code.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn header(tensors: u64, keys: u64) -> Self {
        Self::default().raw(b"GGUF").u32(3).u64(tensors).u64(keys)
    }
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
    fn u32(self, n: u32) -> Self {
        self.raw(&n.to_le_bytes())
    }
    fn u64(self, n: u64) -> Self {
        self.raw(&n.to_le_bytes())
    }
    fn text(self, s: &str) -> Self {
        self.u64(s.len() as u64).raw(s.as_bytes())
    }
    fn key(self, key: &str, kind: u32) -> Self {
        self.text(key).u32(kind)
    }
    fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let head = self.text(name).u32(dims.len() as u32);
        dims.iter().fold(head, |w, d| w.u64(*d)).u32(kind).u64(offset)
    }
}

fn full() -> Vec<u8> {
    let w = Writer::header(2, 15);
    let w = w.key("a.u8", 0).raw(&[200]).key("a.i8", 1).raw(&[0xff]);
    let w = w.key("a.u16", 2).raw(&60000u16.to_le_bytes()).key("a.i16", 3).raw(&(-2i16).to_le_bytes());
    let w = w.key("a.u32", 4).u32(7).key("a.i32", 5).raw(&(-7i32).to_le_bytes());
    let w = w.key("a.f32", 6).raw(&1.5f32.to_le_bytes()).key("a.bool", 7).raw(&[1]);
    let w = w.key("a.str", 8).text("héllo");
    let w = w.key("a.u64", 10).u64(u64::MAX).key("a.i64", 11).raw(&i64::MIN.to_le_bytes());
    let w = w.key("a.f64", 12).raw(&2.5f64.to_le_bytes());
    let w = w.key("l.str", 9).u32(8).u64(2).text("x").text("");
    let w = w.key("l.nest", 9).u32(9).u64(2).u32(5).u64(1).u32(9).u32(5).u64(0);
    let w = w.key("general.alignment", 4).u32(64);
    let w = w.tensor("w", &[64, 3], 2, 0).tensor("odd", &[5], 99, 128);
    w.0
}

#[test]
fn metadata_are_written_without_tensors() {
    let (file, mut written) = (full(), Vec::new());
    let g = Gguf::read(file.as_slice()).unwrap();
    let bytes = g.copy_metadata(file.as_slice(), &mut written).unwrap();
    assert_eq!(bytes, written.len() as u64);
    let copy = Gguf::read(written.as_slice()).unwrap();
    assert!(copy.metadata().eq(g.metadata()) && copy.tensors().is_empty());
    let short = g.copy_metadata(&file[..written.len() - 1], &mut Vec::new());
    assert_eq!(short.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn every_type_is_read_back() {
    let g = Gguf::read(full().as_slice()).unwrap();
    assert_eq!(g.version(), 3);
    assert_eq!(g.get("a.u8"), Some(&Value::U8(200)));
    assert_eq!(g.i64("a.i8").unwrap(), Some(-1));
    assert_eq!(g.u64("a.u16").unwrap(), Some(60000));
    assert_eq!(g.i64("a.i16").unwrap(), Some(-2));
    assert_eq!(g.u32("a.u32").unwrap(), Some(7));
    assert_eq!(g.i64("a.i32").unwrap(), Some(-7));
    assert_eq!(g.f32("a.f32").unwrap(), Some(1.5));
    assert_eq!(g.bool("a.bool").unwrap(), Some(true));
    assert_eq!(g.str("a.str").unwrap(), Some("héllo"));
    assert_eq!(g.u64("a.u64").unwrap(), Some(u64::MAX));
    assert_eq!(g.i64("a.i64").unwrap(), Some(i64::MIN));
    assert_eq!(g.f32("a.f64").unwrap(), Some(2.5));
    assert_eq!(g.strings("l.str").unwrap().unwrap(), ["x", ""]);
    let nest = Array::Array(vec![Array::I32(vec![9]), Array::I32(vec![])]);
    assert_eq!(g.array("l.nest").unwrap(), Some(&nest));
    assert_eq!(g.metadata().count(), 15);
}

#[test]
fn tensors_know_their_sizes_and_places() {
    let bytes = full();
    let g = Gguf::read(bytes.as_slice()).unwrap();
    assert_eq!((g.alignment(), g.data_offset()), (64, (bytes.len() as u64).next_multiple_of(64)));
    let w = g.tensor("w").unwrap();
    assert_eq!((w.kind, w.elements(), w.bytes()), (TensorType::Q4_0, 192, Some(108)));
    assert_eq!(g.range(w).unwrap(), g.data_offset()..g.data_offset() + 108);
    let odd = g.tensor("odd").unwrap();
    assert_eq!((odd.kind, odd.kind.id(), odd.bytes()), (TensorType::Other(99), 99, None));
    assert!(g.tensor("none").is_none());
    g.check_len(g.data_offset() + 108).unwrap();
    let short = g.check_len(g.data_offset() + 107).unwrap_err().to_string();
    assert!(short.contains("tensor w"), "{short}");
}

#[test]
fn a_file_cut_at_any_byte_is_truncated_and_nothing_else() {
    let bytes = full();
    for cut in 0..bytes.len() {
        let error = Gguf::read(&bytes[..cut]).unwrap_err();
        assert!(matches!(error, Error::Truncated { at, .. } if at <= cut as u64), "cut {cut}: {error}");
        assert!(error.is_truncated());
    }
}

#[test]
fn a_flipped_byte_never_panics() {
    let bytes = full();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = bytes.clone();
            bad[at] ^= flip;
            if let Err(error) = Gguf::read(bad.as_slice()) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

fn refused(bytes: Vec<u8>, expected: &str) {
    let error = Gguf::read(bytes.as_slice()).unwrap_err().to_string();
    assert!(error.contains(expected), "{error:?} lacks {expected:?}");
}

#[test]
fn lies_are_refused_by_name() {
    refused(b"PK\x03\x04".to_vec(), "not a gguf file");
    refused(b"GGUF\x01\0\0\0".to_vec(), "version 1 ");
    refused(b"GGUF\0\0\0\x03".to_vec(), "version 50331648");
    refused(Writer::header(u64::MAX, 0).0, "tensor count 18446744073709551615");
    refused(Writer::header(0, 1 << 40).0, "key count 1099511627776");
    refused(Writer::header(0, 1).u64(u64::MAX).0, "metadata key number 0 at byte 32 claims key bytes");
    refused(Writer::header(0, 1).key("k", 13).0, "metadata key k at byte 37 has value type 13");
    refused(Writer::header(0, 1).key("k", 8).u64(1 << 60).0, "metadata key k at byte 45 claims string bytes");
    refused(Writer::header(0, 1).key("k", 8).u64(2).raw(&[0xc3, 0x28]).0, "not utf-8");
    refused(Writer::header(0, 1).key("k", 7).raw(&[2]).0, "boolean 2");
    refused(Writer::header(0, 1).key("k", 9).u32(8).u64(1 << 50).0, "array length 1125899906842624");
    refused(Writer::header(0, 1).key("k", 9).u32(44).u64(0).0, "value type 44");
    refused(
        Writer::header(0, 2).key("k", 0).raw(&[1]).key("k", 0).0,
        "metadata key k at byte 47 occurs twice",
    );
    let deep = (0..5).fold(Writer::header(0, 1).key("k", 9), |w, _| w.u32(9).u64(1));
    refused(deep.0, "array depth 5, the limit is 4");
}

#[test]
fn impossible_tensors_are_refused_by_name() {
    refused(Writer::header(1, 0).tensor("t", &[1; 5], 0, 0).0, "dimensions 5");
    refused(Writer::header(1, 0).tensor("t", &[u64::MAX, 2], 0, 0).0, "product");
    refused(Writer::header(1, 0).tensor("t", &[u64::MAX / 2], 0, 0).0, "64 bits");
    refused(Writer::header(1, 0).tensor("t", &[33], 2, 0).0, "rows of 33");
    refused(Writer::header(1, 0).tensor("t", &[32], 2, 8).0, "no multiple of the alignment 32");
    refused(Writer::header(1, 0).tensor("t", &[32], 0, u64::MAX - 31).0, "64 bits");
    refused(Writer::header(2, 0).tensor("t", &[1], 0, 0).tensor("t", &[1], 0, 32).0, "tensor t");
    for alignment in [0, 3, 1 << 21] {
        refused(
            Writer::header(0, 1).key("general.alignment", 4).u32(alignment).0,
            &format!("alignment is {alignment}"),
        );
    }
    refused(Writer::header(0, 1).key("general.alignment", 8).text("x").0, "is a string, expected u32");
}

#[test]
fn limits_bound_the_whole_header() {
    let bytes = full();
    let exact = Limits { header_bytes: bytes.len() as u64, ..Limits::default() };
    Gguf::read_within(bytes.as_slice(), &exact).unwrap();
    let less = Limits { header_bytes: bytes.len() as u64 - 1, ..Limits::default() };
    let error = Gguf::read_within(bytes.as_slice(), &less).unwrap_err();
    assert!(matches!(error, Error::Limit { what: "header bytes", .. }), "{error}");
}

#[test]
fn getters_tell_absent_from_wrong() {
    let g = Gguf::read(full().as_slice()).unwrap();
    assert_eq!(g.str("no.such").unwrap(), None);
    let error = g.u64("a.str").unwrap_err().to_string();
    assert_eq!(
        error,
        "gguf: metadata key a.str is a string, expected a non-negative integer; convert the model again"
    );
    assert!(g.u64("a.i32").is_err());
    assert!(g.bool("a.u8").is_err());
    assert!(g.u32("a.u64").is_err());
    assert!(g.f32s("l.str").is_err());
    assert!(g.i64s("l.str").is_err());
}

#[test]
fn a_reader_error_keeps_its_source() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("disk on fire"))
        }
    }
    let error = Gguf::read(Broken).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "disk on fire");
}

#[test]
fn a_part_of_a_model_knows_its_number_and_that_it_opens_none() {
    let part = |no: u32, count: u32| {
        let w = Writer::header(0, 3).key("split.no", 2).raw(&(no as u16).to_le_bytes());
        let w = w.key("split.count", 2).raw(&(count as u16).to_le_bytes());
        Gguf::read(w.key("split.tensors.count", 5).u32(7).0.as_slice()).unwrap()
    };
    let first = part(0, 3);
    assert_eq!(first.split().unwrap(), Some(Split { no: 0, count: 3, tensors: Some(7) }));
    assert_eq!(first.opening().unwrap(), first.split().unwrap());
    let second = part(1, 3).opening().unwrap_err().to_string();
    assert!(second.contains("part 2 of 3") && second.ends_with("-00001-of-00003.gguf"), "{second}");
    assert_eq!(part(0, 1).split().unwrap(), None, "one part is a whole model");
    let lost = Writer::header(0, 1).key("split.count", 2).raw(&3u16.to_le_bytes());
    let lost = Gguf::read(lost.0.as_slice()).unwrap().split().unwrap_err();
    assert!(matches!(lost, Error::Missing { .. }), "{lost}");
}

#[test]
fn names_of_parts_follow_from_that_of_the_first() {
    let names = part_names("a-of-b-00001-of-00003.gguf").unwrap();
    assert_eq!(
        names,
        ["a-of-b-00001-of-00003.gguf", "a-of-b-00002-of-00003.gguf", "a-of-b-00003-of-00003.gguf"]
    );
    assert_eq!(model_name("m-00002-of-00003.gguf"), Some("m"));
    for other in
        ["m.gguf", "m-00002-of-00003.gguf", "m-1-of-3.gguf", "m-00001-of-00000.gguf", "m-00001-of-+0003.gguf"]
    {
        assert_eq!(part_names(other), None, "{other}");
    }
    assert_eq!(model_name("m-00004-of-00003.gguf"), None);
}
