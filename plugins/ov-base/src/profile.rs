//! How exact and how fast, as device properties.

use std::path::Path;

use cascadia_plugin_api::sdk::{Error, Result};

use crate::{processor, weights};

/// The device property that says what the device computes in.
pub const PRECISION: &str = "INFERENCE_PRECISION_HINT";

/// How exact and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Computes and caches in f32: a generation's tokens do not depend on what runs beside it.
    Exact,
    /// What OpenVINO chooses for the device, but f32 where its choice is bf16 and slower ([`Profile::chosen`]).
    #[default]
    Default,
    /// The documented hints for speed over accuracy, and weights that OpenVINO can multiply with activations of 8 bits. A processor
    /// with AMX computes in tiles of bf16 instead, with which `fast` is no faster than `default` (measured).
    Fast,
}

impl Profile {
    /// By its name.
    ///
    /// # Errors
    /// It is no profile.
    pub fn read(name: &str) -> Result<Profile> {
        match name {
            "exact" => Ok(Profile::Exact),
            "default" => Ok(Profile::Default),
            "fast" => Ok(Profile::Fast),
            other => Err(Error::config(format!("profile {other:?} is none of exact, default, fast"))),
        }
    }

    /// Whether it rounds weights whose quantization the device is slow with ([`cascadia_ov_ir::Request::symmetric`]).
    pub fn rounds(self) -> bool {
        self == Self::Fast
    }

    /// The device properties it stands for on every machine; OpenVINO reads all of them from text.
    pub fn properties(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Exact => {
                &[(PRECISION, "f32"), ("KV_CACHE_PRECISION", "f32"), ("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0")]
            }
            Self::Default => &[],
            // One inference at a time carries all generations, so latency is throughput here. f16 is no choice: OpenVINO's CPU
            // device dies of it.
            Self::Fast => &[("EXECUTION_MODE_HINT", "PERFORMANCE"), ("PERFORMANCE_HINT", "LATENCY")],
        }
    }

    /// [`Profile::properties`], and what is better here for the network of a folder. OpenVINO's CPU device computes in bf16 wherever
    /// the processor can; without AMX that takes quantized weights 1.5 times as long as f32 (measured, docs/adr/0011).
    pub fn chosen(self, device: &str, folder: &Path) -> Vec<(&'static str, &'static str)> {
        let mut all = self.properties().to_vec();
        if self == Self::Default
            && device == "CPU"
            && processor::has_bf16_without_tiles()
            && weights::are_quantized(folder)
        {
            all.push((PRECISION, "f32"));
        }
        all
    }
}
