//! A result code of the boundary as JSON gives it: by its name or by any number, known or not.

use cascadia_plugin_api::abi::code;
use serde::Deserialize;
use serde_json::Value;

/// A result code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Code(pub(crate) u32);

impl TryFrom<Value> for Code {
    type Error = String;

    fn try_from(value: Value) -> Result<Code, String> {
        let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
        // The boundary's numbers are dense, so the first unknown name ends the list.
        let known = || (0..).take_while(|n| code::name(*n) != "unknown");
        let named = || value.as_str().and_then(|name| known().find(|n| code::name(*n) == name));
        number.or_else(named).map(Code).ok_or_else(|| {
            let names: Vec<_> = known().map(code::name).collect();
            format!("{value} is no code; a number or one of {}", names.join(", "))
        })
    }
}
