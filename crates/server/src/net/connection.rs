//! One connection: its socket, its session, and its unsent replies.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mio::{Interest, Registry, Token, event::Source};
use terrace::Ticket;

use super::{
    backlog::Backlog,
    counters::{Counters, count},
    hub::NewConnection,
    job::Job,
    stream::{Io, Stream},
    turn::{Buffers, READ, Turn},
};
use crate::{
    session::Session,
    state::{
        clock::{precise_ns, unix_ms},
        config::Key,
        flow::Flow,
        shared::Shared,
    },
};

/// A connected client.
pub(super) struct Connection {
    stream: Stream,
    /// `None` while a worker has the session, or it is parked.
    session: Option<Session>,
    /// An incomplete command, or (`more`) complete commands that wait until their replies can be
    /// written.
    pending: Vec<u8>,
    more: bool,
    backlog: Backlog,
    /// There may be bytes to read: no read has found the socket empty since the last event.
    readable: bool,
    /// The socket may accept bytes.
    writable: bool,
    /// The client will send no more. No further event comes, so reads continue until the end.
    half_closed: bool,
    /// Whether the poll reports that the socket accepts bytes.
    polls_writable: bool,
    closing: Closing,
    active_at: u64,
    /// When the client connected, or lost its authentication by RESET.
    unauthenticated_since: u64,
    /// Bytes of replies since then, while the client is not authenticated.
    unauthenticated_output: usize,
    /// The number of RESETs at that time.
    resets: u64,
    /// Start time of the turn whose long command a worker runs, if that turn is timed.
    began: Option<u64>,
    /// The connection broke while a worker had the session.
    broken: bool,
    /// The backlog waits until the writes of this turn are durable.
    held: bool,
    /// From before the first command whose reply is held or is still to come from a worker.
    since: Ticket,
    /// The connection waits for its backlog to shrink before it reads on.
    stalled: bool,
    /// The next command is tried again in a moment: see [`Next::Later`].
    pub(super) is_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// The connection stays open.
    No,
    /// Close once the backlog is written.
    Flush,
    /// As `Flush`, then discard input until the client closes. Closing with unread input would
    /// reset the connection, and the client could lose the error that explains why.
    Linger,
    /// The backlog is written; input is discarded.
    Lingering,
}

/// What the loop does with the connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for an event.
    Wait,
    /// Give it another turn, after the other connections.
    Again,
    /// Hand its session to a worker: the next command takes long.
    Long,
    /// Hand its session to a worker for scripts.
    Script,
    /// Park its session: the next command wants cold reads.
    Cold,
    /// Give it another turn a moment later: the slot of the next command is being moved.
    Later,
    /// Close it.
    Close,
}

/// The result of one round: whether the turn continues.
enum Round {
    Done,
    Then(Next),
}

/// Rounds of reading and replying in one turn, so that a busy client does not delay the others.
const ROUNDS: usize = 4;
/// Maximum size of a read.
const READ_MOST: usize = 1 << 20;
/// Capacity that the loop's reply buffer keeps.
const OUTPUT_KEPT: usize = 2 << 20;
/// Maximum bytes of replies to a client that is not authenticated.
const UNAUTHENTICATED_OUTPUT: usize = 4 << 10;
/// How long the input of a connection that is being closed is discarded, ms.
const LINGER_MS: u64 = 1000;
/// How long a connection that is being closed may wait for its client to accept replies, ms.
const FLUSH_MS: u64 = 60_000;

impl Connection {
    pub(super) fn new(new: NewConnection, session: Session, now: u64) -> Connection {
        Connection {
            stream: new.stream,
            session: Some(session),
            pending: Vec::new(),
            more: false,
            backlog: Backlog::default(),
            // What the client has sent already causes no event.
            readable: true,
            writable: true,
            half_closed: false,
            polls_writable: false,
            closing: Closing::No,
            active_at: now,
            unauthenticated_since: now,
            unauthenticated_output: 0,
            resets: 0,
            began: None,
            broken: false,
            held: false,
            since: Ticket::default(),
            stalled: false,
            is_late: false,
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> std::io::Result<()> {
        self.stream.register(registry, token, Interest::READABLE)
    }

    /// Records what an event of the poll says about the socket.
    pub(super) fn record_readiness(&mut self, event: &mio::event::Event) {
        self.readable |= event.is_readable() || event.is_error();
        self.writable |= event.is_writable();
        self.half_closed |= event.is_read_closed();
    }

    /// Whether the client will send no more: as a rule, it has closed the connection.
    pub(super) fn is_half_closed(&self) -> bool {
        self.half_closed
    }

    /// As [`Connection::is_half_closed`], by a look at the socket.
    pub(super) fn has_closed(&self) -> bool {
        self.half_closed || self.stream.is_closed()
    }

    /// Executes the input and writes replies, for at most [`ROUNDS`] rounds.
    pub(super) fn serve(&mut self, turn: &mut Turn<'_>) -> Next {
        if self.writable && !self.held && !self.flush(turn) {
            self.broken = true;
        }
        if self.is_with_worker() {
            return Next::Wait;
        }
        if self.broken {
            return Next::Close;
        }
        if !self.held {
            self.since = turn.since;
        }
        for _ in 0..ROUNDS {
            if let Round::Then(next) = self.round(turn) {
                return next;
            }
        }
        Next::Again
    }

    /// As [`Connection::serve`], for the last time: executes all input that has arrived.
    pub(super) fn finish(&mut self, turn: &mut Turn<'_>) -> Next {
        self.readable = true;
        let next = self.serve(turn);
        if next == Next::Wait && self.backlog.is_empty() && !self.is_with_worker() {
            Next::Close
        } else {
            next
        }
    }

    /// Whether replies wait for [`Connection::release`].
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// A ticket from before the commands of the replies that are held.
    pub(super) fn since(&self) -> Ticket {
        self.since
    }

    /// Sends the replies that were held.
    pub(super) fn release(&mut self, turn: &mut Turn<'_>) -> Next {
        self.held = false;
        if self.writable && !self.flush(turn) {
            self.broken = true;
            // A worker gives its session back first.
            return if self.is_with_worker() { Next::Wait } else { Next::Close };
        }
        let goes_on = std::mem::take(&mut self.stalled) || self.closing != Closing::No;
        if goes_on && self.backlog.is_empty() && !self.is_with_worker() { Next::Again } else { Next::Wait }
    }

    /// Drops the replies that were held, and closes the connection once a worker gives its session
    /// back.
    pub(super) fn break_off(&mut self) {
        (self.held, self.broken, self.backlog) = (false, true, Backlog::default());
    }

    /// Whether a worker has the session, or it is parked.
    pub(super) fn is_with_worker(&self) -> bool {
        self.session.is_none()
    }

    /// Hands the session out, with the input that has arrived.
    pub(super) fn lend_session(&mut self, owner: (usize, usize)) -> Job {
        let session = self.session.take().expect("a connection that is served has its session");
        let input = std::mem::take(&mut self.pending);
        Job { owner, session, input, output: Vec::new(), flow: None, began: self.began.take() }
    }

    /// Takes the session back, and continues.
    pub(super) fn take_session_back(&mut self, job: Job, turn: &mut Turn<'_>) -> Next {
        let Job { session, mut input, mut output, flow, began, .. } = job;
        self.session = Some(session);
        self.active_at = turn.now;
        if self.broken {
            return Next::Close;
        }
        let round = self.finish_call(flow, &mut output, &mut input, turn);
        turn.record_latency(began);
        input.shrink_to(READ_MOST);
        self.pending = input;
        match round {
            Round::Then(next) => next,
            Round::Done => self.serve(turn),
        }
    }

    /// Makes the poll report that the socket accepts bytes while, and only while, a backlog exists.
    pub(super) fn update_interest(&mut self, registry: &Registry, token: Token) -> std::io::Result<()> {
        let wants = !self.backlog.is_empty() && !self.held;
        if wants == self.polls_writable {
            return Ok(());
        }
        self.polls_writable = wants;
        let interest = if wants { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        self.stream.reregister(registry, token, interest)
    }

    /// Whether another client has ended the connection.
    pub(super) fn is_killed(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_killed())
    }

    /// Whether one of the timeouts has passed.
    pub(super) fn has_timed_out(&self, shared: &Shared, now: u64) -> bool {
        let silent = now.saturating_sub(self.active_at);
        let Some(session) = &self.session else { return false };
        match self.closing {
            Closing::Lingering => silent > LINGER_MS,
            Closing::Flush | Closing::Linger => silent > FLUSH_MS,
            Closing::No if !session.is_authenticated() => {
                now.saturating_sub(self.unauthenticated_since) > 1000 * shared.config.number(Key::AuthTimeout)
            }
            Closing::No => {
                let timeout = shared.config.number(Key::Timeout);
                timeout != 0 && silent > 1000 * timeout
            }
        }
    }

    fn round(&mut self, turn: &mut Turn<'_>) -> Round {
        if self.closing != Closing::No {
            return Round::Then(self.close_step(turn));
        }
        if self.backlog.len() as u64 > turn.shared.config.number(Key::ClientOutputBuffer) {
            self.stalled = self.held;
            return Round::Then(Next::Wait);
        }
        if !self.more && !self.readable {
            return Round::Then(Next::Wait);
        }
        let borrowed = self.pending.is_empty();
        let mut input = std::mem::take(if borrowed { &mut turn.buffers.input } else { &mut self.pending });
        let read = if self.more { Io::Moved(0) } else { self.read(&mut input, turn) };
        let round = match read {
            Io::Moved(_) => self.execute(&mut input, turn),
            Io::Blocked => Round::Then(Next::Wait),
            Io::Ended => {
                self.closing = Closing::Flush;
                Round::Done
            }
        };
        self.keep(input, borrowed, &mut turn.buffers);
        round
    }

    fn read(&mut self, input: &mut Vec<u8>, turn: &mut Turn<'_>) -> Io {
        input.reserve(input.len().clamp(READ, READ_MOST));
        let room = input.capacity() - input.len();
        let read = self.stream.read(input);
        match read {
            Io::Moved(count) => {
                turn.bytes_in += count as u64;
                self.active_at = turn.now;
                // A short read has emptied the socket; later bytes cause an event.
                self.readable = count == room || self.half_closed;
            }
            Io::Blocked | Io::Ended => self.readable = false,
        }
        read
    }

    /// Keeps the rest of the input for the next turn.
    fn keep(&mut self, mut input: Vec<u8>, borrowed: bool, buffers: &mut Buffers) {
        if borrowed {
            self.pending.extend_from_slice(&input);
            input.clear();
            buffers.input = input;
        } else if !input.is_empty() {
            self.pending = input;
        }
    }

    fn execute(&mut self, input: &mut Vec<u8>, turn: &mut Turn<'_>) -> Round {
        turn.sample = turn.sample.checked_sub(1).unwrap_or(Counters::SAMPLE - 1);
        let began = (turn.sample == 0).then(precise_ns);
        let Some(session) = &mut self.session else { return Round::Then(Next::Wait) };
        let (mut output, now) = (std::mem::take(&mut turn.buffers.output), unix_ms());
        let flow = catch_unwind(AssertUnwindSafe(|| session.process_short(input, &mut output, now)));
        let round = self.finish_call(flow.ok(), &mut output, input, turn);
        output.clear();
        output.shrink_to(OUTPUT_KEPT);
        turn.buffers.output = output;
        match round {
            Round::Then(Next::Long | Next::Script | Next::Cold) => self.began = began,
            _ => turn.record_latency(began),
        }
        round
    }

    /// Does what the session returned, or closes the connection if a command has panicked.
    fn finish_call(
        &mut self,
        flow: Option<Flow>,
        output: &mut Vec<u8>,
        input: &mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Round {
        if let Some(flow) = flow {
            return self.apply_flow(flow, [output, input], turn);
        }
        // The state of the session and its output is unknown. A client without a reply knows that.
        count(&turn.counters.panics);
        let id = self.session.as_ref().map_or(0, Session::id);
        log::error!("a command of client {id} panicked: a bug in Terrace; closed the connection");
        Round::Then(Next::Close)
    }

    fn apply_flow(&mut self, flow: Flow, buffers: [&mut Vec<u8>; 2], turn: &mut Turn<'_>) -> Round {
        let [output, input] = buffers;
        if !self.may_send(output.len(), turn.now) {
            return Round::Then(Next::Close);
        }
        self.more = matches!(flow, Flow::More | Flow::Later | Flow::Script);
        if !self.write(output, turn) {
            return Round::Then(Next::Close);
        }
        match flow {
            Flow::Continue | Flow::More => {}
            Flow::Long => return Round::Then(Next::Long),
            Flow::Script => return Round::Then(Next::Script),
            Flow::Cold => return Round::Then(Next::Cold),
            Flow::Later => return Round::Then(Next::Later),
            Flow::Close => {
                let all_read = input.is_empty() && !self.readable;
                input.clear();
                self.closing = if all_read { Closing::Flush } else { Closing::Linger };
            }
            Flow::Shutdown => {
                input.clear();
                self.closing = Closing::Flush;
                turn.shutdown = true;
            }
        }
        if self.closing == Closing::No && !self.more && !self.readable {
            return Round::Then(Next::Wait);
        }
        Round::Done
    }

    /// Whether this many more bytes may be sent to the client. Before authentication the number is
    /// limited; output from before a RESET does not count.
    fn may_send(&mut self, bytes: usize, now: u64) -> bool {
        let Some(session) = self.session.as_ref().filter(|session| !session.is_authenticated()) else {
            return true;
        };
        let (resets, before) = session.resets();
        if resets == self.resets {
            self.unauthenticated_output += bytes;
        } else {
            (self.resets, self.unauthenticated_since, self.unauthenticated_output) =
                (resets, now, bytes.saturating_sub(before));
        }
        self.unauthenticated_output <= UNAUTHENTICATED_OUTPUT
    }

    /// Writes replies once, and keeps what the socket did not accept; or holds them all. False: the
    /// connection broke.
    fn write(&mut self, output: &mut Vec<u8>, turn: &mut Turn<'_>) -> bool {
        if output.is_empty() {
            return true;
        }
        self.held |= turn.holds;
        if self.held || !self.backlog.is_empty() {
            self.backlog.append(output);
            return true;
        }
        match self.stream.write(output) {
            Io::Moved(count) => {
                turn.bytes_out += count as u64;
                self.writable = count == output.len();
                self.backlog.begin(output, count);
                true
            }
            Io::Blocked => {
                self.writable = false;
                self.backlog.begin(output, 0);
                true
            }
            Io::Ended => false,
        }
    }

    /// Writes as much of the backlog as the socket accepts. False: the connection broke.
    fn flush(&mut self, turn: &mut Turn<'_>) -> bool {
        while self.writable && !self.backlog.is_empty() {
            match self.stream.write(self.backlog.waiting()) {
                Io::Moved(count) => {
                    turn.bytes_out += count as u64;
                    self.active_at = turn.now;
                    self.backlog.consume(count);
                }
                Io::Blocked => self.writable = false,
                Io::Ended => return false,
            }
        }
        true
    }

    fn close_step(&mut self, turn: &mut Turn<'_>) -> Next {
        if !self.backlog.is_empty() {
            return Next::Wait;
        }
        match self.closing {
            Closing::No | Closing::Flush => return Next::Close,
            Closing::Linger => {
                self.stream.finish_writing();
                self.active_at = turn.now;
                self.readable = true;
                self.closing = Closing::Lingering;
            }
            Closing::Lingering => {}
        }
        let scratch = &mut turn.buffers.input;
        while self.readable {
            let read = self.stream.read(scratch);
            scratch.clear();
            match read {
                Io::Moved(_) if turn.now.saturating_sub(self.active_at) < LINGER_MS => return Next::Again,
                Io::Moved(_) | Io::Ended => return Next::Close,
                Io::Blocked => self.readable = false,
            }
        }
        Next::Wait
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
        sync::Arc,
    };

    use super::*;
    use crate::state::{clients::Peer, config::Config};

    /// A connection, and the client's end of it.
    fn connect(shared: &Arc<Shared>, now: u64) -> (Connection, UnixStream) {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let stream = Stream::Unix(mio::net::UnixStream::from_std(server));
        let session = Session::new(Arc::clone(shared), Peer::default(), 1);
        (Connection::new(NewConnection { stream, peer: Peer::default(), arrivals: 0 }, session, now), client)
    }

    /// Sends a line, and checks the beginning of the reply.
    fn ask(connection: &mut (Connection, UnixStream), turn: &mut Turn<'_>, line: &str, answer: &str) {
        connection.1.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        connection.0.readable = true;
        assert_eq!(connection.0.serve(turn), Next::Wait, "{line}");
        let mut found = vec![0; answer.len()];
        connection.1.read_exact(&mut found).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), answer, "{line}");
    }

    #[test]
    fn reset_restarts_the_time_to_authenticate() {
        let store = terrace::Store::options().anonymous().create().unwrap();
        let shared = Arc::new(Shared::new(store, Config::default()));
        shared.config.set("requirepass", b"secret").unwrap();
        let counters = Counters::default();
        let mut turn = Turn {
            shared: &shared,
            counters: &counters,
            now: 1000,
            buffers: Buffers::default(),
            bytes_in: 0,
            bytes_out: 0,
            sample: Counters::SAMPLE,
            shutdown: false,
            holds: false,
            since: Ticket::default(),
        };
        let mut connection = connect(&shared, turn.now);
        ask(&mut connection, &mut turn, "AUTH secret", "+OK\r\n");
        assert!(!connection.0.has_timed_out(&shared, 500_000));
        turn.now = 100_000;
        ask(&mut connection, &mut turn, "RESET", "+RESET\r\n");
        // Ten seconds from the first RESET: a second one does not extend the time.
        turn.now = 105_000;
        assert!(!connection.0.has_timed_out(&shared, turn.now));
        ask(&mut connection, &mut turn, "RESET", "+RESET\r\n");
        assert!(
            !connection.0.has_timed_out(&shared, 110_000) && connection.0.has_timed_out(&shared, 110_001)
        );
        turn.now = 109_000;
        ask(&mut connection, &mut turn, "AUTH secret", "+OK\r\n");
        assert!(!connection.0.has_timed_out(&shared, 500_000));
    }
}
