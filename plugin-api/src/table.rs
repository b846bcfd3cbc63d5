//! The one macro that declares an ABI struct, so that its layout, its C name and its proof come from one place.

/// Declares a `#[repr(C)]` struct of the boundary and its [`crate::lock::Layout`].
macro_rules! table {
    ($(#[$meta:meta])* $name:ident as $c:literal { $($(#[$fmeta:meta])* $field:ident : $ty:ty),* $(,)? }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[cfg_attr(feature = "proof", derive(abi_stable::StableAbi))]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty),* }

        impl crate::lock::Layout for $name {
            const C_NAME: &'static str = $c;
            const FIELDS: &'static [crate::lock::Field] = &[$(crate::lock::Field {
                name: stringify!($field),
                offset: core::mem::offset_of!($name, $field),
                size: core::mem::size_of::<$ty>(),
                ty: stringify!($ty),
            }),*];
        }
    };
}
