//! Names, directories and files of the simulated file system, and what is durable of them.

use super::content::{Content, Draw};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use terrace_medium::files::directory_of;

/// Identifies a file or a directory, whatever its names.
pub(super) type NodeId = u64;
/// A name in a directory.
pub(super) type Entry = (NodeId, OsString);

/// A change of names that is not durable yet. It survives as a whole or not at all.
#[derive(Clone, Debug)]
struct Change {
    gone: Option<Entry>,
    made: Option<(Entry, NodeId)>,
}

/// A file.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) content: Arc<Content>,
    /// Shared by all open handles of this life; a crash replaces it.
    pub(super) handle: Arc<()>,
    /// The lock, as long as it is held.
    pub(super) lock: Weak<()>,
}

/// Directories, names, and the files with a name or an open handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) files: BTreeMap<NodeId, Node>,
    pub(super) directories: BTreeSet<NodeId>,
    /// The directories that were there from the start.
    roots: BTreeMap<PathBuf, NodeId>,
    names: BTreeMap<Entry, NodeId>,
    kept_names: BTreeMap<Entry, NodeId>,
    changes: Vec<Change>,
    next: NodeId,
    /// Bytes that all files together may have; `None` if there is no limit.
    pub(super) capacity: Option<u64>,
    pub(super) syncs: u64,
    /// Power failures so far.
    pub(super) boots: u64,
    pub(super) sync_faults: BTreeMap<u64, SyncFault>,
}

/// What a chosen sync does instead of keeping anything.
#[derive(Clone, Copy, Debug)]
pub(super) enum SyncFault {
    /// Returns success.
    Skip,
    /// Fails, and what it should have kept is lost for later syncs too.
    Lose,
}

/// A copy has the same content, but no open handle and no lock.
impl Clone for Node {
    fn clone(&self) -> Self {
        Self { content: self.content.clone(), ..Self::default() }
    }
}

impl Change {
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.gone.iter().chain(self.made.iter().map(|(entry, _)| entry))
    }

    fn apply(self, names: &mut BTreeMap<Entry, NodeId>) {
        self.gone.map(|entry| names.remove(&entry));
        self.made.map(|(entry, id)| names.insert(entry, id));
    }

    /// Whether it changes these names, and does not rename what is not there.
    fn has_effect(&self, names: &BTreeMap<Entry, NodeId>) -> bool {
        let gone = self.gone.as_ref().map(|entry| names.get(entry));
        match &self.made {
            None => gone.flatten().is_some(),
            Some((entry, id)) => gone.is_none_or(|gone| gone == Some(id)) && names.get(entry) != Some(id),
        }
    }
}

impl Disk {
    pub(super) fn with_roots(roots: impl Iterator<Item = PathBuf>) -> Self {
        let mut disk = Self::default();
        disk.roots = roots.map(|path| (path, disk.make_directory())).collect();
        disk
    }

    pub(super) fn make(&mut self) -> NodeId {
        self.next += 1;
        self.files.insert(self.next, Node::default());
        self.next
    }

    pub(super) fn make_directory(&mut self) -> NodeId {
        self.next += 1;
        self.directories.insert(self.next);
        self.next
    }

    pub(super) fn find(&self, path: &Path) -> Option<NodeId> {
        self.roots.get(path).copied().or_else(|| self.names.get(&self.entry(path).ok()?).copied())
    }

    pub(super) fn find_file(&self, path: &Path) -> io::Result<NodeId> {
        let id = self.find(path).ok_or(ErrorKind::NotFound)?;
        if self.directories.contains(&id) { Err(ErrorKind::IsADirectory.into()) } else { Ok(id) }
    }

    pub(super) fn find_directory(&self, path: &Path) -> io::Result<NodeId> {
        let id = self.find(path).ok_or(ErrorKind::NotFound)?;
        if self.directories.contains(&id) { Ok(id) } else { Err(ErrorKind::NotADirectory.into()) }
    }

    /// The place of a name, in a directory that exists.
    pub(super) fn entry(&self, path: &Path) -> io::Result<Entry> {
        let directory = directory_of(path);
        let name = path.file_name().ok_or(ErrorKind::NotFound)?;
        Ok((self.find_directory(directory)?, name.into()))
    }

    /// The place of a name that does not exist yet.
    pub(super) fn free_entry(&self, path: &Path) -> io::Result<Entry> {
        if self.find(path).is_some() { Err(ErrorKind::AlreadyExists.into()) } else { self.entry(path) }
    }

    /// The names in a directory.
    pub(super) fn list(&self, directory: NodeId) -> impl Iterator<Item = (&OsString, NodeId)> {
        let names = self.names.range((directory, OsString::new())..);
        names.take_while(move |((of, _), _)| *of == directory).map(|((_, name), id)| (name, *id))
    }

    /// All paths.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        let mut to_list: Vec<(PathBuf, NodeId)> = self.roots.clone().into_iter().collect();
        while let Some((path, directory)) = to_list.pop() {
            for (name, id) in self.list(directory) {
                paths.push(path.join(name));
                if self.directories.contains(&id) {
                    to_list.push((path.join(name), id));
                }
            }
        }
        paths.sort();
        paths
    }

    pub(super) fn give_name(&mut self, entry: Entry, id: NodeId) {
        self.change(Change { gone: None, made: Some((entry, id)) });
    }

    pub(super) fn rename(&mut self, from: Entry, to: Entry, id: NodeId) {
        self.change(Change { gone: Some(from), made: Some((to, id)) });
    }

    pub(super) fn remove(&mut self, entry: Entry) {
        self.change(Change { gone: Some(entry), made: None });
    }

    fn change(&mut self, change: Change) {
        change.clone().apply(&mut self.names);
        self.changes.push(change);
    }

    /// Counts a sync, and says how it fails.
    pub(super) fn next_sync(&mut self) -> Option<SyncFault> {
        self.syncs += 1;
        self.sync_faults.get(&(self.syncs - 1)).copied()
    }

    /// Makes the names in `directory` durable.
    pub(super) fn sync_directory(&mut self, directory: NodeId) {
        for change in self.take_changes(directory) {
            change.apply(&mut self.kept_names);
        }
        self.collect();
    }

    /// A failed sync: the changes in `directory` count as durable, but are not.
    pub(super) fn lose_names(&mut self, directory: NodeId) {
        self.take_changes(directory);
    }

    /// Takes the changes of names in `directory`, in their order. A rename from or to another
    /// directory survives as a whole, so earlier changes of the name there come with it.
    fn take_changes(&mut self, directory: NodeId) -> Vec<Change> {
        let mut entries = BTreeSet::new();
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for change in take(&mut self.changes).into_iter().rev() {
            if change.entries().any(|entry| entry.0 == directory || entries.contains(entry)) {
                entries.extend(change.entries().cloned());
                taken.push(change);
            } else {
                left.push(change);
            }
        }
        taken.reverse();
        left.reverse();
        self.changes = left;
        taken
    }

    /// The content of a file that exists, to change it.
    pub(super) fn content(&mut self, id: NodeId) -> &mut Content {
        Arc::make_mut(&mut self.files.entry(id).or_default().content)
    }

    /// Whether a rename of `id` may replace `other`.
    pub(super) fn check_replaceable(&self, id: NodeId, other: NodeId) -> io::Result<()> {
        match (self.directories.contains(&id), self.directories.contains(&other)) {
            (true, false) => Err(ErrorKind::NotADirectory.into()),
            (false, true) => Err(ErrorKind::IsADirectory.into()),
            (true, true) if self.list(other).next().is_some() => Err(ErrorKind::DirectoryNotEmpty.into()),
            _ => Ok(()),
        }
    }

    /// Leaves a state that a power failure might leave, without handles and locks. For `units` see
    /// [`Content::crash`].
    pub(super) fn crash(&mut self, units: &[usize], draw: Draw) {
        self.crash_names(|_| draw(2) == 1);
        self.crash_contents(|_, content| content.crash(units, draw));
    }

    /// Keeps or loses each change of names that is not durable. `is_kept` gets its number among all
    /// of them.
    pub(super) fn crash_names(&mut self, mut is_kept: impl FnMut(usize) -> bool) {
        self.boots += 1;
        for (nth, change) in take(&mut self.changes).into_iter().enumerate() {
            if change.has_effect(&self.kept_names) && is_kept(nth) {
                change.apply(&mut self.kept_names);
            }
        }
        self.files.values_mut().for_each(|node| *node = node.clone());
        self.drop_unreachable();
        self.names = self.kept_names.clone();
        self.collect();
    }

    /// Lets `crash` choose what is left of each content that is not durable.
    pub(super) fn crash_contents(&mut self, mut crash: impl FnMut(NodeId, &mut Content)) {
        for (id, node) in self.files.iter_mut().filter(|(_, node)| !node.content.is_synced()) {
            crash(*id, Arc::make_mut(&mut node.content));
        }
    }

    /// How many changes of names are not durable, and which contents.
    pub(super) fn unsynced(&self) -> (usize, Vec<NodeId>) {
        let files = self.files.iter().filter(|(_, node)| !node.content.is_synced());
        (self.changes.len(), files.map(|(id, _)| *id).collect())
    }

    /// How many states a crash may leave, at most, if each page is kept or lost as a whole.
    pub(super) fn states_max(&self, unit: usize) -> f64 {
        let contents = self.files.values().map(|node| node.content.states_max(unit));
        2f64.powi(self.changes.len() as i32) * contents.product::<f64>()
    }

    /// Drops the durable names that no path from a root leads to: their directory is lost.
    fn drop_unreachable(&mut self) {
        let mut reached: BTreeSet<NodeId> = self.roots.values().copied().collect();
        loop {
            let within = self.kept_names.iter().filter(|((of, _), id)| {
                reached.contains(of) && self.directories.contains(id) && !reached.contains(id)
            });
            let found: Vec<NodeId> = within.map(|(_, id)| *id).collect();
            if found.is_empty() {
                break;
            }
            reached.extend(found);
        }
        self.kept_names.retain(|(of, _), _| reached.contains(of));
    }

    /// Drops what has no name, will have none after a crash, and is not open.
    fn collect(&mut self) {
        let made = self.changes.iter().filter_map(|change| change.made.as_ref().map(|(_, id)| id));
        let names = self.names.values().chain(self.kept_names.values());
        let used: BTreeSet<NodeId> = names.chain(self.roots.values()).chain(made).copied().collect();
        self.files.retain(|id, node| used.contains(id) || node.is_open());
        self.directories.retain(|id| used.contains(id));
    }

    /// How many more bytes files may have.
    pub(super) fn room(&self) -> u64 {
        let Some(capacity) = self.capacity else { return u64::MAX };
        let named: BTreeSet<NodeId> = self.names.values().copied().collect();
        let files = self.files.iter().filter(|(id, node)| named.contains(id) || node.is_open());
        capacity.saturating_sub(files.map(|(_, node)| node.content.now.len() as u64).sum())
    }
}

impl Node {
    fn is_open(&self) -> bool {
        Arc::strong_count(&self.handle) > 1
    }
}
