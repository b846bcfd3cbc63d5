//! The client-side suite in `tests/conformance` against the host: every answer as OpenAI's clients expect it. What an
//! engine cannot do is left out of CAPS, and the suite then demands that it is refused by its field.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cascadia_tests::{Host, setup, sys};

use crate::{ov_genai, ov_runtime};

/// Runs the suite with these capabilities; answers its last line.
fn suite(python: &Path, host: &Host, model: &str, caps: &str) -> Result<String> {
    let mut command = Command::new(python);
    command
        .args(["-m", "pytest", "public", "--tb=short"])
        .current_dir(setup::root().join("tests/conformance"))
        .env_clear()
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("BASE_URL", format!("http://{}/v1", host.client().address))
        .env("MODEL", model)
        .env("CAPS", caps)
        .env("TIMEOUT", "120")
        .stdin(Stdio::null());
    sys::die_with_parent(&mut command);
    let output = command.output().context("python runs")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}{complaint}");
    Ok(said.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn the_scripted_engine_conforms() -> Result<()> {
    let Some(python) = setup::python() else { return Ok(()) };
    let host = Host::mock(&[]);
    // Its answers do not depend on a seed, so it does not say that seeds matter.
    let caps = "logprobs,prompt_logprobs,tokenize,n,metrics,cancel,token_prompt,echo";
    let last = suite(&python, &host, "mock", caps)?;
    ensure!(last.starts_with("46 passed, 0 failed"), "{last}");
    host.quiet();
    Ok(())
}

#[test]
fn openvino_genai_conforms() -> Result<()> {
    let (Some(python), Some(model)) = (setup::python(), setup::model()) else { return Ok(()) };
    let model = model.display().to_string();
    // Streamed and whole answers are compared, alone and beside others.
    let options = ["--model", &model, "--served-model-name", "smol", "--cb", "--profile", "exact"];
    let Some(host) = ov_genai::plugged(&options) else { return Ok(()) };
    host.ready_within(ov_genai::COMPILED);
    let last = suite(&python, &host, "smol", "tokenize,n,metrics,cancel,seed,token_prompt,echo,penalties")?;
    ensure!(last.starts_with("45 passed, 0 failed"), "{last}");
    host.quiet();
    Ok(())
}

#[test]
fn openvino_genai_conforms_with_the_model_in_one_piece() -> Result<()> {
    let (Some(python), Some(model)) = (setup::python(), setup::model()) else { return Ok(()) };
    let model = model.display().to_string();
    let exact = ["--attention", "stateful", "--profile", "exact"];
    let options = [&["--model", &model, "--served-model-name", "smol"][..], &exact].concat();
    let Some(host) = ov_genai::plugged(&options) else { return Ok(()) };
    host.ready_within(ov_genai::COMPILED);
    let last = suite(&python, &host, "smol", "tokenize,n,metrics,cancel,seed,token_prompt,echo,penalties")?;
    ensure!(last.starts_with("45 passed, 0 failed"), "{last}");
    host.quiet();
    Ok(())
}

#[test]
fn our_own_batching_conforms() -> Result<()> {
    let Some(python) = setup::python() else { return Ok(()) };
    let Some(host) = ov_runtime::host(&["--profile", "exact"]) else { return Ok(()) };
    let caps =
        "logprobs,prompt_logprobs,tokenize,seed,logit_bias,penalties,n,metrics,cancel,token_prompt,echo";
    let last = suite(&python, &host, "smol", caps)?;
    ensure!(last.contains(" passed, 0 failed"), "{last}");
    host.quiet();
    Ok(())
}
