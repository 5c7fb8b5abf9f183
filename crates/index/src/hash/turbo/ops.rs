//! The table, and the operations that only read.

use super::bucket::{Bucket, Meta, continues, has_overflowed, line_for, meta};
use super::directory::*;
use super::shape::{BucketShape, Found, Probe};
use crate::{ChangeError, Damage, Decision, Fencing, IndexStats, PointIndex};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{BLOCK, Line, MappedMedium, Word};
use terrace_pool::{Fixed, FixedRow, Guard, Lock, Marker, Pool};

/// A hash table of small shards. See the module's head for the algorithm.
///
/// ```
/// use terrace_index::{Inserted, PointIndex, Stored, U64, hash::Turbo};
/// use terrace_medium::Dram;
/// use terrace_pool::Pool;
///
/// let pool = Pool::<Dram>::anonymous(16 << 20)?;
/// let map = Turbo::<Dram, U64>::create(&pool, "map", 1000)?;
/// let guard = pool.pin();
/// assert_eq!(map.insert(&guard, &7, 700)?, Inserted::New);
/// assert_eq!(map.get(&guard, &7), Some(700));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Turbo<M: MappedMedium, K> {
    pub(super) pool: Pool<M>,
    pub(super) root: Fixed<M, Root>,
    pub(super) descriptors: FixedRow<M, Line>,
    pub(super) places: FixedRow<M, Word>,
    pub(super) seed: u64,
    /// A power of two.
    pub(super) shards: u64,
    pub(super) damage: OnceLock<Damage>,
    pub(super) kind: PhantomData<fn() -> K>,
}

impl<M: MappedMedium, K: BucketShape> Turbo<M, K> {
    /// The shard of a hash, and the remaining bits of the hash.
    #[inline(always)]
    pub(super) fn route(&self, hash: u64) -> (usize, u64) {
        // First and remaining bits by one multiplication: a shift by a variable takes longer.
        let bits = u128::from(hash) * u128::from(self.shards);
        ((bits >> 64) as usize, bits as u64)
    }

    pub(super) fn shards(&self) -> usize {
        self.shards as usize
    }

    /// Number of bits that choose the shard.
    pub(super) fn shard_bits(&self) -> u32 {
        self.shards.trailing_zeros()
    }

    /// The place of a shard. Its buckets are not reused while the caller is pinned.
    #[inline(always)]
    pub(super) fn place(&self, shard: usize) -> Place {
        place(self.pool.medium(), &self.places.as_slice()[shard])
    }

    #[inline(always)]
    pub(super) fn descriptor(&self, shard: usize) -> Descriptor<'_> {
        Descriptor(&self.descriptors.as_slice()[shard])
    }

    #[inline(always)]
    pub(super) fn bucket(&self, place: Place, index: u64) -> &Bucket {
        self.pool.region().at(place.bucket(index))
    }

    #[cold]
    pub(super) fn record_damage(&self, offset: u64, what: &'static str) {
        let _ = self.damage.set(Damage { offset, what });
    }

    /// Calls `each` on the buckets of a path until it returns a result.
    #[inline(always)]
    pub(super) fn walk<'t, T>(
        &'t self,
        place: Place,
        inner: u64,
        mut each: impl FnMut(&'t Bucket) -> Option<T>,
    ) -> Option<T> {
        let mut index = place.home(inner);
        for _ in 0..place.buckets() {
            if let Some(answer) = each(self.bucket(place, index)) {
                return Some(answer);
            }
            index = place.next(index);
        }
        None
    }

    /// Looks for a key on its path.
    #[inline(always)]
    fn seek(&self, guard: &Guard<'_, M>, place: Place, probe: &Probe<'_, K>) -> Option<u64> {
        if let Some(bucket) = self.bucket_if_known(place, probe.inner) {
            match K::check_first_match(guard, bucket, probe) {
                Some(Found::Here(_, word)) => return Some(word),
                Some(Found::Missing(meta)) if self.ends(bucket, meta, probe) => return None,
                _ => {}
            }
        }
        self.seek_whole_path(guard, place, probe.key)
    }

    /// A key's home, unless it lies in memory that this process does not know of yet.
    #[inline(always)]
    pub(super) fn bucket_if_known(&self, place: Place, inner: u64) -> Option<&Bucket> {
        self.pool.region().get_if_known(place.bucket(place.home(inner)))
    }

    /// Searches the whole path. It recomputes what it needs from the key, so that the short way
    /// need not keep it in registers.
    #[inline(never)]
    fn seek_whole_path(&self, guard: &Guard<'_, M>, place: Place, key: &K::Key) -> Option<u64> {
        let hash = K::hash(key, self.seed);
        let probe = &Probe::new(key, hash, self.route(hash).1);
        let found = self.walk(place, probe.inner, |bucket| match K::find(guard, bucket, probe) {
            Found::Here(_, word) => Some(Some(word)),
            Found::Missing(meta) => self.ends(bucket, meta, probe).then_some(None),
        });
        found.flatten()
    }

    /// Whether the path of a key ends at a bucket that had this meta word.
    #[inline(always)]
    pub(super) fn ends(&self, bucket: &Bucket, meta: Meta, probe: &Probe<'_, K>) -> bool {
        !continues::<M, K>(self.pool.medium(), bucket, meta, probe.tag)
    }

    /// The word of a key in the only shard that may contain it, persisted.
    #[inline(always)]
    fn search(&self, guard: &Guard<'_, M>, shard: usize, place: Place, probe: &Probe<'_, K>) -> Option<u64> {
        if place.is_none() {
            return None;
        }
        // Prefetches both lines that the search reads: the most likely line of the slot is known
        // without the tags.
        self.prefetch_slot(place, probe);
        let found = self.seek(guard, place, probe);
        self.persist_read(shard, place, probe);
        found
    }

    /// Persists what a reader saw, if the shard's lock is held or unfenced (invariant 3).
    #[inline(always)]
    fn persist_read(&self, shard: usize, place: Place, probe: &Probe<'_, K>) {
        if M::VOLATILE_CACHE
            && Lock::may_be_unfenced(self.descriptor(shard).lock().load_word(self.pool.medium()))
        {
            self.persist_path(place, probe);
        }
    }

    #[cold]
    fn persist_path(&self, place: Place, probe: &Probe<'_, K>) {
        let region = self.pool.region();
        // PERSIST: the stores of a writer that holds this shard's lock, or released it before its
        // fence, to the buckets that a search of this key reads. Only then does a reader return
        // what it saw, or a writer build upon it. A path only grows, so this covers everything that
        // was read.
        let _ = self.walk(place, probe.inner, |bucket| {
            region.write_back(bucket);
            self.ends(bucket, meta(region.medium(), bucket), probe).then_some(())
        });
        region.fence();
    }

    /// A key was not found: decides whether that is certain.
    fn absent(
        &self,
        guard: &Guard<'_, M>,
        place: Place,
        probe: &Probe<'_, K>,
    ) -> Result<Option<u64>, Damage> {
        let record = if place.is_none() { None } else { self.suspect(guard, place, probe) };
        let what = "a record that may be the key's, or what leads to it, is unsound";
        match record.map(|offset| Damage { offset, what }).or(self.damage()) {
            Some(damage) => Err(damage),
            None => Ok(None),
        }
    }

    /// Continues behind full buckets, whatever their overflow bits say: these may be damaged.
    fn suspect(&self, guard: &Guard<'_, M>, place: Place, probe: &Probe<'_, K>) -> Option<u64> {
        let medium = self.pool.medium();
        let mut not_passed = None;
        let answer = self.walk(place, probe.inner, |bucket| {
            let unsound = K::suspect(guard, bucket, probe).or_else(|| {
                // A key that came since the search has set its overflow bits by now.
                let not_passed: Option<&Bucket> = not_passed;
                let denying = not_passed.filter(|_| matches!(K::find(guard, bucket, probe), Found::Here(..)));
                let denying = denying.filter(|denying| !has_overflowed::<M, K>(medium, denying, probe.tag));
                denying.map(|denying| self.pool.region().offset_of(denying).raw())
            });
            if !has_overflowed::<M, K>(medium, bucket, probe.tag) {
                not_passed = not_passed.or(Some(bucket));
            }
            let is_over = unsound.is_some() || !meta(medium, bucket).is_full::<K>();
            is_over.then_some(unsound)
        });
        answer.flatten()
    }

    /// Prefetches the most likely line of a key's slot.
    #[inline(always)]
    fn prefetch_slot(&self, place: Place, probe: &Probe<'_, K>) {
        self.pool
            .region()
            .prefetch(place.bucket(place.home(probe.inner)).raw() + 64 * line_for(probe.tag) as u64);
    }

    /// Prefetches the lines of a bucket that a search for this key reads.
    #[inline(always)]
    fn prefetch(&self, place: Place, inner: u64, tag: u8) {
        let at = place.bucket(place.home(inner)).raw();
        self.pool.region().prefetch(at);
        self.pool.region().prefetch(at + 64 * line_for(tag) as u64);
    }
}

impl<M: MappedMedium, K: BucketShape> PointIndex for Turbo<M, K> {
    type Medium = M;
    type Kind = K;
    const NAME: &'static str = "turbo";
    const FENCES_PER_INSERT: u32 = 2;

    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    #[inline(always)]
    fn get(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        let hash = K::hash(key, self.seed);
        let (shard, inner) = self.route(hash);
        self.search(guard, shard, self.place(shard), &Probe::new(key, hash, inner))
    }

    #[inline]
    fn get_sound(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        let hash = K::hash(key, self.seed);
        let (shard, inner) = self.route(hash);
        let (place, probe) = (self.place(shard), Probe::new(key, hash, inner));
        match self.search(guard, shard, place, &probe) {
            None => self.absent(guard, place, &probe),
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
                let (shard, inner) = self.route(hash);
                let place = self.place(shard);
                self.prefetch(place, inner, hash as u8);
                batch[len] = Some((shard, place, Probe::<K>::new(key, hash, inner)));
                len += 1;
            }
            for (_, place, probe) in batch[..len].iter().flatten() {
                if !place.is_none() {
                    K::prefetch(guard, self.bucket(*place, place.home(probe.inner)), probe);
                }
            }
            for (shard, place, probe) in batch[..len].iter().flatten() {
                each(done, self.search(guard, *shard, *place, probe));
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
        let keys = (0..self.shards()).map(|shard| self.descriptor(shard).keys(self.pool.medium()));
        keys.fold(0, u64::wrapping_add)
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
        self.release_empty(guard)
    }

    fn stats(&self, _: &Guard<'_, M>) -> IndexStats {
        let medium = self.pool.medium();
        let buckets: u64 = (0..self.shards()).map(|shard| self.place(shard).buckets()).sum();
        IndexStats {
            nodes: [0; 4],
            keys: self.len(),
            slots: buckets * K::SLOTS as u64,
            buckets,
            overflow_buckets: 0,
            bytes: buckets * BLOCK as u64
                + (descriptor_bytes(self.shard_bits()) + place_bytes(self.shard_bits()) + size_of::<Root>())
                    as u64,
            resizes: self.root[1].0[VOLATILE_RESIZES].load(medium, Relaxed),
            resizing: false,
        }
    }

    fn damage(&self) -> Option<Damage> {
        self.damage.get().copied()
    }
}

/// Bytes of the descriptors of 2^log2 shards.
pub(super) fn descriptor_bytes(log2: u32) -> usize {
    64 << log2
}

/// Bytes of the places of 2^log2 shards, in whole lines.
pub(super) fn place_bytes(log2: u32) -> usize {
    (8usize << log2).next_multiple_of(64)
}

#[cfg(test)]
#[path = "tests/ops.rs"]
mod tests;
