//! What ends a run before its script does: a limit, or a word from another thread.
//!
//! A hook of Lua's looks every [`STEP`] instructions. It does not run inside a function written in
//! C, so the functions that can take long are written anew: they count their work as instructions.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

/// Instructions between two looks.
pub(crate) const STEP: u32 = 2000;

/// Why a run was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// By [`StopFlag::kill`].
    Killed,
    /// By [`StopFlag::shut_down`].
    ShutDown,
    /// It executed more instructions than [`Limits::budget`].
    OverBudget,
    /// It executed more instructions than [`Limits::instructions`].
    OverLimit,
    /// The host has given it up.
    Abandoned,
}

/// The limits of a run. Zero: none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Bytes of memory of the state.
    pub memory: usize,
    /// Instructions.
    pub instructions: u64,
    /// Instructions after which the host wants to run the script elsewhere. It then wants so, too,
    /// if the run takes more than `SOON_MS` or `SOON_BYTES`.
    pub budget: u64,
}

/// Maximum number of results of a function of ours: Lua's stack has 8,000 places for a function,
/// and `mlua` has as many for values that functions hold.
pub(crate) const RESULTS_MOST: usize = 7000;
/// Milliseconds of CPU time of a run with a budget.
const SOON_MS: u64 = 20;
/// Bytes of memory of a run with a budget. So no single instruction of Lua takes long.
pub(crate) const SOON_BYTES: usize = 4 << 20;

/// Ends a run from another thread.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicU8>);

impl StopFlag {
    /// Ends the run with [`Stop::Killed`].
    pub fn kill(&self) {
        // ORDER: Relaxed, here and below: the flag publishes nothing else.
        self.0.store(1, Relaxed);
    }

    /// Ends the run with [`Stop::ShutDown`].
    pub fn shut_down(&self) {
        self.0.store(2, Relaxed);
    }

    /// Why the run is to end, if it is.
    pub fn read(&self) -> Option<Stop> {
        match self.0.load(Relaxed) {
            0 => None,
            1 => Some(Stop::Killed),
            _ => Some(Stop::ShutDown),
        }
    }
}

/// The state of one run that its hook and its functions share.
#[derive(Default)]
pub(crate) struct Control {
    stop: Cell<Option<Stop>>,
    executed: Cell<u64>,
    /// What was executed when it was last looked whether the run has to end.
    looked: Cell<u64>,
    /// The thread's CPU time at the first look, if the run has a budget.
    began_ms: Cell<Option<u64>>,
    limits: Cell<Limits>,
    flag: RefCell<StopFlag>,
    /// Whether replies of commands come in RESP3.
    pub(crate) resp3: Cell<bool>,
}

impl Control {
    /// Begins a run.
    pub(crate) fn begin(&self, limits: Limits, flag: &StopFlag) {
        self.stop.set(flag.read());
        self.executed.set(0);
        self.looked.set(0);
        self.began_ms.set(None);
        self.limits.set(limits);
        self.flag.replace(flag.clone());
        self.resp3.set(false);
    }

    /// Counts the instructions between two looks. Returns whether the run has to end.
    pub(crate) fn tick(&self) -> Option<Stop> {
        self.executed.set(self.executed.get().saturating_add(u64::from(STEP)));
        self.look()
    }

    /// Counts the work of a function as so many instructions. Fails if the run has to end.
    pub(crate) fn work(&self, instructions: u64) -> Result<(), Stop> {
        self.executed.set(self.executed.get().saturating_add(instructions));
        if self.executed.get() - self.looked.get() < u64::from(STEP) {
            return Ok(());
        }
        self.look().map_or(Ok(()), Err)
    }

    fn look(&self) -> Option<Stop> {
        let executed = self.executed.get();
        self.looked.set(executed);
        let Limits { budget, instructions, .. } = self.limits.get();
        let over = |limit: u64| limit > 0 && executed >= limit;
        let found = match () {
            () if self.stop.get().is_some() => self.stop.get(),
            () if over(budget) => Some(Stop::OverBudget),
            () if over(instructions) => Some(Stop::OverLimit),
            () if budget > 0 && self.took_ms() > SOON_MS => Some(Stop::OverBudget),
            () => self.flag.borrow().read(),
        };
        self.stop.set(found);
        found
    }

    /// CPU time since the first look: other threads of the machine do not count.
    fn took_ms(&self) -> u64 {
        let now_ms = cpu_ms();
        let began_ms = self.began_ms.get().unwrap_or(now_ms);
        self.began_ms.set(Some(began_ms));
        now_ms.saturating_sub(began_ms)
    }

    /// Whether a function may make so many bytes outside of the state's memory.
    pub(crate) fn has_room(&self, bytes: usize) -> Result<(), ()> {
        let Limits { memory, budget, .. } = self.limits.get();
        let most = if budget > 0 { SOON_BYTES } else { memory };
        if most == 0 || bytes <= most {
            return Ok(());
        }
        self.out_of_memory();
        Err(())
    }

    /// A script with a budget that has run out of memory has more elsewhere.
    pub(crate) fn out_of_memory(&self) {
        if self.limits.get().budget > 0 && self.stop.get().is_none() {
            self.stop.set(Some(Stop::OverBudget));
        }
    }

    pub(crate) fn stop(&self, why: Stop) {
        self.stop.set(Some(why));
    }

    /// Why the run has to end, if it has to.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.stop.get()
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits.get()
    }
}

/// Milliseconds of CPU time of this thread.
fn cpu_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
}
