//! Simulated participants of one pool: they all live in this process and are declared dead on
//! demand.

use crate::schedule::pause;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_pool::Liveness;

/// A group of participants. Clones refer to the same group.
#[derive(Clone, Default)]
pub struct ProcessGroup(Arc<Mutex<Register>>);

#[derive(Default)]
struct Register {
    members: u64,
    /// The member with each entry of the participant table.
    places: BTreeMap<u32, u64>,
    dead: BTreeSet<u64>,
    /// The member that is opening or closing the pool.
    in_open_section: Option<u64>,
    /// Called in each thread that observes a crash.
    on_crash: Option<Arc<dyn Fn(u64) + Send + Sync>>,
}

impl ProcessGroup {
    /// Adds a member, which is alive. Returns its number, counted from 0, and its view of the
    /// group.
    pub fn add(&self) -> (u64, Arc<GroupLiveness>) {
        let mut register = self.register();
        let number = register.members;
        register.members += 1;
        (number, Arc::new(GroupLiveness { group: self.clone(), number }))
    }

    /// Declares a member dead, for good. The caller guarantees that it stores nothing more.
    pub fn declare_dead(&self, number: u64) {
        let mut register = self.register();
        register.dead.insert(number);
        register.in_open_section.take_if(|there| *there == number);
    }

    /// Sets a callback for observed crashes. It is called with the number of the dead member, in
    /// each thread that learns of the crash: by a failed liveness check or by taking over the
    /// member's entry.
    pub fn on_crash_observed(&self, on_crash: impl Fn(u64) + Send + Sync + 'static) {
        self.register().on_crash = Some(Arc::new(on_crash));
    }

    /// Notifies the current thread that `holder` is dead, if it is.
    fn notify_if_dead(register: MutexGuard<'_, Register>, holder: Option<u64>) {
        let dead = holder.filter(|holder| register.dead.contains(holder));
        let on_crash = register.on_crash.clone();
        drop(register);
        if let (Some(dead), Some(on_crash)) = (dead, on_crash) {
            on_crash(dead);
        }
    }

    /// The dead members.
    pub fn dead(&self) -> BTreeSet<u64> {
        self.register().dead.clone()
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One member's view of the group: the [`Liveness`] with which it opens the pool.
pub struct GroupLiveness {
    group: ProcessGroup,
    number: u64,
}

impl Liveness for GroupLiveness {
    fn claim(&self, index: u32) -> io::Result<bool> {
        let mut register = self.group.register();
        let holder = register.places.get(&index).copied();
        let is_free = holder.is_none_or(|holder| holder == self.number || register.dead.contains(&holder));
        if is_free {
            register.places.insert(index, self.number);
        }
        ProcessGroup::notify_if_dead(register, holder);
        Ok(is_free)
    }

    fn release(&self, index: u32) {
        let mut register = self.group.register();
        if register.places.get(&index) == Some(&self.number) {
            register.places.remove(&index);
        }
    }

    fn is_alive(&self, index: u32) -> bool {
        let register = self.group.register();
        let holder = register.places.get(&index).copied();
        let is_alive = holder.is_some_and(|holder| holder != self.number && !register.dead.contains(&holder));
        ProcessGroup::notify_if_dead(register, holder);
        is_alive
    }

    fn enter(&self) -> io::Result<()> {
        while *self.group.register().in_open_section.get_or_insert(self.number) != self.number {
            pause();
        }
        Ok(())
    }

    fn leave(&self) {
        self.group.register().in_open_section.take_if(|there| *there == self.number);
    }
}

impl Drop for GroupLiveness {
    fn drop(&mut self) {
        let mut register = self.group.register();
        register.places.retain(|_, holder| *holder != self.number);
        register.in_open_section.take_if(|there| *there == self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::Memory;
    use std::sync::atomic::Ordering::Relaxed;
    use terrace_medium::{Offset, Word};
    use terrace_pool::{Geometry, Lock, Pool, PoolOptions, Problem};

    type Shared = Memory<false>;

    fn options() -> PoolOptions {
        PoolOptions::anonymous().geometry(Geometry::tiny()).boot_id(1)
    }

    fn medium() -> Shared {
        Memory::zeroed(64 << 10, 64 << 10).unwrap()
    }

    /// Two members that share a new pool, and their numbers.
    fn pair(group: &ProcessGroup) -> [(u64, Pool<Shared>); 2] {
        let (medium, (first, one), (second, two)) = (medium(), group.add(), group.add());
        let one = options().create_shared_on(medium.clone(), one).unwrap();
        [(first, one), (second, options().share_on(medium, two).unwrap())]
    }

    fn word(pool: &Pool<Shared>) -> &Word {
        let offset = pool.root("word", "test").unwrap().unwrap_or_else(|| {
            let block = pool.pin().alloc(8).unwrap().persist().into_offset();
            pool.set_root("word", "test", block).unwrap();
            block
        });
        pool.region().at(Offset::new(offset))
    }

    #[test]
    fn pool_without_a_common_kernel_can_be_shared() {
        let (group, medium) = (ProcessGroup::default(), medium());
        let one = options().create_shared_on(medium.clone(), group.add().1).unwrap();
        let (second, member) = group.add();
        assert!(!member.has_common_kernel());
        let two = options().share_on(medium.clone(), member).unwrap();
        assert_eq!((one.owner().participant, two.owner().participant, two.generation()), (0, 1, 1));
        assert_eq!((one.other_participants().len(), two.other_participants().len()), (1, 1));
        word(&one).store(one.medium(), 0, Relaxed);
        let lock = Lock::of(word(&two));
        std::mem::forget(lock.acquire(&two.pin()));
        assert_eq!((one.recover_dead(), Lock::of(word(&one)).is_held(&one)), (0, true));
        group.declare_dead(second);
        assert_eq!((one.recover_dead(), Lock::of(word(&one)).is_held(&one)), (1, false));
        assert!(one.other_participants().is_empty());
        let three = options().share_on(medium.clone(), group.add().1).unwrap();
        assert_eq!((three.owner().participant, three.owner().incarnation), (1, 2));
        two.abandon();
        one.close().unwrap();
        three.close().unwrap();
        let alone = options().share_on(medium, group.add().1).unwrap();
        assert_eq!((alone.generation(), alone.found()), (2, terrace_pool::Start::Clean));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "it crashes while the other one is waiting for it")]
    fn memory_wait_observes_a_crash() {
        let group = ProcessGroup::default();
        let [(_, one), (second, two)] = pair(&group);
        std::mem::forget(two.pin());
        loop {
            let guard = one.pin();
            let Ok(block) = guard.alloc(64) else { break };
            guard.retire(block.persist().into_offset(), 64);
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(30));
                group.declare_dead(second);
            });
            assert!(one.reclaim_blocking());
        });
        assert_eq!(one.recover_dead(), 0, "it has been recovered already");
        drop(one.pin().alloc(64).unwrap());
        two.abandon();
        one.close().unwrap();
    }

    #[test]
    fn elected_process_stays_until_its_crash() {
        let group = ProcessGroup::default();
        let [(first, one), (_, two)] = pair(&group);
        let (ones, twos) = (Lock::of(word(&one)), Lock::of(word(&two)));
        word(&one).store(one.medium(), 0, Relaxed);
        for _ in 0..2 {
            assert!(ones.hold_for_process(&one) && !twos.hold_for_process(&two));
        }
        group.declare_dead(first);
        for _ in 0..2 {
            assert!(twos.hold_for_process(&two));
        }
        one.abandon();
        two.close().unwrap();
    }

    #[test]
    fn recovery_releases_only_locks_of_the_dead() {
        let group = ProcessGroup::default();
        let [(_, one), (second, two)] = pair(&group);
        let lock = Lock::of(word(&one));
        word(&one).store(one.medium(), 0, Relaxed);
        lock.recover_if_dead(&one.pin());
        std::mem::forget(Lock::of(word(&two)).acquire(&two.pin()));
        lock.recover_if_dead(&one.pin());
        assert!(lock.is_held(&one) && lock.try_acquire(&one.pin()).is_none());
        group.declare_dead(second);
        lock.recover_if_dead(&one.pin());
        assert!(!lock.is_held(&one));
        lock.try_acquire(&one.pin()).unwrap().release();
        two.abandon();
        one.close().unwrap();
    }

    #[test]
    fn full_table_error_names_the_participants() {
        let (group, medium) = (ProcessGroup::default(), medium());
        let first = options().create_shared_on(medium.clone(), group.add().1).unwrap();
        let join = || options().share_on(medium.clone(), group.add().1);
        let others: Vec<_> = (1..4).map(|_| join().unwrap()).collect();
        let refused = join().err().unwrap().problem;
        assert!(matches!(refused, Problem::Crowded(holders) if holders.len() == 4));
        others.into_iter().for_each(|other| other.close().unwrap());
        assert_eq!(join().unwrap().owner().participant, 1);
        drop(first);
    }

    #[test]
    fn liveness_check_and_takeover_observe_a_crash() {
        let group = ProcessGroup::default();
        let observed = Arc::new(Mutex::new(Vec::new()));
        let observer = observed.clone();
        group.on_crash_observed(move |dead| observer.lock().unwrap().push(dead));
        let [(first, one), (_, two), (_, three)] = [(); 3].map(|()| group.add());
        assert!(one.claim(0).unwrap() && two.claim(1).unwrap() && two.is_alive(0));
        assert!(!three.is_alive(2));
        assert_eq!(*observed.lock().unwrap(), [0; 0], "all are alive");
        group.declare_dead(first);
        assert!(!two.is_alive(0));
        assert_eq!(std::mem::take(&mut *observed.lock().unwrap()), [first]);
        assert!(three.claim(0).unwrap() && two.is_alive(0));
        assert_eq!(*observed.lock().unwrap(), [first]);
    }

    #[test]
    fn crash_in_the_open_section_unblocks_the_next() {
        let group = ProcessGroup::default();
        let ((first, one), (_, two)) = (group.add(), group.add());
        one.enter().unwrap();
        group.declare_dead(first);
        two.enter().unwrap();
        one.leave();
        assert_eq!(group.register().in_open_section, Some(1));
        assert!(two.claim(3).unwrap() && !two.is_alive(3));
        assert_eq!(group.dead(), [0].into());
    }
}
