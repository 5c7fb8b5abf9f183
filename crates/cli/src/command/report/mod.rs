//! `report`: the JSON of `terrace bench` and `cargo peers` as one self-contained page with plots.

mod page;
mod plot;
mod source;
mod text;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;

use crate::failure::{Failure, Outcome};
use source::Source;

#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    /// Files written by `terrace bench --json FILE` or `cargo peers SUITE --json FILE`
    #[arg(required = true, value_name = "FILE.json")]
    files: Vec<PathBuf>,
    /// The page to write; default: standard output
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

pub(crate) fn run(options: &ReportOptions) -> Outcome {
    let sources: Vec<Source> = options.files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
    let page = page::page(&sources).map_err(Failure::new)?;
    match &options.output {
        None => io::stdout().lock().write_all(page.as_bytes())?,
        Some(path) => std::fs::write(path, page)
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Source, Failure> {
    let name = path.display();
    let text = std::fs::read(path).map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
    Source::parse(&title(path), &text).map_err(|why| {
        Failure::new(format!("{name} is not a report: {why}")).hint(
            "it must be a file written by `terrace bench --json FILE` or `cargo peers SUITE --json FILE`",
        )
    })
}

/// The name of a file on the page.
fn title(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
