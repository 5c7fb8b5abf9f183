//! `stats`: the contents and costs of a pool. If a server has the pool open, they come from its
//! metrics.

mod costs;
mod disk;
mod figures;
mod layers;
mod page;
mod tier;

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use terrace::Store;
use terrace_server::config::{Config, Key};

use crate::{
    clock,
    failure::{Failure, Outcome},
    in_force,
    location::path,
    open,
    settings::{OfMetrics, OfReader, Settings},
};
use figures::Figures;
use page::Page;

#[derive(Debug, Args)]
pub(crate) struct StatsOptions {
    /// One JSON object; names end with the unit
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the figures of a running server every second
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) metrics: Settings<OfMetrics>,
    #[command(flatten)]
    pub(crate) pool: Settings<OfReader>,
}

impl StatsOptions {
    /// The port given for the metrics of the server that has the pool open.
    fn metrics_port(&self) -> Option<u16> {
        let port = || u16::try_from(self.metrics.number(Key::MetricsPort)).unwrap_or(u16::MAX);
        self.metrics.is_given(Key::MetricsPort).then(port)
    }
}

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
        Figures::of_pool(&store.stats(), is_shared, &store.sharing().other_processes())
    };
    if let Ok(store) = open::read_once(config) {
        open::check_engine(config, &store)?;
        return Ok(of_pool(store));
    }
    let path = path(config);
    // If no server answers, the process that has the pool open may be exiting.
    of_server(port, &path).or_else(|_| {
        open::to_read(config).map(of_pool).or_else(|failure| match path.exists() {
            true => of_server(port, &path).map_err(|why| failure.hint(why)),
            false => Err(failure),
        })
    })
}

/// The figures of the server that has the pool at `path` open. The error says what to do.
fn of_server(port: Option<u16>, path: &Path) -> Result<Figures, String> {
    let (page, address) = Page::of(port, path)?;
    let wrong = || format!("the metrics at {address} are from another version of Terrace");
    Figures::of_server(&page).ok_or_else(wrong)
}

/// Shows a server's figures every second, with the counts of that second, until the server or the
/// reader of the output is gone.
fn watch(config: &Config, options: &StatsOptions) -> Outcome {
    const EVERY: Duration = Duration::from_secs(1);
    let path = path(config);
    let mut before: Option<Figures> = None;
    loop {
        let figures = of_server(options.metrics_port(), &path).map_err(|why| {
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
