//! The options of the plugins that are named on the command line, as flags of their own: `--plugin libov_genai.so --cb`.
//!
//! Their manifests are read before the command line is parsed; nothing of a plugin's code runs for it. What is wrong with
//! a plugin is said later, by the one who loads it.
//!
//! What must hold: a flag means one thing. A name that two plugins have is refused where it is used, and one that the host
//! has is the host's; both are told with the way out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::config::setting::Setting;
use crate::plugins::manifest::{Kind, Manifest, Spec};
use crate::plugins::{find, load};

/// The options of some plugins.
pub(super) struct PluginFlags {
    plugins: Vec<Manifest>,
}

/// What the options of plugins on a command line say.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// What they set.
    pub(super) settings: Vec<Setting>,
    /// Flags of the host that a plugin's option is called as: they were given, and the plugin does not hear of it.
    pub(super) remarks: Vec<String>,
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

    /// Adds the flags to a command. A name that the host has itself, or that two plugins have, is left to `--plugin-opt`,
    /// which the help says.
    pub(super) fn add(&self, mut command: Command) -> Command {
        let own: Vec<String> =
            command.get_arguments().filter_map(|a| a.get_long().map(str::to_owned)).collect();
        for key in self.keys().filter(|key| !own.contains(key) && self.owners(key).count() > 1) {
            command = command.arg(shared(key));
        }
        for plugin in &self.plugins {
            let mut left_out = Vec::new();
            for (key, spec) in &plugin.about.options {
                if own.contains(key) || self.owners(key).count() > 1 {
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

    /// What was given; a flag that could mean two plugins is an error.
    pub(super) fn given(&self, matches: &ArgMatches) -> Result<Given, String> {
        let mut given = Given::default();
        for key in self.keys() {
            if let Ok(Some(_)) = matches.try_get_raw(&shared_id(key)) {
                return Err(format!(
                    "--{key} could mean {}; say which one: {}",
                    self.names(key, " or "),
                    self.ways(key).join(" or ")
                ));
            }
            if is_given(matches, key) && !REACHES_ENGINES.contains(&key.as_str()) {
                // Who says for the plugin too what it shall be knows of both.
                let told = |id: &str| is_set(matches, &format!("{id}.{key}="));
                if self.owners(key).any(|plugin| !told(&plugin.id)) {
                    given.remarks.push(format!(
                        "--{key} is the host's own flag; {} by that name is set with {}",
                        self.names(key, " and "),
                        self.ways(key).join(", ")
                    ));
                }
            }
        }
        for plugin in &self.plugins {
            for key in plugin.about.options.keys() {
                let id = arg_id(plugin, key);
                if let Ok(Some(value)) = matches.try_get_one::<String>(&id) {
                    let path = ["plugin", &plugin.id, key];
                    let setting = Setting::flag(&format!("--{key}"), &path, value.as_str().into());
                    given.settings.push(setting);
                }
            }
        }
        Ok(given)
    }

    /// The names of all options, each once.
    fn keys(&self) -> impl Iterator<Item = &String> {
        self.plugins.iter().flat_map(|p| p.about.options.keys()).collect::<BTreeSet<_>>().into_iter()
    }

    /// The plugins that have an option of that name.
    fn owners(&self, key: &str) -> impl Iterator<Item = &Manifest> {
        self.plugins.iter().filter(move |p| p.about.options.contains_key(key))
    }

    fn names(&self, key: &str, and: &str) -> String {
        let names: Vec<_> =
            self.owners(key).map(|plugin| format!("the option of plugin {}", plugin.id)).collect();
        names.join(and)
    }

    fn ways(&self, key: &str) -> Vec<String> {
        self.owners(key).map(|plugin| format!("--plugin-opt {}.{key}=VALUE", plugin.id)).collect()
    }
}

/// Flags of the host that set an engine's option of the same name.
const REACHES_ENGINES: [&str; 1] = ["device"];

/// Whether the host's own flag of that name stands on the command line.
fn is_given(matches: &ArgMatches, key: &str) -> bool {
    let own = key.replace('-', "_");
    matches.ids().any(|id| id.as_str() == own) && matches.value_source(&own) == Some(ValueSource::CommandLine)
}

/// Whether a `--plugin-opt` begins like this.
fn is_set(matches: &ArgMatches, begin: &str) -> bool {
    let options = matches.try_get_many::<String>("plugin_opt").ok().flatten();
    options.into_iter().flatten().any(|option| option.starts_with(begin))
}

fn shared_id(key: &str) -> String {
    format!("shared.{key}")
}

/// A flag that is there to be refused in better words than those for one that nobody knows.
fn shared(key: &str) -> Arg {
    let arg = Arg::new(shared_id(key)).long(key.to_owned()).hide(true).action(ArgAction::Append);
    arg.num_args(0..=1).allow_negative_numbers(true)
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
        let own = [Arg::new("device").long("device"), Arg::new("max_queued").long("max-queued")];
        let opt = Arg::new("plugin_opt").long("plugin-opt").action(ArgAction::Append);
        let command = flags.add(Command::new("host").args(own).arg(opt));
        let matches = command.try_get_matches_from([&["host"], args].concat()).map_err(|e| e.to_string())?;
        let given = flags.given(&matches)?;
        Ok(given.settings.iter().map(|s| format!("{} = {}", s.key(), s.value)).chain(given.remarks).collect())
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
        for args in [&["--x", "1"][..], &["--x=1"], &["--x"], &["--x", "-1", "--x", "2"]] {
            let told = parse(&flags, args).expect_err("it could mean both");
            assert_eq!(
                told,
                "--x could mean the option of plugin a or the option of plugin b; say which one: \
                 --plugin-opt a.x=VALUE or --plugin-opt b.x=VALUE"
            );
        }
        assert_eq!(parse(&flags, &["--plugin-opt", "a.x=1"]), Ok(Vec::new()));
        let help = flags.add(Command::new("host")).render_help().to_string();
        assert!(help.contains("a.x") && help.contains("b.x"), "{help}");
    }

    #[test]
    fn a_name_that_the_host_has_is_its_own_and_a_user_of_it_is_told() {
        let option = r#"{"max-queued":{"type":"string"}}"#;
        let flags = PluginFlags { plugins: vec![manifest("a", option), manifest("b", option)] };
        let told = parse(&flags, &["--max-queued", "3"]).expect("it is the host's");
        assert_eq!(
            told,
            [
                "--max-queued is the host's own flag; the option of plugin a and the option of plugin b by that name \
              is set with --plugin-opt a.max-queued=VALUE, --plugin-opt b.max-queued=VALUE"
            ]
        );
        // Not asked for, or set for each: nothing to say.
        assert_eq!(parse(&flags, &[]), Ok(Vec::new()));
        let opts = ["--plugin-opt", "a.max-queued=1", "--plugin-opt", "b.max-queued=2"];
        assert_eq!(parse(&flags, &[&opts[..], &["--max-queued", "3"]].concat()), Ok(Vec::new()));
    }

    #[test]
    fn plugins_are_found_among_raw_arguments() {
        let args: Vec<String> = ["--plugin", "a", "--plugin=b", "--plugins", "c"].map(str::to_owned).to_vec();
        assert_eq!(values(&args, "--plugin").collect::<Vec<_>>(), ["a", "b"]);
    }
}
