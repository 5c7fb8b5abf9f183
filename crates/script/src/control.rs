//! What ends a run before its script does: a limit, or a word from another thread.
//!
//! A hook of Lua's looks every [`STEP`] instructions. It does not run inside a function written in
//! C, so one call of `string.find` with a pattern that backtracks, or of `table.sort`, can take as
//! long as it wants.

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
    /// Instructions after which the host wants to run the script elsewhere.
    pub budget: u64,
}

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
        self.limits.set(limits);
        self.flag.replace(flag.clone());
        self.resp3.set(false);
    }

    /// Counts instructions. Returns whether the run has to end.
    pub(crate) fn tick(&self) -> Option<Stop> {
        let executed = self.executed.get() + u64::from(STEP);
        self.executed.set(executed);
        let Limits { budget, instructions, .. } = self.limits.get();
        let over = |limit: u64| limit > 0 && executed >= limit;
        let found = match () {
            () if self.stop.get().is_some() => self.stop.get(),
            () if over(budget) => Some(Stop::OverBudget),
            () if over(instructions) => Some(Stop::OverLimit),
            () => self.flag.borrow().read(),
        };
        self.stop.set(found);
        found
    }

    /// Counts a command as so many instructions.
    pub(crate) fn charge(&self, instructions: u64) {
        self.executed.set(self.executed.get() + instructions);
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
