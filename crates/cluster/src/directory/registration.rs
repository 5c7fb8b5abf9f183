//! The entry of the memory node. It is claimed, and not kept: a memory node whose pool is a copy of
//! another one's must not take the place of that one.

use super::{Claim, Directory, Follower, Heard, Memory, State, state};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// How often a claim is tried that the directory did not answer.
const TICK: Duration = Duration::from_millis(200);

/// Is told of the memory node that has the cluster instead of this one.
pub type OnRival = Box<dyn FnOnce(Memory) + Send>;

/// Tells where the memory node listens, while this lives.
pub struct Registration(#[expect(dead_code, reason = "its drop ends the thread")] Follower);

impl Registration {
    /// Claims the entry once the directory answers, and again whenever it is gone, or was written
    /// by hand. If a memory node on another pool has it, says so and ends.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(directory: Arc<dyn Directory>, memory: Memory, on_rival: OnRival) -> std::io::Result<Self> {
        let mut worker = Worker { directory: Arc::clone(&directory), memory, claim: None };
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
    memory: Memory,
    claim: Option<Claim>,
}

impl Worker {
    /// Runs until the end, or until there is a rival.
    fn run(&mut self, heard: &Heard) -> Option<Memory> {
        let mut state: Option<State> = None;
        while let ControlFlow::Continue(heard) = heard.next(TICK) {
            state = heard.or(state);
            let is_mine =
                |state: &State| self.claim.as_ref().is_some_and(|claim| claim.revision == state.memory_at);
            if state.as_ref().is_none_or(is_mine) {
                continue;
            }
            // What was heard may be old. An error was logged by the directory; the next tick tries
            // again.
            state = self.directory.read().ok().or(state.take());
            let foreign = state.as_ref().filter(|state| !is_mine(state));
            if let Some(Err(rival)) = foreign.map(|state| self.claim(state)) {
                return Some(rival);
            }
        }
        None
    }

    /// Claims the entry as it is in a state, unless a rival has it.
    fn claim(&mut self, state: &State) -> Result<(), Memory> {
        if let Some(other) = state.memory.as_ref().filter(|other| other.is_rival_of(&self.memory.pool)) {
            return Err(other.clone());
        }
        // If it was changed meanwhile, the next tick looks again.
        if let Ok(Some(claim)) = self.directory.claim("memory", &state::text(&self.memory), state.memory_at) {
            self.claim = Some(claim);
        }
        Ok(())
    }
}
