//! Models split over several GGUF files: the same as in one, and refused where a part is missing or not of the model.

use std::fs;
use std::path::{Path, PathBuf};

use cascadia_ov_ir::{BIN, Inspection, Report, Request, Target, XML, compile, inspect, parts, verify};

use crate::fixture::{Scratch, request, whole};
use crate::models::source;
use crate::split::split;

/// A model in three parts; the first has no tensors, as the splitter does it on request.
fn split_up(name: &str, scratch: &Scratch) -> PathBuf {
    split(&source(name), &scratch.path(""), "m", &[0, 7])
}

fn refusal(first: &Path, scratch: &Scratch) -> String {
    let before = fs::read_dir(scratch.path("")).unwrap().count();
    let error = compile(&request(first, &scratch.path("out")), &mut ()).unwrap_err().to_string();
    assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), before, "something was written");
    assert_eq!(inspect(first).unwrap_err().to_string(), error);
    error
}

#[test]
fn a_model_in_parts_is_the_model_in_one_file() {
    for name in ["llama-gguf", "gemma3-gguf"] {
        let scratch = Scratch::new(&format!("parts-{name}"));
        let first = split_up(name, &scratch);
        assert_eq!(parts(&first).unwrap().len(), 3);
        let one = whole(name, &scratch.path("one"));
        let several = compile(&request(&first, &scratch.path("several")), &mut ()).unwrap();
        // The vocabulary says that its model came in parts.
        let network = |report: &Report| [XML, BIN].map(|file| report.manifest.files[file].clone());
        assert_eq!(network(&several), network(&one), "{name}");
        assert_eq!(several.manifest.weights, one.manifest.weights);
        assert_ne!(several.manifest.key, one.manifest.key, "its source is another");
        verify(&several.folder, &mut ()).unwrap();
        let (Inspection::Source(split), Inspection::Source(file)) =
            (inspect(&first).unwrap(), inspect(&source(name)).unwrap())
        else {
            panic!("both are sources")
        };
        assert_eq!((split.formats, split.layers), (file.formats, file.layers));
    }
}

#[test]
fn a_later_part_that_changed_makes_another_model_of_it() {
    let scratch = Scratch::new("parts-changed");
    let first = split_up("qwen3-gguf", &scratch);
    let cache =
        Request { target: Target::Cache(scratch.path("cache")), ..request(&first, &scratch.path("")) };
    let before = compile(&cache, &mut ()).unwrap();
    assert!(compile(&cache, &mut ()).unwrap().cached);
    let last = scratch.path("m-00003-of-00003.gguf");
    let mut bytes = fs::read(&last).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&last, bytes).unwrap();
    assert_ne!(compile(&cache, &mut ()).unwrap().folder, before.folder);
}

#[test]
fn a_missing_a_doubled_and_a_foreign_part_are_named_with_the_way_out() {
    let scratch = Scratch::new("parts-wrong");
    let first = split_up("qwen3-gguf", &scratch);
    let (second, third) = (scratch.path("m-00002-of-00003.gguf"), scratch.path("m-00003-of-00003.gguf"));
    let whole: Vec<Vec<u8>> = [&first, &second, &third].map(|path| fs::read(path).unwrap()).into();

    let said = refusal(&second, &scratch);
    assert!(said.contains("m-00002-of-00003.gguf"), "{said}");
    let source = std::error::Error::source(&inspect(&second).unwrap_err()).unwrap().to_string();
    assert!(source.contains("part 2 of 3") && source.contains("-00001-of-00003.gguf"), "{source}");

    fs::remove_file(&third).unwrap();
    let said = refusal(&first, &scratch);
    assert!(said.contains("m-00003-of-00003.gguf: is missing; it is part 3 of 3"), "{said}");

    fs::write(&third, &whole[1]).unwrap();
    let said = refusal(&first, &scratch);
    assert!(said.contains("has the name of part 3 of 3 and is part 2 of 3"), "{said}");
    fs::write(&third, fs::read(self::source("qwen3-gguf")).unwrap()).unwrap();
    let said = refusal(&first, &scratch);
    assert!(
        said.contains("m-00003-of-00003.gguf: has the name of part 3 of 3 and is a whole model"),
        "{said}"
    );

    fs::write(&third, &whole[2][..whole[2].len() - 64]).unwrap();
    let said = std::error::Error::source(&inspect(&first).unwrap_err()).unwrap().to_string();
    assert!(said.contains("reaches behind") && said.contains("fetch it again"), "{said}");

    // Of another model: with other tensors, with the same, and with as many others.
    let other = Scratch::new("parts-foreign");
    split(&self::source("qwen2-gguf"), &other.path(""), "m", &[0, 7]);
    fs::copy(other.path("m-00003-of-00003.gguf"), &third).unwrap();
    let said = refusal(&first, &scratch);
    assert!(said.contains("parts have 24 tensors, they have 14"), "{said}");
    split(&self::source("qwen3-gguf"), &other.path(""), "m", &[0, 9]);
    fs::write(&third, &whole[2]).unwrap();
    fs::copy(other.path("m-00002-of-00003.gguf"), &second).unwrap();
    let said = refusal(&first, &scratch);
    assert!(said.contains("they are not of one model"), "{said}");

    fs::write(&second, &whole[1]).unwrap();
    inspect(&first).unwrap();
    let renamed = scratch.path("model.gguf");
    fs::rename(&first, &renamed).unwrap();
    let said = refusal(&renamed, &scratch);
    assert!(said.contains("part 1 of 3") && said.contains("-00001-of-00003.gguf"), "{said}");
}

#[test]
fn a_tensor_in_two_parts_is_no_model() {
    let scratch = Scratch::new("parts-twice");
    let first = split_up("qwen3-gguf", &scratch);
    // The second part again, under the number of the third, and the sum made right.
    let mut second = fs::read(scratch.path("m-00002-of-00003.gguf")).unwrap();
    let number =
        |bytes: &[u8], key: &[u8]| bytes.windows(key.len()).position(|at| at == key).unwrap() + key.len() + 4;
    let at = number(&second, b"split.no");
    second[at] = 2;
    fs::write(scratch.path("m-00003-of-00003.gguf"), second).unwrap();
    let mut bytes = fs::read(&first).unwrap();
    let at = number(&bytes, b"split.tensors.count");
    bytes[at] = 14;
    fs::write(&first, bytes).unwrap();
    let said = refusal(&first, &scratch);
    assert!(
        said.contains("m-00003-of-00003.gguf: tensor") && said.contains("in an earlier part too"),
        "{said}"
    );
}
