//! Mutexes that other threads go on to use after a panic of their holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also one whose holder has panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
