//! A thread that follows what the directory says.

use super::{Directory, Revision, State};
use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The thread. It ends when this is dropped.
pub(crate) struct Follower {
    end: mpsc::Sender<State>,
    thread: Option<JoinHandle<()>>,
}

/// What it hears.
pub(crate) struct Heard(mpsc::Receiver<State>);

impl Follower {
    /// Starts a thread of this name, which runs `run` until that returns.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(
        name: &str,
        directory: Arc<dyn Directory>,
        run: impl FnOnce(&Heard) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (end, states) = mpsc::channel();
        let news = end.clone();
        let run = move || {
            // A watch keeps a sender: the end is told by a message.
            let watch = directory.watch(Box::new(move |state| _ = news.send(state)));
            run(&Heard(states));
            drop(watch);
        };
        let thread = thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // The thread may have ended.
        let _ = self.end.send(State { revision: Revision::MAX, ..State::default() });
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Heard {
    /// The next state, or none within `tick`. Breaks off when the thread is to end.
    pub(crate) fn next(&self, tick: Duration) -> ControlFlow<(), Option<State>> {
        match self.0.recv_timeout(tick) {
            Ok(heard) if heard.revision == Revision::MAX => ControlFlow::Break(()),
            Ok(heard) => ControlFlow::Continue(Some(heard)),
            Err(mpsc::RecvTimeoutError::Timeout) => ControlFlow::Continue(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => ControlFlow::Break(()),
        }
    }
}
