//! Tests of interleavings: other threads act between two accesses of one thread.

use crate::allocator::zones::{UnitState, UnitUse};
use crate::open::options::PoolOptions;
use crate::pool::Pool;
use crate::pool::inner::Inner;
use crate::tests::fixtures::{collection, geometry, participants, recovering};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::mpsc;
use std::time::Duration;
use terrace_medium::{Access, MappedMedium, Mapping, Medium, Shm, Word};

const SIZE: u64 = 1 << 20;

type Hook = Box<dyn FnMut(Access, u64)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// A medium that calls the thread's hook after each of its accesses, except those of the hook
/// itself, with the offset.
pub(crate) struct Hooked(Shm);

// SAFETY: base and length are those of the medium below, which makes the same promise.
unsafe impl Medium for Hooked {
    const VOLATILE_CACHE: bool = false;
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn has_grown(&self) -> bool {
        self.0.has_grown()
    }
    fn write_back(&self, _: *const u8) {}
    fn fence(&self) {}
    fn accessed(&self, access: Access, at: *const u8, _: &'static std::panic::Location<'static>) {
        if let Ok(Some(mut hook)) = HOOK.try_with(|hook| hook.borrow_mut().take()) {
            hook(access, (at.addr() - self.base().addr().get()) as u64);
            HOOK.set(Some(hook));
        }
    }
}

impl MappedMedium for Hooked {
    fn new(mapping: Mapping) -> Self {
        Self(Shm::new(mapping))
    }
    fn mapping(&self) -> &Mapping {
        self.0.mapping()
    }
}

/// Runs `run` with a hook in this thread.
pub(crate) fn hooked<R>(hook: impl FnMut(Access, u64) + 'static, run: impl FnOnce() -> R) -> R {
    HOOK.set(Some(Box::new(hook)));
    let result = run();
    HOOK.set(None);
    result
}

fn pool() -> Pool<Hooked> {
    PoolOptions::anonymous().size(SIZE).geometry(geometry()).create().unwrap()
}

pub(crate) fn offset_of(inner: &Inner<Hooked>, word: &Word) -> u64 {
    inner.base().region.offset_of(word).raw()
}

#[test]
fn visible_slab_has_a_clear_bitmap() {
    let pool = pool();
    let guard = pool.pin();
    let mut blocks = Vec::new();
    while let Ok(block) = guard.alloc(4096) {
        // Like the bitmaps of a slab: allocated, and not marked.
        block.write(0, &[0xff; 8]);
        block.write(8, &[0; 4088]);
        blocks.push(block);
    }
    drop(blocks);
    collection(&pool.0).start_marking();
    let units: BTreeMap<u64, u64> = pool
        .0
        .units()
        .all_units()
        .map(|unit| (offset_of(&pool.0, &pool.0.units().unit(unit).state), unit))
        .collect();
    let (collector, freed) = (pool.clone(), Rc::new(RefCell::new(Vec::new())));
    let sweep = {
        let freed = freed.clone();
        move |access, offset| {
            if let (Access::Store, Some(&unit)) = (access, units.get(&offset)) {
                let swept =
                    |state: UnitState| (state.usage(), collection(&collector.0).sweep_unit(unit, state));
                freed.borrow_mut().push(collector.0.units().inspect_unit(unit, swept));
            }
        }
    };
    hooked(sweep, || {
        pool.0.base().shared().reserve.store(pool.medium(), 0, Relaxed);
        pool.0.limbo().ensure_reserve();
        let _ = guard.alloc(64).unwrap().fenced_later().into_offset();
    });
    assert_eq!(*freed.borrow(), [(UnitUse::Reserve, (0, 0)), (UnitUse::Owned, (0, 0))]);
}

#[test]
fn granules_freed_during_snapshot_are_not_old_in_a_new_slab() {
    let pool = pool();
    let guard = pool.pin();
    let extent = guard.alloc(4096).unwrap().fenced_later().into_offset();
    let unit = pool.0.units().unit_at(extent).unwrap();
    let entry = pool.0.units().unit(unit);
    let taken = offset_of(&pool.0, &entry.taken);
    let [collector, other] = [pool.clone(), pool.clone()];
    collection(&pool.0).start_marking();
    let free = move |access, offset| {
        if (access, offset) == (Access::Load, taken)
            && other.0.units().unit(unit).link.load(other.medium(), Relaxed) != 0
        {
            assert!(other.0.heap().granules.free_extent(extent, 4096));
        }
    };
    hooked(free, || collection(&pool.0).snapshot_granules());
    assert_eq!(entry.taken.load(pool.medium(), Relaxed), 0);
    let exclude = move |access, offset| {
        if (access, offset) == (Access::Rmw, taken) {
            collection(&collector.0).exclude_freed_granules();
        }
    };
    pool.0.base().shared().slab_hint.store(pool.medium(), unit, Relaxed);
    hooked(exclude, || _ = guard.alloc(64).unwrap().fenced_later().into_offset());
    assert!(UnitState(entry.state.load(pool.medium(), Relaxed)).class().is_some());
    assert_eq!(entry.old.load(pool.medium(), Relaxed), 0);
}

#[test]
fn a_slab_that_is_not_given_back_after_all_has_no_old_granules() {
    let pool = pool();
    let guard = pool.pin();
    let unit = pool.0.units().unit_at(guard.alloc(64).unwrap().offset()).unwrap();
    let entry = pool.0.units().unit(unit);
    let (state, collector) = (offset_of(&pool.0, &entry.state), pool.clone());
    let record = move |access, offset| {
        let entry = collector.0.units().unit(unit);
        if (access, offset) == (Access::Store, state)
            && UnitState(entry.state.load(collector.medium(), Relaxed)).usage() == UnitUse::Granules
        {
            collection(&collector.0).snapshot_granules();
            collector.0.base().shared().sweeping.store(collector.medium(), unit + 1, SeqCst);
        }
    };
    hooked(record, || pool.0.heap().drain_caches(guard.thread_slot()));
    assert_eq!(UnitState(entry.state.load(pool.medium(), Relaxed)).usage(), UnitUse::Listed);
    assert_eq!(entry.old.load(pool.medium(), Relaxed), 0);
}

#[test]
fn release_waits_for_a_thread_that_disowns_slabs() {
    let (_directory, [leaver, other]) = participants::<Hooked, 2>(geometry());
    let guard = leaver.pin();
    let kept = guard.alloc(64).unwrap().fenced_later().into_offset();
    let slot = other.0.base().thread_slot(guard.slot_index() as u32);
    let caches: Vec<u64> = slot.caches.iter().map(|cache| offset_of(&other.0, &cache.place)).collect();
    drop(guard);
    let (emptied, looker) = (Rc::new(RefCell::new(Vec::new())), other.clone());
    let look = {
        let (emptied, at) = (emptied.clone(), other.0.base().index_of(slot) as u32);
        move |access, offset| {
            if access == Access::Store && caches.contains(&offset) {
                emptied.borrow_mut().push(
                    looker
                        .0
                        .epochs()
                        .is_pinned_before(looker.0.base().thread_slot(at), looker.0.epochs().epoch())
                        .is_some(),
                );
            }
        }
    };
    hooked(look, || leaver.close().unwrap());
    assert_eq!(*emptied.borrow(), [true], "a cache is drained, and a collector waits for it");
    other.request_collection();
    assert_eq!(other.collect(&mut |marker| marker.mark(kept, 64)).freed, 0);
    assert_eq!(other.verify_memory(), []);
}

#[test]
fn collector_sees_overflow_entry_whole_or_not_at_all() {
    let pool = pool();
    let guard = pool.pin();
    let sizes = [64, 3000];
    let blocks = sizes.map(|bytes| guard.alloc(bytes).unwrap().fenced_later().into_offset());
    let slot = guard.thread_slot();
    pool.0.limbo().push_overflow(slot, blocks[0], sizes[0] as u64, &recovering(&pool.0));
    let (seen, resume) = (mpsc::channel(), mpsc::channel());
    let (collector, word) = (pool.clone(), offset_of(&pool.0, &slot.overflow[0][0]));
    let marked = std::thread::scope(|scope| {
        let marking = scope.spawn(move || {
            let look = move |access, offset| {
                if (access, offset) == (Access::Load, word) {
                    seen.0.send(()).unwrap();
                    // The owner may have to wait until all is marked.
                    let _ = resume.1.recv_timeout(Duration::from_millis(100));
                }
            };
            let marked = RefCell::new(Vec::new());
            hooked(look, || {
                let mark = |offset, bytes| marked.borrow_mut().push((offset, bytes));
                collector.0.limbo().mark_limbo(&mark, &|_| false).unwrap();
            });
            marked.into_inner()
        });
        seen.1.recv().unwrap();
        assert_eq!(pool.0.limbo().move_overflow_to_chunks(slot, &recovering(&pool.0)), 0);
        pool.0.limbo().push_overflow(slot, blocks[1], sizes[1] as u64, &recovering(&pool.0));
        let _ = resume.0.send(());
        marking.join().unwrap()
    });
    assert!(marked.contains(&(blocks[0], sizes[0] as u64)), "{marked:x?}");
    assert!(!marked.contains(&(blocks[0], sizes[1] as u64)), "{marked:x?}");
}

#[test]
fn recount_fails_while_a_new_thread_drains_a_cache() {
    let pool = pool();
    let guard = pool.pin();
    let offset = guard.alloc(64).unwrap().fenced_later().into_offset();
    let index = guard.slot_index() as u32;
    drop(guard);
    let number = pool.0.units().classes.of(64).unwrap();
    let pin = offset_of(&pool.0, &pool.0.base().thread_slot(index).pin);
    let taken = offset_of(&pool.0, pool.0.units().allocated_word(pool.0.units().unit_at(offset).unwrap(), 0));
    let (owner, medium) = (pool.clone(), pool.clone());
    let mut had = None;
    let empty = move |access, offset| {
        let (inner, medium) = (&*owner.0, medium.medium());
        let slot = inner.base().thread_slot(index);
        let free = &slot.caches[number].free;
        match had {
            // The thread begins to drain the cache,
            None if (access, offset) == (Access::Load, pin) => {
                inner.epochs().set_pin(slot, inner.epochs().barrier_flag() | 1);
                had = Some(free.swap(medium, 0, Relaxed));
            }
            // and continues to the end.
            Some(bits) if bits != 0 && (access, offset) == (Access::Load, taken) => {
                free.store(medium, bits, Relaxed);
                inner.heap().drain_caches(slot);
                inner.epochs().clear_pin(slot, 0);
                had = Some(0);
            }
            _ => {}
        }
    };
    let is_counted = hooked(empty, || pool.0.limbo().recount_if_quiet());
    assert!(!is_counted || pool.verify_memory().is_empty(), "{:?}", pool.verify_memory());
}
