//! One connection: its socket, its session, and what waits between them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mio::{Interest, Registry, Token, event::Source};

use super::{
    clock::{precise_ns, unix_ms},
    counters::{Counters, count},
    hub::Newcomer,
    stream::{Io, Stream},
    workers::Job,
};
use crate::{
    config::Key,
    session::{Flow, Session},
    shared::Shared,
};

/// What connections of one loop use in turn.
pub(super) struct Turn<'a> {
    pub(super) shared: &'a Shared,
    pub(super) counters: &'a Counters,
    /// Milliseconds on the coarse clock.
    pub(super) now: u64,
    pub(super) buffers: Buffers,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// Turns until one is timed.
    pub(super) sample: u32,
    /// Whether a client asked the server to end.
    pub(super) shutdown: bool,
}

/// A loop's two buffers; both are empty between turns, and keep their memory.
pub(super) struct Buffers {
    input: Vec<u8>,
    output: Vec<u8>,
}

/// One client.
pub(super) struct Connection {
    stream: Stream,
    /// `None` while a worker has it.
    session: Option<Session>,
    /// The beginning of a command that has not arrived wholly, or (`more`) whole commands that wait for room for their replies.
    pending: Vec<u8>,
    more: bool,
    backlog: Backlog,
    /// There may be something to read: nothing has said otherwise since the last event.
    readable: bool,
    /// There may be room to write.
    writable: bool,
    /// The other end will send no more, so reads go on until they say that it ended: no further event will.
    half_closed: bool,
    /// Whether the poll reports room to write.
    watches_writable: bool,
    ending: Ending,
    active_at: u64,
    /// When it connected, or lost its rights by RESET.
    unknown_since: u64,
    /// Replies since then, bytes, while it has not authenticated.
    unknown_output: usize,
    /// RESETs that those two count from.
    resets: u64,
    /// When the turn began whose long command a worker runs, if that is timed.
    began: Option<u64>,
    /// The connection broke while a worker had the session.
    broken: bool,
}

/// Replies that the client has not taken yet.
#[derive(Default)]
struct Backlog {
    bytes: Vec<u8>,
    written: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It goes on.
    No,
    /// Close it once its backlog has left.
    Flush,
    /// As `Flush`, then read and drop what the client still sends until it ends: closing with bytes unread would
    /// reset the connection, and the client would lose the error that says why.
    Linger,
    /// The backlog has left, the client has been told.
    Lingering,
}

/// What the loop does with a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for an event.
    Wait,
    /// It has more to do, after the others.
    Again,
    /// Its next command is one for a worker.
    Long,
    /// Forget it.
    Close,
}

/// What a round of a turn came to.
enum Round {
    Done,
    Then(Next),
}

/// Rounds of reading and answering in one turn, so that one busy client does not keep the others waiting.
const ROUNDS: usize = 4;
/// The loop's read buffer, and the least that is read at once.
const READ: usize = 64 << 10;
/// The most that is read at once.
const READ_MOST: usize = 1 << 20;
/// What the loop's reply buffer keeps.
const OUTPUT_KEPT: usize = 2 << 20;
/// Replies a client may cause before it has authenticated, bytes.
const UNAUTHENTICATED_OUTPUT: usize = 4 << 10;
/// How long a client that was told why it is closed may go on sending, ms.
const LINGER_MS: u64 = 1000;
/// How long a client that will send no more may take nothing of its replies, ms.
const FLUSH_MS: u64 = 60_000;

impl Turn<'_> {
    /// Counts how long a turn took, if its beginning was timed.
    fn took(&self, began: Option<u64>) {
        if let Some(began) = began {
            self.counters.took(precise_ns().saturating_sub(began));
        }
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Buffers { input: Vec::with_capacity(READ), output: Vec::with_capacity(READ) }
    }
}

impl Connection {
    pub(super) fn new(newcomer: Newcomer, session: Session, now: u64) -> Connection {
        Connection {
            stream: newcomer.stream,
            session: Some(session),
            pending: Vec::new(),
            more: false,
            backlog: Backlog::default(),
            readable: false,
            writable: true,
            half_closed: false,
            watches_writable: false,
            ending: Ending::No,
            active_at: now,
            unknown_since: now,
            unknown_output: 0,
            resets: 0,
            began: None,
            broken: false,
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> std::io::Result<()> {
        self.stream.register(registry, token, Interest::READABLE)
    }

    /// Notes what the poll said.
    pub(super) fn note(&mut self, event: &mio::event::Event) {
        self.readable |= event.is_readable() || event.is_error();
        self.writable |= event.is_writable();
        self.half_closed |= event.is_read_closed();
    }

    /// Serves what there is to serve, for at most [`ROUNDS`].
    pub(super) fn serve(&mut self, turn: &mut Turn<'_>) -> Next {
        if self.writable && !self.flush(turn) {
            self.broken = true;
        }
        if self.is_away() {
            return Next::Wait;
        }
        if self.broken {
            return Next::Close;
        }
        for _ in 0..ROUNDS {
            if let Round::Then(next) = self.round(turn) {
                return next;
            }
        }
        Next::Again
    }

    /// As [`Connection::serve`], for the last time: what has arrived is still executed and answered.
    pub(super) fn finish(&mut self, turn: &mut Turn<'_>) -> Next {
        self.readable = true;
        let next = self.serve(turn);
        if next == Next::Wait && self.backlog.is_empty() && !self.is_away() { Next::Close } else { next }
    }

    /// Whether a worker has its session.
    pub(super) fn is_away(&self) -> bool {
        self.session.is_none()
    }

    /// Gives its session to a worker, with what has arrived for it.
    pub(super) fn depart(&mut self, owner: (usize, usize)) -> Job {
        let session = self.session.take().expect("a connection that is served has its session");
        let input = std::mem::take(&mut self.pending);
        Job { owner, session, input, output: Vec::new(), flow: None, began: self.began.take() }
    }

    /// Takes its session back from a worker, and goes on.
    pub(super) fn come_back(&mut self, job: Job, turn: &mut Turn<'_>) -> Next {
        let Job { session, mut input, mut output, flow, began, .. } = job;
        self.session = Some(session);
        self.active_at = turn.now;
        if self.broken {
            return Next::Close;
        }
        let round = self.conclude(flow, &mut output, &mut input, turn);
        turn.took(began);
        input.shrink_to(READ_MOST);
        self.pending = input;
        match round {
            Round::Then(next) => next,
            Round::Done => self.serve(turn),
        }
    }

    /// Asks the poll to report room to write while, and only while, replies wait for it.
    pub(super) fn update_interest(&mut self, registry: &Registry, token: Token) -> std::io::Result<()> {
        let wants = !self.backlog.is_empty();
        if wants == self.watches_writable {
            return Ok(());
        }
        self.watches_writable = wants;
        let interest = if wants { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        self.stream.reregister(registry, token, interest)
    }

    /// Whether its time is up.
    pub(super) fn expired(&self, shared: &Shared, now: u64) -> bool {
        let silent = now.saturating_sub(self.active_at);
        let Some(session) = &self.session else { return false };
        match self.ending {
            Ending::Lingering => silent > LINGER_MS,
            Ending::Flush | Ending::Linger => silent > FLUSH_MS,
            Ending::No if !session.authenticated() => {
                now.saturating_sub(self.unknown_since) > 1000 * shared.config.number(Key::AuthTimeout)
            }
            Ending::No => {
                let timeout = shared.config.number(Key::Timeout);
                timeout != 0 && silent > 1000 * timeout
            }
        }
    }

    fn round(&mut self, turn: &mut Turn<'_>) -> Round {
        if self.ending != Ending::No {
            return Round::Then(self.end(turn));
        }
        if self.backlog.len() as u64 > turn.shared.config.number(Key::ClientOutputBuffer) {
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
                self.ending = Ending::Flush;
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
                // A short read took all there was; what comes later comes with an event.
                self.readable = count == room || self.half_closed;
            }
            Io::Blocked | Io::Ended => self.readable = false,
        }
        read
    }

    /// Puts the rest of the input where the next turn finds it.
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
        let flow = catch_unwind(AssertUnwindSafe(|| session.take_turn(input, &mut output, now)));
        let round = self.conclude(flow.ok(), &mut output, input, turn);
        output.clear();
        output.shrink_to(OUTPUT_KEPT);
        turn.buffers.output = output;
        match round {
            Round::Then(Next::Long) => self.began = began,
            _ => turn.took(began),
        }
        round
    }

    /// Does what a session says, or closes the connection if a command has panicked.
    fn conclude(
        &mut self,
        flow: Option<Flow>,
        output: &mut Vec<u8>,
        input: &mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Round {
        if let Some(flow) = flow {
            return self.follow(flow, output, input, turn);
        }
        // What it was doing is in doubt, and so is what it wrote; a client that got no answer knows that.
        count(&turn.counters.panics);
        let id = self.session.as_ref().map_or(0, Session::id);
        log::error!("a command of client {id} hit a fault in Terrace; closed it");
        Round::Then(Next::Close)
    }

    fn follow(
        &mut self,
        flow: Flow,
        output: &mut Vec<u8>,
        input: &mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Round {
        if !self.may_be_told(output.len(), turn.now) {
            return Round::Then(Next::Close);
        }
        self.more = flow == Flow::More;
        if !self.write(output, turn) {
            return Round::Then(Next::Close);
        }
        match flow {
            Flow::Continue | Flow::More => {}
            Flow::Long => return Round::Then(Next::Long),
            Flow::Close => {
                let all_read = input.is_empty() && !self.readable;
                input.clear();
                self.ending = if all_read { Ending::Flush } else { Ending::Linger };
            }
            Flow::Shutdown => {
                input.clear();
                self.ending = Ending::Flush;
                turn.shutdown = true;
            }
        }
        if self.ending == Ending::No && !self.more && !self.readable {
            return Round::Then(Next::Wait);
        }
        Round::Done
    }

    /// Whether the client may be sent so many bytes more: before it has authenticated, not many. What it was sent
    /// before it lost its rights does not count.
    fn may_be_told(&mut self, bytes: usize, now: u64) -> bool {
        let Some(session) = self.session.as_ref().filter(|session| !session.authenticated()) else {
            return true;
        };
        let (resets, before) = session.resets();
        if resets == self.resets {
            self.unknown_output += bytes;
        } else {
            (self.resets, self.unknown_since, self.unknown_output) =
                (resets, now, bytes.saturating_sub(before));
        }
        self.unknown_output <= UNAUTHENTICATED_OUTPUT
    }

    /// Writes replies once, and keeps what the socket had no room for. False: the connection broke.
    fn write(&mut self, output: &mut Vec<u8>, turn: &mut Turn<'_>) -> bool {
        if output.is_empty() {
            return true;
        }
        if !self.backlog.is_empty() {
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

    /// Writes of the backlog what the socket has room for. False: the connection broke.
    fn flush(&mut self, turn: &mut Turn<'_>) -> bool {
        while self.writable && !self.backlog.is_empty() {
            match self.stream.write(self.backlog.waiting()) {
                Io::Moved(count) => {
                    turn.bytes_out += count as u64;
                    self.active_at = turn.now;
                    self.backlog.took(count);
                }
                Io::Blocked => self.writable = false,
                Io::Ended => return false,
            }
        }
        true
    }

    fn end(&mut self, turn: &mut Turn<'_>) -> Next {
        if !self.backlog.is_empty() {
            return Next::Wait;
        }
        match self.ending {
            Ending::No | Ending::Flush => return Next::Close,
            Ending::Linger => {
                self.stream.finish_writing();
                self.active_at = turn.now;
                self.readable = true;
                self.ending = Ending::Lingering;
            }
            Ending::Lingering => {}
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

impl Backlog {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    fn waiting(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Keeps what of `output` is not written yet: by taking the buffer if it is long, by copying otherwise.
    fn begin(&mut self, output: &mut Vec<u8>, written: usize) {
        if output.len() - written > READ {
            *self = Backlog { bytes: std::mem::take(output), written };
        } else {
            self.bytes.extend_from_slice(&output[written..]);
        }
    }

    fn append(&mut self, output: &[u8]) {
        if self.written > self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        self.bytes.extend_from_slice(output);
    }

    fn took(&mut self, count: usize) {
        self.written += count;
        if self.written == self.bytes.len() {
            // Waiting replies are rare, so an empty backlog keeps no memory.
            *self = Backlog::default();
        }
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
    use crate::{config::Config, session::Peer};

    /// A connection, and the client's end of it.
    fn connect(shared: &Arc<Shared>, now: u64) -> (Connection, UnixStream) {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let stream = Stream::Unix(mio::net::UnixStream::from_std(server));
        let session = Session::new(Arc::clone(shared), Peer::default(), 1);
        (Connection::new(Newcomer { stream, peer: Peer::default() }, session, now), client)
    }

    /// Sends a line at a time on the coarse clock, and reads the answer, which must begin so.
    fn ask(connection: &mut (Connection, UnixStream), turn: &mut Turn<'_>, line: &str, answer: &str) {
        connection.1.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        connection.0.readable = true;
        assert_eq!(connection.0.serve(turn), Next::Wait, "{line}");
        let mut found = vec![0; answer.len()];
        connection.1.read_exact(&mut found).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), answer, "{line}");
    }

    #[test]
    fn reset_starts_the_time_to_authenticate_anew() {
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
        };
        let mut connection = connect(&shared, turn.now);
        ask(&mut connection, &mut turn, "AUTH secret", "+OK\r\n");
        assert!(!connection.0.expired(&shared, 500_000));
        turn.now = 100_000;
        ask(&mut connection, &mut turn, "RESET", "+RESET\r\n");
        // Ten seconds, from the first RESET on: a stranger wins no time by another.
        turn.now = 105_000;
        assert!(!connection.0.expired(&shared, turn.now));
        ask(&mut connection, &mut turn, "RESET", "+RESET\r\n");
        assert!(!connection.0.expired(&shared, 110_000) && connection.0.expired(&shared, 110_001));
        turn.now = 109_000;
        ask(&mut connection, &mut turn, "AUTH secret", "+OK\r\n");
        assert!(!connection.0.expired(&shared, 500_000));
    }

    #[test]
    fn a_backlog_gives_back_what_went_in_in_order_and_then_keeps_nothing() {
        let mut backlog = Backlog::default();
        let mut seen = Vec::new();
        let mut expected = Vec::new();
        for round in 0..100_u8 {
            let mut output = vec![round; usize::from(round) * 1000 + 1];
            expected.extend_from_slice(&output);
            if backlog.is_empty() {
                backlog.begin(&mut output, 0)
            } else {
                backlog.append(&output)
            }
            let count = backlog.len().min(30_000);
            seen.extend_from_slice(&backlog.waiting()[..count]);
            backlog.took(count);
        }
        seen.extend_from_slice(backlog.waiting());
        backlog.took(backlog.len());
        assert!(seen == expected);
        assert!(backlog.is_empty() && backlog.bytes.capacity() == 0);
    }
}
