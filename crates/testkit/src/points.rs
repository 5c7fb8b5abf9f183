//! The names that the product gives to its accesses: see
//! [`Medium::point`](terrace_medium::Medium::point).
//!
//! The outermost medium of a thread records when a name is given and when an access begins. The
//! media below ask for the name of the current access.

use std::cell::Cell;
use terrace_medium::{Access, Order};

type Name = Option<&'static str>;

thread_local! {
    /// The names of the thread's next access and of its current one.
    static NEXT: Cell<Name> = const { Cell::new(None) };
    static CURRENT: Cell<Name> = const { Cell::new(None) };
}

/// Names this thread's next access.
pub(crate) fn give(name: &'static str) {
    NEXT.set(Some(name));
}

/// Begins a request for durability by this thread.
pub(crate) fn begin() {
    CURRENT.set(NEXT.take());
}

/// Begins an access with an ordering, or a barrier, by this thread.
pub(crate) fn ordered(order: Order) {
    // A failed one continues as a load.
    if !matches!(order, Order::RmwFailed(_)) {
        begin();
    }
}

/// Begins an access by this thread.
pub(crate) fn accesses(access: Access) {
    // An access to a word has an ordering, and has begun with that.
    if matches!(access, Access::Copy(_) | Access::StreamedCopy(_) | Access::Read(_)) {
        begin();
    }
}

/// The name of this thread's current or last access.
pub(crate) fn current() -> Name {
    CURRENT.get()
}
