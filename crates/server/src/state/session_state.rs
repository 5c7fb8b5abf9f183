//! The state of one connection.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use terrace_protocol::Reply;

use super::{
    access::Access,
    clients::{Client, Peer},
    databases::Place,
    flow::Flow,
    multi::Multi,
    replies::{Replies, ReplyLimit},
    selection::Selection,
    shared::Shared,
    stats::{Counters, Tally},
    waits::Waits,
};

/// The protocol, authentication, transaction and counts of one connection. It owns the parts that
/// stand in files of their own: `Access`, `Selection`, `Waits` and `Multi`.
pub struct State {
    /// The connection's entry in the registry.
    pub(crate) client: Arc<Client>,
    /// Whether the client may execute commands.
    pub(crate) access: Access,
    /// Whether the client uses RESP3.
    pub(crate) resp3: bool,
    /// Whether the client wants replies.
    pub(crate) replies: Replies,
    /// How large the reply of a command may become.
    pub(crate) reply_limit: ReplyLimit,
    /// The next step after the current command.
    pub(crate) flow: Flow,
    /// Counts of the client's commands.
    pub(crate) tally: Tally,
    /// Counters by command: those of the thread that executes this session.
    pub(crate) counters: Arc<Counters>,
    /// The last command: its index in the table, and above 16 bits its subcommand's index plus one.
    pub(crate) last_command: usize,
    /// Whether the present command replies with an error though it has succeeded: a script does.
    pub(crate) has_failed: bool,
    /// The selected database.
    pub(crate) selection: Selection,
    /// The transaction that MULTI has begun.
    pub(crate) multi: Option<Multi>,
    /// ASKING was sent: the next command, or transaction, may be for a slot that only another node
    /// knows to be here.
    pub(crate) asking: bool,
    /// For a connection that its client had closed before it was let in: how many slots had come to
    /// this node when it was accepted.
    pub(crate) closed_before: Option<u64>,
    /// Why the next command waits.
    pub(crate) waits: Waits,
}

impl State {
    pub(crate) fn new(shared: &Shared, peer: Peer, now_ms: u64, counters: Arc<Counters>) -> State {
        State {
            client: shared.clients.add(peer, now_ms),
            access: Access::of_new(&shared.config),
            resp3: false,
            replies: Replies::On,
            reply_limit: ReplyLimit::OF_A_COMMAND,
            flow: Flow::Continue,
            tally: Tally::default(),
            counters,
            last_command: usize::MAX,
            has_failed: false,
            selection: Selection::default(),
            multi: None,
            asking: false,
            closed_before: None,
            waits: Waits::default(),
        }
    }

    /// Whether commands are executed at once, and as usual: the client is authenticated, not inside
    /// MULTI, has sent none of ASKING, CLIENT NO-TOUCH and CLIENT REPLY OFF, and has not gone.
    pub(crate) fn is_plain(&self) -> bool {
        // ORDER: Relaxed: only this thread changes it.
        let has_replies = self.replies == Replies::On;
        let is_usual = has_replies
            && !self.asking
            && self.closed_before.is_none()
            && !self.client.no_touch.load(Relaxed);
        self.access.is_granted() && self.multi.is_none() && is_usual
    }

    /// The place of the selected database; the first one in a cluster.
    pub(crate) fn place(&self) -> Place {
        self.selection.place()
    }

    /// Replies with an error, and counts it.
    pub(crate) fn reply_error(&mut self, reply: &mut Reply<'_>, message: &[u8]) {
        self.tally.errors += 1;
        self.counters.record_error(message);
        reply.error(message);
    }

    /// Sets the protocol version.
    pub fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// Forgets the queued commands and the watched keys.
    pub fn clear_transaction(&mut self) {
        self.multi = None;
        self.client.take_watches();
    }

    /// RESET: restores the state of a new connection, except its id. `output` is the current length
    /// of the output.
    pub fn reset(&mut self, shared: &Shared, output: usize) {
        self.clear_transaction();
        self.asking = false;
        self.replies = Replies::On;
        self.selection.select(0);
        self.resp3 = false;
        self.access.reset(&shared.config, output);
        self.client.names(|names| names.name.clear());
        // ORDER: Relaxed: for CLIENT LIST only.
        self.client.no_evict.store(false, Relaxed);
        self.client.no_touch.store(false, Relaxed);
    }

    /// Copies the state that CLIENT LIST shows to the registry.
    pub fn publish(&self, now_ms: u64) {
        let client = &self.client;
        // ORDER: Relaxed, all: for CLIENT LIST only.
        client.queued.store(self.multi.as_ref().map_or(0, |multi| multi.len() + 1), Relaxed);
        client.database.store(self.selection.database(), Relaxed);
        client.protocol.store(if self.resp3 { 3 } else { 2 }, Relaxed);
        client.record_command(self.last_command, now_ms);
        client.tally.show(self.tally);
    }
}
