//! The command line: flags become one more layer of the configuration; commands print what they answer.

mod config;
mod doctor;
mod flags;
mod model;
mod plugin;
mod plugin_flags;

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::app;
use crate::config::setting::Setting;
use crate::config::{self as configuration, Sources, env};
use crate::plugins::{configured, isolate};
use crate::telemetry::{logs, reference};
use flags::ServeFlags;
use plugin_flags::{Given, PluginFlags};

/// Serves language models through engine plugins, with the OpenAI API.
#[derive(Parser)]
#[command(
    name = "cascadia-host",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeFlags,
}

#[derive(Subcommand)]
enum Command {
    /// Serve; what the host does without a command too.
    Serve(Box<ServeFlags>),
    /// Show, check and describe the configuration.
    #[command(subcommand)]
    Config(config::Command),
    /// Models of a running host (list, load, unload) and model files (compile, inspect, verify).
    #[command(subcommand)]
    Model(model::Command),
    /// Say whether `serve` with these flags would come up here, and what to do where not. Exit status 1 if not; a host that
    /// runs at the address already is told and does not count.
    Doctor(Box<doctor::Flags>),
    /// List, describe, check and make plugins.
    #[command(subcommand)]
    Plugin(plugin::Command),
    /// Print the completions of a shell, to be put where that shell looks for them.
    Completions {
        /// The shell.
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Run a plugin's engine for a host; the host starts this itself.
    #[command(hide = true)]
    PluginRun {
        /// Process id of the host.
        #[arg(long)]
        parent: u32,
        /// Most detailed log level.
        #[arg(long)]
        level: tracing::Level,
        /// Bound on the address space, in bytes.
        #[arg(long)]
        memory: Option<u64>,
    },
    /// Print a generated document.
    #[command(hide = true)]
    GenDocs {
        /// Which: metrics or config.
        document: String,
    },
}

/// A shell whose completions are known.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Exit status of a usage or configuration error.
const USAGE: i32 = 2;

/// The first fault of writing an answer. Kept aside until the command is done: what it finds out does not depend on who reads.
static UNWRITTEN: OnceLock<std::io::Error> = OnceLock::new();

/// Runs the command line; answers the exit status.
pub fn main() -> i32 {
    let code = answer();
    noted(std::io::stdout().flush());
    match UNWRITTEN.get() {
        Some(error) => unwritten(error, code),
        None => code,
    }
}

/// The exit status of a command that ended with `code` and whose answer did not all leave.
fn unwritten(error: &std::io::Error, code: i32) -> i32 {
    match error.kind() {
        // A reader that has seen enough and left, as `head` does, is no fault of the command.
        std::io::ErrorKind::BrokenPipe => code,
        _ => complain(&format!("cannot write the output: {error}"), code.max(1)),
    }
}

fn answer() -> i32 {
    let args = env::arguments();
    let executable = env::executable().unwrap_or_default();
    let plugin_flags = PluginFlags::of(&args, &executable);
    let with_options = |command: clap::Command| plugin_flags.add(command);
    let command = with_options(Cli::command())
        .mut_subcommand("serve", with_options)
        .mut_subcommand("doctor", with_options)
        .mut_subcommand("config", |config| config.mut_subcommand("show", with_options));
    let parsed =
        command.try_get_matches_from(&args).and_then(|m| Cli::from_arg_matches(&m).map(|cli| (cli, m)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version are no errors; clap knows where each goes.
            return match error.use_stderr() {
                true => complain(&in_one_line(&rendered(&error)), error.exit_code()),
                false => {
                    noted(error.print());
                    0
                }
            };
        }
    };
    // The options of plugins, from the innermost command that was named.
    let options = match plugin_flags.given(innermost(&matches)) {
        Ok(given) => given,
        Err(problem) => return complain(&problem, USAGE),
    };
    // A host serves for months with what is left of this.
    drop((matches, plugin_flags));
    match cli.command {
        None => serve(&cli.serve, options),
        Some(Command::Serve(flags)) => serve(&flags, options),
        Some(Command::Config(command)) => config::run(&command, options.settings),
        Some(Command::Model(command)) => model::run(&command),
        Some(Command::Doctor(flags)) => doctor::run(&flags, options.settings),
        Some(Command::Completions { shell }) => {
            complete(shell);
            0
        }
        Some(Command::Plugin(command)) => plugin::run(&command),
        Some(Command::PluginRun { parent, level, memory }) => {
            isolate::child::run(&isolate::child::Call { parent, level, memory })
        }
        Some(Command::GenDocs { document }) => generate(&document),
    }
}

fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, inner)| innermost(inner))
}

fn serve(flags: &ServeFlags, given: Given) -> i32 {
    let resolved = sources(flags, given.settings)
        .and_then(|sources| configured::resolve(&sources).map(|r| (sources, r)).map_err(|e| e.to_string()));
    match resolved {
        Err(problem) => complain(&problem, USAGE),
        Ok((sources, resolved)) => {
            let config = resolved.config;
            logs::start(config.level().unwrap_or(tracing::Level::INFO), config.log.format);
            for remark in given.remarks {
                tracing::warn!("{remark}");
            }
            match app::run(config, sources) {
                Ok(()) => 0,
                Err(app::Failed { message, usage }) => complain(&message, if usage { USAGE } else { 1 }),
            }
        }
    }
}

/// Where the configuration of a command with these flags comes from.
fn sources(flags: &ServeFlags, plugin_options: Vec<Setting>) -> Result<Sources, String> {
    let mut all = plugin_options;
    all.extend(flags.settings()?);
    Ok(Sources { file: flags.config.clone(), flags: all })
}

fn complete(shell: Shell) {
    let generator = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut Cli::command(), "cascadia-host", &mut script);
    say(String::from_utf8_lossy(&script).trim_end());
}

fn generate(document: &str) -> i32 {
    let text = match document {
        "metrics" => reference::markdown(),
        "config" => configuration::reference::markdown(),
        "errors" => crate::error::reference::markdown(),
        other => {
            let told = format!("there is no document {other:?}; there are metrics, config and errors");
            return complain(&told, USAGE);
        }
    };
    noted(write!(std::io::stdout(), "{text}"));
    0
}

/// What clap says. Of a word after flags that is no command it says only that flags do not go with it.
fn rendered(error: &clap::Error) -> String {
    let told = error.render().to_string();
    let (ErrorKind::ArgumentConflict, Some(ContextValue::String(name))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    else {
        return told;
    };
    let mut command = Cli::command();
    if command.find_subcommand(name).is_some() {
        return format!("the flags of a command go after it: {}", told.trim_start_matches("error: "));
    }
    match command.try_get_matches_from_mut(["cascadia-host", name]) {
        Err(unknown) => unknown.render().to_string(),
        Ok(_) => told,
    }
}

/// What is wrong with a command line, without the usage that `--help` tells.
fn in_one_line(told: &str) -> String {
    let mut line = String::new();
    let said = told.lines().map(str::trim).take_while(|part| !part.starts_with("Usage:"));
    for part in said.filter(|part| !part.is_empty() && !part.starts_with("For more information")) {
        let part = part.trim_start_matches("error: ").trim_start_matches("tip: ");
        if !line.is_empty() {
            line.push_str(if line.ends_with(':') { " " } else { "; " });
        }
        line.push_str(part);
    }
    line.push_str("; see --help");
    line
}

/// Tells the user what went wrong. Where that cannot be written there is nobody left to tell.
fn complain(message: &str, code: i32) -> i32 {
    drop(writeln!(std::io::stderr(), "cascadia-host: {message}"));
    code
}

/// Prints a line of the answer.
fn say(text: &str) {
    noted(writeln!(std::io::stdout(), "{text}"));
}

/// Keeps a fault of writing until the command is done. The first one is the cause of the others.
fn noted(written: std::io::Result<()>) {
    if let Err(error) = written {
        UNWRITTEN.get_or_init(|| error);
    }
}

/// The text in an ANSI colour, on a terminal whose user has not asked for none.
fn colour(text: &str, ansi: &str) -> String {
    let wanted = std::io::stdout().is_terminal() && !env::is_set("NO_COLOR");
    if wanted { format!("\u{1b}[{ansi}m{text}\u{1b}[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_command_line_is_one_line() {
        let said = |args: &[&str]| {
            let error = Cli::command().try_get_matches_from(args).expect_err("wrong");
            in_one_line(&rendered(&error))
        };
        assert_eq!(
            said(&["cascadia-host", "--plugn", "x"]),
            "unexpected argument '--plugn' found; a similar argument exists: '--plugin'; see --help"
        );
        let missing = said(&["cascadia-host", "plugin", "check"]);
        assert_eq!(missing, "the following required arguments were not provided: <LIB>; see --help");
        assert_eq!(
            said(&["cascadia-host", "--set", "a=b", "serv"]),
            "unrecognized subcommand 'serv'; a similar subcommand exists: 'serve'; see --help"
        );
        let stray = said(&["cascadia-host", "--set", "a=b", "serve"]);
        assert!(stray.starts_with("the flags of a command go after it: the subcommand 'serve'"), "{stray}");
    }

    #[test]
    fn an_answer_that_was_not_written_is_a_failure_unless_its_reader_left() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert_eq!((unwritten(&full, 0), unwritten(&full, USAGE)), (1, USAGE));
        let left = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!((unwritten(&left, 0), unwritten(&left, 1)), (0, 1));
    }
}
