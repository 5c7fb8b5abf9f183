//! `stats`: what a pool holds and costs. Of a pool that a server holds, the server tells, by its metrics.

mod costs;
mod figures;
mod page;

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use terrace_server::config::{Config, Key};

use crate::{
    args::StatsOptions,
    clock,
    failure::{Failure, Outcome},
    open,
};
use figures::Figures;

pub(crate) fn run(options: &StatsOptions) -> Outcome {
    let config = options.pool.config()?;
    if options.watch {
        return watch(&config, options);
    }
    let figures = match open::to_read(&config) {
        Ok(store) => Figures::of_pool(&store.stats(), config.is_on(Key::Shared), &store.others()),
        Err(failure) => {
            page::ask(options.metrics_port(), &open::path(&config)).map_err(|why| failure.hint(why))?
        }
    };
    show(&figures, options)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows a server's figures every second, with what happened in that second, until the server or the reader goes.
fn watch(config: &Config, options: &StatsOptions) -> Outcome {
    const EVERY: Duration = Duration::from_secs(1);
    let path = open::path(config);
    let mut before: Option<Figures> = None;
    loop {
        let figures = page::ask(options.metrics_port(), &path).map_err(|why| {
            Failure::new("there is no running server to watch")
                .hint(why)
                .hint("terrace stats shows a pool that no server holds")
        })?;
        if io::stdout().is_terminal() && !options.json {
            write!(io::stdout(), "\x1b[H\x1b[2J")?;
        }
        show(&before.as_ref().map_or_else(|| figures.clone(), |before| figures.since(before)), options)?;
        before = Some(figures);
        clock::pause(EVERY);
    }
}

fn show(figures: &Figures, options: &StatsOptions) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", figures.json())?
    } else {
        figures.write(&mut out)?
    }
    out.flush()
}
