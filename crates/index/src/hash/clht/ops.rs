//! The operations on single keys.

use super::bucket::{link, lock_word};
use super::shape::{BucketShape, Probe};
use super::table::*;
use crate::count::{Count, STRIPES, Stripes};
use crate::{ChangeError, Damage, Decision, Fencing, IndexStats, PointIndex, StoreError, Stored};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::{Line, MappedMedium, Offset};
use terrace_pool::{Finding, Fixed, Guard, Lock, Marker, Pool};

/// The longest chain. Keys spread by a secret seed, so a longer chain is a loop in a damaged pool.
const CHAIN_MAX: usize = 1 << 20;

/// The cache-line hash table. See the module's head for the algorithm.
///
/// ```
/// use terrace_index::{Inserted, PointIndex, Stored, U64, hash::Clht};
/// use terrace_medium::Dram;
/// use terrace_pool::Pool;
///
/// let pool = Pool::<Dram>::anonymous(16 << 20)?;
/// let map = Clht::<Dram, U64>::create(&pool, "map", 1000)?;
/// let guard = pool.pin();
/// assert_eq!(map.insert(&guard, &7, 700)?, Inserted::New);
/// assert_eq!(map.get(&guard, &7), Some(700));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Clht<M: MappedMedium, K> {
    pub(super) pool: Pool<M>,
    pub(super) root: Fixed<M, Root>,
    pub(super) stripes: Fixed<M, Stripes>,
    pub(super) seed: u64,
    damage: OnceLock<Damage>,
    kind: PhantomData<fn() -> K>,
}

impl<M: MappedMedium, K: BucketShape> Clht<M, K> {
    fn open(pool: &Pool<M>, root: Offset<Root>) -> Result<Self, StoreError> {
        let damaged = |offset, what| StoreError::Damaged(Damage { offset, what });
        let region = pool.region();
        let fixed = pool.fix(root).ok_or(damaged(root.raw(), "the root lies outside the pool"))?;
        let word = |index: usize| fixed[0].0[index].load(region.medium(), Acquire);
        if word(ROOT_KIND) != K::TAG {
            return Err(damaged(root.raw(), "the root is not of a hash table for this kind of keys"));
        }
        let seed = word(ROOT_SEED);
        if word(ROOT_CHECK) != root_check(seed, word(ROOT_STRIPES)) {
            return Err(damaged(root.raw(), "the root of the hash table does not fit its check"));
        }
        let stripes = pool.fix(Offset::new(word(ROOT_STRIPES)));
        let stripes = stripes.ok_or(damaged(root.raw(), "the counters lie outside the pool"))?;
        let tables = [word(ROOT_CURRENT), word(ROOT_NEXT)];
        let sound = |&word: &u64| Table::from_word(word).is_sound(region.refreshed_len());
        if !sound(&tables[0]) || !(tables[1] == 0 || sound(&tables[1])) {
            return Err(damaged(root.raw(), "the root names no table of the pool"));
        }
        let (pool, damage) = (pool.clone(), OnceLock::new());
        Ok(Self { pool, root: fixed, stripes, seed, damage, kind: PhantomData })
    }

    #[inline(always)]
    pub(super) fn root(&self) -> &Root {
        &self.root
    }

    pub(super) fn count(&self) -> Count<'_, M> {
        Count { medium: self.pool.medium(), line: &self.root[1], stripes: &self.stripes }
    }

    /// Both tables at one instant. A table's block is not reused while the caller is pinned.
    ///
    /// `next` is read first. If it is null, every resize that concerns the `current` read after it
    /// began later. So no key of `current` had moved when the caller began. If it is not null, it
    /// is read again, so that `current` is the table that it is filled from.
    #[inline(always)]
    pub(super) fn view(&self) -> View {
        let (medium, line) = (self.pool.medium(), &self.root()[0]);
        loop {
            let next = line.0[ROOT_NEXT].load(medium, Acquire);
            let current = Table::from_word(line.0[ROOT_CURRENT].load(medium, Acquire));
            if next == 0 {
                return View { current, next: None };
            }
            // ORDER: Relaxed: after the Acquire of `current`. The value that it equals was acquired
            // above.
            if line.0[ROOT_NEXT].load(medium, Relaxed) == next {
                // The end of a resize stores `current` first, then clears `next`.
                return View { current, next: Some(Table::from_word(next)).filter(|&next| next != current) };
            }
        }
    }

    /// The bucket at `offset`, which a link names. Records damage and returns `None` if no block
    /// can be there: the pool's own metadata must never be written to as a bucket.
    #[inline(always)]
    pub(super) fn bucket(&self, offset: Offset<Line>) -> Option<&Line> {
        let is_block = offset.raw() >= self.pool.layout().zones;
        let line = self.pool.region().get(offset).filter(|_| is_block);
        if line.is_none() {
            self.record_damage(offset.raw(), "a bucket lies where the pool has no blocks");
        }
        line
    }

    #[cold]
    pub(super) fn record_damage(&self, offset: u64, what: &'static str) {
        let _ = self.damage.set(Damage { offset, what });
    }

    /// Whether the group of `hash` has moved out of `table`.
    #[inline(always)]
    pub(super) fn has_moved(&self, table: Table, hash: u64) -> bool {
        let leader = self.pool.region().at(table.leader(table.index(hash)));
        link(self.pool.medium(), leader).has_moved()
    }

    /// The table in which to look for `hash`.
    ///
    /// A reader that sees no resize, or its group not moved yet, searches the old table. Its answer
    /// was true when it read the root or the link: a group's old buckets do not change after it has
    /// moved.
    #[inline(always)]
    pub(super) fn table_of(&self, hash: u64) -> Table {
        let view = self.view();
        match view.next {
            Some(next) if self.has_moved(view.current, hash) => next,
            _ => view.current,
        }
    }

    /// Calls `each` on the buckets of a chain until it returns a result.
    #[inline(always)]
    pub(super) fn walk<'a, T>(
        &'a self,
        head: &'a Line,
        mut each: impl FnMut(&'a Line) -> Option<T>,
    ) -> Option<T> {
        let mut bucket = head;
        for _ in 0..CHAIN_MAX {
            if let Some(answer) = each(bucket) {
                return Some(answer);
            }
            let next = link(self.pool.medium(), bucket).next();
            if next.is_null() {
                return None;
            }
            bucket = self.bucket(next)?;
        }
        self.record_damage(self.pool.region().offset_of(head).raw(), "a chain of buckets does not end");
        None
    }

    /// Looks for a key in the only chain that may contain it.
    #[inline(always)]
    fn search(&self, guard: &Guard<'_, M>, table: Table, hash: u64, key: &K::Key) -> Option<u64> {
        let head = self.pool.region().at(table.bucket(table.index(hash)));
        let found = self.find(guard, head, &K::probe(key, hash, table));
        self.persist_read(head);
        found.map(|(_, _, word)| word)
    }

    /// The bucket, slot and word of a key in a chain. The first bucket is nearly always enough, and
    /// only that much is inlined. Reads of different keys overlap in the processor as far as their
    /// instructions fit its window, so every instruction costs.
    #[inline(always)]
    pub(super) fn find<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        head: &'g Line,
        probe: &Probe<'_, K>,
    ) -> Option<(&'g Line, usize, u64)> {
        match K::find(guard, head, probe) {
            Some((slot, word)) => Some((head, slot, word)),
            None if link(self.pool.medium(), head).next().is_null() => None,
            None => self.find_in_chain(guard, head, probe),
        }
    }

    #[inline(never)]
    pub(super) fn find_in_chain<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        head: &'g Line,
        probe: &Probe<'_, K>,
    ) -> Option<(&'g Line, usize, u64)> {
        self.walk(head, |bucket| K::find(guard, bucket, probe).map(|(slot, word)| (bucket, slot, word)))
    }

    /// A key was not found in `table`: decides whether that is certain.
    fn absent(
        &self,
        guard: &Guard<'_, M>,
        table: Table,
        hash: u64,
        key: &K::Key,
    ) -> Result<Option<u64>, Damage> {
        let probe = K::probe(key, hash, table);
        let head = self.pool.region().at(table.bucket(table.index(hash)));
        let suspect = self.walk(head, |bucket| K::suspect(guard, bucket, &probe));
        let record =
            suspect.map(|offset| Damage { offset, what: "a record that may be the key's is unsound" });
        match record.or(self.damage()) {
            Some(damage) => Err(damage),
            None => Ok(None),
        }
    }

    /// Persists what a reader saw, if the chain's lock is held or unfenced (invariant 3).
    #[inline(always)]
    pub(super) fn persist_read(&self, head: &Line) {
        if M::VOLATILE_CACHE {
            let lock = lock_word(head).load(self.pool.medium(), Acquire);
            if Lock::may_be_unfenced(lock) {
                self.persist_chain(head);
            }
        }
    }

    #[cold]
    pub(super) fn persist_chain(&self, head: &Line) {
        let region = self.pool.region();
        // PERSIST: the stores of a writer that holds this lock, or released it before its fence.
        // Only then does a reader return what it saw, or a writer build upon it.
        let _ = self.walk(head, |bucket| -> Option<()> {
            region.write_back(bucket);
            None
        });
        region.fence();
    }
}

impl<M: MappedMedium, K: BucketShape> PointIndex for Clht<M, K> {
    type Medium = M;
    type Kind = K;
    const NAME: &'static str = "clht";
    const FENCES_PER_INSERT: u32 = 1;

    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    #[inline(always)]
    fn get(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        let hash = K::hash(key, self.seed);
        self.search(guard, self.table_of(hash), hash, key)
    }

    #[inline]
    fn get_sound(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        let hash = K::hash(key, self.seed);
        let table = self.table_of(hash);
        match self.search(guard, table, hash, key) {
            None => self.absent(guard, table, hash, key),
            found => Ok(found),
        }
    }

    fn get_many<'k>(
        &self,
        guard: &Guard<'_, M>,
        keys: impl IntoIterator<Item = &'k K::Key>,
        mut each: impl FnMut(usize, Option<u64>),
    ) where
        K::Key: 'k,
    {
        /// Cache misses of a core that can overlap.
        const BATCH: usize = 16;
        let mut keys = keys.into_iter();
        let mut done = 0;
        loop {
            let mut batch = [const { None }; BATCH];
            let mut len = 0;
            for key in keys.by_ref().take(BATCH) {
                let hash = K::hash(key, self.seed);
                let table = self.table_of(hash);
                self.pool.region().prefetch(table.bucket(table.index(hash)).raw());
                batch[len] = Some((key, hash, table));
                len += 1;
            }
            for &(key, hash, table) in batch[..len].iter().flatten() {
                let head = self.pool.region().at(table.bucket(table.index(hash)));
                K::prefetch(guard, head, &K::probe(key, hash, table));
            }
            for &(key, hash, table) in batch[..len].iter().flatten() {
                each(done, self.search(guard, table, hash, key));
                done += 1;
            }
            if len < BATCH {
                return;
            }
        }
    }

    fn change(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        fencing: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, ChangeError> {
        Ok(self.change_key(guard, key, fencing, decide)?)
    }

    fn len(&self) -> u64 {
        self.count().len()
    }

    fn scan(
        &self,
        guard: &Guard<'_, M>,
        from: &crate::Place,
        at_least: usize,
        each: impl FnMut(u64),
    ) -> crate::Place {
        from.scan(|position| self.scan_from(guard, position, at_least, each))
    }

    fn trace(&self, guard: &Guard<'_, M>, marker: &mut Marker<'_>, each: impl FnMut(&mut Marker<'_>, u64)) {
        self.trace_all(guard, marker, each);
    }

    fn maintain(&self, guard: &Guard<'_, M>) -> bool {
        self.resize_step(guard)
    }

    fn stats(&self, _: &Guard<'_, M>) -> IndexStats {
        let (medium, view) = (self.pool.medium(), self.view());
        let header = |table: Table| self.pool.region().at(table.header());
        let overflow =
            |table: Table| header(table).0[HEADER_OVERFLOW].load(medium, Relaxed).min(1 << LOG2_MAX);
        let tables = [Some(view.current), view.next];
        let overflow_buckets: u64 = tables.iter().flatten().map(|&table| overflow(table)).sum();
        let buckets = view.next.unwrap_or(view.current).buckets();
        IndexStats {
            nodes: [0; 4],
            keys: self.len(),
            slots: (buckets + overflow_buckets) * K::SLOTS as u64,
            buckets,
            overflow_buckets,
            bytes: tables.iter().flatten().map(|table| table.bytes() as u64).sum::<u64>()
                + (overflow_buckets + STRIPES + 2) * 64,
            resizes: self.root()[0].0[ROOT_RESIZES].load(medium, Relaxed),
            resizing: view.next.is_some(),
        }
    }

    fn damage(&self) -> Option<Damage> {
        self.damage.get().copied()
    }
}

impl<M: MappedMedium, K: BucketShape> Stored for Clht<M, K> {
    type Medium = M;

    fn create(pool: &Pool<M>, name: &str, capacity: u64) -> Result<Self, StoreError> {
        let guard = pool.pin();
        let log2 = log2_for::<K>(capacity);
        let table = Self::new_table(&guard, log2)?;
        zero_buckets(pool, table);
        let stripes = guard.alloc(STRIPES as usize * 64)?;
        stripes.stream_lines(0, &[[0; 8]; STRIPES as usize]);
        let root = guard.alloc(size_of::<Root>())?;
        let mut line = [0; 8];
        line[ROOT_CURRENT] = table.word();
        line[ROOT_SEED] = pool.hash_seed();
        line[ROOT_STRIPES] = stripes.offset();
        line[ROOT_KIND] = K::TAG;
        line[ROOT_CHECK] = root_check(pool.hash_seed(), stripes.offset());
        root.stream_lines(0, &[line, [0; 8]]);
        // PERSIST: table, counters and root block before the root directory names them. A crash
        // before that leaves blocks that the collector reclaims.
        let fence = guard.fence();
        let _ = stripes.fenced(&fence).into_offset();
        let root = root.fenced(&fence).into_offset();
        pool.set_root(name, Self::NAME, root)?;
        drop(guard);
        Self::open(pool, Offset::new(root))
    }

    fn recover(pool: &Pool<M>, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(root) = pool.root(name, Self::NAME)? else { return Ok(None) };
        let index = Self::open(pool, Offset::new(root))?;
        if !pool.is_read_only() && !pool.is_initialized() {
            index.count().recover();
            index.recover_resize();
        }
        Ok(Some(index))
    }

    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.findings(guard)
    }
}

/// The smallest table with room for `capacity` keys.
fn log2_for<K: BucketShape>(capacity: u64) -> u32 {
    let buckets = (u128::from(capacity) * 1000).div_ceil(u128::from(K::KEYS_PERMILLE)).max(1);
    buckets.next_power_of_two().ilog2().clamp(LOG2_MIN, LOG2_MAX)
}

/// Empties the buckets of an unpublished table. Durable at the next fence.
fn zero_buckets<M: MappedMedium>(pool: &Pool<M>, table: Table) {
    for index in (0..table.buckets()).step_by(GROUP as usize) {
        pool.region().stream_lines(table.bucket(index).raw(), &[[0; 8]; GROUP as usize]);
    }
}
