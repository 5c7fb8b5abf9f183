//! The state of Lua that each thread has.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use terrace_script::Machine;

use crate::state::failure::Failure;

thread_local! {
    /// The state of Lua of this thread, while no script runs.
    static MACHINE: RefCell<Option<Box<Kept>>> = const { RefCell::new(None) };
}

/// Bytes of memory of the states of Lua of this process.
static LUA_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of memory of the states of Lua, without what running scripts have added.
pub(in crate::command) fn lua_bytes() -> u64 {
    // ORDER: Relaxed, all: a statistic.
    LUA_BYTES.load(Relaxed) as u64
}

/// A state of Lua, and its part of [`LUA_BYTES`].
struct Kept {
    machine: Machine,
    counted: usize,
}

impl Kept {
    fn new() -> Result<Box<Kept>, String> {
        let mut kept = Box::new(Kept { machine: Machine::new()?, counted: 0 });
        kept.count(kept.machine.used_memory());
        Ok(kept)
    }

    fn count(&mut self, bytes: usize) {
        // Before the old part goes, so that the sum is never negative.
        LUA_BYTES.fetch_add(bytes, Relaxed);
        LUA_BYTES.fetch_sub(std::mem::replace(&mut self.counted, bytes), Relaxed);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// Calls `body` with this thread's state of Lua.
pub(in crate::command) fn with_machine<R>(body: impl FnOnce(&Machine) -> R) -> Result<R, Failure> {
    let kept = MACHINE.with_borrow_mut(Option::take);
    let made = kept.map_or_else(Kept::new, Ok);
    let mut kept =
        made.map_err(|error| Failure::Made(format!("ERR cannot start Lua: {error}").into_bytes().into()))?;
    let result = body(&kept.machine);
    if !kept.machine.is_spoilt() {
        let used = kept.machine.used_memory();
        if used != kept.counted {
            kept.count(used);
        }
        MACHINE.with_borrow_mut(|place| *place = Some(kept));
    }
    Ok(result)
}
