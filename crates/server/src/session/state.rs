//! What is one connection's own.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use terrace::Version;
use terrace_protocol::Reply;

use super::{Flow, Peer};
use crate::{
    clients::Client,
    command::Multi,
    shared::Shared,
    stats::{Counters, Tally},
};

/// A connection's protocol, rights, transaction and counts.
pub struct State {
    /// Its entry in the registry.
    pub client: Arc<Client>,
    /// Whether it gave the password, or none was asked for when it came.
    pub authenticated: bool,
    /// How often it has lost its rights by RESET, and how many bytes of output there were before
    /// the last time.
    pub(crate) resets: (u64, usize),
    /// Whether it speaks RESP3.
    pub resp3: bool,
    /// What happens after the current command.
    pub flow: Flow,
    /// What it has done.
    pub tally: Tally,
    /// What all connections of its event loop have done, by command.
    pub(crate) counters: Arc<Counters>,
    /// The commands it queues.
    pub(crate) multi: Option<Multi>,
    /// The keys it watches, each as it was when it began to.
    pub(crate) watched: HashMap<Vec<u8>, Version>,
    /// The last command: its place in the table, and its subcommand's place plus one above 16 bits.
    pub(crate) last_command: usize,
}

impl State {
    pub(super) fn new(shared: &Shared, peer: Peer, now_ms: u64, counters: Arc<Counters>) -> State {
        State {
            client: shared.clients.enter(peer, now_ms),
            authenticated: shared.config.password().is_empty(),
            resets: (0, 0),
            resp3: false,
            flow: Flow::Continue,
            tally: Tally::default(),
            counters,
            multi: None,
            watched: HashMap::new(),
            last_command: usize::MAX,
        }
    }

    /// Whether a command may be executed at once: the client is known, and queues nothing.
    pub(super) fn is_plain(&self) -> bool {
        self.authenticated && self.multi.is_none()
    }

    /// Answers with an error, and counts it.
    pub(super) fn failed(&mut self, reply: &mut Reply<'_>, message: &[u8]) {
        self.tally.errors += 1;
        self.counters.error(message);
        reply.error(message);
    }

    /// Chooses the protocol.
    pub fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// Neither queues nor watches any more.
    pub fn forget_transaction(&mut self) {
        self.multi = None;
        self.watched = HashMap::new();
    }

    /// RESET: as it was when the client came, but for its number. `output` is how many bytes of
    /// output there are.
    pub fn reset(&mut self, shared: &Shared, output: usize) {
        self.forget_transaction();
        self.resp3 = false;
        let authenticated = shared.config.password().is_empty();
        if self.authenticated && !authenticated {
            self.resets = (self.resets.0 + 1, output);
        }
        self.authenticated = authenticated;
        self.client.names(|names| names.name.clear());
        // ORDER: Relaxed: notes for CLIENT LIST.
        self.client.no_evict.store(false, Relaxed);
        self.client.no_touch.store(false, Relaxed);
    }

    /// Shows others what has changed, in the registry.
    pub fn publish(&self, now_ms: u64) {
        let client = &self.client;
        // ORDER: Relaxed, all: figures for CLIENT LIST.
        client.queued.store(self.multi.as_ref().map_or(0, |multi| multi.len() + 1), Relaxed);
        client.watched.store(self.watched.len(), Relaxed);
        client.protocol.store(if self.resp3 { 3 } else { 2 }, Relaxed);
        client.ran(self.last_command, now_ms);
        client.tally.show(self.tally);
    }
}
