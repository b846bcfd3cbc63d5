//! What clients that come and go leave in our own batching: nothing.

use anyhow::Result;
use cascadia_tests::{setup, wait};

use crate::{ov_genai_rounds, ov_runtime};

#[test]
fn five_hundred_rounds_at_random_leave_memory_and_blocks_where_they_were() -> Result<()> {
    // Few numbers of rows in a step, since OpenVINO keeps what it made for each; few blocks, since their pages count as memory
    // once they were used, and so that generations give way to each other.
    let few = ["--max-concurrent", "8", "--cb-max-batched-tokens", "24", "--cb-num-kv-blocks", "64"];
    let Some(host) = ov_runtime::host(&few) else { return Ok(()) };
    let seed = setup::seed();
    // What the library and the allocator keep for good comes with the first load.
    ov_genai_rounds::play(&host, seed ^ 1, 64)?;
    let before = host.footprint();
    let metrics = ov_genai_rounds::play(&host, seed, 504)?;
    assert_eq!(metrics.sum("cascadia_tasks_failed_total", &[]), 0.0);
    assert_eq!(metrics.sum("cascadia_plugin_protocol_errors_total", &[]), 0.0);
    let of = |state| ov_runtime::blocks(&metrics, state);
    assert_eq!((of("held"), of("free") + of("cached")), (0.0, 64.0));
    wait("memory, threads and descriptors to be as before", || {
        let now = host.footprint();
        let near = now.resident <= before.resident + ov_genai_rounds::KEPT
            && now.threads <= before.threads + 4
            && now.descriptors <= before.descriptors + 8;
        if near { Ok(()) } else { Err(format!("{now:?}, before {before:?}")) }
    });
    setup::say(&format!("{:?}, before {before:?}", host.footprint()));
    Ok(())
}
