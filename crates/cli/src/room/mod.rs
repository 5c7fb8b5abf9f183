//! Limits the size of a pool to the free space of its file system and, for file systems in memory,
//! to the memory limits of this process. Creating or growing a pool allocates its memory at once,
//! and the kernel kills a process that exceeds the limit of its control group.

mod limits;

use std::{fs, path::Path};

use rustix::fs::{statfs, statvfs};
use terrace_server::config::{Config, Key, format_size};

use crate::failure::{Failure, say};
use limits::Limit;

/// Memory that the program needs in addition to a pool.
const OWN: u64 = 32 << 20;

/// Lowers the default size to the available space; returns the reason. Refuses a chosen size for
/// which the kernel would kill this process.
pub(crate) fn fit(config: &Config, path: &Path) -> Result<Option<String>, Failure> {
    fit_within(config, path, Path::new("/"))
}

/// An error if the pool at `path` cannot get `more` bytes.
pub(crate) fn refuse(path: &Path, more: u64) -> Result<(), Failure> {
    match directory(path) {
        Some(directory) if lies_in_memory(&directory) => refuse_within(&limits::all(Path::new("/")), more),
        _ => Ok(()),
    }
}

/// As [`fit`], with the kernel's files read below `root`.
fn fit_within(config: &Config, path: &Path, root: &Path) -> Result<Option<String>, Failure> {
    let Some(directory) = directory(path) else { return Ok(None) };
    let in_memory = lies_in_memory(&directory);
    let limits = if in_memory { limits::all(root) } else { Vec::new() };
    let size = config.number(Key::Size);
    if config.is_explicit(Key::Size) {
        refuse_within(&limits, size)?;
        return Ok(None);
    }
    let mut bounds: Vec<(u64, String)> =
        limits.iter().map(|limit| (limit.room(), limit.to_string())).collect();
    if let Some(free) = free_bytes(&directory) {
        bounds.push((free, format!("{} has {} free", directory.display(), format_size(free))));
    }
    if let Some(free) = in_memory.then(|| limits::available(root)).flatten() {
        bounds.push((free, format!("the machine has {} of memory available", format_size(free))));
    }
    let least = bounds.into_iter().min_by_key(|(room, _)| *room);
    let Some((room, why)) = least.filter(|(room, _)| share(*room) < size) else { return Ok(None) };
    config.record(Key::Size, share(room));
    Ok(Some(format!(
        "{} instead of {}, since {why}; --size sets another size",
        format_size(share(room)),
        format_size(size)
    )))
}

/// Three quarters of the space, in whole MiB; the rest is left for other uses.
fn share(room: u64) -> u64 {
    (room / 4 * 3) >> 20 << 20
}

fn refuse_within(limits: &[Limit], more: u64) -> Result<(), Failure> {
    let (needed, wanted) = (more.saturating_add(OWN), format_size(more));
    if let Some(limit) = limits.iter().find(|limit| limit.kills && needed > limit.room() + limit.swap) {
        let most = limit.room().saturating_sub(OWN) >> 20;
        return Err(Failure::new(format!(
            "not enough memory for {wanted}, since {limit}: the kernel would kill this process"
        ))
        .hint(format!(
            "choose a size of at most {most}mb, or give the container or the service more memory"
        )));
    }
    if let Some(limit) = limits.iter().find(|limit| needed > limit.room()) {
        say(&format!("warning: {wanted} do not fit into memory, since {limit}: the pool will be slow"));
    }
    Ok(())
}

fn directory(path: &Path) -> Option<std::path::PathBuf> {
    let parent = path.parent()?;
    fs::canonicalize(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }).ok()
}

/// Whether files in `directory` are in memory only, without a disk.
fn lies_in_memory(directory: &Path) -> bool {
    // linux/magic.h
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    statfs(directory).is_ok_and(|system| [TMPFS, RAMFS].contains(&(system.f_type as u64 & 0xffff_ffff)))
}

fn free_bytes(directory: &Path) -> Option<u64> {
    let room = statvfs(directory).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use limits::tests::tree;

    const GIB: u64 = 1 << 30;

    fn fitted(root: &Path, size: Option<&str>) -> (Result<Option<String>, Failure>, u64) {
        let config = Config::default();
        if let Some(size) = size {
            config.assign("size", size).unwrap();
        }
        let fitted = fit_within(&config, Path::new("/dev/shm/none.pool"), root);
        (fitted, config.number(Key::Size))
    }

    #[test]
    fn default_size_shrinks_to_a_share_of_a_control_group() {
        let group = ["proc/self/cgroup=0::/app", "sys/fs/cgroup/app/memory.max=1073741824"];
        let (said, size) = fitted(tree(&group).path(), None);
        let said = said.unwrap().unwrap();
        assert_eq!(size, 768 << 20);
        assert!(said.starts_with("768 MiB instead of 4.0 GiB, since "), "{said}");
        assert!(said.contains("/sys/fs/cgroup/app/memory.max") && said.contains("1.0 GiB"), "{said}");
        let wide = ["proc/self/cgroup=0::/app", "sys/fs/cgroup/app/memory.max=max"];
        let (said, _) = fitted(tree(&wide).path(), None);
        assert!(!said.unwrap().is_some_and(|said| said.contains("memory.max")));
    }

    #[test]
    fn default_size_shrinks_to_a_share_of_the_memory_available() {
        let (said, size) = fitted(tree(&["proc/meminfo=MemAvailable: 1048576 kB"]).path(), None);
        let said = said.unwrap().unwrap();
        assert!(size == 768 << 20 && said.contains("the machine has 1.0 GiB of memory available"), "{said}");
    }

    #[test]
    fn chosen_size_that_would_kill_the_process_is_refused() {
        let group = ["proc/self/cgroup=0::/app", "sys/fs/cgroup/app/memory.max=1073741824"];
        let (refused, size) = fitted(tree(&group).path(), Some("1gb"));
        let refused = format!("{:?}", refused.unwrap_err());
        assert!(refused.contains("not enough memory for 1.0 GiB") && refused.contains("992mb"), "{refused}");
        assert_eq!(size, GIB);
        assert!(fitted(tree(&group).path(), Some("992mb")).0.is_ok());
    }

    #[test]
    fn chosen_size_that_only_slows_down_is_accepted() {
        let high = ["proc/self/cgroup=0::/app", "sys/fs/cgroup/app/memory.high=1073741824"];
        assert_eq!(fitted(tree(&high).path(), Some("2gb")).0.unwrap(), None);
        let swap = [
            "proc/self/cgroup=0::/app",
            "sys/fs/cgroup/app/memory.max=1073741824",
            "sys/fs/cgroup/app/memory.swap.max=max",
            "proc/meminfo=SwapTotal: 8388608 kB",
        ];
        assert_eq!(fitted(tree(&swap).path(), Some("2gb")).0.unwrap(), None);
        assert!(fitted(tree(&swap).path(), Some("10gb")).0.is_err());
    }

    #[test]
    fn pool_on_a_disk_is_not_limited_by_memory() {
        let group = ["proc/self/cgroup=0::/app", "sys/fs/cgroup/app/memory.max=1048576"];
        let root = tree(&group);
        // /proc is not a file system in memory such as tmpfs.
        let config = Config::default();
        config.assign("size", "1gb").unwrap();
        assert_eq!(fit_within(&config, Path::new("/proc/self/none.pool"), root.path()).unwrap(), None);
    }
}
