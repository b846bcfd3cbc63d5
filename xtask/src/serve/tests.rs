//! The command line that `serve` makes, and the address that it asks.

use super::*;
use std::path::Path;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn place() -> Place {
    let pins = crate::pins::Pins::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("pins.toml")).unwrap();
    Place { root: "/repo".into(), target: "/t".into(), pins, version: "1".into() }
}

#[test]
fn our_flags_step_back_for_the_users() {
    let model = "/t/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    let exact = "--plugin-opt ov-genai.profile=exact";
    for (given, all) in [
        ("", format!("--plugin libov_genai.so {exact} --model {model} --served-model-name smollm2")),
        (
            "--api :9",
            format!("--plugin libov_genai.so {exact} --model {model} --served-model-name smollm2 --api :9"),
        ),
        (
            "--served-model-name x",
            format!("--plugin libov_genai.so {exact} --model {model} --served-model-name x"),
        ),
        (
            "--profile fast",
            format!("--plugin libov_genai.so --model {model} --served-model-name smollm2 --profile fast"),
        ),
        ("--model=m", "--plugin libov_genai.so --model=m".to_owned()),
        ("--plugin p --model m", "--plugin p --model m".to_owned()),
        ("--config c.toml", "--config c.toml".to_owned()),
    ] {
        assert_eq!(arguments(&place(), &words(given)).join(" "), all, "given {given:?}");
    }
}

#[test]
fn the_last_value_of_a_flag_counts() {
    assert_eq!(value(&words("--api :1 --api=:2"), "--api"), Some(":2"));
    assert_eq!(value(&words("--api-max-body-mb 4"), "--api"), None);
}

#[test]
fn the_address_is_one_that_can_be_reached() {
    for (listen, reached) in [
        (":8000", "127.0.0.1:8000"),
        ("9000", "127.0.0.1:9000"),
        ("0.0.0.0:80", "127.0.0.1:80"),
        ("[::]:80", "[::1]:80"),
        ("localhost:81", "localhost:81"),
    ] {
        assert_eq!(address(listen).unwrap(), reached);
    }
    assert!(address("127.0.0.1:0").unwrap_err().to_string().contains("name one"));
    assert!(address("here").unwrap_err().to_string().contains("names no port"));
}

#[test]
fn a_host_that_ends_before_it_is_ready_gives_its_status() {
    let child = Command::new("sh").args(["-c", "exit 2"]).spawn().unwrap();
    // Port 9 (discard) on loopback answers nobody here.
    let status = converse(&mut Host { child }, "127.0.0.1:9").unwrap().unwrap();
    assert_eq!(status.code(), Some(2));
}
