//! A script that runs, as one transaction.

use std::collections::BTreeMap;

use terrace::cold;
use terrace_protocol::{Args, Reply};
use terrace_script::{CallError, Ended, Host, Machine, Run, Script, Stop};

use crate::{
    command::{Context, Nested, ScriptRules, removals, table},
    keyspace::{Keyspace, Removals},
    state::{
        alone::Runs,
        clock::unix_ms,
        failure::{Failure, Outcome},
        replies::ReplyLimit,
        session_state::State,
        shared::Shared,
        stats::{self, Tally},
    },
};

/// A script, and what its transaction needs.
pub(super) struct Running<'a> {
    pub(super) machine: &'a Machine,
    pub(super) script: &'a Script,
    pub(super) run: Run<'a>,
    pub(super) rules: ScriptRules,
    pub(super) nested: &'a Nested,
}

/// One run of a script.
struct Attempt<'a> {
    keys: &'a mut dyn Keyspace,
    shared: &'a Shared,
    state: &'a mut State,
    now_ms: u64,
    /// Whether the transaction is the script's own, not that of EXEC.
    is_own: bool,
}

/// What the runs of a script have done so far.
#[derive(Default)]
struct Progress {
    /// The commands that all runs have executed.
    executed: Vec<usize>,
    /// The errors of the last run.
    errors: Errors,
    /// Whether the last run has come to the end of the script.
    has_ended: bool,
    /// What the last run removes, if it makes room.
    removed: Option<Removals>,
}

impl Progress {
    /// Another run begins.
    fn begin(&mut self) {
        (self.errors, self.has_ended, self.removed) = (Errors::default(), false, None);
    }

    /// The run has come to the end of the script. One that makes room fails, so that its removals
    /// are done one by one.
    fn end(&mut self, makes_room: bool, keys: &mut dyn Keyspace) -> Outcome {
        self.has_ended = true;
        self.removed = if makes_room { keys.removals()? } else { None };
        if self.removed.is_some() { Err(Failure::PUT_OFF) } else { Ok(()) }
    }

    /// Counts what the script has done, or that it has done nothing: it was put off, and `tally` is
    /// from before.
    fn count(self, state: &mut State, tally: Tally, has_succeeded: bool) {
        if cold::is_stuck() || state.waits.is_put_off() {
            // It runs again, as if for the first time.
            state.tally = tally;
            self.executed.into_iter().for_each(|place| state.counters.cancel(table::number(place)));
            return;
        }
        for (code, count) in self.errors.counts {
            state.tally.errors += count;
            state.counters.record_errors(&code, count);
        }
        state.has_failed = self.errors.are_returned && has_succeeded;
    }
}

impl Running<'_> {
    /// Runs the script until it commits or fails.
    pub(super) fn transact(&self, cx: &mut Context<'_>) -> Outcome {
        let Context { keys, shared, state, reply, now_ms } = cx;
        let (mark, tally, selection) = (reply.mark(), state.tally, state.selection);
        let alone_next = state.waits.take_alone_next();
        let mut runs = Runs::new(&shared.alone, unix_ms, *now_ms, alone_next);
        let mut progress = Progress::default();
        // Within EXEC, that is the transaction, and may write behind the script.
        let is_own = !keys.is_transaction();
        let mut done = keys.atomically(&mut |keys| {
            // The store runs this again after a conflicting write: start from the beginning.
            reply.rewind(mark);
            progress.begin();
            state.selection.select(selection.database());
            let Some(now_ms) = runs.begin() else {
                state.waits.put_off_to_be_alone();
                return Err(Failure::PUT_OFF);
            };
            terrace::at_instant(now_ms, || {
                self.run_once(Attempt { keys, shared, state, now_ms, is_own }, reply, &mut progress)
            })
        });
        // What a script selects, it selects for itself.
        state.selection.select(selection.database());
        if let Err(failure) = &done
            && progress.has_ended
            && is_own
            && let Some(settled) =
                removals::settle(shared, state, progress.removed.take(), (failure, &progress.executed))
        {
            done = settled;
        }
        progress.count(state, tally, done.is_ok());
        done
    }

    /// Runs the script once, at an instant.
    fn run_once(&self, attempt: Attempt<'_>, reply: &mut Reply<'_>, progress: &mut Progress) -> Outcome {
        let Attempt { keys, shared, state, now_ms, is_own } = attempt;
        let (run, memory) = (self.run, self.run.limits.memory);
        let held_most = if memory == 0 { usize::MAX } else { keys.held_bytes().saturating_add(memory) };
        let reply_limit = limit_of_replies(memory, state.reply_limit);
        let mut calls = Calls {
            keys: &mut *keys,
            shared,
            state: &mut *state,
            now_ms,
            rules: self.rules,
            nested: self.nested,
            executed: &mut progress.executed,
            errors: &mut progress.errors,
            failure: None,
            held_most,
            reply_limit,
        };
        let ended = self.machine.run(self.script, run, &mut calls, reply);
        let failure = calls.failure.take();
        if cold::is_stuck() {
            // It will want its keys, so their cold reads are made at once.
            (0..run.keys).for_each(|nth| _ = keys.read(run.args.at(nth), &mut |_| {}));
        }
        match ended {
            Ok(()) => progress.end(state.waits.makes_room() && is_own, keys),
            Err(Ended::Failed(text)) => Err(Failure::Made(text)),
            Err(Ended::Stopped(Stop::OverBudget, _)) => {
                state.waits.put_off_script(now_ms);
                Err(Failure::PUT_OFF)
            }
            Err(Ended::Stopped(_, text)) => Err(failure.unwrap_or(Failure::Made(text))),
        }
    }
}

/// How large the replies of commands may become in a script that may use this memory; 0: any.
fn limit_of_replies(memory: usize, limit: ReplyLimit) -> ReplyLimit {
    match memory {
        bytes @ 1.. if bytes < limit.bytes => ReplyLimit { bytes, name: "script-memory" },
        _ => limit,
    }
}

const HOLDS_TOO_MUCH: Failure = Failure::Text(
    "OOM the writes of the script take more than script-memory, so nothing of it has happened: write less in one \
     script, or raise script-memory",
);

/// The commands of a script.
struct Calls<'a> {
    keys: &'a mut dyn Keyspace,
    shared: &'a Shared,
    state: &'a mut State,
    now_ms: u64,
    rules: ScriptRules,
    nested: &'a Nested,
    executed: &'a mut Vec<usize>,
    errors: &'a mut Errors,
    /// Why the transaction cannot go on.
    failure: Option<Failure>,
    /// What the transaction may hold in memory, bytes.
    held_most: usize,
    /// How large the replies of commands may become.
    reply_limit: ReplyLimit,
}

/// The errors that count, as in Redis: of commands that have failed, even if the script has caught
/// them, and others that the script returns.
#[derive(Default)]
struct Errors {
    /// How many have this code.
    counts: BTreeMap<Vec<u8>, u64>,
    /// Whether there are some in what the script returns.
    are_returned: bool,
}

impl Errors {
    fn add(&mut self, error: &[u8]) {
        *self.counts.entry(stats::code_of(error).to_vec()).or_default() += 1;
    }
}

impl Host for Calls<'_> {
    fn returned(&mut self, error: &[u8], of_command: bool) {
        self.errors.are_returned = true;
        if !of_command {
            self.errors.add(error);
        }
    }

    fn raised(&mut self, error: &[u8]) {
        // The reply of the script counts it.
        if let Some(count) = self.errors.counts.get_mut(stats::code_of(error)) {
            *count = count.saturating_sub(1);
        }
    }

    fn call(&mut self, args: Args<'_>, resp3: bool, out: &mut Vec<u8>) -> Result<(), CallError> {
        let (reply, database) = (terrace_protocol::Reply::new(out, resp3), self.state.selection.database());
        let before = std::mem::replace(&mut self.state.reply_limit, self.reply_limit);
        let cx = &mut Context {
            keys: &mut *self.keys,
            shared: self.shared,
            state: &mut *self.state,
            reply,
            now_ms: self.now_ms,
        };
        let outcome = (self.nested.in_script)(cx, args, &mut self.rules, self.executed);
        self.state.reply_limit = before;
        if self.state.selection.database() != database {
            self.keys.select(self.state.place());
        }
        match outcome {
            _ if cold::is_stuck() => Err(CallError::Abandon),
            Ok(()) if self.keys.held_bytes() > self.held_most => {
                self.failure = Some(HOLDS_TOO_MUCH);
                Err(CallError::Abandon)
            }
            Ok(()) => Ok(()),
            Err(failure) if failure.is_of_cluster() => {
                self.failure = Some(failure);
                Err(CallError::Abandon)
            }
            Err(failure) => {
                self.errors.add(failure.message());
                Err(CallError::Failed(failure.message().into()))
            }
        }
    }

    fn knows(&self, args: Args<'_>) -> bool {
        table::lookup(args.name()).is_some()
    }
}
