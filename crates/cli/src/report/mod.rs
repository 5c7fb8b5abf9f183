//! `report`: JSON of `terrace bench` and `cargo peers` as one page with plots, which needs nothing but itself.

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
    /// What `terrace bench --json FILE` and `cargo peers SUITE --json FILE` wrote
    #[arg(required = true, value_name = "FILE.json")]
    files: Vec<PathBuf>,
    /// The page to write; without it, standard output
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
        Failure::new(format!("{name} is not a report: {why}"))
            .hint("it takes what `terrace bench --json FILE` and `cargo peers SUITE --json FILE` write")
    })
}

/// What a file is called on the page.
fn title(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
