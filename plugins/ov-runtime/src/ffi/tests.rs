//! The layout of what crosses to C.

use super::*;
use std::mem::{offset_of, size_of};

#[test]
fn structs_have_the_layout_of_shim_h() {
    assert_eq!((size_of::<Facts>(), offset_of!(Facts, cut)), (40, 32));
    assert_eq!((size_of::<RawProperty>(), offset_of!(RawProperty, value)), (16, 8));
    assert_eq!(
        (size_of::<RawBatch>(), offset_of!(RawBatch, past), offset_of!(RawBatch, longest)),
        (96, 24, 88)
    );
    assert_eq!((size_of::<RawLogits>(), offset_of!(RawLogits, columns)), (24, 16));
}
