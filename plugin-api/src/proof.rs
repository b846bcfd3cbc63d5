//! The layout proof: a Rust plugin carries abi_stable's description of each table it was built with, and the host
//! compares it with its own. It is beside the contract, not part of it: a C plugin has none and loads all the same.

#![expect(unsafe_code, reason = "makes the header that abi_stable looks for")]

use abi_stable::StableAbi;
use abi_stable::library::{
    __call_root_module_loader, CheckTypeLayout, LibHeader, RootModule, RootModuleResult,
};
use abi_stable::package_version_strings;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{RSlice, RStr};
use abi_stable::type_layout::TypeLayout;

use crate::lock::{Layout, every_table};

/// The layout of one table, by its C name. Fixed for good.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct Proof {
    /// C name of the table.
    pub table: RStr<'static>,
    /// Its layout as the plugin's compiler made it.
    pub layout: extern "C" fn() -> &'static TypeLayout,
}

/// The root module that abi_stable finds. Fixed for good.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = ProofsRef, prefix_fields = ProofsPrefix)))]
pub struct Proofs {
    /// One per table.
    #[sabi(last_prefix_field)]
    pub proofs: RSlice<'static, Proof>,
}

impl RootModule for ProofsRef {
    abi_stable::declare_root_module_statics! {ProofsRef}
    const BASE_NAME: &'static str = "cascadia_plugin";
    const NAME: &'static str = "cascadia_plugin";
    const VERSION_STRINGS: VersionStrings = package_version_strings!();
}

extern "C" fn layout_of<T: StableAbi>() -> &'static TypeLayout {
    T::LAYOUT
}

macro_rules! proofs {
    ($($t:ty),*) => { &[$(Proof { table: RStr::from_str(<$t as Layout>::C_NAME), layout: layout_of::<$t> }),*] };
}

/// Every table of this build.
pub static PROOFS: &[Proof] = every_table!(proofs);

/// The root module of a plugin built with this crate.
pub fn root() -> ProofsRef {
    use abi_stable::prefix_type::PrefixTypeTrait;
    Proofs { proofs: RSlice::from_slice(PROOFS) }.leak_into_prefix()
}

extern "C" fn erased_root() -> RootModuleResult {
    __call_root_module_loader(root)
}

/// The type of [`HEADER`].
pub type Header = LibHeader;

/// What a plugin exports under abi_stable's loader name ([`crate::export_plugin!`] does it). The attribute macro that
/// abi_stable offers for this would need every plugin to depend on abi_stable by name.
#[expect(clippy::declare_interior_mutable_const, reason = "copied once into the static that is exported")]
// SAFETY: `erased_root` returns the root module of the named type.
pub const HEADER: LibHeader =
    unsafe { LibHeader::from_constructor::<ProofsRef>(erased_root, CheckTypeLayout::Yes) };

/// This build's layout of the table with that C name.
pub fn ours(table: &str) -> Option<&'static TypeLayout> {
    PROOFS.iter().find(|p| p.table.as_str() == table).map(|p| (p.layout)())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_exported_name_is_the_one_abi_stable_looks_for() {
        assert_eq!(abi_stable::library::ROOT_MODULE_LOADER_NAME, "_1as_0lib_1header_0root_bmodule_bloader");
    }
}
