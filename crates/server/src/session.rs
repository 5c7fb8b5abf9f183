//! One connection's side of the conversation, without any I/O: bytes in, bytes out.
//!
//! [`Session::process`] reads as many commands ahead as have arrived whole, up to [`LOOKAHEAD`], and runs them in order. Neighbours
//! that only read one key each are read together, so that their cache misses overlap; neighbours that only write one key each
//! are written together, so that they share their fences. What a client sees is as if each had run by itself.

mod ahead;
mod long;
mod run;
mod state;

use std::sync::Arc;

use terrace_protocol::{Limits, Parser, ProtocolError, Reply};

pub(crate) use self::long::{MANY, has_many_clients, has_many_keys, may_wait};
pub(crate) use self::run::run;
pub use self::state::State;
pub use crate::clients::Peer;
use crate::{
    command::{Context, table},
    keyspace::Direct,
    shared::Shared,
    stats::Counters,
};

/// What the event loop does after [`Session::process`] or [`Session::take_turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Everything complete was executed: read more.
    Continue,
    /// `output` has grown to [`OUTPUT_HIGH_WATER`]: write it out, then call `process` again before reading more,
    /// since `input` may hold further whole commands.
    More,
    /// The next command takes long, and is not executed yet: write `output`, then call `process` where nobody waits for it.
    /// Only of [`Session::take_turn`].
    Long,
    /// Write `output`, then close the connection.
    Close,
    /// SHUTDOWN: write `output`, then end the server (`Shared::shut_down` was called).
    Shutdown,
}

/// `process` stops between two commands when `output` holds this many bytes.
pub const OUTPUT_HIGH_WATER: usize = 1 << 20;

/// Commands that are read ahead.
pub const LOOKAHEAD: usize = 64;

/// Which commands a session executes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// All that are there.
    All,
    /// Those before the first that takes long.
    Short,
}

/// One per connection.
pub struct Session {
    shared: Arc<Shared>,
    parser: Parser,
    state: State,
    /// Whether the counters of commands are its own, not its event loop's.
    counts_alone: bool,
}

impl Session {
    /// A session for a connection just accepted; it is in `shared.clients` until dropped.
    pub fn new(shared: Arc<Shared>, peer: Peer, now_ms: u64) -> Session {
        let counters = shared.stats.commands.enter();
        let mut session = Session::counting(shared, peer, now_ms, counters);
        session.counts_alone = true;
        session
    }

    /// The same, for a thread that serves many and counts for all of them. Only that thread may
    /// call [`Session::process`]; another one swaps in its own counters first.
    pub(crate) fn counting(shared: Arc<Shared>, peer: Peer, now_ms: u64, counters: Arc<Counters>) -> Session {
        let state = State::new(&shared, peer, now_ms, counters);
        Session { shared, parser: Parser::new(), state, counts_alone: false }
    }

    /// Counts commands with other counters from now on: those of the thread that calls [`Session::process`] next.
    pub(crate) fn swap_counters(&mut self, counters: &mut Arc<Counters>) {
        std::mem::swap(&mut self.state.counters, counters);
    }

    /// Executes every command that `input` holds whole, removes their bytes from its front, appends the replies to `output`.
    ///
    /// `input` keeps the beginning of a command that has not arrived wholly; append what is read next to it and call again.
    /// `now_ms` is Unix time in milliseconds, asked of the clock once a call.
    pub fn process(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, now_ms: u64) -> Flow {
        self.proceed(Pace::All, input, output, now_ms)
    }

    /// As [`Session::process`], but stops before a command that takes long: for a thread that has others to serve.
    pub fn take_turn(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, now_ms: u64) -> Flow {
        self.proceed(Pace::Short, input, output, now_ms)
    }

    fn proceed(&mut self, pace: Pace, input: &mut Vec<u8>, output: &mut Vec<u8>, now_ms: u64) -> Flow {
        let mut done = 0;
        let flow = loop {
            let rest = input.get_mut(done..).unwrap_or_default();
            let most = if self.state.authenticated { LOOKAHEAD } else { 1 };
            let parsed = self.parser.parse(rest, &self.limits(), most);
            let whole = self.parser.len();
            let (executed, stop) = self.execute(pace, rest, output, now_ms);
            done += self.parser.release(executed);
            if self.state.flow != Flow::Continue {
                break self.state.flow;
            }
            if let Ok(flow) = stop
                && executed < whole
            {
                break flow;
            }
            if let Err(error) = stop.and(parsed) {
                self.state.failed(&mut Reply::new(output, self.state.resp3), &error.message());
                break Flow::Close;
            }
            if whole < most {
                break Flow::Continue;
            }
        };
        if done == input.len() {
            input.clear();
        } else {
            input.drain(..done);
        }
        self.state.publish(now_ms);
        flow
    }

    /// Whether the client may do all it likes: it gave the password, or none is asked for. Until then the event loop
    /// holds it to 4 KiB of output and 10 seconds.
    pub fn authenticated(&self) -> bool {
        self.state.authenticated
    }

    /// How often the client has lost its rights by RESET, and how many bytes `output` had before
    /// the last time: from there on the event loop counts its output, and its time, before
    /// authentication anew.
    pub fn resets(&self) -> (u64, usize) {
        self.state.resets
    }

    /// The client's number.
    pub fn id(&self) -> u64 {
        self.state.client.id
    }

    fn limits(&self) -> Limits {
        if self.state.authenticated {
            Limits::with_bulk_bytes(self.shared.config.proto_max_bulk_len())
        } else {
            Limits::BEFORE_AUTHENTICATION
        }
    }

    /// Executes the commands that the parser holds; says how many of them, and what follows if not all. An error if the next
    /// one was read under wider limits than those that hold since RESET.
    fn execute(
        &mut self,
        pace: Pace,
        input: &[u8],
        output: &mut Vec<u8>,
        now_ms: u64,
    ) -> (usize, Result<Flow, ProtocolError>) {
        let whole = self.parser.len();
        let mut places = [None; LOOKAHEAD];
        for (nth, place) in places.iter_mut().enumerate().take(whole) {
            *place = table::position(self.parser.command(input, nth).name());
        }
        let mut nth = 0;
        while nth < whole && self.state.flow == Flow::Continue && output.len() < OUTPUT_HIGH_WATER {
            if !self.state.authenticated
                && let Err(error) = self.parser.check(nth, &Limits::BEFORE_AUTHENTICATION)
            {
                return (nth, Err(error));
            }
            let mut reply = Reply::new(output, self.state.resp3);
            let commands = (nth..whole).map(|nth| (self.parser.command(input, nth), places[nth]));
            let together = if whole - nth > 1 && self.state.is_plain() {
                ahead::execute(commands, &self.shared.store, &mut self.state, &mut reply, now_ms)
            } else {
                0
            };
            if together == 0 {
                let args = self.parser.command(input, nth);
                if pace == Pace::Short && long::is_long(&self.shared, &self.state, args, places[nth]) {
                    return (nth, Ok(Flow::Long));
                }
                let keys = &mut Direct(&self.shared.store);
                let mut cx = Context { keys, shared: &self.shared, state: &mut self.state, reply, now_ms };
                run::dispatch(&mut cx, args, places[nth]);
            }
            nth += together.max(1);
        }
        (nth, Ok(Flow::More))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.clients.leave(&self.state.client);
        if self.counts_alone {
            self.shared.stats.commands.leave(&self.state.counters);
        }
    }
}
