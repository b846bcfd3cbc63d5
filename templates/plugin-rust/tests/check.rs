//! Holds the plugin to the boundary's contract, with the host's own validator. CASCADIA_HOST names the host when it is
//! not on the PATH.

use std::path::PathBuf;
use std::process::Command;

#[test]
fn the_plugin_keeps_the_contract() {
    let host = std::env::var_os("CASCADIA_HOST").unwrap_or_else(|| "cascadia-host".into());
    // target/PROFILE/deps/check-… is this test; the library lies two folders up.
    let mut library: PathBuf = std::env::current_exe().expect("a test has a path");
    library.pop();
    library.pop();
    library.push("libmy_engine.so");
    let checked = Command::new(&host).args(["plugin", "check"]).arg(&library).args(["--fuzz", "1"]).output();
    let checked =
        checked.unwrap_or_else(|e| panic!("{} does not run: {e}; set CASCADIA_HOST", host.display()));
    assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
