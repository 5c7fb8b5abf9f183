//! The content of the simulated file system, and the durable part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Size of the smallest unit that a disk writes atomically.
const SECTOR: usize = 512;

pub(super) type FileId = u64;

/// A file: its visible and its durable content.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) now: Vec<u8>,
    kept: Vec<u8>,
    /// Sectors whose visible and durable content may differ.
    unsynced: BTreeSet<usize>,
}

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
enum Change {
    Made(PathBuf, FileId),
    Removed(PathBuf),
    Renamed(PathBuf, PathBuf, FileId),
}

/// Names, and the files with a name or an open handle. The next crash removes files without a name.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) files: BTreeMap<FileId, Content>,
    pub(super) names: BTreeMap<PathBuf, FileId>,
    kept_names: BTreeMap<PathBuf, FileId>,
    changes: Vec<Change>,
    pub(super) directories: BTreeSet<PathBuf>,
    next: FileId,
}

impl Content {
    pub(super) fn write(&mut self, bytes: &[u8], at: usize) {
        let end = at + bytes.len();
        if end > self.now.len() {
            self.set_length(end);
        }
        self.now[at..end].copy_from_slice(bytes);
        self.touch(at, end);
    }

    pub(super) fn set_length(&mut self, bytes: usize) {
        let (least, most) = (bytes.min(self.now.len()), bytes.max(self.now.len()));
        self.now.resize(bytes, 0);
        self.touch(least, most);
    }

    fn touch(&mut self, from: usize, to: usize) {
        self.unsynced.extend(from / SECTOR..to.div_ceil(SECTOR));
    }

    pub(super) fn sync(&mut self) {
        self.kept = self.now.clone();
        self.unsynced.clear();
    }

    /// Loses part of the unsynced data. The length afterwards is the old one, the new one, or one
    /// in between at a unit boundary.
    fn crash(&mut self, unit: usize, draw: &mut dyn FnMut(u64) -> u64) {
        let old = std::mem::take(&mut self.kept);
        let (least, most) = (old.len().min(self.now.len()), old.len().max(self.now.len()));
        let length = match draw(3) {
            0 => old.len(),
            1 => self.now.len(),
            _ => (least + draw((most - least) as u64 + 1) as usize).next_multiple_of(unit).min(most),
        };
        let mut kept = old;
        kept.resize(length, 0);
        let units: BTreeSet<usize> = self.unsynced.iter().map(|sector| sector * SECTOR / unit).collect();
        for nth in units {
            let (from, to) = (nth * unit, ((nth + 1) * unit).min(length).min(self.now.len()));
            if from < to && draw(2) == 1 {
                kept[from..to].copy_from_slice(&self.now[from..to]);
            }
        }
        self.now = kept.clone();
        self.kept = kept;
        self.unsynced.clear();
    }

    pub(super) fn flip_bit(&mut self, bit: u64) {
        let byte = (bit / 8) as usize;
        if byte < self.now.len() {
            self.now[byte] ^= 1 << (bit % 8);
            self.kept = self.now.clone();
        }
    }
}

impl Disk {
    pub(super) fn make(&mut self) -> FileId {
        self.next += 1;
        self.files.insert(self.next, Content::default());
        self.next
    }

    pub(super) fn give_name(&mut self, path: &Path, id: FileId) {
        self.names.insert(path.into(), id);
        self.changes.push(Change::Made(path.into(), id));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, id: FileId) {
        self.names.remove(from);
        self.names.insert(to.into(), id);
        self.changes.push(Change::Renamed(from.into(), to.into(), id));
    }

    pub(super) fn remove(&mut self, path: &Path) {
        if self.names.remove(path).is_some() {
            self.changes.push(Change::Removed(path.into()));
        }
    }

    /// Makes the names in `directory` durable.
    pub(super) fn sync_directory(&mut self, directory: &Path) {
        let within = |path: &Path| path.parent() == Some(directory);
        self.kept_names.retain(|path, _| !within(path));
        let names = self.names.iter().filter(|(path, _)| within(path));
        self.kept_names.extend(names.map(|(path, id)| (path.clone(), *id)));
        self.changes.retain(|change| match change {
            Change::Made(path, _) | Change::Removed(path) => !within(path),
            Change::Renamed(from, to, _) => !within(from) && !within(to),
        });
    }

    /// Leaves a state that a power failure might leave.
    pub(super) fn crash(&mut self, draw: &mut dyn FnMut(u64) -> u64) {
        for change in std::mem::take(&mut self.changes) {
            if draw(2) == 0 {
                continue;
            }
            match change {
                Change::Made(path, id) => _ = self.kept_names.insert(path, id),
                Change::Removed(path) => _ = self.kept_names.remove(&path),
                Change::Renamed(from, to, id) => {
                    self.kept_names.remove(&from);
                    self.kept_names.insert(to, id);
                }
            }
        }
        self.names = self.kept_names.clone();
        let named: BTreeSet<FileId> = self.names.values().copied().collect();
        self.files.retain(|id, _| named.contains(id));
        for content in self.files.values_mut() {
            let unit = if draw(2) == 0 { SECTOR } else { 8 * SECTOR };
            content.crash(unit, draw);
        }
    }
}
