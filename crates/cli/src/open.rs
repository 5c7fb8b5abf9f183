//! Opening pools as the flags say.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use terrace::{ByteSize, Durability, Index, OpenError, Options, Store};
use terrace_server::config::{Config, Key, TABLE, format_size, parse_sizes};

use crate::{
    clock,
    failure::{Failure, Outcome, say},
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

/// A pool that exists, to look into: its file stays as it is, to the last byte. Where that can't be, as on hugetlbfs, all of it but its head, as by one of several that share it.
pub(crate) fn to_read(config: &Config) -> Result<Store, Failure> {
    let options = options(config).read_only(true);
    patiently(|| match options.clone().open() {
        Err(error) if error.is_for_sharers() => options.clone().shared(true).open(),
        opened => opened,
    })
}

/// A pool that exists, to change.
pub(crate) fn to_write(config: &Config) -> Result<Store, Failure> {
    let store = patiently(|| options(config).open())?;
    tell_salvaged(&store);
    Ok(store)
}

/// Puts a new pool with all that is whole in the place of one that is damaged.
pub(crate) fn repair(config: &Config) -> Outcome {
    let store = patiently(|| options(config).salvage(true).open())?;
    tell_salvaged(&store);
    close(store)
}

/// Says what a salvage kept and what it dropped.
fn tell_salvaged(store: &Store) {
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
    let path = path(config);
    let mut note = None;
    if !path.exists() {
        make_default_directory(&path)?;
        note = fit(config, &path);
    }
    let began = clock::start();
    let store = patiently(|| options(config).open_or_create())?;
    tell_salvaged(&store);
    Ok(Opened { store, took: began.elapsed(), note })
}

/// How often a pool that is in use is asked for once more, within a second.
const LOOKS: u32 = 50;

/// Opens a pool whose last user may still be ending: the kernel needs a while to take a large pool from a killed process.
fn patiently(open: impl Fn() -> Result<Store, OpenError>) -> Result<Store, Failure> {
    for _ in 0..LOOKS {
        match open() {
            Err(error) if error.is_in_use() => clock::pause(Duration::from_secs(1) / LOOKS),
            opened => return opened.map_err(Failure::new),
        }
    }
    open().map_err(Failure::new)
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

/// The default pool's directory is made, for its owner only; any other must exist, since its name may be a slip.
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

/// Lowers a size that no one asked for to what the file system has room for, and says so.
fn fit(config: &Config, path: &Path) -> Option<String> {
    let directory = fs::canonicalize(path.parent()?).ok()?;
    let room = rustix::fs::statvfs(&directory).ok()?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let size = config.number(Key::Size);
    // A quarter stays for others; whole MiB look like someone's choice.
    let fitting = (free / 4 * 3) >> 20 << 20;
    if config.given(Key::Size) || fitting >= size {
        return None;
    }
    config.record(Key::Size, fitting);
    let (fitting, size, free) = (format_size(fitting), format_size(size), format_size(free));
    Some(format!(
        "{fitting} instead of {size}, since {} has {free} free; --size chooses",
        directory.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Whether a pool is opened that is in use for the first `times` that it is asked for, and how often it was.
    fn opened_after(times: u32, options: &Options) -> (bool, u32) {
        let user = Cell::new(Some(options.create().unwrap()));
        let asked = Cell::new(0);
        let opened = patiently(|| {
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
        let missing = patiently(|| {
            asked.set(asked.get() + 1);
            options("missing").open()
        });
        assert!(missing.is_err() && asked.get() == 1);
    }
}
