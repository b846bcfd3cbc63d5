//! Which of the library's pipelines serves a model: paged attention, which batches, or the model in one piece, which any
//! device and any model has.

use std::path::Path;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Error, Result};

use crate::options::Options;
use crate::pipeline::setup::Proposer;
use cascadia_ov_base::source::Found;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Paged attention wherever device and model have it.
    Auto,
    Paged,
    Stateful,
}

/// What it came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    Paged,
    /// One generation at a time; with the reason, for the operator.
    Stateful(String),
}

impl Wish {
    pub(crate) fn read(value: &str) -> Result<Wish> {
        match value {
            "auto" => Ok(Wish::Auto),
            "paged" => Ok(Wish::Paged),
            "stateful" => Ok(Wish::Stateful),
            other => Err(Error::config(format!("attention {other:?} is none of auto, paged, stateful"))),
        }
    }
}

/// Whether the device is NPU, or may be: the library has no paged attention there.
pub(crate) fn is_npu(device: &str) -> bool {
    device.split([':', ',', '.', '(', ')']).any(|part| part.trim() == "NPU")
}

impl Way {
    /// How `model`, which turned out to be `found`, is served.
    ///
    /// # Errors
    /// What was asked for cannot be had with this model or device; with the way out.
    pub(crate) fn choose(options: &Options, model: &Path, found: &Found) -> Result<Way> {
        if found.ours && is_npu(&options.device) {
            // 2026.4.1 takes apart the state that it does not know by its names, and with those names it hides positions
            // that are seen; tried with NPUW_DEVICES=CPU, which runs what would run on NPU.
            let message = format!(
                "model {} on {}: OpenVINO does not compile for NPU what this plugin makes of GGUF files and safetensors; \
                 give a folder that OpenVINO's own tools have exported for NPU, or choose another device",
                model.display(),
                options.device
            );
            return Err(Error::new(code::UNSUPPORTED, message));
        }
        let why = match (options.attention, found.capped.as_deref()) {
            (Wish::Paged, Some(family)) => {
                let message = format!(
                    "model {}: {family} caps its attention scores, which OpenVINO's paged attention does not; leave out \
                     --attention paged to serve it one generation at a time",
                    model.display()
                );
                return Err(Error::new(code::UNSUPPORTED, message));
            }
            (Wish::Paged, None) => return Ok(Way::Paged),
            (Wish::Auto, None) if !is_npu(&options.device) => return Ok(Way::Paged),
            (Wish::Auto | Wish::Stateful, Some(family)) => {
                format!("{family} caps its attention scores, which paged attention does not")
            }
            (Wish::Auto, None) => format!("{} has none", options.device),
            (Wish::Stateful, None) => "as --attention asks".to_owned(),
        };
        let lacking = match (options.cb, &options.proposer) {
            (true, _) => "cb",
            (_, Proposer::Prompt) => "cb-prompt-lookup",
            (_, Proposer::Model { .. }) => "draft-model",
            (false, Proposer::Nobody) => return Ok(Way::Stateful(why)),
        };
        let message = format!(
            "{lacking} needs paged attention, and model {} on {} is served without it ({why}); leave out {lacking}",
            model.display(),
            options.device
        );
        Err(Error::new(code::UNSUPPORTED, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cascadia_ov_base::source::Source;

    fn choose(pairs: &[(&str, &str)], capped: Option<&str>) -> Result<Way> {
        let found = Found { capped: capped.map(str::to_owned), ..Source::Network.into() };
        Way::choose(&Options::read(pairs).expect("valid"), Path::new("m.gguf"), &found)
    }

    fn is_stateful(pairs: &[(&str, &str)], capped: Option<&str>) -> bool {
        matches!(choose(pairs, capped), Ok(Way::Stateful(_)))
    }

    #[test]
    fn a_device_is_npu_by_its_name_wherever_that_stands() {
        for device in ["NPU", "NPU.3720", "AUTO:NPU,CPU", "HETERO:GPU,NPU", "BATCH:NPU(4)"] {
            assert!(is_npu(device), "{device}");
        }
        for device in ["CPU", "GPU.1", "AUTO", "AUTO:GPU,CPU", "AUTO:-NPU", "INPUT"] {
            assert!(!is_npu(device), "{device}");
        }
    }

    #[test]
    fn paged_attention_is_taken_wherever_device_and_model_have_it() {
        assert_eq!(choose(&[], None), Ok(Way::Paged));
        assert_eq!(choose(&[("device", "AUTO:GPU,CPU"), ("cb", "true")], None), Ok(Way::Paged));
        assert!(is_stateful(&[("device", "AUTO:NPU,CPU")], None));
        assert!(is_stateful(&[], Some("gemma2")));
        assert!(is_stateful(&[("attention", "stateful")], None));
        assert_eq!(
            choose(&[("attention", "paged"), ("device", "NPU")], None),
            Ok(Way::Paged),
            "as it was asked"
        );
    }

    #[test]
    fn what_we_compile_is_not_given_to_npu() {
        let found = Found { ours: true, ..Source::Compile.into() };
        let choose = |device| {
            Way::choose(&Options::read(&[("device", device)]).expect("valid"), Path::new("m.gguf"), &found)
        };
        for device in ["NPU", "AUTO:NPU,CPU"] {
            let error = choose(device).expect_err("refused");
            assert_eq!(error.code, code::UNSUPPORTED);
            assert!(error.message.contains("exported for NPU"), "{}", error.message);
        }
        assert_eq!(choose("AUTO:-NPU"), Ok(Way::Paged));
    }

    #[test]
    fn what_needs_paged_attention_is_refused_where_there_is_none() {
        let said = |pairs: &[(&str, &str)], capped| {
            let error = choose(pairs, capped).expect_err("refused");
            assert_eq!(error.code, code::UNSUPPORTED);
            error.message
        };
        let paged = said(&[("attention", "paged")], Some("gemma2"));
        assert!(paged.contains("gemma2 caps its attention scores") && paged.contains("leave out"), "{paged}");
        for key in ["cb", "cb-prompt-lookup"] {
            let message = said(&[(key, "true")], Some("gemma2"));
            assert!(message.starts_with(key) && message.contains("caps its attention scores"), "{message}");
        }
        assert!(said(&[("device", "NPU"), ("cb", "true")], None).contains("NPU has none"));
        assert!(said(&[("attention", "stateful"), ("draft-model", "d")], None).starts_with("draft-model"));
    }
}
