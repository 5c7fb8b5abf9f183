//! Opening pools as the flags say.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use terrace::{ByteSize, Durability, Index, OpenError, Options, Problem, Store};
use terrace_server::config::{Config, Key, TABLE, parse_sizes};

use crate::{
    clock,
    failure::{Failure, Outcome, say},
    room,
    target::LOOKS,
    text::counted,
};

/// An opened pool, and what there is to say about how.
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// How long that took.
    pub(crate) took: Duration,
    /// Why it is smaller than it would be by default.
    pub(crate) note: Option<String>,
}

/// A pool that exists, to look into: its file stays as it is, to the last byte. Where that can't
/// be, as on hugetlbfs, all of it but its head, as by one of several that share it.
pub(crate) fn to_read(config: &Config) -> Result<Store, Failure> {
    patiently(config, || read_once(config))
}

/// As [`to_read`], without patience.
pub(crate) fn read_once(config: &Config) -> Result<Store, OpenError> {
    let options = options(config).read_only(true);
    match options.open() {
        Err(error) if error.is_for_sharers() => options.shared(true).open(),
        opened => opened.map_err(without_directory),
    }
}

/// A pool that exists, to change.
pub(crate) fn write_once(config: &Config) -> Result<Store, OpenError> {
    options(config).open().map_err(without_directory)
}

/// A pool that is not to be made is missing, whether its directory is there or not.
fn without_directory(mut error: OpenError) -> OpenError {
    if let OpenError::Pool(error) = &mut error
        && matches!(error.problem, Problem::NoDirectory(_))
    {
        error.problem = Problem::Missing;
    }
    error
}

/// A pool, made if there is none; [`prepare`] comes first.
pub(crate) fn or_create_once(config: &Config) -> Result<Store, OpenError> {
    options(config).open_or_create()
}

/// The failure for an error of the library. A missing pool is described with this program's
/// commands, which the library does not know.
pub(crate) fn failure(config: &Config, error: OpenError) -> Failure {
    if !error.is_missing() {
        return Failure::new(error);
    }
    let path = path(config);
    let failure = Failure::new(format!("there is no pool {}", path.display()))
        .hint("terrace serve, terrace put and terrace load make one; --pool PATH names another");
    if path.starts_with("/dev/shm") {
        return failure.hint("a container has a /dev/shm of its own, unless it was given the others'; the end of a login may clear it");
    }
    failure
}

/// Puts a new pool with all that is whole in the place of one that is damaged.
pub(crate) fn repair(config: &Config) -> Outcome {
    let path = path(config);
    // The new pool is as large as the old one, which stays.
    room::refuse(&path, path.metadata().map_or(0, |file| file.len()))?;
    let store = patiently(config, || options(config).salvage(true).open())?;
    tell_salvaged(&store);
    close(store)
}

/// Says what a salvage kept and what it dropped.
pub(crate) fn tell_salvaged(store: &Store) {
    let Some(salvaged) = store.salvaged() else { return };
    salvaged.findings.iter().for_each(|finding| say(&format!("warning: dropped what lies at {finding}")));
    let kept = counted(salvaged.kept, "record", "records");
    let dropped = counted(salvaged.dropped, "record", "records");
    say(&format!(
        "salvaged {kept}, dropped {dropped}; the damaged pool is now {}",
        salvaged.damaged.display()
    ));
}

/// A pool, made if there is none.
pub(crate) fn or_create(config: &Config) -> Result<Opened, Failure> {
    let note = prepare(config)?;
    let began = clock::start();
    let store = patiently(config, || or_create_once(config))?;
    tell_salvaged(&store);
    Ok(Opened { store, took: began.elapsed(), note })
}

/// If there is no pool, makes the default directory and chooses a size. Returns why the size is
/// smaller than the default.
pub(crate) fn prepare(config: &Config) -> Result<Option<String>, Failure> {
    let path = path(config);
    if path.exists() {
        return Ok(None);
    }
    make_default_directory(&path)?;
    room::fit(config, &path)
}

/// Opens a pool whose last user may still be ending: the kernel needs a while to take a large pool
/// from a killed process.
fn patiently(config: &Config, open: impl Fn() -> Result<Store, OpenError>) -> Result<Store, Failure> {
    for _ in 0..LOOKS {
        match open() {
            Err(error) if error.is_in_use() => clock::pause(Duration::from_secs(1) / LOOKS),
            opened => return opened.map_err(|error| failure(config, error)),
        }
    }
    open().map_err(|error| failure(config, error))
}

/// Closes a pool in order.
pub(crate) fn close(store: Store) -> Outcome {
    store.close().map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// The pool's path.
pub(crate) fn path(config: &Config) -> PathBuf {
    config.text(Key::Pool).into()
}

fn options(config: &Config) -> Options {
    let (least, most) = parse_sizes(&config.text(Key::IndexCache)).unwrap_or_default();
    let mut options = Store::options()
        .path(path(config))
        .program("terrace")
        .size(ByteSize::bytes(config.number(Key::Size)))
        .durability(if config.text(Key::Durability) == "power" {
            Durability::Power
        } else {
            Durability::Process
        })
        .index(Index::named(&config.text(Key::Index)).unwrap_or_default())
        .index_cache(ByteSize::bytes(least), ByteSize::bytes(most))
        .huge_pages(config.is_on(Key::HugePages))
        .salvage(config.is_on(Key::Salvage))
        .shared(config.is_on(Key::Shared));
    if let Ok(participants @ 1..) = u32::try_from(config.number(Key::Participants)) {
        options = options.participants(participants);
    }
    if config.number(Key::EndStopped) > 0 {
        options = options.end_stopped_after(Duration::from_secs(config.number(Key::EndStopped)));
    }
    if config.number(Key::MaxSize) > 0 {
        options = options.max_size(ByteSize::bytes(config.number(Key::MaxSize)));
    }
    options
}

/// The default pool's directory is made, for its owner only; any other must exist, since its name
/// may be a slip.
fn make_default_directory(path: &Path) -> Result<(), Failure> {
    let default = Path::new(TABLE[Key::Pool as usize].default);
    let Some(directory) = path.parent().filter(|_| path == default) else { return Ok(()) };
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Failure::new(format!("cannot make the directory {}: {error}", directory.display()))
                .hint("to put the pool elsewhere: --pool PATH"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Whether a pool is opened that is in use for the first `times` that it is asked for, and how
    /// often it was.
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
    fn a_pool_in_use_is_waited_for_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        let options = |name| Store::options().path(path(name)).size(ByteSize::mib(1)).huge_pages(false);
        assert_eq!(opened_after(0, &options("free")), (true, 1));
        assert_eq!(opened_after(3, &options("freed")), (true, 4));
        assert_eq!(opened_after(LOOKS, &options("freed late")), (true, LOOKS + 1));
        assert_eq!(opened_after(u32::MAX, &options("taken")), (false, LOOKS + 1));
        let asked = Cell::new(0);
        let missing = patiently(&Config::default(), || {
            asked.set(asked.get() + 1);
            options("missing").open()
        });
        assert!(missing.is_err() && asked.get() == 1);
    }
}
