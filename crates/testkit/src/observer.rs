//! What the layers of a stack of media hear of calls and crashes.

use terrace_medium::MappedMedium;

/// A violation, described by the layer or judge that has found it.
pub type Violation = String;

/// A medium that is also notified of calls and crashes.
pub trait CallObserver: MappedMedium {
    /// A call begins or has returned.
    fn mark_call(&self, _mark: u64) {}
    /// A thread of a scheduler has crashed.
    fn died(&self, _thread: usize) {}
    /// This thread observes a crash: from now on it sees everything that the dead thread did.
    fn crash_observed(&self, _dead: usize) {}
    /// Revokes the last store to the word at this offset; the word keeps this value.
    fn unmake(&self, _at: u64, _value: u64) {}
    /// The failure found by this layer, if any.
    fn wrong(&self) -> Option<Violation> {
        None
    }
}
