//! Folders with empty files stand for installations.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder that removes itself.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ov-genai-locate-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(fs::canonicalize(path).unwrap())
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn flat(&self, name: &str, build: u32) {
        self.file(&format!("{name}/libopenvino.so.{build}"), "");
        self.file(&format!("{name}/libopenvino_genai.so.{build}"), "genai");
        self.file(&format!("{name}/{TOKENIZERS}"), &format!("\0libopenvino.so.{build}\0"));
    }

    fn pip(&self, name: &str, build: u32) {
        self.file(&format!("{name}/openvino/libs/libopenvino.so.{build}"), "");
        self.file(&format!("{name}/openvino_genai/libopenvino_genai.so.{build}"), "genai");
        self.file(
            &format!("{name}/openvino_tokenizers/lib/{TOKENIZERS}"),
            &format!("\0libopenvino.so.{build}\0"),
        );
    }

    fn find(&self, explicit: Option<&str>, sites: &[&str]) -> Result<Runtime, Error> {
        let explicit = explicit.map(|name| self.0.join(name));
        let sites: Vec<PathBuf> = sites.iter().map(|name| self.0.join(name)).collect();
        find(&Search {
            explicit: explicit.as_deref(),
            beside: &self.0.join("plugins"),
            site_packages: &sites,
            cache: &self.0.join("cache"),
        })
    }

    fn error(&self, explicit: Option<&str>, sites: &[&str]) -> String {
        self.find(explicit, sites).unwrap_err().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn an_explicit_folder_wins_over_all_others() {
    let at = Folder::new();
    at.flat("mine", 2631);
    at.flat("plugins/openvino/lib", 2641);
    let runtime = at.find(Some("mine"), &[]).unwrap();
    assert_eq!(runtime.build, 2631);
    assert_eq!(runtime.core, at.0.join("mine/libopenvino.so.2631"));
    assert_eq!(runtime.genai, at.0.join("mine/libopenvino_genai.so.2631"));
}

#[test]
fn an_explicit_folder_may_hold_lib_or_be_site_packages() {
    let at = Folder::new();
    at.flat("root/lib", 2641);
    at.pip("site", 2641);
    assert_eq!(at.find(Some("root"), &[]).unwrap().core, at.0.join("root/lib/libopenvino.so.2641"));
    assert_eq!(at.find(Some("site"), &[]).unwrap().core, at.0.join("site/openvino/libs/libopenvino.so.2641"));
}

#[test]
fn the_folder_beside_the_plugin_wins_over_python() {
    let at = Folder::new();
    at.flat("plugins/openvino", 2641);
    at.pip("site", 2631);
    assert_eq!(at.find(None, &["site"]).unwrap().build, 2641);
}

#[test]
fn a_pip_installation_is_brought_together_in_the_cache_once() {
    let at = Folder::new();
    at.pip("site", 2641);
    let runtime = at.find(None, &["site"]).unwrap();
    assert!(runtime.genai.starts_with(at.0.join("cache")), "{}", runtime.genai.display());
    assert_eq!(fs::canonicalize(&runtime.genai).unwrap(), runtime.genai, "GenAI resolves links");
    assert_eq!(fs::read(&runtime.genai).unwrap(), b"genai");
    assert!(runtime.genai.with_file_name(TOKENIZERS).exists());
    assert_eq!(runtime.core, at.0.join("site/openvino/libs/libopenvino.so.2641"));

    assert_eq!(at.find(None, &["site"]).unwrap(), runtime);
    assert_eq!(fs::read_dir(at.0.join("cache")).unwrap().count(), 1, "one folder, no draft left");
}

#[test]
fn an_upgrade_in_place_gets_a_new_cache_folder() {
    let at = Folder::new();
    at.pip("site", 2641);
    let before = at.find(None, &["site"]).unwrap();
    let genai = at.0.join("site/openvino_genai/libopenvino_genai.so.2641");
    fs::remove_file(&genai).unwrap();
    fs::write(&genai, "genai, patched").unwrap();
    let after = at.find(None, &["site"]).unwrap();
    assert_ne!(after.genai, before.genai);
    assert_eq!(fs::read(&after.genai).unwrap(), b"genai, patched");
}

#[test]
fn half_a_cache_folder_is_made_whole() {
    let at = Folder::new();
    at.pip("site", 2641);
    let runtime = at.find(None, &["site"]).unwrap();
    fs::remove_file(runtime.genai.with_file_name(TOKENIZERS)).unwrap();
    assert_eq!(at.find(None, &["site"]).unwrap(), runtime);
    assert!(runtime.genai.with_file_name(TOKENIZERS).exists());
}

#[test]
fn links_are_resolved_before_the_neighbours_are_looked_at() {
    let at = Folder::new();
    at.pip("site", 2641);
    fs::create_dir_all(at.0.join("farm")).unwrap();
    for file in [
        "openvino/libs/libopenvino.so.2641",
        "openvino_genai/libopenvino_genai.so.2641",
        "openvino_tokenizers/lib/libopenvino_tokenizers.so",
    ] {
        let from = at.0.join("site").join(file);
        symlink(&from, at.0.join("farm").join(from.file_name().unwrap())).unwrap();
    }
    let runtime = at.find(Some("farm"), &[]).unwrap();
    assert!(runtime.genai.starts_with(at.0.join("cache")), "{}", runtime.genai.display());
}

#[test]
fn python_without_genai_is_passed_over_and_reported() {
    let at = Folder::new();
    at.file("bare/openvino/libs/libopenvino.so.2641", "");
    at.pip("full", 2631);
    assert_eq!(at.find(None, &["bare", "full"]).unwrap().build, 2631);
    let error = at.error(None, &["bare"]);
    assert!(error.contains("libopenvino_genai.so.NNNN is missing in"), "{error}");
    assert!(error.contains("install openvino-genai"), "{error}");
}

#[test]
fn a_broken_bundle_beside_the_plugin_is_not_replaced_silently() {
    let at = Folder::new();
    at.flat("plugins/openvino/lib", 2641);
    at.pip("site", 2641);
    fs::remove_file(at.0.join("plugins/openvino/lib").join(TOKENIZERS)).unwrap();
    let error = at.error(None, &["site"]);
    assert!(error.contains("libopenvino_tokenizers.so is missing in"), "{error}");
}

#[test]
fn mixed_builds_are_refused_with_both_numbers() {
    let at = Folder::new();
    at.file("a/libopenvino.so.2641", "");
    at.file("a/libopenvino_genai.so.2631", "");
    let error = at.error(Some("a"), &[]);
    assert!(error.contains("build 2641") && error.contains("openvino-genai is for build 2631"), "{error}");

    at.flat("b", 2641);
    at.file(&format!("b/{TOKENIZERS}"), "\0libopenvino.so.2621\0");
    let error = at.error(Some("b"), &[]);
    assert!(error.contains("openvino-tokenizers is for build 2621"), "{error}");
}

#[test]
fn of_several_builds_the_highest_whole_one_is_taken() {
    let at = Folder::new();
    at.flat("a", 2631);
    at.file("a/libopenvino.so.2641", "");
    at.file("a/libopenvino.so.2026.4.1", "");
    assert_eq!(at.find(Some("a"), &[]).unwrap().build, 2631);
}

#[test]
fn nothing_anywhere_names_the_folders_and_the_ways_out() {
    let at = Folder::new();
    let error = at.error(None, &["site"]);
    for part in ["plugins/openvino/lib", "site: no openvino package", OPTION, "with pip"] {
        assert!(error.contains(part), "{part} not in {error}");
    }
}

#[test]
fn the_shim_for_the_build_wins_over_the_one_for_any() {
    let at = Folder::new();
    assert!(shim(&at.0, "ov_genai", 2641).unwrap_err().to_string().contains("libov_genai_shim-2641.so"));
    let any = at.file("libov_genai_shim.so", "");
    assert_eq!(shim(&at.0, "ov_genai", 2641).unwrap(), Shim { path: any, global: true });
    let bound = at.file("libov_genai_shim-2641.so", "\0libopenvino.so.2641\0");
    assert_eq!(shim(&at.0, "ov_genai", 2641).unwrap(), Shim { path: bound, global: false });
}

#[test]
fn a_shim_linked_to_another_build_is_refused() {
    let at = Folder::new();
    at.file("libov_genai_shim.so", "\0libopenvino_genai.so.2641\0libopenvino.so.2641\0");
    assert!(!shim(&at.0, "ov_genai", 2641).unwrap().global);
    let error = shim(&at.0, "ov_genai", 2631).unwrap_err().to_string();
    assert!(error.contains("linked to build 2641, OpenVINO here is 2631"), "{error}");
}

#[test]
fn the_core_alone_is_enough_for_who_needs_no_more() {
    let at = Folder::new();
    at.file("bare/openvino/libs/libopenvino.so.2641", "");
    at.file("bare/openvino/libs/libopenvino.so.2631", "");
    at.file("plugins/openvino/lib/libopenvino.so.2621", "");
    let core = |explicit: Option<&Path>| {
        let site = [at.0.join("absent"), at.0.join("bare")];
        let (beside, cache) = (at.0.join("plugins"), at.0.join("cache"));
        core(&Search { explicit, beside: &beside, site_packages: &site, cache: &cache })
    };
    assert_eq!(core(None).unwrap().build, 2621);
    fs::remove_dir_all(at.0.join("plugins")).unwrap();
    let found = core(None).unwrap();
    assert_eq!((found.build, found.path), (2641, at.0.join("bare/openvino/libs/libopenvino.so.2641")));
    assert_eq!(core(Some(&at.0.join("bare"))).unwrap().build, 2641);
    let error = core(Some(&at.0.join("absent"))).unwrap_err().to_string();
    for part in ["OpenVINO not found", "absent/openvino/libs", OPTION, "install openvino with pip"] {
        assert!(error.contains(part), "{part} not in {error}");
    }
}
