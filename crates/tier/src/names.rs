//! The names of files and directories.
//!
//! ```text
//! root ──> chunk, 512 bytes:   | next chunk | name | name | ... |     63 names
//!                                              └──> record: what has it, and where
//! ```
//! A name is one word, so a change of it is whole. A rename stores the word of the old name, which
//! points to a record with the new one from then on. If the new name is taken, two words have it
//! for a moment: that with the later record counts, and the other one is cleared. Directories have
//! numbers, so the rename of one touches nothing in it.
//!
//! All names are in memory as well. Chunks are never given back.

use crate::inode::Inode;
use crate::record::{NAME_MAX, Record, Target, bytes_of};
use crate::words::{damaged, full, load, store};
use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Pool};

const ROOT: &str = "files";
const KIND: &str = "names";
/// Bytes of a chunk.
const CHUNK: usize = 512;
/// The number of the directory that all others lie in.
pub(crate) const TOP: u64 = 0;

/// What has a name.
pub(crate) enum Node<M: MappedMedium> {
    File(Arc<Inode<M>>),
    Directory(u64),
}

impl<M: MappedMedium> Clone for Node<M> {
    fn clone(&self) -> Self {
        match self {
            Self::File(inode) => Self::File(inode.clone()),
            Self::Directory(number) => Self::Directory(*number),
        }
    }
}

impl<M: MappedMedium> Node<M> {
    fn target(&self) -> Target {
        match self {
            Self::File(inode) => Target::File(inode.at),
            Self::Directory(number) => Target::Directory(*number),
        }
    }
}

/// A directory's number and a name in it.
pub(crate) type Key = (u64, OsString);

struct Entry<M: MappedMedium> {
    /// Where its word lies.
    slot: u64,
    record: u64,
    node: Node<M>,
}

/// All names of a pool.
pub(crate) struct Names<M: MappedMedium> {
    pool: Pool<M>,
    entries: BTreeMap<Key, Entry<M>>,
    chunks: Vec<u64>,
    /// Words that have no name.
    free: Vec<u64>,
    next_seq: u64,
}

/// A name in the pool: where its word and its record lie.
type Stored = (u64, u64, Record);

/// Whether there are files in the pool.
pub(crate) fn are_in<M: MappedMedium>(pool: &Pool<M>) -> io::Result<bool> {
    Ok(pool.root(ROOT, KIND).map_err(io::Error::other)?.is_some())
}

impl<M: MappedMedium> Names<M> {
    /// Makes a pool have files: none, at first.
    pub(crate) fn create(pool: &Pool<M>) -> io::Result<()> {
        let guard = pool.try_pin().map_err(io::Error::other)?;
        let chunk = fresh_chunk(&guard)?;
        pool.set_root(ROOT, KIND, chunk).map_err(|error| {
            guard.free(chunk, CHUNK);
            io::Error::other(error)
        })
    }

    /// The names in a pool that has files.
    pub(crate) fn load(pool: &Pool<M>) -> io::Result<Self> {
        let mut names = Self {
            pool: pool.clone(),
            entries: BTreeMap::new(),
            chunks: Vec::new(),
            free: Vec::new(),
            next_seq: 1,
        };
        let mut stored = names.load_all()?;
        // The latest record of a name comes first.
        stored.sort_unstable_by(|one, other| {
            let key = |(_, _, record): &Stored| (record.parent, record.name.clone());
            key(one).cmp(&key(other)).then(other.2.seq.cmp(&one.2.seq))
        });
        let (mut inodes, mut stale) = (HashMap::new(), Vec::new());
        for (slot, record_at, record) in stored {
            let node = match record.target {
                Target::Directory(number) => Node::Directory(number),
                Target::File(at) => Node::File(match inodes.get(&at) {
                    Some(inode) => Arc::clone(inode),
                    None => {
                        let inode = Arc::new(Inode::load(pool, at)?);
                        inodes.insert(at, Arc::clone(&inode));
                        inode
                    }
                }),
            };
            if let Node::File(inode) = &node {
                inode.links.fetch_add(1, Relaxed);
            }
            let entry = Entry { slot, record: record_at, node };
            match names.entries.entry((record.parent, record.name)) {
                Place::Vacant(place) => _ = place.insert(entry),
                Place::Occupied(place) => stale.push((entry, place.key().1.clone())),
            }
        }
        if !pool.is_read_only() {
            stale.into_iter().for_each(|(entry, name)| names.clear(entry, &name));
        }
        Ok(names)
    }

    /// Reads all chunks, and notes which words are free.
    fn load_all(&mut self) -> io::Result<Vec<Stored>> {
        let pool = self.pool.clone();
        let guard = pool.try_pin().map_err(io::Error::other)?;
        let mut stored = Vec::new();
        let mut next = pool.root(ROOT, KIND).map_err(io::Error::other)?.unwrap_or(0);
        while next != 0 {
            if self.chunks.len() as u64 > pool.size() / CHUNK as u64 {
                return Err(damaged(next, "the chunks of names have no end"));
            }
            self.chunks.push(next);
            for slot in slots_of(next) {
                let record_at = load(&pool, slot)?;
                if record_at == 0 {
                    self.free.push(slot);
                    continue;
                }
                let record = Record::read(&guard, record_at)
                    .ok_or_else(|| damaged(record_at, "the record of a name is not sound"))?;
                let number = if let Target::Directory(number) = record.target { number } else { 0 };
                self.next_seq = self.next_seq.max(record.seq + 1).max(number + 1);
                stored.push((slot, record_at, record));
            }
            next = load(&pool, next)?;
        }
        self.free.reverse();
        Ok(stored)
    }

    /// What has this name.
    pub(crate) fn find(&self, key: &Key) -> Option<Node<M>> {
        Some(self.entries.get(key)?.node.clone())
    }

    /// The names in a directory.
    pub(crate) fn list(&self, directory: u64) -> impl Iterator<Item = &OsString> {
        let from = (directory, OsString::new());
        self.entries
            .range(from..)
            .take_while(move |((parent, _), _)| *parent == directory)
            .map(|((_, name), _)| name)
    }

    fn seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// A number for a new directory.
    pub(crate) fn new_directory(&mut self) -> u64 {
        self.seq()
    }

    /// Writes a record, and returns where it lies. The caller fences before it stores a word.
    fn write_record(
        &mut self,
        guard: &Guard<'_, M>,
        (parent, name): &Key,
        target: Target,
    ) -> io::Result<u64> {
        if name.len() > NAME_MAX {
            return Err(ErrorKind::InvalidFilename.into());
        }
        let record = Record { target, parent: *parent, seq: self.seq(), name: name.clone() };
        let bytes = record.to_bytes();
        let block = guard.alloc(bytes.len()).map_err(full)?;
        block.write(0, &bytes);
        // PERSIST: the record, and a file that it names, before a word points to it.
        Ok(block.persist().into_offset())
    }

    /// A word that has no name.
    fn free_slot(&mut self, guard: &Guard<'_, M>) -> io::Result<u64> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let chunk = fresh_chunk(guard)?;
        let last = *self.chunks.last().expect("there is a first chunk");
        self.set_word(last, chunk);
        self.chunks.push(chunk);
        self.free.extend(slots_of(chunk).rev());
        Ok(self.free.pop().expect("a chunk has words"))
    }

    fn set_word(&self, at: u64, value: u64) {
        store(&self.pool, at, value);
        // PERSIST: what it points to is durable. A crash before leaves the old word.
        self.pool.region().fence();
    }

    /// Gives a free name to a file or a directory.
    pub(crate) fn add(&mut self, guard: &Guard<'_, M>, key: Key, node: Node<M>) -> io::Result<()> {
        let slot = self.free_slot(guard)?;
        let record = self.write_record(guard, &key, node.target()).inspect_err(|_| self.free.push(slot))?;
        self.set_word(slot, record);
        if let Node::File(inode) = &node {
            inode.links.fetch_add(1, AcqRel);
        }
        self.entries.insert(key, Entry { slot, record, node });
        Ok(())
    }

    /// Takes a name away. Returns what had it, for the caller to drop without a lock.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Node<M>> {
        let entry = self.entries.remove(key)?;
        let node = entry.node.clone();
        self.clear(entry, &key.1);
        Some(node)
    }

    /// Clears the word of a name, and gives its record back.
    fn clear(&mut self, entry: Entry<M>, name: &OsStr) {
        self.set_word(entry.slot, 0);
        self.free.push(entry.slot);
        if let Ok(guard) = self.pool.try_pin() {
            guard.retire(entry.record, bytes_of(name));
        }
        if let Node::File(inode) = &entry.node {
            // ORDER: AcqRel: pairs with the Acquire of the last handle.
            inode.links.fetch_sub(1, AcqRel);
        }
    }

    /// Gives what has one name another name, in place of what has that. Returns the latter.
    pub(crate) fn rename(
        &mut self,
        guard: &Guard<'_, M>,
        from: &Key,
        to: Key,
    ) -> io::Result<Option<Node<M>>> {
        let old = self.entries.get(from).ok_or(ErrorKind::NotFound)?;
        let (slot, before, target) = (old.slot, old.record, old.node.target());
        let record = self.write_record(guard, &to, target)?;
        // The instant of the rename.
        self.set_word(slot, record);
        guard.retire(before, bytes_of(&from.1));
        let moved = self.entries.remove(from).expect("found above");
        let name = to.1.clone();
        let replaced = self.entries.insert(to, Entry { record, ..moved });
        Ok(replaced.map(|entry| {
            let node = entry.node.clone();
            self.clear(entry, &name);
            node
        }))
    }

    /// Calls `each` with the offset and the bytes of each block that names, and the files that have
    /// one, consist of.
    pub(crate) fn each_block(&self, each: &mut dyn FnMut(u64, usize)) {
        self.chunks.iter().for_each(|&chunk| each(chunk, CHUNK));
        let mut files = BTreeMap::new();
        for ((_, name), entry) in &self.entries {
            each(entry.record, bytes_of(name));
            if let Node::File(inode) = &entry.node {
                files.insert(inode.at, inode);
            }
        }
        files.values().for_each(|inode| inode.each_block(each));
    }

    /// What the pool has in another way than this process has noted.
    pub(crate) fn verify(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut stored = Self {
            pool: self.pool.clone(),
            entries: BTreeMap::new(),
            chunks: Vec::new(),
            free: Vec::new(),
            next_seq: 1,
        };
        match stored.load_all() {
            Err(error) => found.push(error.to_string()),
            Ok(records) => {
                let is_known = |(slot, at, record): &Stored| {
                    let entry = self.entries.get(&(record.parent, record.name.clone()));
                    entry.is_some_and(|entry| (entry.slot, entry.record) == (*slot, *at))
                };
                let unknown = records.iter().filter(|record| !is_known(record));
                found.extend(unknown.map(|(slot, ..)| damaged(*slot, "a name is not known").to_string()));
                if records.len() < self.entries.len() {
                    found.push(damaged(self.chunks[0], "a name is missing").to_string());
                }
            }
        }
        for entry in self.entries.values() {
            if let Node::File(inode) = &entry.node {
                found.extend(inode.verify().err().map(|error| error.to_string()));
            }
        }
        let mut blocks = Vec::new();
        self.each_block(&mut |at, bytes| blocks.push((at, bytes)));
        blocks.sort_unstable();
        let overlaps = blocks.windows(2).filter(|pair| pair[0].0 + pair[0].1 as u64 > pair[1].0);
        found.extend(overlaps.map(|pair| damaged(pair[1].0, "two files have one block").to_string()));
        found
    }
}

/// The words of a chunk that may have names.
fn slots_of(chunk: u64) -> impl DoubleEndedIterator<Item = u64> {
    (1..CHUNK as u64 / 8).map(move |nth| chunk + 8 * nth)
}

/// A chunk without names, durably.
fn fresh_chunk<M: MappedMedium>(guard: &Guard<'_, M>) -> io::Result<u64> {
    let chunk = guard.alloc(CHUNK).map_err(full)?;
    chunk.write(0, &[0; CHUNK]);
    // PERSIST: an empty chunk, before anything points to it.
    Ok(chunk.persist().into_offset())
}
