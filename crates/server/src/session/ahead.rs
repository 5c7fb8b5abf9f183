//! Neighbouring commands that are executed together.

use terrace::{Put, PutOptions, Store, WriteError};
use terrace_protocol::{Args, Reply};

use super::{OUTPUT_HIGH_WATER, State};
use crate::{
    command::{Failure, Read, Run, flag, table},
    keyspace::Found,
};

/// Commands that run together, at most: enough to hide a cache miss behind the others.
const TOGETHER: usize = 32;

/// What a command is to its neighbours.
enum Kind<'a> {
    /// It reads one key.
    Read(Read),
    /// It writes one key and answers OK.
    Put(Put<'a>),
    /// Anything else.
    Other,
}

/// Executes as many of `commands`, which all may be executed, as go together; says how many, 0 if the first goes alone. With each
/// comes its place in the table.
pub(super) fn execute<'a>(
    commands: impl Iterator<Item = (Args<'a>, Option<usize>)>,
    store: &Store,
    state: &mut State,
    reply: &mut Reply<'_>,
    now_ms: u64,
) -> usize {
    let mut kinds = commands.take(TOGETHER).map(|(args, place)| (args, kind(args, place, now_ms)));
    match (kinds.next(), kinds.next()) {
        (Some((args, (Kind::Read(read), first))), Some((next, (Kind::Read(then), place)))) => {
            let mut reads = Reads::new();
            reads.push(args, read, first);
            reads.push(next, then, place);
            for (args, kind) in kinds {
                let (Kind::Read(read), place) = kind else { break };
                reads.push(args, read, place);
            }
            reads.execute(store, state, reply, now_ms)
        }
        (Some((_, (Kind::Put(put), first))), Some((_, (Kind::Put(then), place)))) => {
            let mut puts = Vec::with_capacity(TOGETHER);
            puts.extend([put, then]);
            let mut places = [place; TOGETHER];
            places[0] = first;
            for (_, kind) in kinds {
                let (Kind::Put(put), place) = kind else { break };
                places[puts.len()] = place;
                puts.push(put);
            }
            put_all(&puts, &places[..puts.len()], store, state, reply)
        }
        _ => 0,
    }
}

/// What a command is, and its place in the table.
fn kind(args: Args<'_>, place: Option<usize>, now_ms: u64) -> (Kind<'_>, usize) {
    let Some(place) = place else { return (Kind::Other, 0) };
    let command = table::TABLE[place];
    let kind = match (command.run, command.as_put) {
        _ if !command.takes(args.len()) => Kind::Other,
        (Run::Read(read), _) => Kind::Read(read),
        (_, Some(as_put)) => as_put(args, now_ms).map_or(Kind::Other, Kind::Put),
        _ => Kind::Other,
    };
    (kind, place)
}

/// Commands that each read one key.
struct Reads<'a> {
    len: usize,
    keys: [&'a [u8]; TOGETHER],
    reads: [Option<(Read, Args<'a>)>; TOGETHER],
    places: [usize; TOGETHER],
}

impl<'a> Reads<'a> {
    fn new() -> Reads<'a> {
        Reads { len: 0, keys: [&[]; TOGETHER], reads: [None; TOGETHER], places: [0; TOGETHER] }
    }

    fn push(&mut self, args: Args<'a>, read: Read, place: usize) {
        self.keys[self.len] = args.at(1);
        self.reads[self.len] = Some((read, args));
        self.places[self.len] = place;
        self.len += 1;
    }

    /// Executes them in order, and says how many: not all, if the replies became too long.
    fn execute(&self, store: &Store, state: &mut State, reply: &mut Reply<'_>, now_ms: u64) -> usize {
        let mut executed = 0;
        let began = state.counters.begin_together(self.places[0], self.len);
        store.get_many(&self.keys[..self.len], &mut |nth, entry| {
            let Some((read, args)) = self.reads[nth] else { return };
            if nth != executed || executed > 0 && reply.mark() >= OUTPUT_HIGH_WATER {
                return;
            }
            executed += 1;
            let mark = reply.mark();
            let done = entry.map_err(Failure::from).and_then(|entry| {
                state.tally.looked_up(entry.is_some());
                read(reply, args, entry.map(Found::from), now_ms)
            });
            if let Err(failure) = done {
                reply.rewind(mark);
                state.failed(reply, failure.message());
                state.counters.failed(self.places[nth]);
            }
        });
        state.tally.executed(executed as u64, flag::READONLY);
        state.counters.end_together(&self.places[..executed], began);
        state.last_command = self.places[executed.saturating_sub(1)];
        executed
    }
}

/// Writes in order, each by itself, with shared fences.
fn put_all(
    puts: &[Put<'_>],
    places: &[usize],
    store: &Store,
    state: &mut State,
    reply: &mut Reply<'_>,
) -> usize {
    let began = state.counters.begin_together(places[0], places.len());
    let mut answer = |done: Result<(), WriteError>, place: usize| match done {
        Ok(()) => reply.ok(),
        Err(error) => {
            state.failed(reply, Failure::from(error).message());
            state.counters.failed(place);
        }
    };
    match puts {
        [put] => {
            let options = PutOptions::new().expires_at(put.expires_at);
            answer(store.put_with(put.key, put.value, options), places[0]);
        }
        puts => {
            let done = store.put_many(puts).into_iter();
            done.zip(places).for_each(|(done, place)| answer(done, *place));
        }
    }
    state.tally.executed(puts.len() as u64, flag::WRITE);
    state.counters.end_together(places, began);
    state.last_command = places[places.len() - 1];
    puts.len()
}
