//! The store that a command works on: the pool itself, or the server that has it open.

use std::{io, ops::ControlFlow, time::Duration};

use clap::{Args, value_parser};
use terrace::{Cursor, Direction, OpenError, Put, RangeCursor, ReadError, Store, WriteError};
use terrace_server::{
    config::Config,
    databases::{self, Map, Place},
};

use crate::{
    clock,
    entry::{Found, Wanted},
    failure::{Failure, Outcome},
    in_force,
    location::path,
    open::{self, ATTEMPTS},
    password::Password,
    record::Record,
    remote::{self, Client, Refused},
    text::counted,
};

/// The database that a command works on.
#[derive(Debug, Args)]
pub(crate) struct Database {
    /// The database: 0 to 15, as clients of a server select it
    #[arg(long = "db", value_name = "N", default_value_t = 0, value_parser = value_parser!(u8).range(0..16))]
    pub(crate) number: u8,
}

/// A pool opened by this process, or a connection to its server. Commands work on database 0, or on
/// the one that was selected.
pub(crate) enum Target {
    /// The store, and the place of the database.
    Pool(Store, Place),
    Server(Client),
}

impl Target {
    /// For reading an existing store.
    pub(crate) fn to_read(config: &Config, password: &Password) -> Result<Target, Failure> {
        reach(config, password, || open::read_once(config))
    }

    /// For changing an existing store.
    pub(crate) fn to_write(config: &Config, password: &Password) -> Result<Target, Failure> {
        reach(config, password, || open::write_once(config))
    }

    /// For filling a store, which is created if there is none.
    pub(crate) fn or_create(config: &Config, password: &Password) -> Result<Target, Failure> {
        open::prepare(config)?;
        reach(config, password, || open::or_create_once(config))
    }

    /// The database 0 of a store.
    pub(crate) fn of(store: Store) -> Result<Target, Failure> {
        let map = Map::of(&store).map_err(Failure::new)?;
        Ok(Target::Pool(store, map.place(0)))
    }

    /// Selects a database, from 0 to 15.
    pub(crate) fn select(&mut self, database: u8) -> Result<(), Failure> {
        match self {
            Target::Pool(store, place) => *place = Map::of(store).map_err(Failure::new)?.place(database),
            Target::Server(client) => client.select(database)?,
        }
        Ok(())
    }

    /// The databases that may have keys.
    pub(crate) fn databases(&mut self) -> Result<Vec<u8>, Failure> {
        match self {
            Target::Pool(store, _) => databases::used(store).map_err(Failure::new),
            Target::Server(client) => client.databases(),
        }
    }

    /// A key's value.
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        match self {
            Target::Pool(store, place) => {
                Ok(store.get(place.encode(key)).map_err(Failure::new)?.map(|value| value.to_vec()))
            }
            Target::Server(client) => client.get(key),
        }
    }

    /// Removes keys; returns how many of them existed.
    pub(crate) fn remove(&mut self, keys: &[&[u8]]) -> Result<u64, Failure> {
        match self {
            Target::Pool(store, place) => keys.iter().try_fold(0, |removed, key| {
                Ok(removed + u64::from(store.remove(place.encode(key)).map_err(Failure::new)?))
            }),
            Target::Server(client) => client.remove(keys),
        }
    }

    /// Writes records in order; returns one result per record.
    pub(crate) fn put_many(&mut self, records: &[&Record]) -> Vec<Result<(), Refused>> {
        match self {
            Target::Pool(store, place) => {
                if let Err(error) = databases::use_place(store, *place) {
                    let all = |_| Err(Refused::All(Failure::new(error.to_string())));
                    return records.iter().map(all).collect();
                }
                let keys: Vec<_> = records.iter().map(|record| place.encode(&record.key)).collect();
                let puts: Vec<_> =
                    records.iter().zip(&keys).map(|(record, key)| Put { key, ..record.as_put() }).collect();
                let results = store.put_many(&puts).into_iter();
                results.map(|result| result.map_err(refused)).collect()
            }
            Target::Server(client) => client.put_many(records),
        }
    }

    /// Calls `each` with every wanted entry until it returns false.
    pub(crate) fn each_entry(
        &mut self,
        wanted: &Wanted<'_>,
        each: &mut dyn FnMut(&[u8], Found<'_>) -> io::Result<bool>,
    ) -> Result<(), Failure> {
        match self {
            Target::Pool(store, place) if store.is_ordered() || wanted.range.order.is_some() => {
                each_in_range(store, *place, wanted, each)
            }
            Target::Pool(store, place) => each_in_pool(store, *place, wanted, each),
            Target::Server(client) => client.each_entry(wanted, each),
        }
    }

    /// Fails if [`Target::each_entry`] has left damaged records out.
    pub(crate) fn check_left_out(&self) -> Result<(), Failure> {
        let (count, is_exact) = match self {
            Target::Pool(store, _) => {
                (store.stats().damaged_records_skipped, !store.is_on_disk() && !store.is_ordered())
            }
            Target::Server(client) => (client.left_out, !client.is_on_disk),
        };
        if count == 0 {
            return Ok(());
        }
        let left_out = counted(count, "damaged record", "damaged records");
        // A damaged block of a directory does not tell how many it has, nor does a damaged index.
        let (at_least, others) = match is_exact {
            true => ("", "all others were written"),
            false => ("at least ", "what can be read was written"),
        };
        let hint = "`terrace check` names them; `terrace check --repair` copies all others to a new store";
        Err(Failure::new(format!("left out {at_least}{left_out}; {others}")).hint(hint))
    }

    /// Whether other processes may write to the store during an iteration.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Target::Pool(store, _) => !store.sharing().other_processes().is_empty(),
            Target::Server(_) => true,
        }
    }

    /// Closes a pool cleanly.
    pub(crate) fn close(self) -> Outcome {
        match self {
            Target::Pool(store, _) => open::close(store),
            Target::Server(_) => Ok(std::process::ExitCode::SUCCESS),
        }
    }
}

/// Opens the pool, or connects to the server that has it open. Retries for a second: the kernel
/// needs some time to release a large pool of a killed process, and a server posts its addresses
/// shortly after it has opened the pool.
fn reach(
    config: &Config,
    password: &Password,
    open: impl Fn() -> Result<Store, OpenError>,
) -> Result<Target, Failure> {
    open::refuse_unmerged(config)?;
    let path = path(config);
    for attempt in 0..=ATTEMPTS {
        let error = match open() {
            Ok(store) => {
                open::check_engine(config, &store)?;
                open::report_salvage(&store);
                in_force::warn(config, &store);
                return Target::of(store);
            }
            Err(error) if error.is_in_use() || error.is_denied() => error,
            Err(error) => return Err(open::failure(config, error)),
        };
        if let Some(client) = remote::find(&path, &password.bytes()?)? {
            return Ok(Target::Server(client));
        }
        if attempt == ATTEMPTS || error.is_denied() {
            return Err(open::failure(config, error));
        }
        clock::pause(Duration::from_secs(1) / ATTEMPTS);
    }
    unreachable!("the last attempt returns")
}

fn refused(error: WriteError) -> Refused {
    match error {
        WriteError::KeyTooLong | WriteError::ValueTooLong => Refused::Record(error.to_string()),
        error => Refused::All(Failure::new(error)),
    }
}

/// Entries that are visited at a time.
const PIECE: usize = 256;

/// Visits the entries of an ordered store in order.
fn each_in_range(
    store: &Store,
    place: Place,
    wanted: &Wanted<'_>,
    each: &mut dyn FnMut(&[u8], Found<'_>) -> io::Result<bool>,
) -> Result<(), Failure> {
    let direction = wanted.range.order.unwrap_or(Direction::Forward);
    let mut ranges = place.ranges(wanted.range.bounds());
    if direction == Direction::Backward {
        ranges.reverse();
    }
    for (lower, upper) in ranges.iter().flatten() {
        let bounds = (lower.as_ref().map(|key| &**key), upper.as_ref().map(|key| &**key));
        let mut cursor = store.range_cursor(bounds, direction).map_err(unordered)?;
        if !each_visited(&mut *cursor, place, wanted, each)? {
            break;
        }
    }
    Ok(())
}

/// Visits the entries of a range until `each` returns false. Returns whether it has not.
fn each_visited(
    cursor: &mut dyn RangeCursor,
    place: Place,
    wanted: &Wanted<'_>,
    each: &mut dyn FnMut(&[u8], Found<'_>) -> io::Result<bool>,
) -> Result<bool, Failure> {
    loop {
        let mut more: io::Result<bool> = Ok(true);
        let visited = cursor.visit(PIECE, &mut |stored, entry| {
            if let Some(key) = place.decode(stored).filter(|key| (wanted.key)(key)) {
                more = each(&key, Found { value: entry.value, expires_at: entry.expires_at });
            }
            if matches!(more, Ok(true)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let is_left = match visited {
            Err(ReadError::Skipped { next, .. }) => !next.is_end(),
            visited => visited.map_err(Failure::new)?,
        };
        if !more? {
            return Ok(false);
        }
        if !is_left {
            return Ok(true);
        }
    }
}

fn unordered(error: ReadError) -> Failure {
    Failure::new(error).hint("terrace dump -o all.jsonl; terrace load --index ordered --pool NEW all.jsonl")
}

fn each_in_pool(
    store: &Store,
    place: Place,
    wanted: &Wanted<'_>,
    each: &mut dyn FnMut(&[u8], Found<'_>) -> io::Result<bool>,
) -> Result<(), Failure> {
    let mut cursor = Cursor::START;
    loop {
        let mut more: io::Result<bool> = Ok(true);
        let scanned = store.scan(&cursor, PIECE, &mut |stored, entry| {
            let Some(key) = place.decode(stored).filter(|_| matches!(more, Ok(true))) else { return };
            if (wanted.key)(&key) {
                more = each(&key, Found { value: entry.value, expires_at: entry.expires_at });
            }
        });
        cursor = match scanned {
            Err(ReadError::Skipped { next, .. }) => next,
            scanned => scanned.map_err(Failure::new)?,
        };
        if !more? || cursor.is_end() {
            return Ok(());
        }
    }
}
