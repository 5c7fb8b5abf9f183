//! Opens pools as the settings say.

use std::{fs::DirBuilder, io, os::unix::fs::DirBuilderExt, path::Path, process::ExitCode, time::Duration};

use terrace::{ByteSize, Durability, Engine, Index, OpenError, Options, Problem, Store};
use terrace_server::config::{Config, Key, TABLE, parse_size, parse_sizes};

use crate::{
    clock,
    failure::{Failure, Outcome, say},
    location::{another_engine, is_on_disk, path},
    room,
    text::counted,
};

/// Attempts to open a pool that is in use, within a second.
pub(crate) const ATTEMPTS: u32 = 50;

/// An opened pool, with what `serve` prints about the open.
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// How long the open took.
    pub(crate) took: Duration,
    /// Why the new pool is smaller than by default.
    pub(crate) note: Option<String>,
    /// Whether there was nothing at its path.
    pub(crate) is_new: bool,
}

/// Opens an existing pool read-only; its file does not change. Where a private mapping is
/// impossible, as on hugetlbfs, opens it shared, which writes to the head of the file only.
pub(crate) fn to_read(config: &Config) -> Result<Store, Failure> {
    patiently(config, || read_once(config))
}

/// As [`to_read`], but without retries.
pub(crate) fn read_once(config: &Config) -> Result<Store, OpenError> {
    let options = options(config).read_only(true);
    match options.open() {
        Err(error) if error.is_shared_only() => options.shared(true).open(),
        opened => opened.map_err(without_directory),
    }
}

/// Opens an existing pool for writing.
pub(crate) fn write_once(config: &Config) -> Result<Store, OpenError> {
    options(config).open().map_err(without_directory)
}

/// Reports a missing directory as a missing pool, where no pool would be created.
fn without_directory(mut error: OpenError) -> OpenError {
    if let OpenError::Pool(error) = &mut error
        && matches!(error.problem, Problem::NoDirectory(_))
    {
        error.problem = Problem::Missing;
    }
    error
}

/// Opens a pool, or creates it if there is none. The caller calls [`prepare`] first.
pub(crate) fn or_create_once(config: &Config) -> Result<Store, OpenError> {
    options(config).open_or_create()
}

/// The failure for an error of the library. For a missing pool, the hints name this program's
/// commands, which the library does not know.
pub(crate) fn failure(config: &Config, error: OpenError) -> Failure {
    if !error.is_missing() {
        return Failure::new(error);
    }
    let path = path(config);
    if is_on_disk(config) {
        return Failure::new(error)
            .hint("terrace serve, terrace put and terrace load create a store: --dir DIR");
    }
    let failure = Failure::new(format!("there is no pool {}", path.display()))
        .hint("terrace serve, terrace put and terrace load create one; --pool PATH names another");
    if path.starts_with("/dev/shm") {
        return failure.hint("each container has a /dev/shm of its own, unless told to share one; logging out may clear /dev/shm");
    }
    failure
}

/// Refuses a store that was made with another engine than the one that is asked for.
pub(crate) fn check_engine(config: &Config, store: &Store) -> Result<(), Failure> {
    if !config.is_explicit(Key::Engine) {
        return Ok(());
    }
    let stats = store.stats();
    let has = match (&stats.tier, &stats.disk) {
        (Some(_), _) => Engine::Tiered,
        (None, Some(_)) => Engine::Wip,
        (None, None) => Engine::Direct,
    };
    match config.text(Key::Engine) {
        asked if asked == has.name() => Ok(()),
        asked => Err(another_engine(config, has.name(), &asked)),
    }
}

/// Replaces a damaged pool by a new one with all sound records.
pub(crate) fn repair(config: &Config) -> Outcome {
    let path = path(config);
    if !is_on_disk(config) {
        // The new pool is as large as the old one, which is kept.
        room::refuse(&path, path.metadata().map_or(0, |file| file.len()))?;
    }
    let store = patiently(config, || options(config).salvage(true).open())?;
    report_salvage(&store);
    close(store)
}

/// Prints what a salvage kept and what it dropped.
pub(crate) fn report_salvage(store: &Store) {
    let Some(salvaged) = store.opening().salvaged() else { return };
    salvaged.findings.iter().for_each(|finding| say(&format!("warning: dropped the content at {finding}")));
    let kept = counted(salvaged.kept, "record", "records");
    let dropped = counted(salvaged.dropped, "record", "records");
    say(&format!(
        "salvaged {kept}, dropped {dropped}; the damaged {} is now {}",
        if salvaged.damaged.is_dir() { "directory" } else { "pool" },
        salvaged.damaged.display()
    ));
}

/// Opens a pool, or creates it if there is none.
pub(crate) fn or_create(config: &Config) -> Result<Opened, Failure> {
    let is_new = !path(config).exists();
    let note = prepare(config)?;
    let began = clock::start();
    let store = patiently(config, || or_create_once(config))?;
    report_salvage(&store);
    store.opening().torn_tail().iter().for_each(|tail| say(&format!("warning: {tail}")));
    Ok(Opened { store, took: began.elapsed(), note, is_new })
}

/// If there is no pool, creates the default directory and chooses a size. Returns why the size is
/// smaller than the default.
pub(crate) fn prepare(config: &Config) -> Result<Option<String>, Failure> {
    let path = path(config);
    if path.exists() || is_on_disk(config) {
        return Ok(None);
    }
    make_default_directory(&path)?;
    room::fit(config, &path)
}

/// Refuses the pool of a memory node that has not stopped in order.
#[cfg(feature = "cluster")]
pub(crate) fn refuse_unmerged(config: &Config) -> Result<(), Failure> {
    let path = path(config);
    if is_on_disk(config) {
        return Ok(());
    }
    let found = terrace_cluster::memory::unmerged(&path);
    let found =
        found.map_err(|error| Failure::new(format!("cannot read {}.log: {error}", path.display())))?;
    let Some(log) = found else { return Ok(()) };
    let (pool, log) = (path.display(), log.display());
    Err(Failure::new(format!("{pool} is the pool of a cluster, and {log} may have writes that it has not yet"))
        .hint("while the memory node runs, ask a serving node; a memory node that is stopped by SIGTERM leaves all in the pool")
        .hint(format!("to work without those writes, move {log} elsewhere")))
}

#[cfg(not(feature = "cluster"))]
pub(crate) fn refuse_unmerged(_: &Config) -> Result<(), Failure> {
    Ok(())
}

/// Opens a pool whose last user may still be exiting: the kernel needs some time to unmap a large
/// pool of a killed process.
fn patiently(config: &Config, open: impl Fn() -> Result<Store, OpenError>) -> Result<Store, Failure> {
    refuse_unmerged(config)?;
    for _ in 0..ATTEMPTS {
        match open() {
            Err(error) if error.is_in_use() => clock::pause(Duration::from_secs(1) / ATTEMPTS),
            opened => return checked(config, opened),
        }
    }
    checked(config, open())
}

/// A store that was opened, if it is what is asked for.
fn checked(config: &Config, opened: Result<Store, OpenError>) -> Result<Store, Failure> {
    let store = opened.map_err(|error| failure(config, error))?;
    check_engine(config, &store)?;
    Ok(store)
}

/// Closes a pool cleanly.
pub(crate) fn close(store: Store) -> Outcome {
    store.close().map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// The engine of a store in a directory.
fn engine(config: &Config) -> Engine {
    Engine::named(&config.text(Key::Engine)).filter(|engine| *engine != Engine::Direct).unwrap_or(Engine::Wip)
}

/// The memory of a store in a directory, or the DRAM of one over DRAM and a pool.
pub(crate) fn memory(config: &Config) -> ByteSize {
    let is_of_wip = is_on_disk(config) && engine(config) == Engine::Wip;
    ByteSize::bytes(config.number(if is_of_wip { Key::Memory } else { Key::Dram }))
}

fn options(config: &Config) -> Options {
    let (least, most) = parse_sizes(&config.text(Key::IndexCache)).unwrap_or_default();
    let mut options = Store::options()
        .path(path(config))
        .program("terrace")
        .size(ByteSize::bytes(config.number(Key::Size)))
        .engine(if is_on_disk(config) { engine(config) } else { Engine::Direct })
        .memory(memory(config))
        .durability(Durability::named(&config.text(Key::Durability)).unwrap_or(Durability::Process))
        .sync_interval(Duration::from_millis(config.number(Key::SyncInterval)))
        .merge_rate(ByteSize::bytes(config.number(Key::MergeRate)))
        .index_cache(ByteSize::bytes(least), ByteSize::bytes(most))
        .huge_pages(config.is_on(Key::HugePages))
        .salvage(config.is_on(Key::Salvage))
        .shared(config.is_on(Key::Shared));
    let is_tiered = config.text(Key::Engine) == Engine::Tiered.name();
    // A store over two tiers has another default.
    if !is_tiered || config.is_explicit(Key::Index) {
        options = options.index(Index::named(&config.text(Key::Index)).unwrap_or_default());
    }
    if let Ok(participants @ 1..) = u32::try_from(config.number(Key::Participants)) {
        options = options.participants(participants);
    }
    if config.number(Key::EndStopped) > 0 {
        options = options.end_stopped_after(Duration::from_secs(config.number(Key::EndStopped)));
    }
    if !is_on_disk(config) && config.text(Key::Engine) == Engine::Tiered.name() {
        options = options.tier_pool(path(config));
    }
    // Any other text is `auto`.
    if let Some(bytes) = parse_size(&config.text(Key::IndexDram)) {
        options = options.index_dram(ByteSize::bytes(bytes));
    }
    if config.number(Key::MaxSize) > 0 {
        options = options.max_size(ByteSize::bytes(config.number(Key::MaxSize)));
    }
    options
}

/// Creates the default pool's directory, for its owner only. Any other directory must exist, as its
/// name may be misspelt.
fn make_default_directory(path: &Path) -> Result<(), Failure> {
    let default = Path::new(TABLE[Key::Pool as usize].default);
    let Some(directory) = path.parent().filter(|_| path == default) else { return Ok(()) };
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Failure::new(format!("cannot create the directory {}: {error}", directory.display()))
                .hint("to put the pool elsewhere: --pool PATH"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Opens a pool that is in use during the first `times` attempts. Returns whether that
    /// succeeded, and the number of attempts.
    fn opened_after(times: u32, options: &Options) -> (bool, u32) {
        let user = Cell::new(Some(options.create().unwrap()));
        let asked = Cell::new(0);
        let opened = patiently(&Config::default(), || {
            if asked.replace(asked.get() + 1) == times {
                drop(user.take());
            }
            options.open()
        });
        (opened.is_ok(), asked.get())
    }

    #[test]
    fn only_a_pool_in_use_is_retried() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        let options = |name| Store::options().path(path(name)).size(ByteSize::mib(1)).huge_pages(false);
        assert_eq!(opened_after(0, &options("free")), (true, 1));
        assert_eq!(opened_after(3, &options("freed")), (true, 4));
        assert_eq!(opened_after(ATTEMPTS, &options("freed late")), (true, ATTEMPTS + 1));
        assert_eq!(opened_after(u32::MAX, &options("taken")), (false, ATTEMPTS + 1));
        let asked = Cell::new(0);
        let missing = patiently(&Config::default(), || {
            asked.set(asked.get() + 1);
            options("missing").open()
        });
        assert!(missing.is_err() && asked.get() == 1);
    }
}
