//! CCEH below the Spot-on layer: a segment is a unit, and is merged as a whole.
//!
//! ```text
//!   the segment, read in sequence  +  its buffer  ->  an image in DRAM, or two if one is too small
//!
//!   in place:        changed slots are stored to the segment; the upper half of a split goes to a
//!                    new one
//!   out of place:    both images are written to new segments, past the cache
//!   then:            the words of the directory: the upper half's, the lower half's
//!   cached path:     | depth | entries, as in the pool |
//! ```
//! A pair is its key and value in one line, so the pairs of a merge are independent: a crash keeps
//! any of them. Opening completes what a crash left of a change of the directory.

#[cfg(test)]
mod tests;

use super::{Cceh, DEPTH_MAX, Entry, LOCKS, PAIRS, PROBES, SEGMENT, hash, top};
use crate::baselines::spot::{Change, Merge, Removing, Spotted};
use crate::baselines::{Space, SpaceFull};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex};
use terrace_medium::{LINE, Medium};

const BUCKETS: usize = super::BUCKETS as usize;

/// CCEH for one thread, with merges of many pairs.
pub struct SpotCceh<M> {
    table: Cceh<M>,
    directory: Option<Directory>,
    /// Segments that a merge has replaced.
    free: Vec<u64>,
}

/// The directory in DRAM.
struct Directory {
    depth: u64,
    entries: Vec<Entry>,
}

impl Directory {
    fn read<M: Medium>(table: &Cceh<M>) -> Self {
        let root = Entry(table.space.load(table.root));
        let entry = |nth: u64| Entry(table.space.load(root.segment() + 8 * nth));
        Self { depth: root.depth(), entries: (0..1 << root.depth()).map(entry).collect() }
    }

    /// Makes it as deep as the pool's.
    fn deepen(&mut self, depth: u64) {
        while self.depth < depth {
            self.entries = self.entries.iter().flat_map(|&entry| [entry, entry]).collect();
            self.depth += 1;
        }
    }
}

/// A segment in DRAM, and which hashes belong to it.
#[derive(Clone)]
struct Image {
    lines: Vec<[u64; LINE / 8]>,
    depth: u64,
    prefix: u64,
}

impl Image {
    fn belongs(&self, hash: u64) -> bool {
        top(hash, self.depth) == self.prefix
    }

    /// The same segment as one half of itself.
    fn half(&self, upper: u64) -> Self {
        Self { lines: self.lines.clone(), depth: self.depth + 1, prefix: self.prefix << 1 | upper }
    }

    /// The image with those changes that belong to it, if there is room.
    fn with(mut self, changes: &[Change]) -> Option<Self> {
        let fits = |change: &Change| !self.belongs(hash(change.0)) || self.apply(*change);
        changes.iter().all(fits).then_some(self)
    }

    fn apply(&mut self, (key, word): Change) -> bool {
        let hash = hash(key);
        let slots = (0..PROBES).flat_map(|probe| {
            let bucket = hash.wrapping_add(probe) as usize % BUCKETS;
            (0..PAIRS).map(move |pair| (bucket, 2 * pair))
        });
        let (mut free, mut found) = (None, None);
        for (bucket, pair) in slots {
            let stored = self.lines[bucket][pair + 1];
            if stored == !key {
                found = Some((bucket, pair));
                break;
            }
            if free.is_none() && (stored == 0 || !self.belongs(super::hash(!stored))) {
                free = Some((bucket, pair));
            }
        }
        match (word, found.or(free.filter(|_| word.is_some()))) {
            (Some(word), Some((bucket, pair))) => {
                self.lines[bucket][pair..pair + 2].copy_from_slice(&[word, !key]);
                true
            }
            (None, Some((bucket, pair))) => {
                self.lines[bucket][pair + 1] = 0;
                true
            }
            (word, None) => word.is_none(),
        }
    }
}

impl<M: Medium> SpotCceh<M> {
    fn over(table: Cceh<M>, caches: bool) -> Self {
        let directory = caches.then(|| Directory::read(&table));
        Self { table, directory, free: Vec::new() }
    }

    fn entry(&self, hash: u64) -> Entry {
        match &self.directory {
            Some(directory) => directory.entries[top(hash, directory.depth) as usize],
            None => self.table.entry(hash),
        }
    }

    fn pool_directory(&self) -> Entry {
        Entry(self.table.space.load(self.table.root))
    }

    /// The segment of an entry, in DRAM.
    fn image(&self, entry: Entry, hash: u64) -> Image {
        let medium = self.table.space.medium();
        let line = |bucket| {
            let line = self.table.line(entry.segment() + bucket * LINE as u64);
            std::array::from_fn(|word| line.0[word].load(medium, Acquire))
        };
        let lines = (0..super::BUCKETS).map(line).collect();
        Image { lines, depth: entry.depth(), prefix: top(hash, entry.depth()) }
    }

    /// Stores what differs between two images of a segment. Durable after a fence.
    fn store(&self, segment: u64, before: &Image, after: &Image) {
        let medium = self.table.space.medium();
        let changed = (0..BUCKETS).filter(|&bucket| before.lines[bucket] != after.lines[bucket]);
        for bucket in changed {
            let line = self.table.line(segment + (bucket * LINE) as u64);
            for pair in (0..2 * PAIRS).step_by(2) {
                let [old, new] = [before, after].map(|image| &image.lines[bucket][pair..pair + 2]);
                // A key that leaves the slot leaves it first: its value stays its own. Then the
                // value, then the key. A crash keeps the first of these stores, as in any line.
                if old[1] != new[1] && old[1] != 0 {
                    line.0[pair + 1].store(medium, 0, Release);
                }
                if old[0] != new[0] {
                    line.0[pair].store(medium, new[0], Release);
                }
                if old[1] != new[1] && new[1] != 0 {
                    line.0[pair + 1].store(medium, new[1], Release);
                }
            }
            // PERSIST: with the fence of the whole merge; its pairs do not depend on each other.
            self.table.space.region().write_back(line);
        }
    }

    /// Writes an image to a new segment. Durable after a fence.
    fn write(&mut self, image: &Image) -> Result<u64, SpaceFull> {
        let segment = self.free.pop().map_or_else(|| self.table.space.alloc(SEGMENT), Ok)?;
        self.table.space.region().stream_lines(segment, &image.lines);
        Ok(segment)
    }

    /// Makes the directory's words of an image name a segment.
    fn point(&mut self, root: Entry, image: &Image, segment: u64) {
        let words = words_of(root.depth(), image);
        let entry = Entry(segment | image.depth);
        self.table.point(root, words.clone(), entry);
        self.cache(root, words, entry);
    }

    /// Follows a change of the directory in DRAM.
    fn cache(&mut self, root: Entry, words: Range<u64>, entry: Entry) {
        let Some(directory) = &mut self.directory else { return };
        directory.deepen(root.depth());
        directory.entries[words.start as usize..words.end as usize].fill(entry);
    }

    /// Replaces a segment by one image of it.
    fn replace(&mut self, how: Merge, segment: u64, before: &Image, after: &Image) -> Result<(), SpaceFull> {
        if how == Merge::InPlace {
            self.store(segment, before, after);
            // PERSIST: all pairs of the merge, before its buffer is dropped.
            self.table.space.region().fence();
            return Ok(());
        }
        let copy = self.write(after)?;
        // PERSIST: the copy before the directory names it.
        self.table.space.region().fence();
        self.point(self.pool_directory(), after, copy);
        self.free.push(segment);
        Ok(())
    }

    /// Replaces a segment by its halves.
    fn replace_by_halves(
        &mut self,
        how: Merge,
        (segment, before): (u64, &Image),
        [low, high]: [&Image; 2],
    ) -> Result<(), SpaceFull> {
        let mut root = self.pool_directory();
        if root.depth() == before.depth {
            root = self.table.double(root)?;
        }
        let upper = self.write(high)?;
        let lower = match how {
            Merge::InPlace => Ok(segment),
            Merge::OutOfPlace => self.write(low),
        };
        let Ok(lower) = lower else {
            self.free.push(upper);
            return Err(SpaceFull);
        };
        // PERSIST: the copies before the directory names them.
        self.table.space.region().fence();
        self.point(root, high, upper);
        self.point(root, low, lower);
        if how == Merge::OutOfPlace {
            self.free.push(segment);
            return Ok(());
        }
        self.store(segment, before, low);
        // PERSIST: the pairs of the lower half, whose slots the directory has freed, before their
        // buffer is dropped.
        self.table.space.region().fence();
        Ok(())
    }

    fn merge_all(&mut self, how: Merge, changes: &[Change]) -> Result<(), SpaceFull> {
        let Some(hash_of_first) = changes.first().map(|change| hash(change.0)) else { return Ok(()) };
        let entry = self.entry(hash_of_first);
        let before = self.image(entry, hash_of_first);
        if let Some(after) = before.clone().with(changes) {
            return self.replace(how, entry.segment(), &before, &after);
        }
        if entry.depth() >= DEPTH_MAX {
            return Err(SpaceFull);
        }
        let halves = [0, 1].map(|upper| before.half(upper).with(changes));
        if let [Some(low), Some(high)] = &halves {
            return self.replace_by_halves(how, (entry.segment(), &before), [low, high]);
        }
        // A half is too full for its changes: it is split, too.
        let [low, high] = [0, 1].map(|upper| before.half(upper));
        self.replace_by_halves(how, (entry.segment(), &before), [&low, &high])?;
        let (low, high): (Vec<_>, Vec<_>) = changes.iter().partition(|change| low.belongs(hash(change.0)));
        self.merge_all(how, &low)?;
        self.merge_all(how, &high)
    }
}

/// The directory's words of an image.
fn words_of(depth: u64, image: &Image) -> Range<u64> {
    let words = 1 << (depth - image.depth);
    image.prefix * words..(image.prefix + 1) * words
}

impl<M: Medium> Cceh<M> {
    /// Completes the change of the directory that a crash has cut off.
    ///
    /// Words that should name one segment may name two of one depth: a copy and its original, of
    /// which either will do. Or some are deeper than the first one, and halves of it: then each
    /// half's words become those of its deeper one, or the first one's with that depth.
    fn complete(&self) {
        let root = Entry(self.space.load(self.root));
        let entry = |nth: u64| Entry(self.space.load(root.segment() + 8 * nth));
        let mut from = 0;
        while from < 1 << root.depth() {
            let depth = entry(from).depth();
            let words = 1u64 << (root.depth() - depth);
            let deeper = |words: Range<u64>| words.map(entry).find(|entry| entry.depth() > depth);
            let (upper, lower) = (from + words / 2..from + words, from..from + words / 2);
            match deeper(upper.clone()) {
                Some(named) => {
                    self.point_all(root, upper, named);
                    let first = Entry(entry(from).segment() | (depth + 1));
                    let named = deeper(lower.clone()).unwrap_or(first);
                    self.point_all(root, lower, named);
                }
                None => self.point_all(root, from..from + words, entry(from)),
            }
            from += words;
        }
    }

    /// Stores an entry to these words, if not all of them have it.
    fn point_all(&self, root: Entry, words: Range<u64>, entry: Entry) {
        let differs = |nth: u64| self.space.load(root.segment() + 8 * nth) != entry.0;
        if words.clone().any(differs) {
            self.point(root, words, entry);
        }
    }
}

impl<M: Medium> Spotted<M> for SpotCceh<M> {
    const NAME: &'static str = "CCEH";
    const BUFFERED: usize = BUCKETS * PAIRS / 2;

    fn create(space: Arc<Space<M>>, caches: bool) -> Result<Self, SpaceFull> {
        Ok(Self::over(Cceh::create(space, 0)?, caches))
    }

    fn open(space: Arc<Space<M>>, root: u64, caches: bool) -> Result<Self, SpaceFull> {
        let locks = (0..LOCKS).map(|_| Mutex::new(())).collect();
        let (growing, keys, segments) = Default::default();
        let table = Cceh { space, root, locks, growing, keys, segments };
        table.complete();
        Ok(Self::over(table, caches))
    }

    fn root(&self) -> u64 {
        self.table.root
    }

    fn get(&self, key: u64) -> Option<u64> {
        let hash = hash(key);
        let (at, pair) = self.table.look(self.entry(hash), hash, key).found?;
        Some(self.table.line(at).0[2 * pair].load(self.table.space.medium(), Acquire))
    }

    fn change(&mut self, (key, word): Change) -> Result<(), SpaceFull> {
        match word {
            None => _ = self.table.remove(key),
            Some(word) if self.table.insert(key, word)? => {}
            Some(word) => _ = self.table.update(key, word),
        }
        Ok(())
    }

    fn unit(&self, key: u64) -> u64 {
        self.entry(hash(key)).segment()
    }

    fn merge(&mut self, how: Merge, _unit: u64, changes: &[Change]) -> Result<(), SpaceFull> {
        self.merge_all(how, changes)
    }
}

impl<M> Removing for SpotCceh<M> {}
