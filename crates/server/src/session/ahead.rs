//! Groups of adjacent commands that are executed together.
//!
//! Keys of database 0 are used where they lie in the input. Those of another database get their
//! prefix in one buffer for the group.

use terrace::{Entry, Put, PutOptions, ReadError, WriteError};
use terrace_protocol::{Args, Reply};

use super::{limits::OUTPUT_HIGH_WATER, route};
use crate::{
    command::{Read, Run, table},
    keyspace::Found,
    state::{
        databases::Place, failure::Failure, routing::Routing, session_state::State, shared::Shared,
        stats::Number,
    },
};

/// Maximum size of a group: enough to overlap the cache misses.
const GROUP_MAX: usize = 32;

/// How a command can be grouped.
enum Kind<'a> {
    /// Reads one key.
    Read(Read),
    /// Writes one key and replies OK.
    Put(Put<'a>),
    /// Cannot be grouped.
    Other,
}

/// Executes a group from the front of `commands`, each of them given with its index in the table.
/// Returns the size of the group, 0 if the first command has to run alone. The client must be
/// allowed to execute them all.
pub(super) fn execute<'a>(
    commands: impl Iterator<Item = (Args<'a>, Option<usize>)>,
    shared: &Shared,
    state: &mut State,
    reply: &mut Reply<'_>,
    now_ms: u64,
) -> usize {
    let (routing, database) = (shared.routing().map(|routing| &**routing), state.place());
    if !shared.lines().is_empty() {
        // Each by itself looks at the line of its slot.
        return 0;
    }
    let mut kinds =
        commands.take(GROUP_MAX).map(|(args, place)| (args, kind(args, place, routing, database, now_ms)));
    match (kinds.next(), kinds.next()) {
        (Some((args, (Kind::Read(read), first))), Some((next, (Kind::Read(then), place)))) => {
            let mut reads = Reads::new();
            reads.push(args, read, first);
            reads.push(next, then, place);
            for (args, kind) in kinds {
                let (Kind::Read(read), place) = kind else { break };
                reads.push(args, read, place);
            }
            reads.execute(shared, state, reply, now_ms)
        }
        (Some((_, (Kind::Put(put), first))), Some((_, (Kind::Put(then), place)))) => {
            let rest = kinds.map(|(_, kind)| kind);
            execute_puts([(put, first), (then, place)], rest, shared, state, reply)
        }
        _ => 0,
    }
}

/// Executes a group of writes: the first two, and what of the rest belongs to it.
#[inline]
fn execute_puts<'a>(
    [(put, first), (then, place)]: [(Put<'a>, usize); 2],
    rest: impl Iterator<Item = (Kind<'a>, usize)>,
    shared: &Shared,
    state: &mut State,
    reply: &mut Reply<'_>,
) -> usize {
    let database = state.place();
    let mut puts = Vec::with_capacity(GROUP_MAX);
    puts.extend([put, then]);
    let mut places = [place; GROUP_MAX];
    places[0] = first;
    for kind in rest {
        let (Kind::Put(put), place) = kind else { break };
        places[puts.len()] = place;
        puts.push(put);
    }
    let places = &places[..puts.len()];
    if database.is_plain() {
        return put_all(&puts, places, shared, state, reply);
    }
    if shared.databases.use_place(&shared.store, database).is_err() {
        // The first put runs alone, and reports it.
        return 0;
    }
    let mut buffer = Vec::new();
    let keys = database.encode_all(puts.iter().map(|put| put.key), &mut buffer);
    let puts: Vec<_> = puts.iter().zip(keys).map(|(put, key)| Put { key, ..*put }).collect();
    put_all(&puts, places, shared, state, reply)
}

/// The kind of a command, and its index in the table. A command for a key that this node of a
/// cluster does not serve, or that is stored under another name, runs alone.
fn kind<'a>(
    args: Args<'a>,
    place: Option<usize>,
    routing: Option<&dyn Routing>,
    database: Place,
    now_ms: u64,
) -> (Kind<'a>, usize) {
    let Some(place) = place else { return (Kind::Other, 0) };
    let command = table::TABLE[place];
    let kind = match (command.run, command.as_put) {
        _ if !command.accepts(args.len()) => Kind::Other,
        (Run::Read(read), _) => Kind::Read(read),
        (_, Some(as_put)) => as_put(args, now_ms).map_or(Kind::Other, Kind::Put),
        _ => Kind::Other,
    };
    let key = match &kind {
        Kind::Read(_) => args.at(1),
        Kind::Put(put) => put.key,
        Kind::Other => return (kind, place),
    };
    let is_here = routing.is_none_or(|routing| route::is_here(routing, key));
    // A key of database 0 that begins with the prefix of another one is stored otherwise.
    (if is_here && (!database.is_plain() || database.keeps(key)) { kind } else { Kind::Other }, place)
}

/// A group of commands that read one key each.
struct Reads<'a> {
    len: usize,
    keys: [&'a [u8]; GROUP_MAX],
    reads: [Option<(Read, Args<'a>)>; GROUP_MAX],
    places: [usize; GROUP_MAX],
}

impl<'a> Reads<'a> {
    fn new() -> Reads<'a> {
        Reads { len: 0, keys: [&[]; GROUP_MAX], reads: [None; GROUP_MAX], places: [0; GROUP_MAX] }
    }

    fn push(&mut self, args: Args<'a>, read: Read, place: usize) {
        debug_assert!(self.len < GROUP_MAX, "the caller takes no more commands");
        self.keys[self.len] = args.at(1);
        self.reads[self.len] = Some((read, args));
        self.places[self.len] = place;
        self.len += 1;
    }

    /// Executes the group in order. Returns how many ran: not all if the replies become too long.
    fn execute(&self, shared: &Shared, state: &mut State, reply: &mut Reply<'_>, now_ms: u64) -> usize {
        let mut executed = 0;
        let began = state.counters.begin_group(table::number(self.places[0]), self.len);
        let mut buffer = Vec::new();
        let encoded: Vec<&[u8]>;
        let keys = match state.place() {
            place if place.is_plain() => &self.keys[..self.len],
            place => {
                encoded = place.encode_all(self.keys[..self.len].iter().copied(), &mut buffer);
                &encoded
            }
        };
        shared.store.get_many(keys, &mut |nth, entry| {
            if nth == executed && entry.as_ref().is_err_and(runs_alone) {
                // The others are looked up for what they want.
                return;
            }
            if nth == executed && (executed == 0 || reply.mark() < OUTPUT_HIGH_WATER) {
                executed += 1;
                self.answer(nth, entry, shared, state, reply, now_ms);
            }
        });
        count(state, &self.places[..executed], [true, false], began);
        state.last_command = self.places[executed.saturating_sub(1)];
        executed
    }

    /// Replies to the command at this place of the group.
    #[inline]
    fn answer(
        &self,
        nth: usize,
        entry: Result<Option<Entry<'_>>, ReadError>,
        shared: &Shared,
        state: &mut State,
        reply: &mut Reply<'_>,
        now_ms: u64,
    ) {
        let Some((read, args)) = self.reads[nth] else { return };
        let mark = reply.mark();
        let done = entry.map_err(Failure::from).and_then(|entry| {
            state.tally.count_lookup(entry.is_some());
            read(reply, args, entry.map(Found::from), now_ms)
        });
        if let Err(failure) = done {
            reply.rewind(mark);
            route::fail(shared, state, reply, failure);
            state.counters.record_failure(table::number(self.places[nth]));
        }
    }
}

/// Counts a group of commands.
#[inline]
fn count(state: &mut State, places: &[usize], [reads, writes]: [bool; 2], began: Option<u64>) {
    state.tally.count_commands(places.len() as u64, reads, writes);
    state.counters.end_group(places.len(), runs(places), began);
}

/// How often the same command comes in a row.
fn runs(places: &[usize]) -> impl Iterator<Item = (Number, usize)> {
    places.chunk_by(|one, other| one == other).map(|run| (table::number(run[0]), run.len()))
}

/// Whether a read is to be done once more, by itself.
fn runs_alone(error: &ReadError) -> bool {
    error.is_put_off() || matches!(error, ReadError::NotOwner { .. })
}

/// Executes a group of writes in order, each by itself, with shared fences.
fn put_all(
    puts: &[Put<'_>],
    places: &[usize],
    shared: &Shared,
    state: &mut State,
    reply: &mut Reply<'_>,
) -> usize {
    let store = &shared.store;
    let began = state.counters.begin_group(table::number(places[0]), places.len());
    let mut executed = 0;
    let mut answer = |done: Result<(), WriteError>, place: usize| {
        executed += 1;
        match done {
            Ok(()) => reply.ok(),
            // Those behind it, too.
            Err(error) if error.is_put_off() || matches!(error, WriteError::NotOwner { .. }) => executed -= 1,
            Err(error) => fail_put(error, place, shared, state, reply),
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
    count(state, &places[..executed], [false, true], began);
    state.last_command = places[executed.saturating_sub(1)];
    executed
}

/// Replies that a write of a group has failed.
#[cold]
fn fail_put(error: WriteError, place: usize, shared: &Shared, state: &mut State, reply: &mut Reply<'_>) {
    let failure = Failure::from(error);
    match failure.is_rejection() {
        true => state.counters.reject(table::number(place)),
        false => state.counters.record_failure(table::number(place)),
    }
    route::fail(shared, state, reply, failure);
}
