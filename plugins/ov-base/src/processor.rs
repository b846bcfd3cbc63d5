//! What the processor has that decides how OpenVINO computes best.

/// Whether it multiplies bf16, which OpenVINO then computes in, but not by tiles (AMX): quantized weights are unpacked for that at a
/// cost that only tiles win back (docs/adr/0011).
pub(crate) fn has_bf16_without_tiles() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| says(&text))
}

fn says(text: &str) -> bool {
    let flags = text.lines().find_map(|line| line.strip_prefix("flags"));
    let has = |flag: &str| flags.is_some_and(|flags| flags.split_whitespace().any(|one| one == flag));
    has("avx512_bf16") && !has("amx_bf16")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_processor_that_has_the_one_and_not_the_other_counts() {
        let text = |flags: &str| format!("processor\t: 0\nflags\t\t: fpu {flags} ht\nbugs\t\t: amx_bf16\n");
        assert!(says(&text("avx2 avx512_bf16")));
        assert!(!says(&text("avx512_bf16 amx_bf16 amx_tile")));
        assert!(!says(&text("avx2 avx_vnni")));
        assert!(!says(""));
    }
}
