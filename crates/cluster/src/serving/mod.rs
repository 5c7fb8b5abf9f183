//! The serving node: it owns slots, answers for their keys, and keeps none of them (DINOMO, section
//! 4.3). All that is acknowledged lies in the memory node.
//!
//! ```text
//!   get   unmerged writes ─▶ cache ─▶ shortcut: record ─▶ index: bucket, record ─▶ ask the node
//!         then: is the slot still mine, does the lease hold? else nothing is answered
//!   put   lock of the key's stripe ─▶ entry into the shard's log ─▶ visible here ─▶ reply waits
//!         for the write that takes all entries of all shards (group commit)
//! ```
//! An entry that has arrived in a segment will be merged, whatever happens to this node. So a write
//! is acknowledged once it has arrived; a write that did not arrive before the memory node had
//! fenced this node off is none.
//!
//! Each part knows only those below it; from the bottom up:
//! - `key`: a key, and what it has. `damage`: what may be wrong with it in the memory.
//! - `slots`, `logs`, `pending`, `cache`, `lanes`: what a session has. `session`: all of it.
//! - `sessions`: the session that goes on, and those before. `gate`: where operations begin.
//! - `remote`, `read`: what reads. `ownership`: what moves slots, lease and session. `write`: what
//!   writes.
//! - `node`: all of them, with `space` and `figures`. `control`: its threads. `engine`, `routing`:
//!   what the server asks.

mod cache;
mod control;
mod damage;
mod engine;
mod figures;
mod gate;
mod key;
mod lanes;
mod logs;
mod node;
mod ownership;
mod pending;
mod read;
mod remote;
mod routing;
mod session;
mod sessions;
mod slots;
mod space;
#[cfg(test)]
mod tests;
mod write;

pub use control::OnSession;
pub use figures::Figures;
pub use node::Settings;
pub use space::OnSize;

use crate::clock::now;
use crate::link::Secret;
use crate::map::{Map, Node as Member};
use control::Wishes;
use node::Node;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use terrace_engine::Engine;
use terrace_server::routing::Routing;

/// A serving node; dropping it ends its session.
pub struct ServingNode {
    node: Arc<Node>,
    engine: Arc<engine::Serving>,
    known: Arc<routing::Known>,
    wishes: Arc<Wishes>,
    me: Member,
    threads: Vec<JoinHandle<()>>,
}

/// What a thread of a node does.
type Run = Box<dyn FnOnce(&Arc<Node>, &Wishes) + Send>;

impl ServingNode {
    /// Starts a node that clients reach as `me`. It serves nothing until it is told where the
    /// memory node is, and what the map is.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(settings: Settings, me: Member, secret: Secret) -> io::Result<Self> {
        assert!((1..=64).contains(&settings.shards), "1 to 64 shards");
        assert!((2..=256).contains(&settings.lanes), "2 to 256 lanes");
        let (drains, drained) = mpsc::channel();
        let node = Arc::new(Node::new(settings, drains));
        let wishes = Arc::<Wishes>::default();
        let known = Arc::new(routing::Known::new(Arc::clone(&node), &me));
        let mut threads = Vec::new();
        let mut start = |name: &str, run: Run| {
            let (node, wishes) = (Arc::clone(&node), Arc::clone(&wishes));
            threads.push(Builder::new().name(name.into()).spawn(move || run(&node, &wishes))?);
            io::Result::Ok(())
        };
        start("link", Box::new(move |node, wishes| control::keep_link(node, wishes, &secret)))?;
        start("lease", Box::new(|node, wishes| control::tick(node, wishes)))?;
        start("handover", Box::new(move |node, wishes| control::drain(node, wishes, &drained)))?;
        let engine = Arc::new(engine::Serving::new(Arc::clone(&node)));
        Ok(Self { node, engine, known, wishes, me, threads })
    }

    /// The store.
    pub fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.engine) as Arc<dyn Engine>
    }

    /// Where slots are served.
    pub fn routing(&self) -> Arc<dyn Routing> {
        Arc::clone(&self.known) as Arc<dyn Routing>
    }

    /// The control port of the memory node.
    pub fn set_memory(&self, address: SocketAddr) {
        self.wishes.set_memory(address);
    }

    /// Tells when a session begins, and when the memory node refuses one: another process may have
    /// this node's id, and is the one that clients should find.
    pub fn on_session(&self, listener: OnSession) {
        self.wishes.listen(listener);
    }

    /// Calls back with the size of the memory node's pool, each time that it is told.
    pub fn on_size(&self, listener: OnSize) {
        self.node.space.on_size(listener);
    }

    /// There is another map, of this epoch.
    pub fn set_map(&self, epoch: u64, map: &Map) {
        self.known.set(epoch, map, &self.me);
        let mine = map.slots_of(&self.me.id);
        self.node.ownership.tell(self.wishes.link().as_ref(), |owner| owner.map(epoch, mine));
    }

    /// Slots that it serves now: none while it has no lease.
    pub fn slots(&self) -> usize {
        let gate = self.node.gate();
        if gate.slots.may_answer(now()) { gate.served().len() } else { 0 }
    }

    /// What it has done.
    pub fn figures(&self) -> Figures {
        self.node.figures()
    }

    /// Ends the session: what was written arrives, and others may have the slots at once.
    pub fn stop(&mut self) {
        self.node.gate().stop_writes("this node of the cluster is shutting down".into());
        if let (Some(session), Some(link)) = (self.node.gate().session(), self.wishes.link()) {
            // If it fails, the writes fail, and say so.
            let _ = session.settle(session.logs.ticket());
            self.node.ownership.tell(Some(&link), |owner| owner.leave());
            self.wishes.wait_for_end_of_link();
        }
        self.wishes.end();
    }
}

impl Drop for ServingNode {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
