//! Lets one command run while no other one does.
//!
//! Each thread that executes commands has a [`Turn`] of its own, so that none waits for another one
//! to enter the gate. A command that must be alone closes the gate and waits for all turns.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
};

use crate::state::clock::precise_ns;

/// Nanoseconds for which the gate stays closed while a command of before runs on. All others wait.
const PATIENCE_NS: u64 = 5_000_000;

/// What a thread holds while it executes a command.
#[derive(Debug, Default)]
pub(crate) struct Turn(Mutex<()>);

/// The gate of a server's commands.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    /// Held while the gate is closed.
    alone: Mutex<()>,
}

impl Gate {
    /// Waits while the gate is closed, and begins a turn.
    pub(crate) fn enter<'t>(&self, turn: &'t Turn) -> MutexGuard<'t, ()> {
        loop {
            let inside = lock(&turn.0);
            // ORDER: Acquire: pairs with the end of `Alone`. Either this thread has the turn after
            // `close`, and so sees the gate closed, or `close` waits for the turn.
            if !self.is_closed.load(Acquire) {
                return inside;
            }
            drop(inside);
            drop(lock(&self.alone));
        }
    }

    /// Closes the gate, and waits until no turn of `turns` is held. The caller holds none. Fails,
    /// with the gate open again, if a command takes long: a script may have no end.
    pub(crate) fn close(&self, turns: impl FnOnce() -> Vec<Arc<Turn>>) -> Option<Alone<'_>> {
        let alone = Alone { gate: self, _guard: lock(&self.alone) };
        // ORDER: Relaxed: the locks of the turns order it.
        self.is_closed.store(true, Relaxed);
        let deadline = precise_ns() + PATIENCE_NS;
        turns().iter().all(|turn| ends_by(turn, deadline)).then_some(alone)
    }
}

/// Waits until a turn is not held. Returns whether that was so in time.
fn ends_by(turn: &Turn, deadline: u64) -> bool {
    while let Err(TryLockError::WouldBlock) = turn.0.try_lock() {
        if precise_ns() > deadline {
            return false;
        }
        thread::yield_now();
    }
    true
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    // It protects no data.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The gate is closed.
pub(crate) struct Alone<'g> {
    gate: &'g Gate,
    _guard: MutexGuard<'g, ()>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // ORDER: Release: pairs with `enter`: the next commands see what this one has done.
        self.gate.is_closed.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Two numbers that change together while the gate is closed are never seen apart.
    #[test]
    fn closed_gate_keeps_others_out() {
        let (gate, numbers) = (Gate::default(), [AtomicU64::new(0), AtomicU64::new(0)]);
        let turns: [Arc<Turn>; 3] = Default::default();
        std::thread::scope(|scope| {
            for turn in &turns {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _inside = gate.enter(turn);
                        let [one, other] = [0, 1].map(|nth| numbers[nth].load(Relaxed));
                        assert_eq!(one, other);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _alone = until(|| gate.close(|| turns.to_vec()));
                        numbers.iter().for_each(|number| number.store(number.load(Relaxed) + 1, Relaxed));
                    }
                });
            }
        });
        assert_eq!(numbers[0].load(Relaxed), 400);
    }

    fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
        std::iter::repeat_with(&mut attempt).flatten().next().expect("it repeats")
    }

    #[test]
    fn gate_opens_again_if_a_turn_does_not_end() {
        let (gate, turns) = (Gate::default(), [Arc::new(Turn::default()), Arc::default()]);
        let inside = gate.enter(&turns[0]);
        assert!(gate.close(|| turns.to_vec()).is_none());
        drop(gate.enter(&turns[1]));
        drop(inside);
        assert!(gate.close(|| turns.to_vec()).is_some());
        drop(gate.enter(&turns[1]));
    }
}
