//! What the engines on files have in common in their runs: the operations of a history, and reads.

use super::direct::{filled, version_in};
use std::path::Path;
use terrace_engine::{Change, Cursor, Durably, Engine, Entry, Put, Write, WriteError, WriteKind};
use terrace_medium::MappedMedium;
use terrace_pool::Pool;
use terrace_testkit::crash::{Effect, Key, Op, Version};
use terrace_tier::PoolFiles;

/// The directory of the store.
pub(super) const TOP: &str = "/";

pub(super) type Done = Result<Option<Version>, WriteError>;

/// A store, with the names of its keys, and the length of a version's value.
pub(super) struct OnFiles<'s, E> {
    pub(super) store: &'s E,
    pub(super) keys: &'s [Vec<u8>],
    pub(super) length: fn(Version) -> usize,
}

/// The files of a pool, which are created if there are none.
pub(super) fn files_in<M: MappedMedium>(pool: Pool<M>) -> Result<PoolFiles<M>, String> {
    let top = Path::new(TOP);
    match PoolFiles::open(pool.clone(), top).map_err(|error| error.to_string())? {
        Some(files) => Ok(files),
        None => PoolFiles::create(pool, top).map_err(|error| error.to_string()),
    }
}

/// Nothing expires in these runs. But the clock is asked about what may, and a value with an expiry
/// does not take the place of one without.
pub(super) fn expiry(version: Version) -> Option<u64> {
    version.is_multiple_of(2).then_some(1 << 40)
}

impl<E: Engine> OnFiles<'_, E> {
    pub(super) fn value(&self, key: Key, version: Version) -> Vec<u8> {
        filled(key, version, (self.length)(version))
    }

    pub(super) fn get(&self, key: Key) -> Result<Option<Version>, String> {
        let value = self.store.get(&self.keys[key]).map_err(|error| error.to_string())?;
        value.map(|value| version_in(key, value.entry(), self.length)).transpose()
    }

    pub(super) fn put(&self, key: Key, version: Version) -> Result<(), WriteError> {
        let value = self.value(key, version);
        let put = Put { key: &self.keys[key], value: &value, expires_at: expiry(version) };
        self.store.put(put, Durably::Store)
    }

    /// Changes a key to what `decide` returns for its version.
    pub(super) fn modify(
        &self,
        key: Key,
        mut decide: impl FnMut(Option<Version>) -> Option<Option<Version>>,
    ) -> Done {
        let mut seen = None;
        let mut change = |entry: Option<Entry<'_>>| {
            seen = entry.and_then(|entry| version_in(key, entry, self.length).ok());
            match decide(seen) {
                None => Change::Keep,
                Some(None) => Change::Remove,
                Some(Some(version)) => {
                    Change::Put { value: self.value(key, version), expires_at: expiry(version) }
                }
            }
        };
        self.store.modify(&self.keys[key], &mut change, Durably::Store)?;
        Ok(seen)
    }

    fn commit(&self, effects: &[Effect]) -> Result<(), WriteError> {
        let values: Vec<_> =
            effects.iter().map(|&(key, to)| (key, to, to.map(|version| self.value(key, version)))).collect();
        let writes: Vec<Write<'_>> = values
            .iter()
            .map(|(key, to, value)| {
                let what = match (to, value) {
                    (Some(version), Some(value)) => WriteKind::Put { value, expires_at: expiry(*version) },
                    _ => WriteKind::Remove,
                };
                Write { key: &self.keys[*key], what }
            })
            .collect();
        self.store.commit(&writes, &[], Durably::Store).map(drop)
    }

    pub(super) fn put_many(&self, puts: &[(Key, Version)]) -> Vec<Result<(), WriteError>> {
        let values: Vec<_> = puts.iter().map(|&(key, version)| self.value(key, version)).collect();
        let puts: Vec<Put<'_>> = puts
            .iter()
            .zip(&values)
            .map(|(&(key, version), value)| Put { key: &self.keys[key], value, expires_at: expiry(version) })
            .collect();
        self.store.put_many(&puts, Durably::Store)
    }

    /// Does an operation: puts by `put`, and background work by `background`.
    pub(super) fn write(
        &self,
        op: &Op,
        put: impl Fn(Key, Version) -> Result<(), WriteError>,
        background: impl Fn(u64) -> Result<(), WriteError>,
    ) -> Done {
        let get = |key| self.get(key).unwrap_or(None);
        match *op {
            Op::Put(key, version) => {
                let before = get(key);
                put(key, version).map(|()| before)
            }
            Op::Insert(key, version) => self.modify(key, |seen| seen.is_none().then_some(Some(version))),
            Op::Update(key, version) => self.modify(key, |seen| seen.map(|_| Some(version))),
            Op::Remove(key) => {
                let before = get(key);
                self.store.remove(&self.keys[key], Durably::Store).map(|_| before)
            }
            Op::Swap(key, expected, new) => self.modify(key, |seen| (seen == expected).then_some(new)),
            // A removal of all keys is a clear as well.
            Op::Batch(ref effects)
                if effects.len() == self.keys.len() && effects.iter().all(|(_, to)| to.is_none()) =>
            {
                self.store.clear(Durably::Store).map(|()| None)
            }
            Op::Batch(ref effects) => self.commit(effects).map(|()| None),
            Op::Puts(ref puts) => self.put_many(puts).into_iter().collect::<Result<(), _>>().map(|()| None),
            Op::Background(step) => background(step).map(|()| None),
        }
    }

    pub(super) fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        let (mut wrong, mut cursor) = (None, Cursor::START);
        while !cursor.is_end() {
            let next = self.store.scan(&cursor, 100, &mut |bytes, entry| {
                let key = self.keys.iter().position(|key| key == bytes).unwrap_or(usize::MAX);
                match version_in(key, entry, self.length) {
                    Ok(version) => each(key, version),
                    Err(why) => wrong = Some(format!("a scan finds {why}")),
                }
            });
            cursor = next.map_err(|error| error.to_string())?;
        }
        wrong.map_or(Ok(()), Err)
    }
}
