//! The names that the product gives to its accesses: see [`Medium::point`](terrace_medium::Medium::point).
//!
//! The outermost medium of a thread keeps them: it says when a name is given, and when an access begins. The media below ask for the name of the access under way.

use std::cell::Cell;
use terrace_medium::{Access, Order};

type Name = Option<&'static str>;

thread_local! {
    /// The name of the thread's next access, and of the one that it does now.
    static NEXT: Cell<Name> = const { Cell::new(None) };
    static CURRENT: Cell<Name> = const { Cell::new(None) };
}

/// This thread's next access has this name.
pub(crate) fn give(name: &'static str) {
    NEXT.set(Some(name));
}

/// This thread asks for durability.
pub(crate) fn begin() {
    CURRENT.set(NEXT.take());
}

/// This thread begins an access that has an order, or a barrier.
pub(crate) fn ordered(order: Order) {
    // One that has failed goes on as a load.
    if !matches!(order, Order::RmwFailed(_)) {
        begin();
    }
}

/// This thread begins an access.
pub(crate) fn accesses(access: Access) {
    // That of a word has an order, and has begun with that.
    if matches!(access, Access::Copy(_) | Access::StreamedCopy(_) | Access::Read(_)) {
        begin();
    }
}

/// The name of the access that this thread does, or did last.
pub(crate) fn current() -> Name {
    CURRENT.get()
}
