//! The entry of the memory node. It is claimed, and not kept: a memory node whose pool is a copy of
//! another one's must not take the place of that one.

use super::{Claim, Directory, Memory, Revision, State, state};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often a claim is tried that the directory did not answer.
const TICK: Duration = Duration::from_millis(200);

/// Is told of the memory node that has the cluster instead of this one.
pub type OnRival = Box<dyn FnOnce(Memory) + Send>;

/// Tells where the memory node listens, while this lives.
pub struct Registration {
    /// Dropped to end the thread.
    end: Option<mpsc::Sender<State>>,
    thread: Option<JoinHandle<()>>,
}

impl Registration {
    /// Claims the entry once the directory answers, and again whenever it is gone, or was written
    /// by hand. If a memory node on another pool has it, says so and ends.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(directory: Arc<dyn Directory>, memory: Memory, on_rival: OnRival) -> std::io::Result<Self> {
        let (end, states) = mpsc::channel();
        let news = end.clone();
        let mut worker = Worker { directory, memory, claim: None };
        let run = move || {
            // A watch keeps a sender: the end is told by a message.
            let watch = worker.directory.watch(Box::new(move |state| _ = news.send(state)));
            let rival = worker.run(&states);
            drop(watch);
            if let Some(rival) = rival {
                on_rival(rival);
            }
        };
        let thread = thread::Builder::new().name("registration".into()).spawn(run)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            // The thread may have ended already.
            let _ = end.send(State { revision: Revision::MAX, ..State::default() });
        }
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Worker {
    directory: Arc<dyn Directory>,
    memory: Memory,
    claim: Option<Claim>,
}

impl Worker {
    /// Runs until the end, or until there is a rival.
    fn run(&mut self, states: &mpsc::Receiver<State>) -> Option<Memory> {
        let mut state: Option<State> = None;
        loop {
            match states.recv_timeout(TICK) {
                Ok(heard) if heard.revision == Revision::MAX => return None,
                Ok(heard) => state = Some(heard),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            }
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
