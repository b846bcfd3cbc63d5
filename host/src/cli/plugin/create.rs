//! `plugin new`: writes a project and says what to do next.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::say;
use crate::plugins::template::{self, Language};

/// What to write, and where.
#[derive(Args)]
pub(in crate::cli) struct Flags {
    /// Id of the plugin and of its engine: a-z, 0-9 and -.
    #[arg(value_name = "NAME")]
    name: String,
    /// Language of the plugin.
    #[arg(long, value_enum, default_value = "rust")]
    lang: Lang,
    /// Folder to make; NAME in the working directory when left out.
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Lang {
    Rust,
    C,
}

pub(super) fn run(flags: &Flags) -> Result<i32, String> {
    let folder = flags.path.clone().unwrap_or_else(|| PathBuf::from(&flags.name));
    let language = match flags.lang {
        Lang::Rust => Language::Rust,
        Lang::C => Language::C,
    };
    let written = template::write(&flags.name, language, &folder)?;
    let (build, library) = (language.build(), language.library(&flags.name));
    say(&format!(
        "{} files in {}. Next:\n  cd {}\n  {build}\n  cascadia-host plugin check ./{library}\n  \
         cascadia-host --plugin ./{library} --model any\nREADME.md says where the engine is.",
        written,
        folder.display(),
        folder.display()
    ));
    Ok(0)
}
