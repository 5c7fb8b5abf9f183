//! Growing and shrinking, by all writers, eight buckets at a time.
//!
//! A resize begins when a thread stores the offset of a new, unwritten table in the root's `next`.
//! From then on every writer first moves up to two groups of eight buckets, in the order of the
//! table, so that memory is accessed sequentially. Then it does its own work where its key is now:
//! readers and writers check the `moved` bit of the key's group and use the one table or the other.
//! No thread waits for the whole resize. A reader never waits; a writer waits at most while the one
//! group that holds its key is being moved, about a microsecond.
//!
//! Moving a group (`from` has 2^n buckets, `to` 2^m):
//! 1. Lock its eight buckets, the first one first: this excludes writers and other movers.
//! 2. Stream the buckets of `to` that cover the same hashes (neighbours, because tables are in hash
//!    order), overflow buckets included; fence.
//! 3. Set `moved` in the first bucket's link, write back, fence. This one store moves the group for
//!    readers, writers and crashes.
//! 4. Unlock, retire the group's old overflow buckets.
//!
//! A crash before 3 leaves nothing that any thread reads; the group is written again. When the
//! cursor has passed every group, `current` is set to the new table, then `next` is cleared: two
//! stores of one line, and after any prefix of them each key is found. A resize may stop half done
//! for any time, because no thread writes or because the pool has no room for overflow buckets:
//! unmoved groups are read and written where they are. So a removal or an update always succeeds.
//!
//! Cost: doubling to 2^n buckets streams 2^n lines and pays 2 fences and 1 write-back a group.

use super::bucket::{link, lock_word, store_link};
use super::ops::Clht;
use super::shape::{BucketShape, Entry};
use super::table::*;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Guard, Lock, PoolFull};

/// Groups that a writer moves before its own work. A table of 2^n buckets has moved after 2^n / 16
/// writes, long before the next resize is due.
const HELP: usize = 2;
/// Moved groups that one call skips at most.
const SKIP: u64 = 64;
/// Groups after the cursor among which a writer looks for one that no other thread is moving.
const WINDOW: u64 = 8;
/// A shrink leaves at least an eighth of the buckets: one group becomes one bucket.
const SHRINK_MAX: u32 = 3;
/// Chained buckets for each one counted, in tables of 2^[`SAMPLED_FROM`] buckets and more.
const SAMPLE: u64 = 8;
const SAMPLED_FROM: u32 = 12;
/// Most buckets that a group becomes, when the table doubles.
const HEADS_MAX: usize = 2 * GROUP as usize;

/// The result of trying to move a group.
enum Step {
    Moved,
    Already,
    Busy,
}

impl<M: MappedMedium, K: BucketShape> Clht<M, K> {
    /// Allocates a new table and clears its header, but not its buckets.
    pub(super) fn new_table(guard: &Guard<'_, M>, log2: u32) -> Result<Table, PoolFull> {
        let fresh = guard.alloc(Table::bytes_for(log2))?;
        let table = Table::new(fresh.offset(), log2);
        fresh.stream_lines((table.header().raw() - fresh.offset()) as usize, &[[0; 8]]);
        // PERSIST: the header, and that the block is taken, before any word names the table. A
        // crash before that leaves a block that the collector reclaims.
        let _ = fresh.fenced(&guard.fence()).into_offset();
        Ok(table)
    }

    /// Called after an insert had to chain a bucket. Grows the table if chains are too long.
    #[inline(always)]
    pub(super) fn grow_if_needed(&self, guard: &Guard<'_, M>, table: Table, hash: u64) {
        // In a large table only one chained bucket in eight is counted, for all: most writers need
        // not touch the shared word.
        let weight = if table.log2() < SAMPLED_FROM { 1 } else { SAMPLE };
        if hash.is_multiple_of(weight) {
            self.grow_if_crowded(guard, table, weight);
        }
    }

    #[cold]
    fn grow_if_crowded(&self, guard: &Guard<'_, M>, table: Table, chained: u64) {
        let region = self.pool.region();
        // An estimate, which may also be damaged.
        let overflow = region.at(table.header()).0[HEADER_OVERFLOW]
            .fetch_add(region.medium(), chained, Relaxed)
            .saturating_add(chained);
        if overflow.saturating_mul(1000) < table.buckets() * K::OVERFLOW_PERMILLE
            || self.view().next.is_some()
        {
            return;
        }
        let room = table.buckets() * K::KEYS_PERMILLE / 1000;
        let keys = self.count().len();
        if keys >= room / 4 * 3 && table.log2() < LOG2_MAX {
            self.start(guard, table, table.log2() + 1);
        } else if overflow >= table.buckets() / 2 {
            // Long chains but few keys: removals left empty buckets behind. A table of the same
            // size drops them.
            self.start(guard, table, table.log2());
        }
    }

    /// Called after a removal. Shrinks the table if it is nearly empty. Checks once in 256
    /// removals, by the hash.
    #[inline(always)]
    pub(super) fn shrink_if_needed(&self, guard: &Guard<'_, M>, table: Table, hash: u64) {
        if hash & 0xff == 0 {
            self.shrink_if_sparse(guard, table);
        }
    }

    #[cold]
    fn shrink_if_sparse(&self, guard: &Guard<'_, M>, table: Table) {
        // Three quarters of the target's room stay free, so that the next inserts do not grow it
        // again.
        let room = |log2: u32| (1u64 << log2) * K::KEYS_PERMILLE / 1000;
        let wanted = self.count().len() * 4;
        let smallest = table.log2().saturating_sub(SHRINK_MAX).max(LOG2_MIN);
        if let Some(log2) = (smallest..table.log2()).find(|&log2| wanted <= room(log2)) {
            self.start(guard, table, log2);
        }
    }

    /// Begins a resize of `from`, unless one is in progress or the pool has no room.
    fn start(&self, guard: &Guard<'_, M>, from: Table, log2: u32) {
        let (region, root) = (self.pool.region(), &self.root()[0]);
        let Some(lock) = Lock::of(&root.0[ROOT_LOCK]).try_acquire(guard) else { return };
        // A thread that crashed here may have left a root that is not durable. The lock keeps its
        // mark until a thread has persisted the root.
        if self.view() != (View { current: from, next: None }) {
            return lock.release_unchanged();
        }
        let Ok(to) = Self::new_table(guard, log2) else { return lock.release_unchanged() };
        root.0[ROOT_NEXT].store(region.medium().point("clht.resize"), to.word(), Release);
        // PERSIST: before any group moves. (A thread that sees `next` while the lock is held
        // persists it first, in `help_resize`.)
        region.persist(root);
        lock.release();
    }

    /// Moves up to [`HELP`] groups that no other thread is moving.
    pub(super) fn help_resize(&self, guard: &Guard<'_, M>, from: Table, to: Table) {
        self.write_back_root();
        let cursor = self.advance_cursor(from, to);
        if cursor == from.groups() {
            return self.finish_resize(guard, from, to);
        }
        let mut moved = 0;
        for group in cursor..(cursor + WINDOW).min(from.groups()) {
            match self.migrate(guard, from, to, group) {
                Ok(Step::Moved) => moved += 1,
                Ok(Step::Already | Step::Busy) => {}
                // The group stays where it is and is written there.
                Err(PoolFull { .. }) => return,
            }
            if moved == HELP {
                return;
            }
        }
    }

    /// As `persist_read`, for the root: `next` is durable before any group's move is.
    pub(super) fn write_back_root(&self) {
        if M::VOLATILE_CACHE {
            let root = &self.root()[0];
            // ORDER: Relaxed: after the Acquire of what the root names, which was stored under this
            // lock. If the lock is free and fenced, the fence is over.
            let lock = root.0[ROOT_LOCK].load(self.pool.medium(), Relaxed);
            if Lock::may_be_unfenced(lock) {
                // PERSIST: see `start`. `write_group` fences before any group's move is stored, and
                // `trace_all` before anything is freed; nothing else depends on it.
                self.pool.region().write_back(root);
            }
        }
    }

    /// Advances the cursor over moved groups and returns it. It is a hint and may start over at any
    /// time.
    fn advance_cursor(&self, from: Table, to: Table) -> u64 {
        let region = self.pool.region();
        let word = &region.at(to.header()).0[HEADER_CURSOR];
        let start = word.load(region.medium(), Acquire).min(from.groups());
        let end = (start + SKIP).min(from.groups());
        // Durably: once the last group is passed, `next` becomes the current table, and writers
        // there check no mark.
        let is_there = |&group: &u64| !self.has_moved_durably(from, from.first_hash(group * GROUP));
        let cursor = (start..end).find(is_there).unwrap_or(end);
        if cursor > start {
            word.fetch_max(region.medium(), cursor, Release);
        }
        cursor
    }

    /// Moves one group, unless another thread is moving it.
    fn migrate(&self, guard: &Guard<'_, M>, from: Table, to: Table, group: u64) -> Result<Step, PoolFull> {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        let first = group * GROUP;
        let leader = region.at(from.bucket(first));
        if link(medium, leader).has_moved() {
            return Ok(Step::Already);
        }
        let Some(leader_lock) = Lock::of(lock_word(leader)).try_acquire(guard) else { return Ok(Step::Busy) };
        if link(medium, leader).has_moved() {
            // The mover may have died before the mark was durable.
            leader_lock.release_unchanged();
            return Ok(Step::Already);
        }
        let others: [_; GROUP as usize - 1] = std::array::from_fn(|i| {
            Lock::of(lock_word(region.at(from.bucket(first + 1 + i as u64)))).acquire(guard)
        });
        let overflow = match self.write_group(guard, from, to, first) {
            Ok(overflow) => overflow,
            Err(full) => {
                // Deferred writes in these chains keep their marks.
                others.into_iter().chain([leader_lock]).for_each(|lock| lock.release_unchanged());
                return Err(full);
            }
        };
        // The other buckets are marked, too, and first. A thread that read the root before the
        // resize began and locks one of them now sees that it must look again. The mark means
        // nothing else there; the leader's counts.
        for follower in (first + 1..first + GROUP).map(|index| region.at(from.bucket(index))) {
            store_link(medium, follower, link(medium, follower).moved());
        }
        store_link(medium, leader, link(medium, leader).moved());
        // PERSIST: `write_group` has fenced the group's new buckets. This store moves all of its
        // keys at once. It is durable before the locks are free, so before any thread writes to the
        // keys. A crash before it finds the group unmoved and complete.
        region.persist(leader);
        others.into_iter().for_each(|lock| lock.release());
        leader_lock.release();
        overflow.into_iter().for_each(|bucket| guard.retire(bucket, 64));
        Ok(Step::Moved)
    }

    /// Writes the buckets of `to` that cover the group at `first`, whose locks are held, and
    /// fences. Returns the group's overflow buckets.
    fn write_group(
        &self,
        guard: &Guard<'_, M>,
        from: Table,
        to: Table,
        first: u64,
    ) -> Result<Vec<u64>, PoolFull> {
        let region = self.pool.region();
        let count = (GROUP << to.log2()) >> from.log2();
        let first_new = to.index(from.first_hash(first));
        self.fetch_ahead(from, first);
        if K::relocates_by_record(from, to) {
            self.fetch_records(guard, from, first);
        }
        let mut image = GroupImage::<K>::new(count as usize);
        let mut overflow = Vec::new();
        for index in first..first + GROUP {
            let head = region.at(from.bucket(index));
            let _ = self.walk(head, |bucket| -> Option<()> {
                if !std::ptr::eq(bucket, head) {
                    overflow.push(region.offset_of(bucket).raw());
                }
                for entry in (0..K::SLOTS).filter_map(|slot| K::read(guard, bucket, slot)) {
                    self.place(guard, &mut image, entry, (from, index), to, first_new);
                }
                None
            });
        }
        let chained = image.chain(guard, overflow.len())?;
        region.stream_lines(to.bucket(first_new).raw(), &image.heads[..image.count]);
        // PERSIST: all new buckets of the group before `moved`. They were streamed, so there is no
        // write-back.
        region.fence();
        region.at(to.header()).0[HEADER_OVERFLOW].fetch_add(region.medium(), chained, Relaxed);
        Ok(overflow)
    }

    /// Groups move in order. So this prefetches the lines of the group after the next one, and the
    /// overflow buckets of the next one.
    fn fetch_ahead(&self, from: Table, first: u64) {
        let region = self.pool.region();
        let next = first + GROUP..(first + 2 * GROUP).min(from.buckets());
        next.for_each(|index| {
            region.prefetch(link(region.medium(), region.at(from.bucket(index))).next().raw())
        });
        (first + 2 * GROUP..first + 3 * GROUP).for_each(|index| region.prefetch(from.bucket(index).raw()));
    }

    /// Prefetches all records of a group: one after the other, their misses would take eight times
    /// as long as everything else.
    fn fetch_records(&self, guard: &Guard<'_, M>, from: Table, first: u64) {
        for head in (first..first + GROUP).map(|index| self.pool.region().at(from.bucket(index))) {
            let _ = self.walk(head, |bucket| -> Option<()> {
                let entries = (0..K::SLOTS).filter_map(|slot| K::read(guard, bucket, slot));
                entries.for_each(|entry| K::prefetch_to_relocate(guard, entry));
                None
            });
        }
    }

    fn place(
        &self,
        guard: &Guard<'_, M>,
        image: &mut GroupImage<K>,
        entry: Entry,
        at: (Table, u64),
        to: Table,
        first_new: u64,
    ) {
        let (hash, entry) = K::relocate(guard, entry, at, to, self.seed).unwrap_or_else(|| {
            // The slot is kept, although no key leads to it, so that `check` and `salvage` can name
            // its record.
            self.record_damage(entry.word, "a record that the index points to is unsound");
            (at.0.first_hash(at.1), entry)
        });
        let target = to.index(hash).saturating_sub(first_new).min(image.count as u64 - 1);
        image.put(target as usize, entry);
    }

    /// Makes the new table the current one: every group has moved.
    fn finish_resize(&self, guard: &Guard<'_, M>, from: Table, to: Table) {
        let (region, root) = (self.pool.region(), &self.root()[0]);
        let Some(lock) = Lock::of(&root.0[ROOT_LOCK]).try_acquire(guard) else { return };
        if self.view() != (View { current: from, next: Some(to) }) {
            return lock.release_unchanged();
        }
        root.0[ROOT_CURRENT].store(region.medium().point("clht.resized"), to.word(), Release);
        root.0[ROOT_NEXT].store(region.medium(), 0, Release);
        root.0[ROOT_RESIZES].fetch_add(region.medium(), 1, Relaxed);
        // PERSIST: one line, in this order. After a crash that kept only the first store, both
        // words name the new table, which counts as finished.
        region.persist(root);
        lock.release();
        guard.retire(from.start(), from.bytes());
    }

    /// Does one piece of a resize, while no thread writes. Returns whether more is left.
    pub(super) fn resize_step(&self, guard: &Guard<'_, M>) -> bool {
        let view = self.view();
        if let Some(next) = view.next {
            self.help_resize(guard, view.current, next);
        }
        self.view().next.is_some()
    }

    /// After a crash: clears the second word of a finished resize, and restarts the cursor, which
    /// no fence covered.
    pub(super) fn recover_resize(&self) {
        let (region, root) = (self.pool.region(), &self.root()[0]);
        match self.view().next {
            Some(next) => region.at(next.header()).0[HEADER_CURSOR].store(region.medium(), 0, Release),
            None => root.0[ROOT_NEXT].store(region.medium(), 0, Release),
        }
    }
}

/// The new buckets of a group, before they are written.
struct GroupImage<K> {
    heads: [[u64; 8]; HEADS_MAX],
    used: [u8; HEADS_MAX],
    /// Number of heads that the group becomes.
    count: usize,
    /// Entries whose head was full, with its position.
    rest: Vec<(usize, Entry)>,
    kind: std::marker::PhantomData<K>,
}

impl<K: BucketShape> GroupImage<K> {
    fn new(count: usize) -> Self {
        assert!(count <= HEADS_MAX, "a resize doubles a table at most");
        let (heads, used) = ([[0; 8]; HEADS_MAX], [0; HEADS_MAX]);
        Self { heads, used, count, rest: Vec::new(), kind: std::marker::PhantomData }
    }

    fn put(&mut self, target: usize, entry: Entry) {
        let used = usize::from(self.used[target]);
        if used == K::SLOTS {
            return self.rest.push((target, entry));
        }
        K::put_in_image(&mut self.heads[target], used, entry);
        self.used[target] += 1;
    }

    /// Writes the overflow buckets and links them into the heads. Returns how many there are. If
    /// the pool is full, or has no room to retire the old ones, frees those that were allocated.
    fn chain<M: MappedMedium>(&mut self, guard: &Guard<'_, M>, old: usize) -> Result<u64, PoolFull> {
        sort_by_target(&mut self.rest);
        let mut blocks = Vec::new();
        for same_head in self.rest.chunk_by(|a, b| a.0 == b.0) {
            for entries in same_head.chunks(K::SLOTS) {
                let head = &mut self.heads[entries[0].0];
                let mut image = [0; 8];
                entries
                    .iter()
                    .enumerate()
                    .for_each(|(slot, &(_, entry))| K::put_in_image(&mut image, slot, entry));
                let link = super::bucket::Link(image[7]).with_next(super::bucket::Link(head[7]).next());
                image[7] = link.0;
                let fresh = guard.alloc(64)?;
                fresh.stream_lines(0, &[image]);
                head[7] = super::bucket::Link(head[7]).with_next(Offset::new(fresh.offset())).0;
                blocks.push(fresh);
            }
        }
        guard.reserve_retirements(old)?;
        let chained = blocks.len() as u64;
        // PERSIST: these blocks are fenced with the heads, before `moved` makes any of them
        // reachable.
        blocks.into_iter().for_each(|block| {
            let _ = block.fenced_later().into_offset();
        });
        Ok(chained)
    }
}

/// Not in the method, which would compile the sort for each medium.
fn sort_by_target(entries: &mut [(usize, Entry)]) {
    entries.sort_by_key(|&(target, _)| target);
}

#[cfg(test)]
#[path = "tests/steps.rs"]
mod test_steps;

#[cfg(test)]
#[path = "tests/resize.rs"]
mod tests;
