//! Headers with random damage: an error or another model, never a panic and never anything left behind.

use std::fs;
use std::ops::Range;
use std::path::Path;

use cascadia_ov_ir::{BIN, Error, MANIFEST, Request, XML, compile, inspect};

use crate::fixture::{Scratch, request, whole};
use crate::models::source;

/// xorshift64*: the same damage in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// Damages a file's first bytes again and again, and gives how often the source was still described.
fn damage(
    original: &Path,
    (whole, file): (&Path, &Path),
    layers: Option<Range<usize>>,
    (head, rounds): (usize, usize),
) -> usize {
    let bytes = fs::read(original).unwrap();
    let scratch = Scratch::new(&format!("damage-{}", file.file_name().unwrap().to_string_lossy()));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut taken = 0;
    for round in 0..rounds {
        let mut broken = bytes.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(head.min(broken.len()));
            broken[at] = match random.below(4) {
                0 => 0,
                1 => 0xff,
                2 => broken[at] ^ (1 << random.below(8)),
                _ => random.below(256) as u8,
            };
        }
        fs::write(file, broken).unwrap();
        if inspect(whole).is_err() {
            continue;
        }
        taken += 1;
        let out = scratch.path(&round.to_string());
        match compile(&Request { layers: layers.clone(), ..request(whole, &out) }, &mut ()) {
            Ok(_) => fs::remove_dir_all(&out).unwrap(),
            Err(Error::Verify { path, problem }) => panic!("{}: {problem}", path.display()),
            Err(_) => assert!(!out.exists()),
        }
    }
    taken
}

#[test]
fn damaged_gguf_headers_are_refused_or_taken_as_they_are() {
    let scratch = Scratch::new("gguf-damage");
    for name in ["llama-gguf", "gemma3-gguf"] {
        let file = scratch.path(&format!("{name}.gguf"));
        let taken = damage(&source(name), (&file, &file), None, (4000, 100));
        assert!(taken < 80, "{taken} of 100 damaged headers of {name} were taken");
    }
}

#[test]
fn damaged_safetensors_and_configurations_are_refused_or_taken_as_they_are() {
    let scratch = Scratch::new("hf-damage");
    for (model, name, head) in [
        ("gemma3-hf", "model.safetensors", 3000),
        ("gemma3-hf", "config.json", 900),
        ("llama-gptq-hf", "model.safetensors", 6000),
        ("qwen2-awq-hf", "config.json", 900),
    ] {
        let (from, folder) = (source(model), scratch.path(&format!("{model}-{name}")));
        fs::create_dir(&folder).unwrap();
        for file in ["model.safetensors", "config.json"] {
            fs::copy(from.join(file), folder.join(file)).unwrap();
        }
        let taken = damage(&from.join(name), (&folder, &folder.join(name)), None, (head, 200));
        assert!(taken < 180, "{taken} of 200 damaged files {name} of {model} were taken");
    }
}

#[test]
fn damaged_networks_are_refused_or_cut_as_they_are() {
    let scratch = Scratch::new("network-damage");
    let folder = scratch.path("network");
    whole("smollm3-gguf", &scratch.path("whole"));
    fs::create_dir(&folder).unwrap();
    for file in [XML, BIN] {
        fs::copy(scratch.path("whole").join(file), folder.join(file)).unwrap();
    }
    assert!(!folder.join(MANIFEST).exists());
    let original = scratch.path("whole").join(XML);
    let taken = damage(&original, (&folder, &folder.join(XML)), Some(1..3), (30_000, 60));
    assert!(taken < 50, "{taken} of 60 damaged networks were taken");
}
