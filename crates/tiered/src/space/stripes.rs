//! The locks of keys, in stripes by their hashes, and what readers see of a batch.
//!
//! A writer holds the locks of the stripes of its keys from before it decides until its writes are
//! visible. So nothing about a key changes under it but where its record lies. (The paper's index
//! updates records under the locks of buckets, and leaves the rest open.) Readers take no lock.
//!
//! A *batch* becomes visible at one instant: it notes itself in all its stripes before it changes
//! the index, with what the index had. A reader that finds such a note behind what it has read
//! takes the earlier state, until the batch says that it is done.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A number that tells threads apart, and counts from 0.
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<Option<usize>> = const { Cell::new(None) });
    OWN.with(|own| match own.get() {
        Some(number) => number,
        None => {
            let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            own.set(Some(number));
            number
        }
    })
}

/// A batch that is being published.
pub(crate) struct Batch {
    is_done: AtomicBool,
    /// The probes of its keys, and the index's words before.
    before: BTreeMap<Box<[u8]>, Option<u64>>,
}

#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Stripe {
    lock: Mutex<()>,
    /// Odd while a writer changes a key.
    changes: AtomicU64,
    has_batch: AtomicBool,
    batch: Mutex<Option<Arc<Batch>>>,
}

/// The stripes of a store.
pub(crate) struct Stripes(Box<[Stripe]>);

/// The locks of some stripes.
pub(crate) struct Locked<'s> {
    stripes: Vec<(&'s Stripe, MutexGuard<'s, ()>)>,
}

impl Stripes {
    /// So many stripes, a power of two.
    pub(crate) fn new(count: usize) -> Self {
        assert!(count.is_power_of_two(), "a power of two");
        Self((0..count).map(|_| Stripe::default()).collect())
    }

    /// The stripe of a hash. (The index takes the top bits.)
    #[inline(always)]
    pub(crate) fn of(&self, hash: u64) -> &Stripe {
        &self.0[hash as usize & (self.0.len() - 1)]
    }

    /// Locks the stripe of a key.
    #[inline(always)]
    pub(crate) fn lock(&self, hash: u64) -> One<'_> {
        let stripe = self.of(hash);
        let guard = stripe.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // ORDER: AcqRel: the changes come between this and the drop.
        stripe.changes.fetch_add(1, AcqRel);
        One { stripe, _guard: guard }
    }

    /// Locks the stripe of a key if no thread has it.
    pub(crate) fn try_lock(&self, hash: u64) -> Option<One<'_>> {
        let stripe = self.of(hash);
        let guard = stripe.lock.try_lock().ok()?;
        stripe.changes.fetch_add(1, AcqRel);
        Some(One { stripe, _guard: guard })
    }

    /// Locks the stripes of some keys, in an order that all threads keep.
    pub(crate) fn lock_all(&self, hashes: impl Iterator<Item = u64>) -> Locked<'_> {
        let mut places: Vec<usize> = hashes.map(|hash| hash as usize & (self.0.len() - 1)).collect();
        places.sort_unstable();
        places.dedup();
        let lock = |&place: &usize| {
            let stripe = &self.0[place];
            let guard = stripe.lock.lock().unwrap_or_else(PoisonError::into_inner);
            stripe.changes.fetch_add(1, AcqRel);
            (stripe, guard)
        };
        Locked { stripes: places.iter().map(lock).collect() }
    }

    /// Waits until every writer that holds a lock now has let go of it.
    pub(crate) fn pass_all(&self) {
        for stripe in &self.0 {
            drop(stripe.lock.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Locks all.
    pub(crate) fn lock_each(&self) -> Locked<'_> {
        self.lock_all(0..self.0.len() as u64)
    }
}

/// The lock of one stripe.
pub(crate) struct One<'s> {
    stripe: &'s Stripe,
    _guard: MutexGuard<'s, ()>,
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.stripe.changes.fetch_add(1, AcqRel);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.stripes.iter().for_each(|(stripe, _)| _ = stripe.changes.fetch_add(1, AcqRel));
    }
}

impl Stripe {
    /// A number that is the same before and after some reads if nothing has changed meanwhile.
    /// `None` while something changes.
    pub(crate) fn changes(&self) -> Option<u64> {
        let changes = self.changes.load(Acquire);
        changes.is_multiple_of(2).then_some(changes)
    }

    /// What the index had for a probe before a batch that is not done; `None` if there is no such
    /// batch. To be asked behind a look into the index.
    #[inline(always)]
    pub(crate) fn before(&self, probe: &[u8]) -> Option<Option<u64>> {
        // ORDER: Acquire: pairs with the Release of `publish`.
        if self.has_batch.load(Acquire) { self.before_batch(probe) } else { None }
    }

    #[cold]
    fn before_batch(&self, probe: &[u8]) -> Option<Option<u64>> {
        let batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let before = *batch.before.get(probe)?;
        (!batch.is_done.load(Acquire)).then_some(before)
    }

    fn set_batch(&self, batch: Option<&Arc<Batch>>) {
        let mut own = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(own.is_none() || batch.is_none(), "the lock of a stripe keeps batches apart");
        *own = batch.cloned();
        drop(own);
        self.has_batch.store(batch.is_some(), Release);
    }
}

impl Locked<'_> {
    /// Runs `publish`, whose changes readers see at one instant. `before` has the index's words for
    /// the probes of all keys that change.
    pub(crate) fn publish<T>(
        &self,
        before: BTreeMap<Box<[u8]>, Option<u64>>,
        publish: impl FnOnce() -> T,
    ) -> T {
        let batch = Arc::new(Batch { is_done: AtomicBool::new(false), before });
        self.stripes.iter().for_each(|(stripe, _)| stripe.set_batch(Some(&batch)));
        let published = publish();
        // ORDER: Release: a reader that sees this sees all words of the batch.
        batch.is_done.store(true, Release);
        self.stripes.iter().for_each(|(stripe, _)| stripe.set_batch(None));
        published
    }
}
