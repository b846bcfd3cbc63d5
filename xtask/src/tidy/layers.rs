//! Layers of the host: a module names its own layer and lower ones only.

use super::Finding;
use super::policy::Layers;
use super::source::Module;

pub(super) fn check(layers: &Layers, modules: &[Module]) -> Vec<Finding> {
    let level = |name: &String| layers.order.iter().position(|layer| layer.contains(name));
    let mut found = Vec::new();
    for module in modules {
        let own = &module.path[0];
        let Some(own_level) = level(own) else {
            found.push(Finding::breach(
                &module.file,
                1,
                format!("module {own} is in no layer; add it to tidy.toml"),
            ));
            continue;
        };
        for mention in &module.mentions {
            let Some(path) = module.resolve(mention) else { continue };
            let Some(other) = path.first() else { continue };
            if level(other).is_some_and(|level| level > own_level) {
                let text = format!("{own} is a layer below {other}; pass what it needs in, or move it up");
                found.push(Finding::breach(&module.file, mention.line, text));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Text;
    use super::*;

    fn findings(name: &str, text: &str) -> Vec<(usize, String)> {
        let order = [["config", "error"], ["generate", "prompt"], ["http", "api"], ["main", "lib"]];
        let order = order.map(|layer| layer.map(str::to_owned).to_vec()).to_vec();
        let texts = [Text { name: format!("host/src/{name}"), text: text.to_owned() }];
        let modules = Module::all("host/src", &texts);
        let found = check(&Layers { root: "host/src".into(), order }, &modules);
        found.into_iter().map(|one| (one.line, one.text)).collect()
    }

    #[test]
    fn a_higher_layer_is_refused_also_in_a_group() {
        let found =
            findings("generate/stop.rs", "use crate::{config::A,\n http::B};\nfn f() { crate::api::g() }");
        let lines: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 3]);
        assert!(found[0].1.contains("generate is a layer below http"));
    }

    #[test]
    fn lower_and_own_layers_are_fine() {
        assert_eq!(findings("api/chat.rs", "use crate::{config, http::x, generate::y};"), []);
        assert_eq!(findings("main.rs", "fn main() { cascadia_host::api::run() }"), []);
    }

    #[test]
    fn an_unknown_module_is_asked_for_its_layer() {
        assert!(findings("utils.rs", "")[0].1.contains("in no layer"));
    }
}
