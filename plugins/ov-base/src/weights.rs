//! Whether a network's weights are quantized: what most of its constants' bytes are, as its text says.

use std::path::Path;

use cascadia_ov_ir::XML;

/// Types of a few bits, as the network's text names them.
const FEW: [&str; 13] =
    ["u1", "u2", "i2", "u3", "u4", "i4", "u6", "nf4", "f4e2m1", "u8", "i8", "f8e4m3", "f8e5m2"];

/// False where the folder has no network, or one whose text says nothing of that.
pub(crate) fn are_quantized(folder: &Path) -> bool {
    std::fs::read_to_string(folder.join(XML)).is_ok_and(|network| says(&network))
}

fn says(network: &str) -> bool {
    let (mut few, mut all) = (0_u64, 0_u64);
    for tag in network.split("<data ").skip(1).filter_map(|rest| rest.split('>').next()) {
        let value = |name: &str| tag.split(name).nth(1)?.strip_prefix("=\"")?.split('"').next();
        let (Some(kind), Some(bytes)) = (value("element_type"), value(" size")) else { continue };
        let bytes: u64 = bytes.parse().unwrap_or(0);
        all = all.saturating_add(bytes);
        few = few.saturating_add(if FEW.contains(&kind) { bytes } else { 0 });
    }
    few > all / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constants(all: &[(&str, u64)]) -> String {
        let one = |(kind, bytes): &(&str, u64)| {
            format!(
                "<layer id=\"1\" type=\"Const\"><data element_type=\"{kind}\" shape=\"4, 8\" offset=\"0\" size=\"{bytes}\" /></layer>"
            )
        };
        let parameter = "<layer type=\"Parameter\"><data shape=\"?,?\" element_type=\"i64\" /></layer>";
        format!("<net>{parameter}{}</net>", all.iter().map(one).collect::<String>())
    }

    #[test]
    fn the_larger_part_of_the_bytes_decides() {
        assert!(says(&constants(&[("u4", 800), ("f16", 100), ("f32", 90), ("i64", 16)])));
        assert!(says(&constants(&[("i8", 800), ("f32", 700)])));
        assert!(!says(&constants(&[("f16", 800), ("u8", 64), ("f32", 90)])));
        assert!(!says(&constants(&[("bf16", 800)])));
        for nothing in
            ["", "<net/>", "<data ", "<data element_type=\"u4\">", "<data element_type=\"u4\" size=\"x\"/>"]
        {
            assert!(!says(nothing), "{nothing}");
        }
        assert!(!are_quantized(Path::new("/nowhere")));
    }
}
