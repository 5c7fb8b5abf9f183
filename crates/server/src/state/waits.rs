//! Why the next command of a connection waits, and how it will run then.

use std::sync::Arc;

use super::{
    flow::Flow,
    lines::{InLine, Lines},
};

/// The waiting of a connection's next command. It owns the command's place in the line of a slot.
#[derive(Default)]
pub(crate) struct Waits {
    /// When the command was first put off because its slot is being moved, or because it must run
    /// alone, or is a long script.
    since_ms: Option<u64>,
    /// Its place among those that wait for its slot.
    in_line: Option<InLine>,
    /// Whether a script that takes long is put off: the thread serves other connections, too.
    may_put_off: bool,
    /// The next step, because the command was put off and had no effect.
    put_off: Option<Flow>,
    /// Whether the next transaction runs alone at once: another one did when it had to.
    alone_next: bool,
    /// Whether the command, a transaction, only removes and has found no room to do so at once: see
    /// `removals.rs`.
    makes_room: bool,
    /// Whether no other command runs while the present one does.
    is_alone: bool,
}

impl Waits {
    /// When the command was first put off, if it was.
    pub(crate) fn since_ms(&self) -> Option<u64> {
        self.since_ms
    }

    /// The command waits from now on, unless it waits already. Returns since when.
    pub(crate) fn begin(&mut self, now_ms: u64) -> u64 {
        *self.since_ms.get_or_insert(now_ms)
    }

    /// As [`Waits::begin`]. The clock may have been set back: the command then waits from now on.
    pub(crate) fn begin_again(&mut self, now_ms: u64) -> u64 {
        let since_ms = self.since_ms.map_or(now_ms, |since_ms| since_ms.min(now_ms));
        self.since_ms = Some(since_ms);
        since_ms
    }

    /// The command waits no more.
    pub(crate) fn end(&mut self) {
        self.since_ms = None;
        self.in_line = None;
        self.makes_room = false;
    }

    /// Whether the thread serves other connections, so a script that takes long is put off.
    pub(crate) fn may_put_off(&self) -> bool {
        self.may_put_off
    }

    /// Sets [`Waits::may_put_off`].
    pub(crate) fn allow_put_off(&mut self, allowed: bool) {
        self.may_put_off = allowed;
    }

    /// Puts the command off. It has had no effect.
    pub(crate) fn put_off(&mut self, next: Flow) {
        self.put_off = Some(next);
    }

    /// Puts off a script that takes long.
    pub(crate) fn put_off_script(&mut self, now_ms: u64) {
        self.begin(now_ms);
        self.put_off(Flow::Script);
    }

    /// Puts off a transaction that has to run alone while another one does.
    pub(crate) fn put_off_to_be_alone(&mut self) {
        self.put_off(Flow::Later);
        self.alone_next = true;
    }

    /// Puts off a transaction that only removes and found no room: it is to make room.
    pub(crate) fn put_off_to_make_room(&mut self) {
        debug_assert!(!self.makes_room, "a transaction that makes room fails for want of it");
        self.put_off(Flow::Later);
        self.makes_room = true;
    }

    /// Whether the command was put off.
    pub(crate) fn is_put_off(&self) -> bool {
        self.put_off.is_some()
    }

    /// The next step after a command that was put off.
    pub(crate) fn take_put_off(&mut self) -> Flow {
        self.put_off.take().unwrap_or(Flow::Later)
    }

    /// Whether this transaction is to run alone at once. The next one is not.
    pub(crate) fn take_alone_next(&mut self) -> bool {
        std::mem::take(&mut self.alone_next)
    }

    /// Whether the command, a transaction, only removes and has found no room to do so at once.
    pub(crate) fn makes_room(&self) -> bool {
        self.makes_room
    }

    /// Whether no other command runs while the present one does.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Sets [`Waits::is_alone`], for the command that runs next.
    pub(crate) fn set_alone(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
    }

    /// The command's place in the line of a slot.
    pub(crate) fn in_line(&self) -> Option<&InLine> {
        self.in_line.as_ref()
    }

    /// Puts the command at the end of the line of its slot, unless it has a place already.
    pub(crate) fn join_line(&mut self, lines: &Arc<Lines>, slot: u16, now_ms: u64) {
        if self.in_line.as_ref().is_none_or(|place| !place.is_of(slot)) {
            // The old place goes first: a command has one.
            self.in_line = None;
            self.in_line = Some(lines.join(slot, now_ms));
        }
    }
}
