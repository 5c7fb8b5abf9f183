//! The ledger of a memory node, kept through its deaths.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use terrace_cluster::arbiter::{Incarnation, Ledger};
use terrace_cluster::slot::SlotRange;

/// The memory node's durable part.
#[derive(Default)]
pub(crate) struct Table {
    last: Incarnation,
    sessions: BTreeMap<Incarnation, (String, bool)>,
    owners: BTreeMap<u16, Incarnation>,
    lease: Duration,
}

#[derive(Clone, Default)]
pub(crate) struct Kept(Rc<RefCell<Table>>);

impl Ledger for Kept {
    fn begin_session(&mut self, node: &str) -> Incarnation {
        let mut table = self.0.borrow_mut();
        table.last += 1;
        let session = table.last;
        table.sessions.insert(session, (node.into(), false));
        session
    }
    fn fence(&mut self, session: Incarnation) {
        self.0.borrow_mut().sessions.get_mut(&session).expect("a session").1 = true;
    }
    fn end_session(&mut self, session: Incarnation) {
        let mut table = self.0.borrow_mut();
        table.sessions.remove(&session);
        table.owners.retain(|_, owner| *owner != session);
    }
    fn sessions(&self) -> Vec<(Incarnation, String, bool)> {
        let table = self.0.borrow();
        table.sessions.iter().map(|(id, (node, fenced))| (*id, node.clone(), *fenced)).collect()
    }
    fn owner(&self, slot: u16) -> Option<Incarnation> {
        self.0.borrow().owners.get(&slot).copied()
    }
    fn set_owner(&mut self, ranges: &[SlotRange], owner: Option<Incarnation>) {
        let mut table = self.0.borrow_mut();
        for slot in ranges.iter().flat_map(|range| range.slots()) {
            match owner {
                Some(owner) => table.owners.insert(slot, owner),
                None => table.owners.remove(&slot),
            };
        }
    }
    fn lease(&self) -> Duration {
        self.0.borrow().lease
    }
    fn set_lease(&mut self, lease: Duration) {
        self.0.borrow_mut().lease = lease;
    }
}
