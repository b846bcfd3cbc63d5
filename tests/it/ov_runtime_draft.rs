//! A draft model guesses for the model: texts are those without it, what it guesses is counted, one that does not fit is refused.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use cascadia_gguf::Gguf;
use cascadia_tests::client::{CHAT, COMPLETIONS, Stream, streamed};
use cascadia_tests::http::Request;
use cascadia_tests::{Host, Scrape, TempDir, setup};
use serde_json::{Value, json};

use crate::ov_genai::ask;
use crate::ov_runtime::{blocks, fixed, host};

const TOKENS: u64 = 16;

fn own(metrics: &Scrape, name: &str, labels: &[(&str, &str)]) -> f64 {
    metrics.sum(&format!("cascadia_plugin_ov_runtime_{name}"), labels)
}

/// Some are drawn, some take what is likeliest. (Not from all tokens: between thousands of unlikely ones a draw hangs on rounding.)
fn question(i: u64) -> Value {
    let temperature = if i.is_multiple_of(3) { 0.8 } else { 0.0 };
    ask(
        &format!("Tell me about the number {i}. {}", "And more. ".repeat(3 * i as usize)),
        &json!({"max_tokens": TOKENS, "temperature": temperature, "top_k": 20, "seed": i, "ignore_eos": true}),
    )
}

/// One alone, then four at once.
fn texts(host: &Host) -> Result<Vec<String>> {
    let mut texts = vec![host.told(CHAT, &streamed(question(1)))?.text];
    let streams: Vec<Stream> =
        (0..4).map(|i| host.stream(CHAT, &streamed(question(i)))).collect::<Result<_>>()?;
    for stream in streams {
        texts.push(stream.rest()?.text);
    }
    Ok(texts)
}

/// The model without its last layers: of the same vocabulary, and worse.
fn first_layers(model: &Path, layers: u32, folder: &TempDir) -> Result<PathBuf> {
    const COUNT: &[u8] = b"llama.block_count";
    let bytes = std::fs::read(model)?;
    let header = Gguf::read(bytes.as_slice())?;
    let tensors = header.tensors();
    let kept = |name: &str| {
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        layer.is_none_or(|layer| layer < layers)
    };
    let find = |what: &[u8]| bytes.windows(what.len()).position(|at| at == what).context("not in the header");
    // A name comes behind its length, a value behind its name and type.
    let name = |name: &str| [&(name.len() as u64).to_le_bytes(), name.as_bytes()].concat();
    let mut values = bytes[24..find(&name(&tensors[0].name))?].to_vec();
    let at = find(COUNT)? - 24 + COUNT.len() + 4;
    values[at..at + 4].copy_from_slice(&layers.to_le_bytes());
    let count = tensors.iter().filter(|tensor| kept(&tensor.name)).count() as u64;
    let mut out = [&bytes[..8], &count.to_le_bytes(), &bytes[16..24], &values].concat();
    for tensor in tensors.iter().filter(|tensor| kept(&tensor.name)) {
        out.extend(name(&tensor.name));
        out.extend((tensor.dims.len() as u32).to_le_bytes());
        tensor.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
        out.extend(tensor.kind.id().to_le_bytes());
        out.extend(tensor.offset.to_le_bytes());
    }
    // The data stays where it is; nobody names some of it.
    out.resize(out.len().next_multiple_of(usize::try_from(header.alignment())?), 0);
    let path = folder.path().join("first-layers.gguf");
    let mut file = std::fs::File::create(&path)?;
    file.write_all(&out)?;
    file.write_all(&bytes[usize::try_from(header.data_offset())?..])?;
    Ok(path)
}

#[test]
fn a_draft_model_changes_no_text_and_its_guesses_are_counted() -> Result<()> {
    let (Some(plain), Some(model)) = (host(&["--profile", "exact"]), setup::model()) else { return Ok(()) };
    let expected = texts(&plain)?;
    drop(plain);
    let folder = TempDir::new();
    let worse = first_layers(&model, 27, &folder)?;
    for (draft, policy) in [(&model, "always"), (&worse, "always"), (&worse, "adaptive")] {
        let draft = draft.display().to_string();
        let options = ["--profile", "exact", "--draft-model", &draft, "--assistant-policy", policy];
        let Some(host) = host(&options) else { return Ok(()) };
        assert_eq!(texts(&host)?, expected, "{draft}, {policy}");
        let metrics = host.quiet();
        let of = |outcome| own(&metrics, "draft_tokens_total", &[("outcome", outcome)]);
        let (accepted, rejected) = (of("accepted"), of("rejected"));
        let steps = own(&metrics, "step_seconds_count", &[("part", "draft")]);
        assert_eq!(steps, own(&metrics, "step_rows_count", &[]));
        if policy == "always" {
            let tokens = 5.0 * TOKENS as f64;
            // What is drawn is not always the likeliest.
            let (right, least) =
                if draft == model.display().to_string() { (true, 0.5) } else { (false, 0.05) };
            assert!(accepted > least * tokens, "{accepted} and {rejected} of {tokens}");
            assert!(right == (rejected < accepted), "{accepted} and {rejected}");
            assert!(own(&metrics, "step_seconds_sum", &[("part", "draft")]) > 0.0);
        }
        let draft_blocks =
            |state| metrics.value("cascadia_plugin_ov_runtime_draft_kv_blocks", &[("state", state)]);
        assert_eq!((blocks(&metrics, "held"), draft_blocks("held")), (0.0, 0.0));
        assert!(draft_blocks("free") > 0.0);
    }
    Ok(())
}

#[test]
fn a_cancelled_stream_holds_no_blocks_of_the_draft_model() -> Result<()> {
    let Some(model) = setup::model() else { return Ok(()) };
    let model = model.display().to_string();
    let Some(host) = host(&["--draft-model", &model, "--assistant-policy", "always"]) else { return Ok(()) };
    let held = |s: &Scrape| own(s, "draft_kv_blocks", &[("state", "held")]);
    let body = |i: u64| {
        let fields = json!({"max_tokens": 2000, "ignore_eos": true});
        Request::post(CHAT, &streamed(ask(&format!("Count from {i}."), &fields)))
    };
    let mut streams: Vec<Stream> = (0..3)
        .map(|i| host.begin(&body(i).header("x-request-id", &format!("s{i}")))?.stream())
        .collect::<Result<_>>()?;
    for stream in &mut streams {
        stream.pieces(2)?;
    }
    host.until("blocks are held for three", 1.0, |s| f64::from(held(s) >= 6.0));
    for (i, stream) in streams.into_iter().enumerate() {
        match i {
            0 => host.cancel("s0")?,
            1 => stream.reset(),
            _ => drop(stream),
        }
    }
    host.until("cancelled generations", 3.0, |s| s.ended("cancelled"));
    let metrics = host.quiet();
    assert_eq!((held(&metrics), blocks(&metrics, "held")), (0.0, 0.0));
    let next = json!({"model": "smol", "prompt": "One, two, three,", "max_tokens": 4});
    assert_eq!(host.post(COMPLETIONS, &next)?.completion_tokens(), 4);
    Ok(())
}

#[test]
fn a_draft_model_of_another_vocabulary_is_refused_by_name() -> Result<()> {
    let (Some(fixed), Some(model)) = (fixed(), setup::model()) else { return Ok(()) };
    let model = model.display().to_string();
    let tiny = setup::root().join("plugins/ov-ir/tests/models/llama-gguf/model.gguf").display().to_string();
    let complains = |options: &[&str], words: &[&str]| {
        let given: Vec<&str> = fixed.iter().map(String::as_str).collect();
        let start = ["--model", &model, "--api", "127.0.0.1:0"];
        cascadia_tests::host::run(&[&given, &start[..], options].concat()).complains(1, words);
    };
    complains(&["--draft-model", &tiny], &["another vocabulary than the model", "model.gguf"]);
    complains(&["--draft-model", "absent.gguf"], &["absent.gguf"]);
    complains(&["--draft-model", &tiny, "--cb-prompt-lookup"], &["exclude each other"]);
    Ok(())
}
