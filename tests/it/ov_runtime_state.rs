//! A running sequence moves between two engines of `ov-runtime`, through the boundary's tables.

use cascadia_tests::host::run;
use cascadia_tests::setup;

use crate::ov_runtime;

/// The tests of the extension, with these options.
fn holds(options: [&str; 2]) {
    // The first to serve the model compiles it, which takes longer than a check may.
    if ov_runtime::host(&[]).is_none() {
        return;
    }
    let (Some(openvino), Some(model)) = (setup::openvino(), setup::model()) else { return };
    let openvino = format!("openvino-dir={}", openvino.display());
    let cache = format!("cache-dir={}", setup::compiled_models().display());
    let (plugin, model) = (setup::plugin("ov_runtime").display().to_string(), model.display().to_string());
    for test in ["^kv-state: moved", "^kv-state: a state that", "^kv-state: what is"] {
        let mut arguments = vec!["plugin", "check", &plugin, "--model", &model, "--only", test];
        for option in [&openvino, &cache, options[0], options[1], "cb-num-kv-blocks=64"] {
            arguments.extend(["--option", option]);
        }
        let ended = run(&arguments);
        let passed = ended.output.contains("1 passed, 0 failed, 0 skipped");
        assert!(passed, "{options:?}: {}{}", ended.output, ended.complaint);
    }
}

#[test]
fn states_of_the_exact_profile_hold_to_their_contract_without_a_prefix_cache() {
    holds(["profile=exact", "cb-prefix-caching=false"]);
}

#[test]
fn states_of_the_devices_own_precision_hold_to_their_contract() {
    holds(["profile=default", "cb-prefix-caching=true"]);
}
