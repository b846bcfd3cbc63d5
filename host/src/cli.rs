//! The command line: flags become one more layer of the configuration; commands print what they answer.

mod flags;
mod plugin;
mod plugin_flags;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::app;
use crate::config::{Config, env, merge};
use crate::plugins::isolate;
use crate::telemetry::{logs, reference};
use flags::ServeFlags;
use plugin_flags::PluginFlags;

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
    /// List, describe, check and make plugins.
    #[command(subcommand)]
    Plugin(plugin::Command),
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
        /// Which: metrics.
        document: String,
    },
}

/// Exit status of a usage or configuration error.
const USAGE: i32 = 2;

/// Runs the command line; answers the exit status.
pub fn main() -> i32 {
    let args = env::arguments();
    let executable = env::executable().unwrap_or_default();
    let plugin_flags = PluginFlags::of(&args, &executable);
    let command = plugin_flags.add(Cli::command()).mut_subcommand("serve", |serve| plugin_flags.add(serve));
    let parsed =
        command.try_get_matches_from(&args).and_then(|m| Cli::from_arg_matches(&m).map(|cli| (cli, m)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version are no errors; clap knows where each goes.
            return if error.print().is_ok() { error.exit_code() } else { USAGE };
        }
    };
    let extra = |matches: &ArgMatches| plugin_flags.table(matches);
    match cli.command {
        None => serve(&cli.serve, extra(&matches)),
        Some(Command::Serve(flags)) => {
            let inner = matches.subcommand_matches("serve").map(extra).unwrap_or_default();
            serve(&flags, inner)
        }
        Some(Command::Plugin(command)) => plugin::run(&command),
        Some(Command::PluginRun { parent, level, memory }) => {
            isolate::child::run(&isolate::child::Call { parent, level, memory })
        }
        Some(Command::GenDocs { document }) => generate(&document),
    }
}

fn serve(flags: &ServeFlags, plugin_options: toml::Table) -> i32 {
    match configuration(flags, plugin_options) {
        Err(problem) => complain(&problem, USAGE),
        Ok(config) => {
            logs::start(config.level().unwrap_or(tracing::Level::INFO), config.log.format);
            match app::run(config) {
                Ok(()) => 0,
                Err(app::Failed { message, usage }) => complain(&message, if usage { USAGE } else { 1 }),
            }
        }
    }
}

fn configuration(flags: &ServeFlags, plugin_options: toml::Table) -> Result<Config, String> {
    let mut layers = Vec::new();
    if let Some(path) = &flags.config {
        layers.push(merge::file(path).map_err(|e| e.to_string())?);
    }
    layers.push(env::table());
    layers.push(plugin_options);
    layers.push(flags.table()?);
    let mut config = merge::resolve(layers).map_err(|e| e.to_string())?;
    flags.name_single_model(&mut config)?;
    Ok(config)
}

#[expect(clippy::print_stdout, reason = "the document is the command's answer")]
fn generate(document: &str) -> i32 {
    match document {
        "metrics" => {
            print!("{}", reference::markdown());
            0
        }
        other => complain(&format!("there is no document {other:?}; there is metrics"), USAGE),
    }
}

#[expect(clippy::print_stderr, reason = "a command line tells its user what went wrong")]
fn complain(message: &str, code: i32) -> i32 {
    eprintln!("cascadia-host: {message}");
    code
}
