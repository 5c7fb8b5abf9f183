//! Memory limits of this process: those of its control group and all groups above it, in cgroup
//! version 1 or 2.
//!
//! ```text
//! /proc/self/cgroup                        0::/a/b, or 4:memory:/a/b for version 1
//! /sys/fs/cgroup/a/b/memory.max, .high     version 2, each group up to /sys/fs/cgroup itself
//! /sys/fs/cgroup/memory/a/b/memory.limit_in_bytes    version 1
//! ```
//! A container may see the host's name of its group, while only the root exists; that root is the
//! container's group.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use terrace_server::config::format_size;

/// A limit of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// Bytes that it allows.
    pub(super) bytes: u64,
    /// Bytes in use that cannot be reclaimed.
    pub(super) used: u64,
    /// Bytes of swap that the group may use.
    pub(super) swap: u64,
    /// Whether the kernel kills a process that exceeds it; otherwise it slows the process down.
    pub(super) kills: bool,
    /// The file that it was read from.
    file: PathBuf,
}

impl Limit {
    /// Number of bytes left.
    pub(super) fn room(&self) -> u64 {
        self.bytes.saturating_sub(self.used)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its control group allows {}", format_size(self.bytes))?;
        // Less than that is used by this program itself.
        if self.used > 16 << 20 {
            write!(f, ", of which {} are in use", format_size(self.used))?;
        }
        write!(f, " ({})", self.file.display())
    }
}

/// A version of control groups.
struct Version {
    /// Where its groups are mounted.
    places: &'static [&'static str],
    /// Files with memory limits, and whether the kernel kills processes that exceed them.
    limits: &'static [(&'static str, bool)],
    swap: &'static str,
    /// Whether that limit includes memory.
    swap_with_memory: bool,
    /// Fields of `memory.stat` that count memory that cannot be reclaimed.
    used: [&'static str; 2],
}

const VERSION_1: Version = Version {
    places: &["sys/fs/cgroup/memory"],
    limits: &[("memory.limit_in_bytes", true)],
    swap: "memory.memsw.limit_in_bytes",
    swap_with_memory: true,
    used: ["total_rss", "total_shmem"],
};

const VERSION_2: Version = Version {
    places: &["sys/fs/cgroup", "sys/fs/cgroup/unified"],
    limits: &[("memory.max", true), ("memory.high", false)],
    swap: "memory.swap.max",
    swap_with_memory: false,
    used: ["anon", "shmem"],
};

/// All memory limits of this process, read from the kernel's files below `root`.
pub(super) fn all(root: &Path) -> Vec<Limit> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let version = match controllers {
            "" => VERSION_2,
            _ if controllers.split(',').any(|controller| controller == "memory") => VERSION_1,
            _ => continue,
        };
        for place in version.places {
            version.collect(root, &root.join(place), group, &mut found);
        }
    }
    found
}

/// Memory available on the machine, as the kernel estimates it.
pub(super) fn available(root: &Path) -> Option<u64> {
    kibibytes(root, "MemAvailable:")
}

impl Version {
    /// Adds the limits of `group`, which lies below `top`, and of all groups above it.
    fn collect(&self, root: &Path, top: &Path, group: &str, found: &mut Vec<Limit>) {
        // A group outside of this namespace: only the top is visible.
        let group = if group.contains("..") { "" } else { group.trim_start_matches('/') };
        for group in Path::new(group).ancestors() {
            let directory = top.join(group);
            for (file, kills) in self.limits {
                let path = directory.join(file);
                let Some(bytes) = limit(&path) else { continue };
                let (used, swap) = (self.used(&directory), self.swap(root, &directory, bytes));
                let file = Path::new("/").join(path.strip_prefix(root).unwrap_or(&path));
                found.push(Limit { bytes, used, swap, kills: *kills, file });
            }
        }
    }

    fn used(&self, directory: &Path) -> u64 {
        let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
        let fields = stat.lines().filter_map(|line| line.split_once(' '));
        let used = fields.filter(|(name, _)| self.used.contains(name));
        used.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum()
    }

    fn swap(&self, root: &Path, directory: &Path, memory: u64) -> u64 {
        let all = kibibytes(root, "SwapTotal:").unwrap_or(0);
        let limit = limit(&directory.join(self.swap));
        let limit =
            limit.map(|bytes| if self.swap_with_memory { bytes.saturating_sub(memory) } else { bytes });
        limit.map_or(all, |limit| limit.min(all))
    }
}

/// The limit in a file, if there is one. Without a limit, version 1 has a large number and version
/// 2 a word.
fn limit(path: &Path) -> Option<u64> {
    const NONE: u64 = 1 << 60;
    let bytes = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    (bytes < NONE).then_some(bytes)
}

fn kibibytes(root: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A tree of files, each written as `path=content`.
    pub(crate) fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let (path, content) = file.split_once('=').unwrap();
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{content}\n")).unwrap();
        }
        root
    }

    fn found(files: &[&str]) -> Vec<(u64, String)> {
        let limits = all(tree(files).path());
        limits.into_iter().map(|limit| (limit.bytes, limit.file.display().to_string())).collect()
    }

    #[test]
    fn limits_of_version_2_are_found_up_the_hierarchy() {
        let found = found(&[
            "proc/self/cgroup=0::/system.slice/app.service",
            "sys/fs/cgroup/system.slice/app.service/memory.max=max",
            "sys/fs/cgroup/system.slice/app.service/memory.high=300",
            "sys/fs/cgroup/system.slice/memory.max=200",
            "sys/fs/cgroup/memory.max=100",
        ]);
        let wanted = [
            (300, "/sys/fs/cgroup/system.slice/app.service/memory.high".to_string()),
            (200, "/sys/fs/cgroup/system.slice/memory.max".into()),
            (100, "/sys/fs/cgroup/memory.max".into()),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn limits_of_version_1_are_found_and_unlimited_is_none() {
        let found = found(&[
            "proc/self/cgroup=4:cpu,cpuacct:/a\n3:memory:/a/b\n0::/",
            "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes=500",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes=9223372036854771712",
        ]);
        assert_eq!(found, [(500, "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes".into())]);
    }

    #[test]
    fn groups_named_as_on_the_host_use_the_root() {
        for group in ["/docker/5f1c", "/../../other"] {
            let line = format!("proc/self/cgroup=0::{group}");
            assert_eq!(
                found(&[&line, "sys/fs/cgroup/memory.max=7"]),
                [(7, "/sys/fs/cgroup/memory.max".into())]
            );
        }
    }

    #[test]
    fn unreclaimable_memory_in_use_is_subtracted() {
        let root = tree(&[
            "proc/self/cgroup=0::/",
            "sys/fs/cgroup/memory.max=1000",
            "sys/fs/cgroup/memory.stat=anon 100\nfile 500\nshmem 50\nanon_thp 9",
        ]);
        assert_eq!(all(root.path())[0].room(), 850);
    }

    #[test]
    fn swap_counts_up_to_the_limit_of_the_group() {
        let swap = |line: &str| {
            let files =
                ["proc/self/cgroup=0::/", "sys/fs/cgroup/memory.max=1000", "proc/meminfo=SwapTotal: 8 kB"];
            all(tree(&[&files[..], &[line]].concat()).path())[0].swap
        };
        assert_eq!(swap("sys/fs/cgroup/memory.swap.max=0"), 0);
        assert_eq!(swap("sys/fs/cgroup/memory.swap.max=max"), 8192);
        assert_eq!(swap("none="), 8192);
    }

    #[test]
    fn missing_and_malformed_files_set_no_limit() {
        assert!(found(&[]).is_empty());
        assert!(found(&["proc/self/cgroup=nonsense\n0::"]).is_empty());
        assert!(found(&["proc/self/cgroup=0::/", "sys/fs/cgroup/memory.max=much"]).is_empty());
    }
}
