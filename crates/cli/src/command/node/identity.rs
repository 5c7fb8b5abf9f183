//! Ids of nodes and clusters: random, and kept in files, so that they survive restarts.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use terrace_cluster::directory::is_id;

use crate::failure::Failure;

/// Forty random hexadecimal digits.
pub(crate) fn random_id() -> String {
    random_bytes::<20>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A random number.
pub(super) fn random_number() -> u64 {
    u64::from_le_bytes(random_bytes())
}

#[allow(clippy::disallowed_methods, reason = "ids that no other process has")]
fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("Linux has random numbers");
    bytes
}

/// The id in a file, which is made if it does not exist.
pub(super) fn in_file(path: &Path) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::new(format!("cannot use the file {}: {error}", path.display()));
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = random_id();
            create_private(path, &id).map_err(failed)?;
            return Ok(id);
        }
        Err(error) => return Err(failed(error)),
    };
    let id = text.trim();
    is_id(id).then(|| id.to_owned()).ok_or_else(|| {
        let wrong = format!("the file {} has no id, which is 40 hexadecimal digits", path.display());
        Failure::new(wrong).hint("name another file, or remove this one: a new id is made then")
    })
}

/// The id in a file that no other process uses, as long as the file that is returned is open.
pub(super) fn of_node(path: &Path) -> Result<(String, File), Failure> {
    let id = in_file(path)?;
    let failed = |error: io::Error| Failure::new(format!("cannot use the file {}: {error}", path.display()));
    let file = File::open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok((id, file)),
        Err(_) => {
            let used = format!("a node with the id in {} runs already", path.display());
            Err(Failure::new(used).hint("each node has a file of its own: give another --node-id-file"))
        }
    }
}

/// The id of the cluster that a pool belongs to: it lies beside the pool.
pub(super) fn of_pool(pool: &Path) -> Result<String, Failure> {
    let mut path = pool.as_os_str().to_owned();
    path.push(".cluster");
    let path = PathBuf::from(path);
    if let Some(parent) = path.parent() {
        create_private_dir(parent)?;
    }
    in_file(&path)
}

/// Tells a pool's file from all others, also from copies of it at other hosts; empty if there is
/// none.
pub(super) fn of_file(pool: &Path) -> String {
    // Containers of one kernel share this number, and have devices of their own.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| random_id());
    let file = fs::metadata(pool);
    file.map_or_else(|_| String::new(), |file| format!("{}:{}:{}", boot.trim(), file.dev(), file.ino()))
}

/// The last start of a memory node, as it stands beside its pool: what it needs to start while the
/// directory is away.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LastStart {
    /// The cluster, whose pool it was.
    pub(super) cluster: String,
    /// Where the memory node listened.
    pub(super) address: SocketAddr,
}

impl LastStart {
    /// The last start with this pool, if there was one.
    pub(super) fn of(pool: &Path) -> Option<LastStart> {
        let text = fs::read_to_string(Self::file(pool)).ok().filter(|_| pool.exists())?;
        let (cluster, address) = text.trim().split_once(' ')?;
        Some(LastStart { cluster: cluster.into(), address: address.parse().ok()? })
    }

    /// Notes it for the next start, if that does not know it. A full file system is no reason not
    /// to start.
    pub(super) fn note(&self, pool: &Path) {
        let file = Self::file(pool);
        if Self::of(pool).as_ref() == Some(self) {
            return;
        }
        if let Err(error) = create_private(&file, &format!("{} {}", self.cluster, self.address)) {
            log::warn!(
                "cannot write the file {}: {error}; if etcd is away at the next start, that relies on what the \
                 file says of an earlier one",
                file.display()
            );
        }
    }

    fn file(pool: &Path) -> PathBuf {
        let mut path = pool.as_os_str().to_owned();
        path.push(".start");
        path.into()
    }
}

/// Makes a directory that only its owner may use, and those above it.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that only its owner may read. It is whole, or not there.
pub(crate) fn create_private(path: &Path, text: &str) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(format!("{text}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().inspect_err(|_| _ = fs::remove_file(&unfinished))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_on_a_full_file_system_is_not_noted() {
        let directory = tempfile::tempdir().unwrap();
        let pool = directory.path().join("pool");
        fs::write(&pool, "").unwrap();
        let start = |port: u16| LastStart { cluster: "shop".into(), address: ([127, 0, 0, 1], port).into() };
        start(7100).note(&pool);
        assert_eq!(LastStart::of(&pool), Some(start(7100)));
        // Whatever is written to the unfinished file meets a full device.
        let unfinished = directory.path().join("pool.start.new");
        std::os::unix::fs::symlink("/dev/full", &unfinished).unwrap();
        // Nothing has changed: nothing is written.
        start(7100).note(&pool);
        assert!(unfinished.is_symlink());
        assert_eq!(LastStart::of(&pool), Some(start(7100)));
        start(7101).note(&pool);
        assert_eq!(LastStart::of(&pool), Some(start(7100)));
        assert!(!unfinished.is_symlink());
    }
}
