//! Every family that can be paged, against logits that numpy computed from the same files in f64
//! (`plugins/ov-ir/reference`): all rows of a prompt in one piece, in chunks beside others, and a greedy answer.

use std::fs;

use super::*;

/// The compiler's tiny models.
#[path = "../../../../ov-ir/tests/it/models.rs"]
mod models;

/// A folder of its own, gone when dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The model, compiled and opened; none where its attention cannot be paged.
fn open_tiny(scratch: &Scratch, name: &str) -> Option<Model> {
    if name.starts_with("gemma2") {
        return None;
    }
    let folder = scratch.0.join(name);
    let target = cascadia_ov_ir::Target::Folder(folder.clone());
    let request = cascadia_ov_ir::Request::whole(models::source(name), target);
    cascadia_ov_ir::compile(&request, &mut ()).unwrap();
    let mut model = Model::open(&shim(), &folder.join(cascadia_ov_ir::XML), "CPU", &exact()).unwrap();
    model.allocate(16).unwrap();
    Some(model)
}

#[test]
#[ignore = "needs cargo xtask build"]
fn every_family_has_the_logits_of_the_reference() {
    let path = std::env::temp_dir().join(format!("cascadia-ov-runtime-families-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    let scratch = Scratch(path);
    let mut seen = 0;
    for name in models::all() {
        let Some(mut model) = open_tiny(&scratch, &name) else { continue };
        let (case, reference) = models::case(&name);
        let ids = |key: &str| -> Vec<i64> {
            case[key].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
        };
        let text = ids("ids");
        for (first, rows) in [(0, text.len()), (4, 5), (8, 1)] {
            for (at, (found, wanted)) in
                logits(&mut model, &text, first, 0, rows).iter().zip(&reference).enumerate()
            {
                let apart = divergence(wanted, found);
                assert_eq!(best(found), best(wanted), "{name}, position {at}, {rows} at a time");
                assert!(apart < 1e-4, "{name}, position {at}, {rows} at a time: {apart}");
            }
        }
        let (prompt, greedy) = (case["prompt"].as_u64().unwrap() as usize, ids("greedy"));
        let mut answers = [0, 4, 8].map(|first| Seq { tokens: text[..prompt].to_vec(), past: 0, first });
        for turn in 0..greedy.len() + 2 {
            // One after the other: prompts are computed beside decoding ones.
            let mut now: Vec<&mut Seq> = answers.iter_mut().take(turn + 1).collect();
            now.retain(|seq| seq.tokens.len() < prompt + greedy.len());
            if !now.is_empty() {
                step(&mut model, &mut now, true);
            }
        }
        for answer in answers {
            assert_eq!(answer.tokens[prompt..], greedy, "{name}");
        }
        seen += 1;
    }
    assert!(seen >= 15, "only {seen} were looked at");
}
