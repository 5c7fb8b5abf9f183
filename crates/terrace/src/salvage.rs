//! Keeping what can be proved of a pool that cannot be trusted.

use crate::{ByteSize, Entry, Finding, Index, OpenError, Options, Put, WriteError};
use std::fs;
use std::path::{Path, PathBuf};
use terrace_engine::Durably;

/// Findings that are kept word for word; the rest are counted.
const LISTED_MAX: usize = 10_000;

/// What a salvage has kept and what it has dropped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Salvaged {
    /// Records that are in the new pool.
    pub kept: u64,
    /// Records that are not, or places at which records may have been lost.
    pub dropped: u64,
    /// What was wrong with those, the first ten thousand.
    pub findings: Vec<Finding>,
    /// The damaged pool, under its new name.
    pub damaged: PathBuf,
}

/// Copies what can be proved of the pool at `path` to a new pool in its place.
pub(crate) fn salvage(options: &Options, path: &Path) -> Result<Salvaged, OpenError> {
    let engine = options.damaged_engine()?;
    let (stats, failed) = (engine.stats(), |what: String| OpenError::Salvage { pool: path.into(), what });
    let pool = stats.pool.expect("what is salvaged here lies in a pool");
    let new_path = beside(path, "salvaging");
    let _ = fs::remove_file(&new_path);
    let mut salvaged = Salvaged { kept: 0, dropped: 0, findings: Vec::new(), damaged: PathBuf::new() };
    let copied = (|| {
        let index = stats.index.and_then(|index| Index::named(index.name)).unwrap_or_default();
        let store = options.successor(&new_path, index, pool.size_bytes, stats.records).create()?;
        let mut trouble = Ok(());
        engine.salvage(&mut |found| match found {
            Ok((key, entry)) if trouble.is_ok() => trouble = copy(&store, key, entry),
            Ok(_) => {}
            Err(finding) => {
                salvaged.dropped += 1;
                if salvaged.findings.len() < LISTED_MAX {
                    salvaged.findings.push(finding);
                }
            }
        });
        trouble.map_err(|error| failed(format!("its records could not be copied: {error}")))?;
        // Keys that were visited twice count once.
        salvaged.kept = store.len();
        store.close().map_err(|error| failed(error.to_string()))?;
        exchange(path, &new_path, pool.generation).map_err(|error| failed(error.to_string()))
    })();
    match copied {
        Ok(damaged) => Ok(Salvaged { damaged, ..salvaged }),
        Err(error) => {
            let _ = fs::remove_file(&new_path);
            Err(error)
        }
    }
}

/// Copies an entry; where the pool is smaller than what it takes, the pool grows by a quarter, and again.
fn copy(store: &crate::Store, key: &[u8], entry: Entry<'_>) -> Result<(), WriteError> {
    let put = Put { key, value: entry.value, expires_at: entry.expires_at };
    loop {
        match store.engine().put(put, Durably::Store) {
            Err(WriteError::PoolFull { size, .. })
                if store.grow(ByteSize::bytes(size + size / 4)).is_ok() => {}
            done => return done,
        }
    }
}

/// Gives the damaged pool another name and the new one its own. At every instant one of the two is at `path`.
fn exchange(path: &Path, new_path: &Path, generation: u32) -> std::io::Result<PathBuf> {
    let mut damaged = beside(path, &format!("damaged-{generation}"));
    let mut nth = 0;
    while let Err(error) = fs::hard_link(path, &damaged) {
        if error.kind() != std::io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        nth += 1;
        damaged = beside(path, &format!("damaged-{generation}-{nth}"));
    }
    fs::rename(new_path, path)?;
    Ok(damaged)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}
