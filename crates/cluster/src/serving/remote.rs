//! Lookups in the memory: many at one time, each step of all of them in one round trip.

use super::cache::Shortcut;
use super::damage::Damage;
use super::key::{Copied, Key};
use super::session::{Pin, Session};
use crate::lock::lock;
use crate::message::Untold;
use std::sync::atomic::Ordering::Relaxed;
use terrace_direct::remote::{Get, Reading, read};
use terrace_engine::{Place, ReadError, Value};
use terrace_index::hash::remote::Answer;

/// Bytes of the longest record that is read at a guess.
const GUESS_MAX: usize = 8 << 10;
/// Bytes that a guess grows or begins by.
const GUESS_STEP: usize = 64;

/// What a key has in the memory.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) entry: Option<Copied>,
    /// Where the record lies, if it is small enough for one read.
    pub(super) shortcut: Option<Shortcut>,
}

enum Looking<'k> {
    /// The record is read where it was.
    There(Shortcut),
    /// The index is searched.
    Searching(Box<Get<'k>>),
    /// The memory node must be asked.
    Asking,
    Done(Found),
}

/// Looks up keys, some of which were in known places before. In the order of the keys.
pub(super) fn look_up<'k>(
    session: &Session,
    keys: &[(Key<'k>, Option<Shortcut>)],
) -> Vec<Result<Found, ReadError>> {
    let moved = || keys.iter().map(|(key, _)| Err(ReadError::NotOwner { slot: key.slot })).collect();
    // Without a pin, the first lease is on its way.
    let Some(pin) = session.pinned() else { return moved() };
    let search = |key: Key<'k>| {
        let remote = lock(&pin.remote);
        Looking::Searching(Box::new(Get::new(&remote, key.bytes, session.guess.load(Relaxed))))
    };
    let start =
        |&(key, known): &(Key<'k>, Option<Shortcut>)| known.map_or_else(|| search(key), Looking::There);
    let mut looking: Vec<Looking<'k>> = keys.iter().map(start).collect();
    loop {
        let ranges: Vec<(u64, usize)> = looking.iter().flat_map(Looking::ranges).collect();
        if ranges.is_empty() {
            break;
        }
        // An error ends the session. The slots come back with the next one, here or elsewhere.
        let Ok(bytes) = session.read(&ranges) else { return moved() };
        assert!(bytes.len() == ranges.len(), "a read gives the bytes of each range");
        let mut bytes = bytes.into_iter();
        for (one, (key, _)) in looking.iter_mut().zip(keys) {
            let parts: Vec<Vec<u8>> = bytes.by_ref().take(one.ranges().count()).collect();
            if !parts.is_empty() && one.go_on(session, *key, &parts.concat()).is_none() {
                *one = search(*key);
            }
            one.teach(&pin);
        }
    }
    let finish = |(one, (key, _)): (Looking<'_>, &(Key<'_>, _))| match one {
        Looking::Done(found) => Ok(found),
        _ => ask(session, key.bytes),
    };
    looking.into_iter().zip(keys).map(finish).collect()
}

impl Looking<'_> {
    /// What it needs.
    fn ranges(&self) -> impl Iterator<Item = (u64, usize)> + use<> {
        let ranges: Vec<(u64, usize)> = match self {
            Self::There(Shortcut { offset, len }) => vec![(*offset, *len as usize)],
            Self::Searching(get) => get.reads().iter().map(|read| (read.offset, read.len)).collect(),
            Self::Asking | Self::Done(_) => Vec::new(),
        };
        ranges.into_iter()
    }

    /// Lets later searches know what this one has found out about the index.
    fn teach(&self, pin: &Pin) {
        if let Self::Searching(get) = self {
            lock(&pin.remote).learn(get.search());
        }
    }

    /// Goes on with the bytes that it needed. `None` if a known place has led to nothing.
    fn go_on(&mut self, session: &Session, key: Key<'_>, bytes: &[u8]) -> Option<()> {
        match self {
            Self::There(shortcut) => match read(key.bytes, bytes) {
                Reading::Entry(entry) => {
                    let entry = Copied::new(key.bytes, entry.value, entry.expires_at);
                    *self = Self::Done(Found { entry: Some(entry), shortcut: Some(*shortcut) });
                }
                _ => {
                    session.cache.mislead(key);
                    return None;
                }
            },
            Self::Searching(get) => match get.next(bytes) {
                None => {}
                Some(Answer::Ask) => *self = Self::Asking,
                Some(Answer::Absent) => *self = Self::Done(Found { entry: None, shortcut: None }),
                Some(Answer::Found(value)) => {
                    let shortcut = get.place().map(|(offset, len)| {
                        session.guess_by(len);
                        Shortcut { offset, len: len as u32 }
                    });
                    *self = Self::Done(Found { entry: Some(copied(key, &value)), shortcut });
                }
            },
            Self::Asking | Self::Done(_) => {}
        }
        Some(())
    }
}

fn copied(key: Key<'_>, value: &Value<'_>) -> Copied {
    Copied::new(key.bytes, value, value.expires_at())
}

/// As the memory node's engine says it.
fn read_error(untold: Untold) -> ReadError {
    match untold {
        Untold::Damaged { offset, what } => {
            ReadError::Corrupt { place: Place::Pool(offset), what: Damage::of(&what).text() }
        }
        Untold::Other(why) => ReadError::Unavailable(why),
    }
}

fn ask(session: &Session, key: &[u8]) -> Result<Found, ReadError> {
    let item = session.ask_for(key).map_err(read_error)?;
    let entry = item.map(|item| Copied::new(key, &item.value, item.expires_at));
    Ok(Found { entry, shortcut: None })
}

impl Session {
    /// A record had so many bytes: the next one may, too.
    fn guess_by(&self, len: usize) {
        let guess = self.guess.load(Relaxed);
        let wanted = len.next_multiple_of(GUESS_STEP).min(GUESS_MAX);
        // It grows at once, and shrinks slowly.
        let next = if wanted > guess { wanted } else { guess - (guess - wanted) / 64 };
        self.guess.store(next, Relaxed);
    }
}
