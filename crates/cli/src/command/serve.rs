//! `serve`: starts the server, prints where it listens, and waits for its end.

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

use clap::Args;
use terrace::{ByteSize, Engine, HugePages, Start, Stats, Store};
use terrace_server::{
    config::{Config, Key, format_size},
    net::Listeners,
    server::Server,
    shared::Shared,
};

use crate::{
    environment::{self, PASSWORD_FILE},
    failure::{Failure, Outcome},
    in_force,
    location::{is_on_disk, path},
    logger,
    open::{self, Opened},
    password::read_password,
    remote::Contact,
    room,
    server::{check_eviction, handle_signals, listen, places},
    settings::{OfServer, Settings},
    text::{counted, duration},
};

#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    pub(crate) settings: Settings<OfServer>,
    /// File whose first line is the password that clients must give [env: TERRACE_PASSWORD_FILE]
    #[arg(long, value_name = "PATH", help_heading = "Clients")]
    pub(crate) password_file: Option<PathBuf>,
}

pub(crate) fn run(options: ServeOptions) -> Outcome {
    let config = options.settings.config()?;
    let file = options.password_file.or_else(|| environment::variable(PASSWORD_FILE).map(PathBuf::from));
    if let Some(path) = file {
        read_password(&config, &path)?;
    }
    make_path_absolute(&config)?;
    logger::start(config.log_level());
    log_ignored_kubernetes_variables();
    let stopper = handle_signals()?;
    // Ports before the pool: a wrong port should fail before a large pool is opened.
    let listeners = listen(|| Listeners::bind(&config))?;
    let opened = open::or_create(&config)?;
    let store = opened.store.clone();
    in_force::record(&config, &store).iter().for_each(|text| log::warn!("{text}"));
    connect_settings(&config, &store);
    check_eviction(&config, &store)?;
    let places = places(&listeners);
    let shared = Arc::new(Shared::new(store.clone(), config));
    let contact = contact(&listeners, shared.run_id());
    let server = Server::start(Arc::clone(&shared), listeners).map_err(Failure::new)?;
    let _ = stopper.set(server.stopper());
    if !store.sharing().post_notice(&contact.to_notice()) {
        log::warn!(
            "the store has no room for this server's address: commands such as terrace get will not find it"
        );
    }
    // The reader of the output may be gone; the server runs nevertheless.
    let _ = announce(&shared.config, &opened, &places);
    let served = server.wait();
    drop((opened, shared));
    let closed = open::close(store);
    served.map_err(Failure::new)?;
    closed
}

/// Makes the store's path absolute: INFO and the metrics show it to processes in other directories.
fn make_path_absolute(config: &Config) -> Result<(), Failure> {
    let path = path(config);
    if path.is_absolute() {
        return Ok(());
    }
    let absolute = std::path::absolute(path)?;
    // A path that is not UTF-8 stays relative.
    let name = if is_on_disk(config) { "dir" } else { "pool" };
    absolute.to_str().map_or(Ok(()), |path| config.assign(name, path)).map_err(Failure::new)
}

/// The server's addresses for `terrace get` and other commands, which find them in the pool.
fn contact(listeners: &Listeners, run_id: &str) -> Contact {
    Contact::new(run_id, listeners.unix_path(), listeners.tcp_addresses(), listeners.metrics_address())
}

/// Prints the first lines: pool and durability, addresses, and how the pool was opened.
fn announce(config: &Config, opened: &Opened, places: &str) -> io::Result<()> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let heading = format!("terrace {VERSION}  ");
    let indent = " ".repeat(heading.len());
    let mut out = io::stdout().lock();
    let stats = opened.store.stats();
    let (place, kind) = store_line(config, opened, &stats);
    writeln!(out, "{heading}{place}, {})", promise(config))?;
    let threads = counted(config.number(Key::Threads), "thread", "threads");
    writeln!(out, "{indent}{kind} · {threads} · {places}")?;
    writeln!(out, "{indent}{}", found(opened, &stats))?;
    if let Some(note) = &opened.note {
        writeln!(out, "{indent}{note}")?;
    }
    for warning in opened.store.opening().warnings() {
        writeln!(out, "{indent}{warning}")?;
    }
    writeln!(out, "ready")?;
    out.flush()
}

/// Where the store lies and how large it is, without a closing bracket; and what it is made of.
fn store_line(config: &Config, opened: &Opened, stats: &Stats) -> (String, String) {
    let path = path(config);
    match &stats.pool {
        None => {
            let memory = format_size(open::memory(config).as_bytes());
            let place = if is_on_disk(config) { "directory" } else { "pool" };
            // A pool tells its engine.
            let engine = stats.tier.map_or(config.text(Key::Engine), |_| Engine::Tiered.name().into());
            let index = stats.index.map_or("", |index| index.name);
            let kind = match stats.tier {
                Some(_) if index != terrace::Index::Turbo.name() => {
                    format!("engine {engine} · index {index}, which reads records of the tier when it grows")
                }
                _ => format!("engine {engine}"),
            };
            (format!("{place} {} ({memory} of memory", path.display()), kind)
        }
        Some(pool) => {
            let pages =
                config.is_on(Key::HugePages).then(|| on_huge_pages(opened.store.upkeep().huge_pages()));
            let (size, pages) = (format_size(pool.size_bytes), pages.unwrap_or_default());
            let kind = format!("index {}", stats.index.unwrap_or_default().name);
            (format!("pool {} ({size}{pages}", path.display()), kind)
        }
    }
}

/// Describes the failures that data survives.
fn promise(config: &Config) -> &'static str {
    match config.text(Key::Durability).as_str() {
        "power" => return "keeps data through a crash of the process, of the machine, and a loss of power",
        "interval" => {
            return "keeps data through a crash of the process; a loss of power takes the last writes";
        }
        _ if is_on_disk(config) => {
            return "keeps data through a crash of the process, not of the machine: --durability power does";
        }
        _ => {}
    }
    "keeps data through a crash of the process, not of the machine: --durability power does, on a DAX file system"
}

/// Appended to the pool's size: whether most of its resident memory is on huge pages.
fn on_huge_pages(pages: io::Result<HugePages>) -> &'static str {
    match pages {
        Ok(pages) if pages.huge > pages.resident / 2 => ", huge pages",
        Ok(_) => ", huge pages as it fills",
        Err(_) => "",
    }
}

/// Describes how the pool was opened.
fn found(opened: &Opened, stats: &Stats) -> String {
    let (records, took) = (counted(stats.records, "record", "records"), duration(opened.took));
    match stats.disk {
        Some(_) if opened.is_new => return "created a new store".into(),
        Some(_) => return format!("opened about {records} in {took}"),
        None => {}
    }
    match stats.tier {
        Some(_) if opened.is_new => return "created a new store".into(),
        Some(_) => return format!("opened {records} in {took}"),
        None => {}
    }
    let others = opened.store.sharing().other_processes().len() as u64;
    match stats.pool.unwrap_or_default().found {
        _ if others > 0 => {
            format!(
                "joined {} in a pool of {records}, in {took}",
                counted(others, "other process", "other processes")
            )
        }
        Start::Created => "created a new pool".into(),
        Start::Clean => format!("opened {records} in {took}"),
        Start::Unclean => {
            format!(
                "recovered {records} in {took} after an unclean stop; collecting unreachable memory in the background"
            )
        }
    }
}

/// Makes CONFIG SET size grow the pool, and CONFIG SET appendfsync change what an answered write
/// survives.
fn connect_settings(config: &Config, store: &Store) {
    let (store, path) = (store.clone(), path(config));
    if store.is_on_disk() {
        config.set_promise(move |durability| {
            let set = store.disk().and_then(|disk| disk.set_durability(durability));
            set.map_err(|error| error.to_string())
        });
        return;
    }
    config.set_grow(move |bytes| {
        let more = bytes.saturating_sub(store.stats().pool.unwrap_or_default().size_bytes);
        room::refuse(&path, more).map_err(|failure| failure.one_line())?;
        let grown = store.upkeep().grow(ByteSize::bytes(bytes)).map(ByteSize::as_bytes);
        grown.map_err(|error| Failure::new(error).one_line())
    });
}

/// Logs the settings whose variables are ignored because Kubernetes has set them.
fn log_ignored_kubernetes_variables() {
    for (setting, value) in environment::taken_by_kubernetes() {
        log::info!(
            "ignored {}={}, which Kubernetes sets for a service of that name; --{} or the container's own \
             environment sets the {}",
            setting.env,
            value.to_string_lossy(),
            setting.flag,
            setting.name,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_reported_for_more_than_half_of_the_pool() {
        let says = |huge, resident| on_huge_pages(Ok(HugePages { huge, resident }));
        assert_eq!([says(51, 100), says(3, 4), says(100, 100)], [", huge pages"; 3]);
        assert_eq!([says(0, 0), says(50, 100), says(2, 100)], [", huge pages as it fills"; 3]);
        assert_eq!(on_huge_pages(Err(io::ErrorKind::NotFound.into())), "");
    }
}
