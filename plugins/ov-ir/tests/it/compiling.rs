//! Folders that the compiler writes, without OpenVINO.

use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;

use cascadia_gguf::{Gguf, VOCABULARY};
use cascadia_ov_ir::{
    BIN, Bits, Error, Inspection, MANIFEST, Quantize, Request, Step, Target, XML, compile, inspect, verify,
};

use crate::fixture::{Scratch, copy, listed, request, whole};
use crate::models::{self, source};

fn cache(name: &str, folder: &Path) -> Request {
    Request { target: Target::Cache(folder.to_owned()), ..request(&source(name), folder) }
}

#[test]
fn every_fixture_compiles_to_a_folder_that_verifies() {
    let scratch = Scratch::new("verifies");
    for name in models::all() {
        let folder = scratch.path(&name);
        let report = whole(&name, &folder);
        assert!(!report.cached);
        let config = if name.ends_with("-hf") { Some("config.json") } else { None };
        let vocabulary = config.is_none().then_some(VOCABULARY);
        let expected: Vec<&str> =
            [MANIFEST].into_iter().chain(config).chain([BIN, XML]).chain(vocabulary).collect();
        assert_eq!(listed(&folder), expected);
        assert_eq!(verify(&folder, &mut ()).unwrap(), report.manifest);
        let capped = name.starts_with("gemma2");
        assert_eq!(report.manifest.model.paged, !capped, "{name}");
    }
    let left: Vec<String> = listed(&scratch.path("")).into_iter().filter(|n| n.starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?} are left over");
}

#[test]
fn a_vocabulary_goes_with_what_a_gguf_file_is_compiled_to() {
    let scratch = Scratch::new("vocabulary");
    let report = whole("qwen2-gguf", &scratch.path("model"));
    let read = |path: &Path| Gguf::read(fs::File::open(path).unwrap()).unwrap();
    let (original, copied) = (read(&source("qwen2-gguf")), read(&report.folder.join(VOCABULARY)));
    assert_eq!(original.metadata().collect::<Vec<_>>(), copied.metadata().collect::<Vec<_>>());
    assert!(copied.tensors().is_empty() && !original.tensors().is_empty());
    fs::write(report.folder.join(VOCABULARY), "GGUF").unwrap();
    assert!(verify(&report.folder, &mut ()).is_err(), "it has a digest as the others have");
}

#[test]
fn the_same_source_gives_the_same_bytes() {
    let scratch = Scratch::new("same");
    let (a, b) = (whole("qwen2-gguf", &scratch.path("a")), whole("qwen2-gguf", &scratch.path("b")));
    assert_eq!(a.manifest, b.manifest);
}

#[test]
fn a_cache_compiles_once_and_again_only_what_is_damaged() {
    let scratch = Scratch::new("cache");
    let request = cache("llama-gguf", &scratch.path("cache"));
    let first = compile(&request, &mut ()).unwrap();
    let second = compile(&request, &mut ()).unwrap();
    assert_eq!((first.cached, second.cached), (false, true));
    assert_eq!((&first.folder, &first.manifest), (&second.folder, &second.manifest));
    let part = Request { layers: Some(0..1), ..request.clone() };
    assert_ne!(compile(&part, &mut ()).unwrap().folder, first.folder);
    let bin = first.folder.join(BIN);
    let file = fs::File::options().write(true).open(&bin).unwrap();
    file.set_len(100).unwrap();
    let third = compile(&request, &mut ()).unwrap();
    assert!(!third.cached);
    verify(&third.folder, &mut ()).unwrap();
}

#[test]
fn of_several_that_ask_at_once_one_compiles() {
    let scratch = Scratch::new("several");
    let request = cache("gemma3-gguf", &scratch.path("cache"));
    let reports: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| compile(&request, &mut ()).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(reports.iter().filter(|report| !report.cached).count(), 1);
    assert!(reports.iter().all(|report| report.manifest == reports[0].manifest));
}

#[test]
fn what_an_ended_compilation_left_is_cleared_away() {
    let scratch = Scratch::new("ended");
    let left = scratch.path(".model.partial");
    fs::create_dir(&left).unwrap();
    fs::write(left.join(BIN), "half").unwrap();
    whole("llama-hf", &scratch.path("model"));
    assert_eq!(listed(&scratch.path("")), ["model"]);
}

#[test]
fn another_source_of_the_same_name_gets_another_folder() {
    let scratch = Scratch::new("content");
    let file = scratch.path("model.gguf");
    let of = |name: &str| {
        fs::copy(source(name), &file).unwrap();
        let request = Request { source: file.clone(), ..cache(name, &scratch.path("cache")) };
        compile(&request, &mut ()).unwrap().folder
    };
    let (one, other) = (of("llama-gguf"), of("qwen3-gguf"));
    assert_ne!(one, other);
    assert_eq!(of("llama-gguf"), one);
}

#[test]
fn a_changed_byte_and_a_lost_file_are_found() {
    let scratch = Scratch::new("damage");
    let folder = scratch.path("model");
    whole("qwen3-gguf", &folder);
    let bin = folder.join(BIN);
    let mut bytes = fs::read(&bin).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&bin, bytes).unwrap();
    let error = verify(&folder, &mut ()).unwrap_err().to_string();
    assert!(error.contains(BIN) && error.contains("digest"), "{error}");
    fs::remove_file(&bin).unwrap();
    let error = verify(&folder, &mut ()).unwrap_err().to_string();
    assert!(error.contains(BIN) && error.contains("is missing; compile the model again"), "{error}");
    fs::remove_file(folder.join(MANIFEST)).unwrap();
    let error = verify(&folder, &mut ()).unwrap_err().to_string();
    assert!(error.contains("has no cascadia-manifest.json"), "{error}");
}

#[test]
fn a_folder_that_holds_something_else_is_left_alone() {
    let scratch = Scratch::new("alone");
    let folder = scratch.path("mine");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("letter.txt"), "dear").unwrap();
    let error = compile(&request(&source("llama-hf"), &folder), &mut ()).unwrap_err().to_string();
    assert!(error.contains("remove it or choose another"), "{error}");
    assert_eq!(listed(&folder), ["letter.txt"]);
    let again = scratch.path("model");
    whole("llama-hf", &again);
    assert!(whole("llama-hf", &again).cached);
    assert!(compile(&request(&source("qwen2-hf"), &again), &mut ()).is_err());
}

#[test]
fn a_cancelled_compilation_leaves_nothing() {
    let scratch = Scratch::new("cancel");
    let folder = scratch.path("cache");
    let mut weights = 0;
    let mut stop = |step: Step, done: u64, total: u64| {
        assert!(done <= total);
        weights += u32::from(step == Step::Weights && done > 0);
        if weights == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let error = compile(&cache("llama-hf", &folder), &mut stop).unwrap_err();
    assert!(matches!(error, Error::Cancelled { .. }), "{error}");
    assert!(listed(&folder).is_empty(), "{:?}", listed(&folder));
}

#[test]
fn progress_ends_with_all_bytes_counted() {
    let scratch = Scratch::new("progress");
    let mut last = (Step::Wait, 0, 0);
    let mut watch = |step, done, total| {
        last = (step, done, total);
        ControlFlow::Continue(())
    };
    compile(&request(&source("gemma3-gguf"), &scratch.path("model")), &mut watch).unwrap();
    let (step, done, total) = last;
    assert_eq!((step, done), (Step::Weights, total));
}

#[test]
fn a_tokenizer_goes_with_the_model_and_makes_another_of_it() {
    let scratch = Scratch::new("tokenizer");
    let folder = copy(&source("llama-hf"), &scratch.path("source"));
    let of =
        || compile(&Request { source: folder.clone(), ..cache("llama-hf", &scratch.path("cache")) }, &mut ());
    let without = of().unwrap();
    fs::write(folder.join("tokenizer.json"), "{}").unwrap();
    fs::write(folder.join("README.md"), "words").unwrap();
    let with = of().unwrap();
    assert_ne!(without.folder, with.folder);
    assert_eq!(fs::read(with.folder.join("tokenizer.json")).unwrap(), b"{}");
    assert!(!with.folder.join("README.md").exists());
    assert_eq!(with.manifest.files["tokenizer.json"].bytes, 2);
    verify(&with.folder, &mut ()).unwrap();
}

#[test]
fn long_contexts_choose_the_factors_for_long_texts() {
    let scratch = Scratch::new("long");
    let of = |context| {
        let request = Request { context, ..cache("phi3-hf", &scratch.path("cache")) };
        compile(&request, &mut ()).unwrap()
    };
    let (plain, short, long) = (of(None), of(Some(256)), of(Some(257)));
    assert_eq!((&plain.folder, short.cached, long.cached), (&short.folder, true, false));
    assert_ne!(short.manifest.files[BIN], long.manifest.files[BIN]);
}

#[test]
fn requests_that_cannot_be_met_are_refused() {
    let scratch = Scratch::new("requests");
    let plain = request(&source("llama-hf"), &scratch.path("out"));
    for layers in [0..3, 1..1, 2..3] {
        let asked = Request { layers: Some(layers), ..plain.clone() };
        assert!(matches!(compile(&asked, &mut ()), Err(Error::Request(_))));
    }
    let quantize = Some(Quantize { bits: Bits::Four, group: NonZeroUsize::new(48) });
    let error = compile(&Request { quantize, ..plain }, &mut ()).unwrap_err().to_string();
    assert!(error.contains("groups of 48"), "{error}");
    assert!(listed(&scratch.path("")).is_empty());
}

#[test]
fn a_tied_table_is_stored_once() {
    let scratch = Scratch::new("tied");
    let report = whole("qwen2-hf", &scratch.path("model"));
    let source = fs::metadata(source("qwen2-hf").join("model.safetensors")).unwrap().len();
    // Vectors double, from bf16 to f32; the table has 4096 bytes.
    let bin = report.manifest.files[BIN].bytes;
    assert!(bin < source + 3000, "{bin} bytes from {source}");
    let stored = &report.manifest.weights.formats["BF16"];
    assert_eq!(stored.tensors, 15);
}

#[test]
fn an_inspection_names_family_sizes_and_formats() {
    let Inspection::Source(found) = inspect(&source("gemma3-gguf")).unwrap() else {
        panic!("a gguf file is a source")
    };
    assert_eq!((found.family.as_str(), found.layers, found.tied, found.paged), ("gemma3", 7, true, true));
    assert_eq!(found.windows, [(8, 6)].into());
    assert_eq!(found.formats["Q4_0"].tensors, 49);
    let scratch = Scratch::new("inspect");
    let report = whole("mistral-hf", &scratch.path("model"));
    let Inspection::Compiled(manifest) = inspect(&scratch.path("model")).unwrap() else {
        panic!("a folder with a manifest is a compiled model")
    };
    assert_eq!(*manifest, report.manifest);
}
