//! Whether a node may have a session, and what was said to the one that may not.

use super::base::Base;
use super::grants::kept;
use super::ledger::{AreaArbiter, NAME_MAX};
use super::session::{AHEAD, Table};
use crate::arbiter::Incarnation;
use std::path::PathBuf;
use std::sync::Arc;
use terrace_pool::Bytes;

/// Most shards and lanes of a session.
const PARTS_MAX: u16 = 64;

/// A node that asks for a session.
pub(crate) struct Guest<'m> {
    pub(crate) node: &'m str,
    /// Its last session.
    pub(crate) last: Incarnation,
    pub(crate) shards: u16,
    pub(crate) lanes: u16,
}

/// Whether nodes are refused, and why the last one was. Below stand the pool and the log area.
pub(crate) struct Admission {
    base: Arc<Base>,
    pool: PathBuf,
    /// Whether all nodes are refused.
    is_ending: bool,
    /// The last reason for which a session was refused.
    objected: String,
}

impl Admission {
    pub(crate) fn new(base: Arc<Base>, pool: PathBuf) -> Self {
        Self { base, pool, is_ending: false, objected: String::new() }
    }

    /// Refuses all nodes from now on.
    pub(crate) fn end(&mut self) {
        self.is_ending = true;
    }

    /// Why a node cannot have a session.
    pub(crate) fn objection<E>(
        &self,
        guest: &Guest<'_>,
        arbiter: &AreaArbiter,
        table: &Table<E>,
    ) -> Option<String> {
        let Guest { node, last, shards, lanes } = *guest;
        let parts = 1..=PARTS_MAX;
        if node.is_empty() || node.len() > NAME_MAX {
            return Some(format!("a node's name has 1 to {NAME_MAX} bytes, this one {}", node.len()));
        }
        if !parts.contains(&shards) || !parts.contains(&lanes) {
            return Some(format!(
                "a node has 1 to {PARTS_MAX} shards and lanes, this one {shards} and {lanes}"
            ));
        }
        if !arbiter.ledger().has_begun(last) {
            return Some(format!(
                "the node {node} has had session {last}, which is of a later time than the pool {}: the pool is an \
                 older copy, or a new one, and lacks what was written since. Start the memory node on the pool of \
                 then. If this one shall be used nevertheless, start the serving node again",
                self.pool.display()
            ));
        }
        if let Some(why) = self.lacks_room(guest, arbiter, table) {
            return Some(why);
        }
        let no_room = self.is_ending || !arbiter.ledger().has_room();
        no_room.then(|| "the memory node has no room for a session now; try again".into())
    }

    /// Why the logs of a node have no place: with those of the others, they would leave no room in
    /// the pool for keys, and all nodes would refuse puts.
    fn lacks_room<E>(&self, guest: &Guest<'_>, arbiter: &AreaArbiter, table: &Table<E>) -> Option<String> {
        let (node, shards) = (guest.node, u64::from(guest.shards));
        let others = arbiter.live().filter(|(_, other)| *other != node);
        let others = others.filter_map(|(id, _)| table.get(id));
        let others: u64 = others.map(|session| session.logs.shards.len() as u64).sum();
        let size = self.base.data.pool().size();
        let needed = |shards: u64| kept(u64::from(AHEAD) * shards + 1, self.base.area.segment_bytes);
        let (all, without) = (needed(others + shards), if others > 0 { needed(others) } else { 0 });
        (all > size - size / 10).then(|| {
            format!(
                "the pool {} has no room for the {shards} logs of the node {node}: of its {}, {} would be kept free for \
                 the logs of all nodes, now {}, and a tenth is for keys at least. Stop another node first, start the \
                 nodes with fewer --shards, or give the pool {} or more, by --size of the memory node",
                self.pool.display(),
                Bytes(size),
                Bytes(all),
                Bytes(without),
                Bytes(all + all / 4)
            )
        })
    }

    /// Says why a session is refused, unless that was said last: its node asks again and again.
    pub(crate) fn object(&mut self, why: &str) {
        if self.objected != why {
            log::error!("a session is refused: {why}");
            why.clone_into(&mut self.objected);
        }
    }

    /// A session has begun.
    pub(crate) fn agree(&mut self) {
        self.objected.clear();
    }

    /// Whether this is why the last session was refused, which was said.
    pub(crate) fn has_said(&self, why: &str) -> bool {
        self.objected == why
    }
}
