//! The layout of what crosses to C.

use super::*;
use std::mem::{offset_of, size_of};

#[test]
fn structs_have_the_layout_of_shim_h() {
    assert_eq!((size_of::<RawText>(), offset_of!(RawText, len)), (24, 16));
    assert_eq!(
        (size_of::<RawValue>(), offset_of!(RawValue, integer), offset_of!(RawValue, count)),
        (48, 16, 40)
    );
    assert_eq!((size_of::<Scheduler>(), offset_of!(Scheduler, dynamic_split_fuse)), (40, 32));
    assert_eq!((size_of::<Progress>(), offset_of!(Progress, status)), (24, 16));
    assert_eq!((size_of::<Metrics>(), offset_of!(Metrics, cache_bytes)), (40, 32));
}
