//! Flags of a thread, set for as long as a piece of work takes.

use std::cell::Cell;
use std::thread::LocalKey;

/// A flag of this thread that is set. It is as before once this is dropped, also by a panic.
pub(crate) struct Set(&'static LocalKey<Cell<bool>>, bool);

impl Set {
    pub(crate) fn new(flag: &'static LocalKey<Cell<bool>>) -> Self {
        Self(flag, flag.replace(true))
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}
