//! Tests of `liveness`.

use super::*;

impl FileLocks {
    /// The same, with a directory laid out like /proc in place of the real one. For tests.
    pub(crate) fn seeing(self, proc: &std::path::Path) -> Self {
        Self { proc: proc.into(), ..self }
    }
}

fn two() -> [FileLocks; 2] {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    [(), ()].map(|()| FileLocks::new(File::options().read(true).write(true).open(file.path()).unwrap()))
}

#[test]
fn slot_is_held_until_released_or_dropped() {
    let [one, two] = two();
    assert!(one.claim(3).unwrap() && !two.claim(3).unwrap() && two.claim(4).unwrap());
    assert!(two.is_alive(3) && one.is_alive(4) && !one.is_alive(5));
    one.release(3);
    assert!(!two.is_alive(3) && two.claim(3).unwrap());
    drop(two);
    // A child that another test is just forking may briefly have a copy of the handle.
    let are_gone = |_| {
        std::thread::yield_now();
        !one.is_alive(3) && !one.is_alive(4)
    };
    assert!((0..100_000).any(are_gone));
}

#[test]
fn lock_bytes_never_change() {
    let places = [
        LockByte::Gate,
        LockByte::Sharers,
        LockByte::Readers,
        LockByte::Participant(0),
        LockByte::Participant(7),
    ];
    assert_eq!(places.map(|place| place.byte() - (1 << 62)), [0, 1, 2, 16, 23]);
}

/// A liveness with a fixed set of live participants.
pub(crate) struct FixedLiveness(pub(crate) &'static [u32]);

impl Liveness for FixedLiveness {
    fn claim(&self, index: u32) -> io::Result<bool> {
        Ok(!self.is_alive(index))
    }
    fn release(&self, _: u32) {}
    fn is_alive(&self, index: u32) -> bool {
        self.0.contains(&index)
    }
    fn enter(&self) -> io::Result<()> {
        Ok(())
    }
    fn leave(&self) {}
}

#[test]
fn default_liveness_knows_no_exit_and_no_common_kernel() {
    let fixed = FixedLiveness(&[0]);
    assert!(!fixed.is_exiting(0, std::process::id()) && !fixed.has_common_kernel());
}

#[test]
fn release_all_frees_locks_despite_duplicated_handle() {
    let [one, two] = two();
    let copy = one.file.try_clone().unwrap();
    let places = [LockByte::Gate, LockByte::Sharers, LockByte::Participant(3)];
    assert!(places.iter().all(|&place| one.try_hold(LockKind::Exclusive, place).unwrap()));
    release_all(&one.file);
    drop(one);
    assert!(places.iter().all(|&place| !two.is_held(place).unwrap()));
    drop(copy);
}

#[test]
fn sharers_do_not_exclude_each_other() {
    let [one, two] = two();
    assert!(one.try_hold(LockKind::Shared, LockByte::Sharers).unwrap());
    assert!(two.try_hold(LockKind::Shared, LockByte::Sharers).unwrap());
    assert!(two.is_held(LockByte::Sharers).unwrap() && !two.is_held(LockByte::Readers).unwrap());
}

#[test]
fn gate_admits_one_at_a_time() {
    let [one, two] = two();
    one.enter().unwrap();
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| two.enter().unwrap());
        std::thread::yield_now();
        assert!(!waiting.is_finished());
        one.leave();
    });
    assert!(one.is_held(LockByte::Gate).unwrap());
}
