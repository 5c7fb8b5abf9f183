//! The entries of the memory node: where it listens, and the cluster's id. The first is claimed,
//! and not kept: a memory node whose pool is a copy of another one's must not take the place of
//! that one.

use super::{Change, Claim, Directory, Follower, Heard, Memory, Revision, State, prefix, state};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// How often a claim is tried that the directory did not answer.
const TICK: Duration = Duration::from_millis(200);
/// How often a memory node that another entry names is tried before it counts as none.
const TRIES: u32 = 3;
/// The most ticks between two times that an entry of another memory node is written over. They
/// double each time: two memory nodes that do not reach each other would do it for ever.
const PAUSE_MOST: u32 = 256;

/// Is told of the memory node that has the cluster instead of this one.
pub type OnRival = Box<dyn FnOnce(Memory) + Send>;
/// Tells whether a memory node answers there.
pub type Answers = Box<dyn Fn(&Memory) -> bool + Send>;

/// A memory node, as the directory names it.
#[derive(Clone, Debug)]
pub struct Registrant {
    /// The name of its cluster.
    pub cluster: String,
    /// The id of its cluster.
    pub id: String,
    /// Where it listens.
    pub memory: Memory,
}

/// Tells where the memory node listens, while this lives.
pub struct Registration(#[expect(dead_code, reason = "its drop ends the thread")] Follower);

impl Registration {
    /// Claims the entry once the directory answers, and again whenever it is gone, or was written
    /// by hand; so for the cluster's id. If a memory node on another pool has the entry, and
    /// answers, says so and ends.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        directory: Arc<dyn Directory>,
        me: Registrant,
        answers: Answers,
        on_rival: OnRival,
    ) -> std::io::Result<Self> {
        let (claim, told, pause, ticks) = Default::default();
        let mut worker = Worker { directory: Arc::clone(&directory), me, answers, claim, told, pause, ticks };
        let run = move |heard: &Heard| {
            if let Some(rival) = worker.run(heard) {
                on_rival(rival);
            }
        };
        Ok(Self(Follower::start("registration", directory, run)?))
    }
}

struct Worker {
    directory: Arc<dyn Directory>,
    me: Registrant,
    answers: Answers,
    claim: Option<Claim>,
    /// The revision of the last wrong entry that was told.
    told: Revision,
    /// Ticks to wait before the next entry of another memory node is written over, and those that
    /// are left of it.
    pause: u32,
    ticks: u32,
}

impl Worker {
    /// Runs until the end, or until there is a rival.
    fn run(&mut self, heard: &Heard) -> Option<Memory> {
        let mut state: Option<State> = None;
        while let ControlFlow::Continue(heard) = heard.next(TICK) {
            self.ticks = self.ticks.saturating_sub(u32::from(heard.is_none()));
            state = heard.or(state);
            if state.as_ref().is_none_or(|state| self.is_right(state)) {
                continue;
            }
            // What was heard may be old. An error was logged by the directory; the next tick tries
            // again.
            state = self.directory.read().ok().or(state.take());
            let wrong = state.as_ref().filter(|state| !self.is_right(state));
            if let Some(Err(rival)) = wrong.map(|state| self.mend(state)) {
                return Some(rival);
            }
        }
        None
    }

    fn is_mine(&self, state: &State) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.revision == state.memory_at)
    }

    fn is_right(&self, state: &State) -> bool {
        self.is_mine(state) && state.id.as_ref() == Some(&self.me.id)
    }

    /// Writes what is wrong in a state, unless a rival has the entry.
    fn mend(&mut self, state: &State) -> Result<(), Memory> {
        if !self.is_mine(state) {
            return self.claim(state);
        }
        // It has the cluster, so its id is the cluster's. An etcd that has lost its data has none,
        // and would take the pool of another memory node.
        let id = self.me.id.clone();
        if state.id_at > 0 {
            let found = state.id.as_deref().unwrap_or("no id");
            self.tell(state.id_at, "id", &format!("has {found}, and this cluster's id is {id}"));
        }
        let conditions = [("memory", state.memory_at), ("id", state.id_at)];
        // If something was changed meanwhile, the next tick looks again.
        let _ = self.directory.change(&conditions, &[Change::Put("id".into(), id)]);
        Ok(())
    }

    /// Claims the entry as it is in a state, unless a rival has it.
    fn claim(&mut self, state: &State) -> Result<(), Memory> {
        let mine = &self.me.memory;
        if let Some(other) = state.memory.as_ref().filter(|other| other.is_rival_of(&mine.pool)) {
            if self.ticks > 0 {
                return Ok(());
            }
            if other.address != mine.address && (0..TRIES).any(|_| (self.answers)(other)) {
                return Err(other.clone());
            }
            self.pause = (2 * self.pause).clamp(1, PAUSE_MOST);
            self.ticks = self.pause;
            let text = format!("names {}, where no other memory node answers", other.address);
            self.tell(state.memory_at, "memory", &text);
        }
        // If it was changed meanwhile, the next tick looks again.
        let text = state::text(&self.me.memory);
        if let Ok(Some(claim)) = self.directory.claim("memory", &text, state.memory_at) {
            self.claim = Some(claim);
        }
        Ok(())
    }

    /// Tells of a wrong entry, once.
    fn tell(&mut self, revision: Revision, key: &str, what: &str) {
        if std::mem::replace(&mut self.told, revision) != revision {
            let prefix = prefix(&self.me.cluster).unwrap_or_default();
            log::error!(
                "the key {prefix}{key} in etcd {what}: it was written by hand, or by another cluster of this name. This \
                 memory node goes on, and writes its own entry again; if it comes back, look for a second memory node"
            );
        }
    }
}
