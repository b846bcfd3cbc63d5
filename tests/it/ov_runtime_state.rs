//! A running sequence moves between two engines of `ov-runtime`, through the boundary's tables.

use cascadia_tests::host::run;
use cascadia_tests::setup;

#[test]
fn states_hold_to_their_contract_in_every_profile() {
    let (Some(openvino), Some(model)) = (setup::openvino(), setup::model()) else { return };
    let openvino = format!("openvino-dir={}", openvino.display());
    let cache = format!("cache-dir={}", setup::compiled_models().display());
    let (plugin, model) = (setup::plugin("ov_runtime").display().to_string(), model.display().to_string());
    let fixed = ["plugin", "check", &plugin, "--model", &model, "--only", "^kv-state: "];
    for options in [
        ["profile=exact", "cb-prefix-caching=true"],
        ["profile=default", "cb-prefix-caching=true"],
        ["profile=exact", "cb-prefix-caching=false"],
    ] {
        let mut arguments = fixed.to_vec();
        for option in [&openvino, &cache, options[0], options[1], "cb-num-kv-blocks=64"] {
            arguments.extend(["--option", option]);
        }
        let ended = run(&arguments);
        let all = "3 passed, 0 failed, 0 skipped";
        assert!(ended.output.contains(all), "{options:?}: {}{}", ended.output, ended.complaint);
    }
}
