//! `checkpoint`, `backup`, `restore` and `compact`: the upkeep of a store in a directory, directly
//! or through the server that has it open.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    io::{self, Write},
    ops::Bound,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use terrace::Store;
use terrace_server::config::{Config, Key, format_size};

use crate::{
    failure::{Failure, Outcome},
    location,
    password::Password,
    progress::Bar,
    settings::{OfChange, Settings},
    target::Target,
    text::counted,
};

#[derive(Debug, Args)]
#[command(after_help = "\
If a server has the store open, the checkpoint is made by it, of what it has answered so far.
A checkpoint and a backup are stores: --dir of any command takes their paths.")]
pub(crate) struct CopyOptions {
    /// The path of the copy, which must not exist; for restore, that of the checkpoint or backup
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfChange>,
}

#[derive(Debug, Args)]
pub(crate) struct CompactOptions {
    /// Only this key and those after it
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfChange>,
}

/// Files that belong to the process that has a store open, not to the store.
const OF_PROCESS: [&str; 2] = ["LOCK", "NOTICE"];
/// Marks a directory that a process copies to, and is locked by it.
const COPYING: &str = "COPYING";

pub(crate) fn checkpoint(options: &CopyOptions) -> Outcome {
    let config = directory_of(options.pool.config()?)?;
    let path = std::path::absolute(&options.path)?;
    make_checkpoint(&config, options, &path)?;
    writeln!(io::stdout(), "made the checkpoint {}", path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Copies a checkpoint, which lies beside the store for that time, to any file system.
pub(crate) fn backup(options: &CopyOptions) -> Outcome {
    let config = directory_of(options.pool.config()?)?;
    let beside = Beside::new(&location::path(&config))?;
    make_checkpoint(&config, options, &beside.0)?;
    let bytes = copy(&beside.0, &options.path)?;
    report(&config, &options.path, "backed up", bytes)
}

pub(crate) fn restore(options: &CopyOptions) -> Outcome {
    let config = directory_of(options.pool.config()?)?;
    let to = location::path(&config);
    let from = &options.path;
    verify(&config, from).map_err(|error| error.hint("nothing was restored"))?;
    let bytes = copy(from, &to)?;
    report(&config, &to, "restored", bytes)
}

pub(crate) fn compact(options: &CompactOptions) -> Outcome {
    let config = directory_of(options.pool.config()?)?;
    let end = |key: &Option<OsString>| key.as_ref().map(|key| key.as_bytes().to_vec());
    let (from, to) = (end(&options.from), end(&options.to));
    let mut target = Target::to_write(&config, &options.password)?;
    match &mut target {
        Target::Pool(store, _) => {
            let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            store.disk().and_then(|disk| disk.compact_range((from, to))).map_err(Failure::new)?;
        }
        Target::Server(client) => {
            let marked = |mark: &[u8], key: &[u8]| [mark, key].concat();
            let from = from.map_or(b"-".to_vec(), |key| marked(b"[", &key));
            let to = to.map_or(b"+".to_vec(), |key| marked(b"(", &key));
            client.command(&[b"X.COMPACT", &from, &to])?;
        }
    }
    target.close()
}

/// The settings, if they name a directory.
fn directory_of(config: Config) -> Result<Config, Failure> {
    match config.text(Key::Dir).is_empty() {
        true => Err(Failure::usage("name the directory of the store with --dir")
            .hint("a pool is backed up by terrace dump, and needs no compaction")),
        false => Ok(config),
    }
}

fn make_checkpoint(config: &Config, options: &CopyOptions, path: &Path) -> Result<(), Failure> {
    let mut target = Target::to_write(config, &options.password)?;
    match &mut target {
        Target::Pool(store, _) => {
            store.disk().and_then(|disk| disk.checkpoint(path)).map_err(Failure::new)?
        }
        Target::Server(client) => {
            client.command(&[b"X.CHECKPOINT", std::path::absolute(path)?.as_os_str().as_bytes()])?;
        }
    }
    target.close().map(drop)
}

/// Reads every record of the store at `path`, and compares it with its checksum. Returns their
/// number.
fn verify(config: &Config, path: &Path) -> Result<u64, Failure> {
    let options =
        Store::options().directory(path).memory(terrace::ByteSize::bytes(config.number(Key::Memory)));
    let store = options.read_only(true).open().map_err(Failure::new)?;
    let progress = Bar::new();
    let report = store.check(&mut |done, all| progress.set(done, all));
    progress.clear();
    store.close().map_err(Failure::new)?;
    match report.findings.first() {
        None => Ok(report.records),
        Some(finding) => Err(Failure::new(format!("{} is damaged: {finding}", path.display()))),
    }
}

fn report(config: &Config, path: &Path, did: &str, bytes: u64) -> Outcome {
    let items = counted(verify(config, path)?, "item", "items");
    writeln!(io::stdout(), "{did} {} to {}: {items}, all sound", format_size(bytes), path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Copies the files of a store to a new directory, which has its name once it is complete. Returns
/// their bytes.
fn copy(from: &Path, to: &Path) -> Result<u64, Failure> {
    if fs::symlink_metadata(to).is_ok() {
        return Err(Failure::new(format!("{} exists already", to.display())).hint("choose another path"));
    }
    let mut begun = to.as_os_str().to_owned();
    begun.push(".copying");
    let begun = PathBuf::from(begun);
    let _mark = begin_copy(&begun)?;
    let copied = copy_files(from, &begun).and_then(|bytes| {
        fs::rename(&begun, to).map_err(|error| failed("rename", &begun, &error))?;
        // A copy that has it is a store all the same.
        let _ = fs::remove_file(to.join(COPYING));
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync(parent)?;
        Ok(bytes)
    });
    if copied.is_err() {
        let _ = fs::remove_dir_all(&begun);
    }
    copied
}

/// Creates the directory of a copy, in place of one that an interrupted copy has left. It has a
/// file that this process locks until it drops what is returned.
fn begin_copy(begun: &Path) -> Result<File, Failure> {
    let mark = begun.join(COPYING);
    if fs::symlink_metadata(begun).is_ok() {
        match Mark::of(&mark) {
            Mark::InUse => {
                return Err(Failure::new(format!("another process copies to {} right now", begun.display())));
            }
            Mark::Stale => fs::remove_dir_all(begun).map_err(|error| failed("remove", begun, &error))?,
            // An empty one may be left, too.
            Mark::None if fs::remove_dir(begun).is_ok() => {}
            Mark::None => {
                return Err(Failure::new(format!(
                    "{} exists already, and is no interrupted copy",
                    begun.display()
                ))
                .hint("remove it, or choose another path"));
            }
        }
    }
    // As private as the store.
    let made = fs::DirBuilder::new().mode(0o700).create(begun);
    made.map_err(|error| failed("create", begun, &error))?;
    lock_new(&mark).map_err(|error| failed("create", &mark, &error))
}

/// Creates a file and locks it, where the file system can.
fn lock_new(path: &Path) -> io::Result<File> {
    let file = File::create(path)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::ResourceBusy.into()),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// What a file tells that a process locks while it works.
enum Mark {
    None,
    InUse,
    /// The process has ended.
    Stale,
}

impl Mark {
    fn of(path: &Path) -> Mark {
        match File::options().write(true).open(path) {
            Ok(file) if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) => Mark::InUse,
            Ok(_) => Mark::Stale,
            Err(_) => Mark::None,
        }
    }
}

fn copy_files(from: &Path, to: &Path) -> Result<u64, Failure> {
    let mut files = Vec::new();
    for entry in fs::read_dir(from).map_err(|error| failed("list", from, &error))? {
        let entry = entry?;
        let is_own = entry.file_name().to_str().is_some_and(|name| OF_PROCESS.contains(&name));
        if entry.file_type()?.is_file() && !is_own {
            files.push((entry.file_name(), entry.metadata()?.len()));
        }
    }
    let (progress, all) = (Bar::new(), files.iter().map(|(_, bytes)| bytes).sum());
    let mut bytes = 0;
    for (name, _) in files {
        let target = to.join(&name);
        bytes += fs::copy(from.join(&name), &target).map_err(|error| failed("write", &target, &error))?;
        sync(&target)?;
        progress.set(bytes, all);
    }
    progress.clear();
    sync(to)?;
    Ok(bytes)
}

fn sync(path: &Path) -> Result<(), Failure> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| failed("sync", path, &error))
}

fn failed(action: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot {action} {}: {error}", path.display()))
}

/// A checkpoint beside a store, removed when this is dropped. A file beside it is locked meanwhile,
/// so that the checkpoint of a process that was killed is known as such.
struct Beside(PathBuf, #[allow(dead_code, reason = "it holds the lock")] File);

impl Beside {
    fn new(store: &Path) -> Result<Beside, Failure> {
        let folder = store.join("checkpoints");
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("create", &folder, &error));
            }
            _ => remove_stale(&folder),
        }
        let path = std::path::absolute(folder.join(format!("{BACKUP}{}", std::process::id())))?;
        let mark = mark_of(&path);
        let file = lock_new(&mark).map_err(|error| failed("create", &mark, &error))?;
        Ok(Beside(path, file))
    }
}

/// How the checkpoints of backups are called, before the number of the process.
const BACKUP: &str = "backup-";

fn mark_of(checkpoint: &Path) -> PathBuf {
    checkpoint.with_extension("lock")
}

/// Removes the checkpoints of backups that were killed.
fn remove_stale(folder: &Path) {
    let names = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    for name in names.filter(|name| name.starts_with(BACKUP)) {
        let path = folder.join(name).with_extension("");
        if !matches!(Mark::of(&mark_of(&path)), Mark::InUse) {
            let _ = fs::remove_dir_all(&path);
            let _ = fs::remove_file(mark_of(&path));
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_file(mark_of(&self.0));
        // Only if nothing else is in it.
        let _ = self.0.parent().map(fs::remove_dir);
    }
}
