//! `stats`: the contents and costs of a pool. If a server has the pool open, they come from its
//! metrics.

mod costs;
mod disk;
mod figures;
mod page;
mod tier;

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use terrace::Store;
use terrace_server::config::{Config, Key};

use crate::{
    args::StatsOptions,
    clock,
    failure::{Failure, Outcome},
    in_force, open,
};
use figures::Figures;

pub(crate) fn run(options: &StatsOptions) -> Outcome {
    let config = options.pool.config()?;
    if options.watch {
        return watch(&config, options);
    }
    show(&figures(&config, options.metrics_port())?, options)?;
    Ok(ExitCode::SUCCESS)
}

/// The figures of a pool, or of the server that has it open.
fn figures(config: &Config, port: Option<u16>) -> Result<Figures, Failure> {
    let is_shared = config.is_on(Key::Shared);
    let of_pool = |store: Store| {
        in_force::warn(config, &store);
        Figures::of_pool(&store.stats(), is_shared, &store.other_processes())
    };
    if let Ok(store) = open::read_once(config) {
        open::check_engine(config, &store)?;
        return Ok(of_pool(store));
    }
    let path = open::path(config);
    // If no server answers, the process that has the pool open may be exiting.
    page::figures(port, &path).or_else(|_| {
        open::to_read(config).map(of_pool).or_else(|failure| match path.exists() {
            true => page::figures(port, &path).map_err(|why| failure.hint(why)),
            false => Err(failure),
        })
    })
}

/// Shows a server's figures every second, with the counts of that second, until the server or the
/// reader of the output is gone.
fn watch(config: &Config, options: &StatsOptions) -> Outcome {
    const EVERY: Duration = Duration::from_secs(1);
    let path = open::path(config);
    let mut before: Option<Figures> = None;
    loop {
        let figures = page::figures(options.metrics_port(), &path).map_err(|why| {
            Failure::new("there is no running server to watch")
                .hint(why)
                .hint("without --watch, terrace stats shows a pool that no server has open")
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
