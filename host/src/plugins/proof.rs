//! The layout proof: compares each table of a Rust plugin with the host's, by abi_stable. C plugins carry none.
#![expect(unsafe_code, reason = "reads the header that abi_stable exports")]

use abi_stable::abi_stability::check_layout_compatibility;
use abi_stable::library::{AbiHeaderRef, ROOT_MODULE_LOADER_NAME_WITH_NUL};
use cascadia_plugin_api::proof::{ProofsRef, ours};
use libloading::os::unix::Library;

/// Whether a plugin carried a proof; an error is one line that names the table.
pub fn check(library: &Library) -> Result<bool, String> {
    // SAFETY: a symbol of that name is abi_stable's header by its own convention; its magic is checked by `upgrade`.
    let header = match unsafe { library.get::<AbiHeaderRef>(ROOT_MODULE_LOADER_NAME_WITH_NUL.as_bytes()) } {
        Ok(header) => *header,
        Err(_) => return Ok(false),
    };
    // Initialised by value: the root module's own loader keeps one library per type and would answer with the first.
    let root = header
        .upgrade()
        .and_then(|header| header.init_root_module::<ProofsRef>())
        .map_err(|e| format!("its layout proof cannot be read: {}", first_error(&e.to_string())))?;
    for proof in root.proofs().iter() {
        let Some(ours) = ours(proof.table.as_str()) else { continue };
        if let Err(error) = check_layout_compatibility(ours, (proof.layout)()).into_result() {
            let why = first_error(&error.to_string());
            return Err(format!("table {} differs from the host's: {why}", proof.table));
        }
    }
    Ok(true)
}

/// abi_stable's texts run to thousands of lines; the first error is what a person needs.
fn first_error(text: &str) -> String {
    let lines =
        text.lines().skip_while(|l| !l.starts_with("Error:")).map(str::trim).filter(|l| !l.is_empty());
    let why = lines.take(6).collect::<Vec<_>>().join(" ");
    if why.is_empty() { text.lines().next().unwrap_or_default().to_owned() } else { why }
}
