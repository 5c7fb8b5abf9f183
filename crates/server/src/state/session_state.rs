//! The state of one connection.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use terrace_protocol::Reply;

use crate::state::{
    clients::{Client, Peer},
    databases::{Map, Place},
    failure::Failure,
    lines::InLine,
    multi::Multi,
    shared::Shared,
    stats::{Counters, Tally},
};

/// The next step of the event loop after a call of [`Session`](crate::session::Session).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// All complete commands were executed: read more.
    Continue,
    /// `output` has become long: write it, then call `process` again before
    /// reading, because `input` may contain further complete commands.
    More,
    /// The next command takes long and is not executed yet: write `output`, then call `process` on
    /// a thread where no other connection waits. Only
    /// `process_short` returns this.
    Long,
    /// The next command runs a script that takes long, and had no effect: as [`Flow::Long`], on a
    /// thread that may have to wait for a script without end.
    Script,
    /// The next command wants cold reads, and had no effect: write `output`, make the reads that
    /// the session wants, and call `process_short` again. Only that returns this.
    Cold,
    /// The slot of the next command is being moved to another node of the cluster or from it, and
    /// the command had no effect: write `output`, and call again a moment later.
    Later,
    /// Write `output`, then close the connection.
    Close,
    /// SHUTDOWN: write `output`, then stop the server (`Shared::shut_down` was called).
    Shutdown,
}

/// The protocol, authentication, transaction and counts of one connection.
pub struct State {
    /// The connection's entry in the registry.
    pub client: Arc<Client>,
    /// Whether the client gave the password, or none was configured when it connected.
    pub authenticated: bool,
    /// How often RESET has removed the authentication, and the length of the output before the last
    /// time.
    pub(crate) resets: (u64, usize),
    /// Whether the client uses RESP3.
    pub resp3: bool,
    /// The next step after the current command.
    pub flow: Flow,
    /// Counts of the client's commands.
    pub tally: Tally,
    /// Counters by command: those of the thread that executes this session.
    pub(crate) counters: Arc<Counters>,
    /// The selected database.
    pub(crate) database: u8,
    /// The place of each database, as the present command sees it; `None` in a cluster, where keys
    /// are stored as they are.
    pub(crate) map: Option<Map>,
    /// The transaction that MULTI has begun.
    pub(crate) multi: Option<Multi>,
    /// ASKING was sent: the next command, or transaction, may be for a slot that only another node
    /// knows to be here.
    pub(crate) asking: bool,
    /// Whether no other command runs while the present one does.
    pub(crate) is_alone: bool,
    /// When the next command was first put off because its slot is being moved, or because it must
    /// run alone, or is a long script.
    pub(crate) held_since: Option<u64>,
    /// The next command's place among those that wait for its slot.
    pub(crate) in_line: Option<InLine>,
    /// For a connection that its client had closed before it was let in: how many slots had come to
    /// this node when it was accepted.
    pub(crate) closed_before: Option<u64>,
    /// Whether a script that takes long is put off: the thread serves other connections, too.
    pub(crate) may_put_off: bool,
    /// The next step, because the current command was put off and had no effect.
    pub(crate) put_off: Option<Flow>,
    /// Whether the next transaction runs alone at once: another one did when it had to.
    pub(crate) alone_next: bool,
    /// Whether the next command, a transaction, only removes and has found no room to do so at
    /// once: see `removals.rs`.
    pub(crate) makes_room: bool,
    /// Whether the client wants replies.
    pub(crate) replies: Replies,
    /// How large the reply of a command may become.
    pub(crate) reply_limit: ReplyLimit,
    /// Whether the present command replies with an error though it has succeeded: a script does.
    pub(crate) has_failed: bool,
    /// The last command: its index in the table, and above 16 bits its subcommand's index plus one.
    pub(crate) last_command: usize,
}

/// Whether a client wants replies: CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// Not to this command, nor to the next one.
    SkipNext,
    /// Not to this command.
    Skip,
}

impl Replies {
    /// Whether the reply to a command that was executed is left out. Goes on to the next command.
    pub(crate) fn is_left_out(&mut self) -> bool {
        let now = *self;
        *self = match now {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            same => same,
        };
        now != Replies::On
    }
}

/// How large the reply of a command that lists values or keys may become: it is held in memory as a
/// whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyLimit {
    pub(crate) bytes: usize,
    /// Its name for the client: a size, or a setting.
    pub(crate) name: &'static str,
}

impl ReplyLimit {
    /// Of a command that is neither in a script nor in a transaction.
    pub(crate) const OF_A_COMMAND: ReplyLimit = ReplyLimit { bytes: 1 << 30, name: "1 GiB" };

    /// The reply would be larger. `what` it is, and what the client can do.
    pub(crate) fn failure(self, what: &str, how: &str) -> Failure {
        Failure::Made(format!("ERR {what} larger than {}: {how}", self.name).into_bytes().into())
    }
}

impl State {
    pub(crate) fn new(shared: &Shared, peer: Peer, now_ms: u64, counters: Arc<Counters>) -> State {
        State {
            client: shared.clients.add(peer, now_ms),
            authenticated: shared.config.password().is_empty(),
            resets: (0, 0),
            resp3: false,
            flow: Flow::Continue,
            tally: Tally::default(),
            database: 0,
            map: None,
            counters,
            multi: None,
            asking: false,
            is_alone: false,
            held_since: None,
            in_line: None,
            closed_before: None,
            may_put_off: false,
            put_off: None,
            alone_next: false,
            makes_room: false,
            replies: Replies::On,
            reply_limit: ReplyLimit::OF_A_COMMAND,
            has_failed: false,
            last_command: usize::MAX,
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
        self.authenticated && self.multi.is_none() && is_usual
    }

    /// The next command waits no more.
    pub(crate) fn stop_waiting(&mut self) {
        self.held_since = None;
        self.in_line = None;
        self.makes_room = false;
    }

    /// The place of the selected database; the first one in a cluster.
    pub(crate) fn place(&self) -> Place {
        self.map.map_or(Place::FIRST, |map| map.place(self.database))
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
        self.database = 0;
        self.resp3 = false;
        let authenticated = shared.config.password().is_empty();
        if self.authenticated && !authenticated {
            self.resets = (self.resets.0 + 1, output);
        }
        self.authenticated = authenticated;
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
        client.database.store(self.database, Relaxed);
        client.protocol.store(if self.resp3 { 3 } else { 2 }, Relaxed);
        client.record_command(self.last_command, now_ms);
        client.tally.show(self.tally);
    }
}
