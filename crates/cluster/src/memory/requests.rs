//! Requests that change nothing: gets, scans and counts, on threads of their own.

use super::area::Area;
use super::data::Data;
use super::ledger;
use super::logs::Logs;
use crate::message::{Item, Page, ToMemory, ToServing, Untold};
use crate::slot::SLOTS;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terrace_engine::{Cursor, Entry, Place, ReadError};
use terrace_server::databases::slot_of;

/// Bytes of a page: it ends after the item that reaches them.
const PAGE: usize = 1 << 20;
/// Most bytes of a page, which a message holds.
const PAGE_MAX: usize = crate::link::MESSAGE_MAX - (64 << 10);
/// Most keys that a page looks at.
const LOOKS_MAX: u32 = 1 << 16;
const TOO_LONG: &str = "the values of some keys are too long for a page; scan without values";
/// How long a request waits for entries to be merged.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request.
pub(crate) struct Request {
    /// Of this session.
    pub(crate) logs: Arc<Logs>,
    pub(crate) what: ToMemory,
    /// When it came.
    pub(crate) came: Duration,
    /// Takes the answer.
    pub(crate) answer: Box<dyn FnOnce(ToServing) + Send>,
}

/// Requests that wait for a thread, or for a merge.
#[derive(Default)]
pub(crate) struct Requests {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Request>,
    ends: bool,
    answered: u64,
    /// How many merges there were, so that none is missed.
    progress: u64,
}

impl Request {
    fn is_ready(&self, data: &Data) -> bool {
        match &self.what {
            ToMemory::Scan { durable, .. } => self.logs.have_merged(durable),
            ToMemory::Count { durable, .. } => self.logs.have_merged(durable) && data.is_counted(),
            _ => true,
        }
    }
}

impl Requests {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request.
    pub(crate) fn add(&self, request: Request) {
        self.state().waiting.push_back(request);
        self.changed.notify_one();
    }

    /// Entries were merged.
    pub(crate) fn progressed(&self) {
        self.state().progress += 1;
        self.changed.notify_all();
    }

    /// Ends the threads, and forgets what waits.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ends = true;
        state.waiting.clear();
        self.changed.notify_all();
    }

    /// Requests that were answered, and that wait.
    pub(crate) fn figures(&self) -> (u64, usize) {
        let state = self.state();
        (state.answered, state.waiting.len())
    }

    fn next(&self, data: &Data, now: &dyn Fn() -> Duration) -> Option<(Request, bool)> {
        let mut state = self.state();
        loop {
            if state.ends {
                return None;
            }
            let (time, is_late) = (now(), |request: &Request, time| time >= request.came + PATIENCE);
            let ready =
                state.waiting.iter().position(|request| request.is_ready(data) || is_late(request, time));
            if let Some(place) = ready {
                let request = state.waiting.remove(place).expect("found above");
                state.answered += 1;
                let late = !request.is_ready(data);
                return Some((request, late));
            }
            let waited = self.changed.wait_timeout(state, Duration::from_secs(1));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The work of a thread.
    pub(crate) fn run(&self, data: &Data, area: &Area, now: &dyn Fn() -> Duration) {
        while let Some((request, is_late)) = self.next(data, now) {
            let reader = Reader { data, area, session: request.logs.session };
            let answer = reader.answer(&request.what, is_late);
            if let Some(answer) = answer {
                (request.answer)(answer);
            }
        }
    }
}

fn untold(error: ReadError) -> Untold {
    match error {
        ReadError::Corrupt { place: Place::Pool(offset), what } => {
            Untold::Damaged { offset, what: what.into() }
        }
        error => Untold::Other(error.to_string()),
    }
}

/// Reads for a session.
struct Reader<'n> {
    data: &'n Data,
    area: &'n Area,
    session: u64,
}

impl Reader<'_> {
    fn answer(&self, what: &ToMemory, is_late: bool) -> Option<ToServing> {
        let late = || "the memory node did not merge the log in time; try again".to_string();
        Some(match what {
            ToMemory::Get { id, key } => ToServing::Got { id: *id, found: self.get(key) },
            ToMemory::Scan { id, .. } if is_late => ToServing::Scanned { id: *id, page: Err(late()) },
            ToMemory::Scan { id, cursor, at_least, values, .. } => {
                ToServing::Scanned { id: *id, page: self.scan(*cursor, *at_least, *values) }
            }
            ToMemory::Count { id, .. } if is_late => ToServing::Counted { id: *id, keys: Err(late()) },
            ToMemory::Count { id, .. } => ToServing::Counted { id: *id, keys: Ok(self.count()) },
            _ => return None,
        })
    }

    fn owns(&self, slot: u16) -> bool {
        ledger::owner(self.area, slot) == self.session
    }

    fn get(&self, key: &[u8]) -> Result<Option<Item>, Untold> {
        if !self.owns(slot_of(key)) {
            return Err(format!("slot {} is not the node's", slot_of(key)).into());
        }
        let found = self.data.engine.get(key).map_err(untold)?;
        let item = |value: terrace_engine::Value<'_>| Item {
            key: key.to_vec(),
            value: value.to_vec(),
            expires_at: value.expires_at(),
        };
        Ok(found.map(item))
    }

    fn scan(&self, cursor: u64, at_least: u32, values: bool) -> Result<Page, String> {
        let mut cursor = Cursor::from_number(cursor).ok_or("the cursor is none of this memory node's")?;
        let (mut items, mut bytes, mut looked_at, mut skipped) = (Vec::new(), 0, 0, 0);
        let wanted = at_least.clamp(1, LOOKS_MAX);
        while !cursor.is_end() && bytes < PAGE && looked_at < wanted {
            let kept = items.len();
            let mut each = |key: &[u8], entry: Entry<'_>| {
                looked_at += 1;
                if !self.owns(slot_of(key)) {
                    return;
                }
                let value = if values { entry.value } else { &[] };
                bytes += key.len() + value.len() + 32;
                if bytes <= PAGE_MAX {
                    let (key, value) = (key.to_vec(), value.to_vec());
                    items.push(Item { key, value, expires_at: entry.expires_at });
                }
            };
            // One bucket at a time: a step cannot be left.
            let scanned = self.data.scan(&cursor, 1, &mut each);
            let (next, damaged) = scanned.map_err(|error| error.to_string())?;
            if bytes > PAGE_MAX {
                // The page ends before this step.
                items.truncate(kept);
                if items.is_empty() {
                    return Err(TOO_LONG.into());
                }
                break;
            }
            cursor = next;
            skipped += damaged;
        }
        Ok(Page { items, next: cursor.number().unwrap_or(0), skipped })
    }

    fn count(&self) -> u64 {
        (0..SLOTS).filter(|slot| self.owns(*slot)).map(|slot| self.data.keys(slot)).sum()
    }
}
