//! Each stage of loading moves its own counter, in one host that serves afterwards.

use std::path::{Path, PathBuf};

use anyhow::Result;
use cascadia_tests::cc::{self, Options};
use cascadia_tests::{Host, TempDir, elf, wait};
use serde_json::Value;

use super::{layout, text};

/// A stage, what it says, and a plugin that fails there.
type Case = (&'static str, &'static str, PathBuf);

fn cases(dir: &TempDir) -> Result<Vec<Case>> {
    let compiled = |id: &str, define: &str| {
        let define = if define.is_empty() { "SOUND" } else { define };
        let defines = [&*format!("ID=\"{id}\""), define];
        cc::fixture(
            "engine.c",
            &dir.path().join(format!("lib{id}.so")),
            &Options { defines: &defines, flags: &[], include: None },
        )
    };
    let spoilt = |name: &str, content: &[u8]| dir.file(name, content);
    let sound = std::fs::read(compiled("sound", "")?)?;
    Ok(vec![
        ("precheck", "is built for another processor", spoilt("libarm.so", &elf::of_machine(&sound, 183))),
        (
            "manifest",
            "another draft of table cascadia_str",
            spoilt("libstale.so", &elf::with_other_draft(&sound)),
        ),
        ("options", "", compiled("options", "")?),
        ("open", "undefined symbol: symbol_that_nobody_has", compiled("open", "UNDEFINED")?),
        ("entry", "does not export cascadia_entry", compiled("entry", "NO_ENTRY")?),
        ("proof", "table cascadia_load_report differs", layout::with_a_field_in_the_middle(dir)?),
        ("init", "licence file missing", compiled("init", "INIT_FAILS")?),
        ("build", "the build fails by design", compiled("build", "BUILD_FAILS")?),
        ("warmup", "the warm-up fails by design", compiled("warmup", "WARMUP_FAILS")?),
        ("canary", "the step fails by design", compiled("canary", "STEP_FAILS")?),
    ])
}

#[test]
fn a_wrong_option_of_a_model_that_waited_is_told_and_counted_once() -> Result<()> {
    let (build, folder) = (TempDir::new(), TempDir::new());
    let options = Options { defines: &["ID=\"late\""], ..Options::default() };
    let plugin = cc::fixture("engine.c", &build.path().join("liblate.so"), &options)?;
    let model = ["--model", "asked=/x,engine=late/word", "--plugin-opt", "late.count=none"];
    let host = Host::start(&[&["--plugin-dir", text(folder.path())][..], &model].concat());
    drop_in(&plugin, folder.path(), "beside")?;
    // Both the model that waited and the one beside the plugin have the wrong option.
    host.until("both to be counted", 2.0, |s| {
        s.value("cascadia_plugin_load_errors_total", &[("stage", "options")])
    });
    let told = |line: &&Value| {
        let text = line["message"].as_str().unwrap_or_default();
        line["level"] == "ERROR" && text.starts_with("not served: ") && text.contains("late.count")
    };
    assert_eq!(host.log_lines().iter().filter(told).count(), 2, "{}", host.log());
    assert!(!host.log().contains("no model: name one"), "it has been named: {}", host.log());
    Ok(())
}

/// Lays the plugin into a folder of its own, with a model of that name.
fn drop_in(plugin: &Path, folder: &Path, model: &str) -> Result<()> {
    let bundle = folder.join(model);
    std::fs::create_dir(&bundle)?;
    std::fs::write(bundle.join("plugin.toml"), format!("[[model]]\nname = \"{model}\"\n"))?;
    std::fs::copy(plugin, bundle.join(".part"))?;
    Ok(std::fs::rename(bundle.join(".part"), bundle.join("libplugin.so"))?)
}

#[test]
fn each_stage_is_counted_under_its_name() -> Result<()> {
    const ERRORS: &str = "cascadia_plugin_load_errors_total";
    let (build, folder) = (TempDir::new(), TempDir::new());
    let cases = cases(&build)?;
    let host = Host::start(&["--plugin-dir", text(folder.path()), "--plugin-opt", "options.count=none"]);
    let start = host.scrape();
    let stages: Vec<String> = start.named(ERRORS).iter().map(|s| s.labels["stage"].clone()).collect();
    assert_eq!(start.sum(ERRORS, &[]), 0.0, "every stage is there at zero");
    for (stage, words, plugin) in &cases {
        assert_eq!(host.scrape().value(ERRORS, &[("stage", stage)]), 0.0, "{stage} before its plugin");
        drop_in(plugin, folder.path(), &format!("model-{stage}"))?;
        let told = |line: &Value| {
            let text = line["message"].as_str().unwrap_or_default();
            line["stage"] == *stage
                && text.contains(words)
                && matches!(line["level"].as_str(), Some("WARN" | "ERROR"))
        };
        // Counted first, told right after.
        wait(&format!("stage {stage} to be counted and told"), || {
            let now = host.scrape().value(ERRORS, &[("stage", stage)]);
            let told = words.is_empty() || host.log_lines().iter().any(told);
            if now >= 1.0 && told {
                Ok(())
            } else {
                Err(format!("{now}, told: {told}, {words:?}\n{}", host.log()))
            }
        });
        // An engine that fails is tried again for some seconds; a folder that is gone ends that.
        std::fs::remove_dir_all(folder.path().join(format!("model-{stage}")))?;
    }
    // `find` is over before anything listens: a plugin that was named and is not there ends the host.
    let walked: Vec<_> =
        cases.iter().map(|(stage, ..)| (*stage).to_owned()).chain(["find".to_owned()]).collect();
    assert!(stages.iter().all(|s| walked.contains(s)), "a stage without a case: {stages:?}");
    drop_in(&build.path().join("libsound.so"), folder.path(), "model-sound")?;
    assert_eq!(host.answered("model-sound", "at last"), "sound");
    Ok(())
}
