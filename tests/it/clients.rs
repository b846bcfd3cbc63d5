//! Clients of other makers are content: the official openai package, streamed and not.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use cascadia_tests::{Host, setup, sys};

#[test]
fn the_openai_package_chats_completes_lists_and_cancels() -> Result<()> {
    let Some(python) = setup::python() else { return Ok(()) };
    let host = Host::mock(&[]);
    let mut command = Command::new(python);
    command
        .arg("-c")
        .arg(include_str!("clients/openai_smoke.py"))
        .arg(format!("http://{}/v1", host.client().address))
        .env_clear()
        .stdin(Stdio::null());
    sys::die_with_parent(&mut command);
    let output = command.output().context("python runs")?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.ends_with("content\n"), "{said}");
    // It left one stream in the middle and nothing else.
    let metrics = host.until("the cancelled stream", 1.0, |s| s.ended("cancelled"));
    assert_eq!((metrics.ended("stop"), metrics.ended("length")), (3.0, 1.0));
    host.quiet();
    Ok(())
}
