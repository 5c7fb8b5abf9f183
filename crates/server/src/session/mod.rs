//! The protocol side of one connection, without I/O: bytes in, bytes out.
//!
//! [`Session::process`] parses up to [`LOOKAHEAD`] complete commands ahead and runs them in order.
//! Adjacent commands that only read one key each are read as a group, so their cache misses
//! overlap. Adjacent commands that only write one key each are written as a group, so they share
//! fences. The client sees the same results as if each had run by itself.
//!
//! In reading order: the session here; `ahead`, the groups; `long`, which commands leave the loop;
//! `run`, one command; `route`, whether this node of a cluster executes it; `limits`, how far a
//! call goes.

mod ahead;
mod limits;
mod long;
mod route;
mod run;

use std::sync::Arc;

use terrace::cold::{self, ColdReads};
use terrace_protocol::{Limits, Parser, ProtocolError, Reply};

pub use self::limits::{LOOKAHEAD, OUTPUT_HIGH_WATER};
pub use crate::state::clients::Peer;
pub use crate::state::{flow::Flow, session_state::State};
use crate::{
    command::{Context, table},
    keyspace::{Selected, StoreKeyspace},
    state::{databases::Turn, shared::Shared, stats::Counters},
};

/// Cold reads of a command after which it waits for more: what it reads may change all the time.
const COLD_READS_MOST: usize = 1024;
/// Runs of a command that each wanted more cold reads, after which it waits for them: every run
/// begins anew, so many of them would cost the square of its reads.
const COLD_RUNS_MOST: u32 = 8;

/// The commands that a call executes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// All commands in the input.
    All,
    /// The commands before the first script that takes long.
    Long,
    /// The commands before the first one that takes long.
    Short,
}

/// The commands that a call has parsed, and how they run.
#[derive(Clone, Copy)]
struct Batch<'a> {
    pace: Pace,
    turn: &'a Turn,
    shared: &'a Shared,
    input: &'a [u8],
    /// The index of each command in the table.
    places: &'a [Option<usize>],
}

/// A set of counters of commands for a thread that calls [`Session::process`].
pub(crate) fn add_counters(shared: &Shared) -> Arc<Counters> {
    shared.stats.commands.add_set(table::numbers())
}

/// The protocol state of one connection.
pub struct Session {
    shared: Arc<Shared>,
    parser: Parser,
    state: State,
    /// The cold reads of the next command.
    cold: ColdReads,
    /// Runs of the next command that wanted cold reads.
    cold_runs: u32,
    /// Whether the next command waits for its cold reads itself.
    waits: bool,
    /// See [`Session::has_writes_ahead`].
    has_writes_ahead: bool,
    /// Whether the session has its own counters of commands, not those of an event loop.
    owns_counters: bool,
}

impl Session {
    /// A session for a connection just accepted. It is registered in `shared.clients` until
    /// dropped.
    pub fn new(shared: Arc<Shared>, peer: Peer, now_ms: u64) -> Session {
        let counters = add_counters(&shared);
        let mut session = Session::with_counters(shared, peer, now_ms, counters);
        session.owns_counters = true;
        session
    }

    /// As [`Session::new`], with the counters of a thread that serves many sessions. Only that
    /// thread may call [`Session::process`]; another thread swaps in its own counters first.
    pub(crate) fn with_counters(
        shared: Arc<Shared>,
        peer: Peer,
        now_ms: u64,
        counters: Arc<Counters>,
    ) -> Session {
        let state = State::new(&shared, peer, now_ms, counters);
        let (parser, cold) = (Parser::new(), ColdReads::default());
        Session {
            shared,
            parser,
            state,
            cold,
            cold_runs: 0,
            waits: false,
            has_writes_ahead: false,
            owns_counters: false,
        }
    }

    /// Exchanges the counters with those of the thread that calls [`Session::process`] next.
    pub(crate) fn swap_counters(&mut self, counters: &mut Arc<Counters>) {
        std::mem::swap(&mut self.state.counters, counters);
    }

    /// Executes every complete command in `input`, removes its bytes from the front, and appends
    /// the replies to `output`.
    ///
    /// `input` keeps an incomplete command: append the next bytes to it and call again. `now_ms` is
    /// Unix time in milliseconds, read from the clock once per call.
    pub fn process(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, now_ms: u64) -> Flow {
        self.proceed(Pace::All, input, output, now_ms)
    }

    /// As [`Session::process`], but stops before a script that takes long: for a thread that runs
    /// long commands of others, too.
    pub(crate) fn process_long(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, now_ms: u64) -> Flow {
        self.proceed(Pace::Long, input, output, now_ms)
    }

    /// As [`Session::process`], but stops before a command that takes long: for a thread that
    /// serves other connections too.
    pub fn process_short(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, now_ms: u64) -> Flow {
        self.proceed(Pace::Short, input, output, now_ms)
    }

    fn proceed(&mut self, pace: Pace, input: &mut Vec<u8>, output: &mut Vec<u8>, now_ms: u64) -> Flow {
        // Of the first command; the others come later.
        let (mut done, mut first) = (0, Some(now_ms));
        let turn = Arc::clone(&self.state.counters.turn);
        let flow = loop {
            let rest = input.get_mut(done..).unwrap_or_default();
            let most = if self.state.access.is_granted() { LOOKAHEAD } else { 1 };
            let parsed = self.parser.parse(rest, &self.limits(), most);
            let whole = self.parser.len();
            let (executed, stop) = self.execute(pace, &turn, rest, output, &mut first);
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
                self.state.reply_error(&mut Reply::new(output, self.state.resp3), &error.message());
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

    /// Whether the client gave the password, or none is configured. Until then the event loop
    /// limits it to 4 KiB of output and 10 seconds.
    pub fn is_authenticated(&self) -> bool {
        self.state.access.is_granted()
    }

    /// How often RESET has removed the client's authentication, and the length of `output` before
    /// the last time. From there on the event loop counts output and time before authentication
    /// again.
    pub fn resets(&self) -> (u64, usize) {
        self.state.access.resets()
    }

    /// The cold reads of the next command.
    pub(crate) fn cold_reads(&mut self) -> &mut ColdReads {
        &mut self.cold
    }

    /// Whether the commands at which the last call has stopped may write.
    pub(crate) fn has_writes_ahead(&self) -> bool {
        self.has_writes_ahead
    }

    /// Makes the next command wait for its cold reads itself.
    pub(crate) fn wait_next(&mut self) {
        self.waits = true;
    }

    /// The client has closed the connection already. `arrivals`: from when it was accepted.
    pub(crate) fn note_closed(&mut self, arrivals: u64) {
        self.state.closed_before = Some(arrivals);
    }

    /// Whether another client has ended the connection.
    pub(crate) fn is_killed(&self) -> bool {
        self.state.client.is_killed()
    }

    /// The client's id.
    pub fn id(&self) -> u64 {
        self.state.client.id
    }

    fn limits(&self) -> Limits {
        if self.state.access.is_granted() {
            Limits::with_bulk_bytes(self.shared.config.proto_max_bulk_len())
        } else {
            Limits::BEFORE_AUTHENTICATION
        }
    }

    /// Executes the parsed commands. Returns how many, and the next step if commands are left.
    /// Fails if the next command exceeds the limits that apply since a RESET, but was parsed under
    /// wider ones.
    fn execute(
        &mut self,
        pace: Pace,
        turn: &Turn,
        input: &[u8],
        output: &mut Vec<u8>,
        first: &mut Option<u64>,
    ) -> (usize, Result<Flow, ProtocolError>) {
        let whole = self.parser.len();
        let shared = Arc::clone(&self.shared);
        let mut places = [None; LOOKAHEAD];
        for (nth, place) in places.iter_mut().enumerate().take(whole) {
            *place = table::position(self.parser.command(input, nth).name());
        }
        let batch = Batch { pace, turn, shared: &shared, input, places: &places[..whole] };
        let mut nth = 0;
        while nth < whole && self.state.flow == Flow::Continue && output.len() < OUTPUT_HIGH_WATER {
            if self.is_killed() {
                self.state.flow = Flow::Close;
                break;
            }
            if !self.state.access.is_granted()
                && let Err(error) = self.parser.check(nth, &Limits::BEFORE_AUTHENTICATION)
            {
                return (nth, Err(error));
            }
            let (executed, stop) = self.execute_in_turn(batch, nth, output, first);
            nth += executed;
            debug_assert!(nth <= whole, "only commands that are parsed are executed");
            if let Some(flow) = stop {
                return self.stop_at(nth, flow, batch.places);
            }
        }
        (nth, Ok(Flow::More))
    }

    /// Executes the next command, or some that can be grouped, while no command runs that must be
    /// alone. Returns how many, and the next step if the commands behind cannot run now.
    #[inline]
    fn execute_in_turn(
        &mut self,
        batch: Batch<'_>,
        nth: usize,
        output: &mut Vec<u8>,
        first: &mut Option<u64>,
    ) -> (usize, Option<Flow>) {
        let Batch { pace, turn, shared, places, .. } = batch;
        let puts_off = pace == Pace::Short && shared.pacing.parks() && !std::mem::take(&mut self.waits);
        let mut cold = std::mem::take(&mut self.cold);
        let gate = &shared.databases.gate;
        let must_be_alone = run::must_be_alone(&self.state, places[nth]);
        let alone = must_be_alone.then(|| gate.close(|| shared.stats.commands.turns())).flatten();
        let _inside = alone.is_none().then(|| gate.enter(turn));
        self.state.waits.set_alone(alone.is_some());
        self.state.selection.see((!shared.is_of_cluster()).then(|| shared.databases.map()));
        let now_ms = first.take().unwrap_or_else(|| shared.store.upkeep().now_ms());
        let mut next = || self.execute_next(batch, nth, output, now_ms);
        let done = if puts_off { cold.run(next) } else { next() };
        let executed = done.unwrap_or(0);
        if !puts_off || !cold.is_stuck() || executed > 0 {
            self.cold_runs = 0;
        }
        if puts_off && cold.is_stuck() {
            let is_exec = places[nth + executed].is_some_and(|place| table::TABLE[place].name == "exec");
            return (executed, self.put_off(cold, is_exec));
        }
        (executed, done.err())
    }

    fn stop_at(
        &mut self,
        nth: usize,
        flow: Flow,
        places: &[Option<usize>],
    ) -> (usize, Result<Flow, ProtocolError>) {
        let mut ahead = places[nth..].iter().flatten();
        // What is not parsed yet may write.
        self.has_writes_ahead =
            places.len() == LOOKAHEAD || ahead.any(|place| run::writes(table::TABLE[*place]));
        (nth, Ok(flow))
    }

    /// Executes the next command, or some that can be grouped. Returns how many, or the next step
    /// if it takes long or cannot run now. A command that was put off does not count.
    fn execute_next(
        &mut self,
        batch: Batch<'_>,
        nth: usize,
        output: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<usize, Flow> {
        let Batch { pace, input, places, .. } = batch;
        let mut reply = Reply::new(output, self.state.resp3);
        if places.len() - nth > 1 && self.may_group() {
            let commands = (nth..places.len()).map(|nth| (self.parser.command(input, nth), places[nth]));
            let grouped = ahead::execute(commands, &self.shared, &mut self.state, &mut reply, now_ms);
            if grouped > 0 || cold::is_stuck() {
                self.state.waits.end();
                return Ok(grouped);
            }
        }
        let args = self.parser.command(input, nth);
        if pace == Pace::Short && long::is_long(&self.shared, &self.state, args, places[nth]) {
            return Err(Flow::Long);
        }
        self.state.waits.allow_put_off(pace != Pace::All);
        let store = &mut StoreKeyspace(&self.shared.store);
        let keys = &mut Selected::new(store, self.state.place(), &self.shared);
        let mut cx = Context { keys, shared: &self.shared, state: &mut self.state, reply, now_ms };
        let mark = cx.reply.mark();
        run::dispatch(&mut cx, args, places[nth])?;
        if !cold::is_stuck() && cx.state.replies.is_left_out() {
            cx.reply.rewind(mark);
        }
        Ok(usize::from(!cold::is_stuck()))
    }

    /// Whether adjacent commands may be executed as a group.
    #[inline]
    fn may_group(&self) -> bool {
        self.state.is_plain()
            && self.shared.alone.since().is_none()
            && self.shared.databases.damage().is_none()
    }

    /// What becomes of a command that wants cold reads: [`Flow::Cold`], or [`Flow::Long`] if they
    /// cannot be told before, or `None` if it is to wait here.
    fn put_off(&mut self, cold: ColdReads, is_exec: bool) -> Option<Flow> {
        self.cold_runs += 1;
        let is_endless = cold.made() > COLD_READS_MOST || self.cold_runs > COLD_RUNS_MOST;
        if !cold.must_wait() && !is_endless {
            self.cold = cold;
            return Some(Flow::Cold);
        }
        // On a worker, a transaction might run again without end: see `long.rs`.
        self.waits = is_exec;
        (!is_exec).then_some(Flow::Long)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.clients.remove(&self.state.client);
        if self.owns_counters {
            self.shared.stats.commands.remove_set(&self.state.counters);
        }
    }
}
