//! The options of the plugins that are named on the command line, as flags of their own: `--plugin libov_genai.so --cb`.
//!
//! Their manifests are read before the command line is parsed; nothing of a plugin's code runs for it. What is wrong with
//! a plugin is said later, by the one who loads it.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::config::setting::Setting;
use crate::plugins::manifest::{Kind, Manifest, Spec};
use crate::plugins::{find, load};

/// The options of some plugins.
pub(super) struct PluginFlags {
    plugins: Vec<Manifest>,
}

impl PluginFlags {
    /// Those of the plugins that these arguments name.
    pub(super) fn of(args: &[String], executable: &Path) -> PluginFlags {
        let dirs: Vec<PathBuf> = values(args, "--plugin-dir").map(PathBuf::from).collect();
        let mut plugins: Vec<Manifest> = Vec::new();
        for name in values(args, "--plugin") {
            let found = find::one(name, &dirs, executable).and_then(|path| load::inspect(&path));
            if let Ok(candidate) = found
                && !plugins.iter().any(|m| m.id == candidate.manifest.id)
            {
                plugins.push(candidate.manifest);
            }
        }
        PluginFlags { plugins }
    }

    /// Adds the flags to a command. A name that the host has itself, or that two plugins have, gets none: it is left to
    /// `--plugin-opt`, which the help says.
    pub(super) fn add(&self, mut command: Command) -> Command {
        let own: Vec<String> =
            command.get_arguments().filter_map(|a| a.get_long().map(str::to_owned)).collect();
        for plugin in &self.plugins {
            let mut left_out = Vec::new();
            for (key, spec) in &plugin.about.options {
                let shared = self.plugins.iter().filter(|p| p.about.options.contains_key(key)).count() > 1;
                if own.contains(key) || shared {
                    left_out.push(format!("{}.{key}", plugin.id));
                } else {
                    command = command.arg(flag(plugin, key, spec));
                }
            }
            if !left_out.is_empty() {
                let note =
                    format!("Only through --plugin-opt, as the name is taken: {}", left_out.join(", "));
                let before = command.get_after_help().map(|h| format!("{h}\n")).unwrap_or_default();
                command = command.after_help(format!("{before}{note}"));
            }
        }
        command
    }

    /// What was given.
    pub(super) fn settings(&self, matches: &ArgMatches) -> Vec<Setting> {
        let mut all = Vec::new();
        for plugin in &self.plugins {
            for key in plugin.about.options.keys() {
                let id = arg_id(plugin, key);
                if let Ok(Some(value)) = matches.try_get_one::<String>(&id) {
                    let path = ["plugin", &plugin.id, key];
                    all.push(Setting::flag(&format!("--{key}"), &path, value.as_str().into()));
                }
            }
        }
        all
    }
}

fn arg_id(plugin: &Manifest, key: &str) -> String {
    format!("{}.{key}", plugin.id)
}

fn flag(plugin: &Manifest, key: &str, spec: &Spec) -> Arg {
    let mut help = spec.description.clone();
    if let Some(default) = &spec.default
        && !matches!(default, serde_json::Value::String(s) if s.is_empty())
    {
        help.push_str(&format!(" [default: {default}]"));
    }
    if let Some(choices) = &spec.choices {
        let choices: Vec<_> =
            choices.iter().map(|c| c.as_str().map_or_else(|| c.to_string(), str::to_owned)).collect();
        help.push_str(&format!(" [one of: {}]", choices.join(", ")));
    }
    let arg = Arg::new(arg_id(plugin, key))
        .long(key.to_owned())
        .help(help)
        .help_heading(format!("Options of plugin {}", plugin.id))
        .action(ArgAction::Set);
    match spec.kind {
        Kind::Boolean => {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL")
        }
        Kind::Integer | Kind::Number => arg.value_name("N").allow_negative_numbers(true),
        Kind::String => arg.value_name("TEXT"),
    }
}

/// The values of a flag among raw arguments, in both of its forms.
fn values<'a>(args: &'a [String], flag: &'a str) -> impl Iterator<Item = &'a str> {
    args.iter().enumerate().filter_map(move |(i, arg)| match arg.strip_prefix(flag) {
        Some("") => args.get(i + 1).map(String::as_str),
        Some(rest) => rest.strip_prefix('='),
        None => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(id: &str, options: &str) -> Manifest {
        let text = format!(
            r#"{{"manifest":1,"id":"{id}","version":"1.0.0","abi":[1,0],"tables":{{}},"about":{{"options":{options}}}}}"#
        );
        crate::plugins::manifest::read(text.as_bytes()).expect("valid")
    }

    fn parse(flags: &PluginFlags, args: &[&str]) -> Result<Vec<String>, String> {
        let command = flags.add(Command::new("host").arg(Arg::new("device").long("device")));
        let matches = command.try_get_matches_from([&["host"], args].concat()).map_err(|e| e.to_string())?;
        Ok(flags.settings(&matches).iter().map(|s| format!("{} = {}", s.key(), s.value)).collect())
    }

    #[test]
    fn options_of_a_named_plugin_are_flags() {
        let options = r#"{"cb":{"type":"boolean"},"slots":{"type":"integer"},"device":{"type":"string"}}"#;
        let flags = PluginFlags { plugins: vec![manifest("p", options)] };
        let told = parse(&flags, &["--cb", "--slots", "3"]).expect("valid");
        assert_eq!(told, ["plugin.p.cb = \"true\"", "plugin.p.slots = \"3\""]);
        assert_eq!(parse(&flags, &["--cb=false"]).expect("valid"), ["plugin.p.cb = \"false\""]);
        // The host's own flag of that name stays the host's.
        assert!(parse(&flags, &["--device", "GPU"]).expect("valid").is_empty());
        assert!(parse(&flags, &["--sluts", "3"]).expect_err("a typing error").contains("--slots"));
    }

    #[test]
    fn a_name_that_two_plugins_have_is_left_to_plugin_opt() {
        let plugins =
            vec![manifest("a", r#"{"x":{"type":"string"}}"#), manifest("b", r#"{"x":{"type":"string"}}"#)];
        let flags = PluginFlags { plugins };
        assert!(parse(&flags, &["--x", "1"]).is_err());
        let help = flags.add(Command::new("host")).render_help().to_string();
        assert!(help.contains("a.x") && help.contains("b.x"), "{help}");
    }

    #[test]
    fn plugins_are_found_among_raw_arguments() {
        let args: Vec<String> = ["--plugin", "a", "--plugin=b", "--plugins", "c"].map(str::to_owned).to_vec();
        assert_eq!(values(&args, "--plugin").collect::<Vec<_>>(), ["a", "b"]);
    }
}
