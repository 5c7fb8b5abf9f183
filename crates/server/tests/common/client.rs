//! A client in this process, over a store in memory.

use std::sync::Arc;

use terrace::{Clock, Index, ManualClock};
use terrace_server::{
    config::Config,
    session::{Flow, Peer, Session},
    shared::Shared,
};

/// A client without a connection: bytes in, bytes out.
pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<ManualClock>,
}

/// A time in 2033.
pub(crate) const START_MS: u64 = 2_000_000_000_000;

impl Client {
    pub(crate) fn new() -> Client {
        Client::with_index(Index::default())
    }

    /// A client of a store with this index.
    pub(crate) fn with_index(index: Index) -> Client {
        let clock = Arc::new(ManualClock::at(START_MS));
        let options = super::fresh().index(index).clock(clock.clone());
        let store = options.create().expect("memory for a store");
        Client::of(Arc::new(Shared::new(store, Config::default())), clock)
    }

    pub(crate) fn of(shared: Arc<Shared>, clock: Arc<ManualClock>) -> Client {
        let session = Session::new(Arc::clone(&shared), Peer::default(), clock.now_ms());
        Client { session, shared, clock }
    }

    /// Another client of the same server.
    pub(crate) fn another(&self) -> Client {
        Client::of(Arc::clone(&self.shared), Arc::clone(&self.clock))
    }

    /// Sends bytes; returns the replies with their line ends as spaces. A command that waits for
    /// others is tried again, as a loop does it.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> (String, Flow) {
        let (mut input, mut output, mut tries) = (bytes.to_vec(), Vec::new(), 0);
        let mut process = || self.session.process(&mut input, &mut output, self.clock.now_ms());
        let mut flow = process();
        while flow == Flow::Later && tries < 10_000_000 {
            std::thread::yield_now();
            (flow, tries) = (process(), tries + 1);
        }
        (String::from_utf8_lossy(&output).replace("\r\n", " ").trim_end().to_string(), flow)
    }

    /// Sends an inline command.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes()).0
    }

    /// Sends inline commands, and checks their replies.
    pub(crate) fn expect(&mut self, lines: &[(&str, &str)]) {
        for (line, reply) in lines {
            assert_eq!(self.ask(line), *reply, "{line}");
        }
    }
}
