//! `direct`, a complete store: records, expiry, swaps, batches.

use super::expiring::{self, Time};
use super::options::{REBOOTED, is_unmade, options, refused_after_reboot, reply_of_puts, shared};
use std::sync::Arc;
use terrace_direct::{Direct, Key as EngineKey, Settings};
use terrace_engine::{
    Change, Clock, Commit, Cursor, Durability, Durably, Engine, Entry, Pooled, Put, Token, Write, WriteError,
    WriteKind,
};
use terrace_index::{Bytes, CacheBounds, hash::Clht};
use terrace_medium::MappedMedium;
use terrace_pool::{Liveness, Pool};
use terrace_testkit::crash::{Effect, Key, Mix, Op, Plan, RandomSource, Reply, Subject, Target, Version};

type Index<M> = Clht<M, Bytes<EngineKey>>;
type Store<M> = Direct<M>;

/// The engine.
pub struct DirectEngine;

/// Length of values that do not fit into the record's block.
const LONG: usize = 4100;
pub(super) const HEAD: usize = 16;
/// Versions modulo 60 whose records are about as long as a batch's descriptor.
const AS_DESCRIPTORS: [u64; 4] = [7, 15, 23, 31];

/// Background work that removes expired entries.
pub(super) const SWEEP: Op = Op::Background(1);

const MIX: Mix =
    Mix { put: 25, insert: 8, update: 8, remove: 14, swap: 10, batch: 20, puts: 8, background: 7 };

impl Target for DirectEngine {
    const NAME: &'static str = "direct";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    const SNAPSHOTS: bool = true;
    type Subject<M: MappedMedium> = EngineUnderTest<M>;

    fn plan(seed: u64) -> Plan {
        let mut dice = RandomSource::new(seed);
        let keys = 2 + dice.roll(8) as usize;
        let (mut model, mut next) = (vec![None; keys], 0);
        let count = dice.roll(12) as usize;
        let has_time = expiring::is_in(seed);
        let mut draw = |dice: &mut RandomSource, count| match has_time {
            true => expiring::random(&MIX, dice, count, &mut next, &mut model),
            false => MIX.random(dice, count, &mut next, &mut model),
        };
        let before = draw(&mut dice, count);
        let count = 4 + dice.roll(14) as usize;
        let ops = draw(&mut dice, count);
        // Short values, so that they fit into the pool after any history.
        let short = |n: usize| (1 << 20) + 60 * n as u64;
        let batch: Vec<Effect> = (0..keys.min(3)).map(|key| (key, Some(short(key + 1)))).collect();
        let mut after: Vec<Op> = (0..keys).map(|key| Op::Put(key, short(keys + key + 1))).collect();
        after.extend([Op::Batch(batch), SWEEP, Op::Remove(0), Op::Insert(0, short(99))]);
        if has_time {
            after.extend(expiring::after(short(100)));
        }
        let names: Vec<_> = (0..keys as u64).map(|key| key_bytes(key * 7 + seed % 100)).collect();
        let names = Arc::new(names);
        let creation = dice.roll(16) == 0;
        let revived = revived(keys);
        Plan { seed, keys, hot: 0..keys, threads: 1, names, before, ops, after, revived, creation }
    }
}

/// A store and the keys of its run.
pub struct EngineUnderTest<M: MappedMedium> {
    store: Arc<Store<M>>,
    pool: Pool<M>,
    keys: Arc<Vec<Vec<u8>>>,
    time: Time,
    /// Whether more than one thread uses it.
    is_shared: bool,
}

/// Puts that allocate blocks of the size of a batch's descriptor, such as a killed batch leaves; no
/// batches, as a batch would name another descriptor.
fn revived(keys: usize) -> Vec<Op> {
    let version = |n: u64| 60 * (100_000 + n) + AS_DESCRIPTORS[n as usize % AS_DESCRIPTORS.len()];
    (0..24).map(|n| Op::Put(n as usize % keys, version(n))).collect()
}

pub(super) fn key_bytes(name: u64) -> Vec<u8> {
    let mut key = format!("k{name}").into_bytes();
    key.resize(key.len() + name as usize % 24, b'.');
    key
}

/// The value of a version.
fn value(key: Key, version: Version) -> Vec<u8> {
    filled(key, version, length(version))
}

/// A value of so many bytes: the key's number, the version, and bytes determined by it.
pub(super) fn filled(key: Key, version: Version, length: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(length);
    value.extend((key as u64).to_le_bytes());
    value.extend(version.to_le_bytes());
    value.resize(length, version as u8);
    value
}

fn length(version: Version) -> usize {
    match version % 60 {
        17 | 41 => LONG,
        n if AS_DESCRIPTORS.contains(&n) => HEAD + 64 + n as usize,
        n => HEAD + 8 * (n as usize % 3),
    }
}

/// The version in a value of `key`, if the value is as it was written.
fn version_of(key: Key, entry: Entry<'_>) -> Result<Version, String> {
    version_in(key, entry, length)
}

fn is_filled(bytes: &[u8], (key, version): (Key, Version), length: usize) -> bool {
    let (head, rest) = bytes.split_at(HEAD);
    let named = head[..8] == (key as u64).to_le_bytes() && head[8..] == version.to_le_bytes();
    named && bytes.len() == length && rest.iter().all(|&byte| byte == version as u8)
}

/// The version in a value that [`filled`] made for `key`, with the length of its version.
pub(super) fn version_in(
    key: Key,
    entry: Entry<'_>,
    length: impl Fn(Version) -> usize,
) -> Result<Version, String> {
    let version = entry.value.get(8..HEAD).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    match version {
        Some(version) if is_filled(entry.value, (key, version), length(version)) => Ok(version),
        _ => Err(format!("a value of {} bytes that no operation wrote for it", entry.value.len())),
    }
}

/// The error for a conflict that cannot happen, as no other thread writes.
fn changed() -> WriteError {
    WriteError::Stopped("a commit reports a conflict, but no other thread writes".into())
}

impl<M: MappedMedium> EngineUnderTest<M> {
    fn over(pool: Pool<M>, plan: &Plan) -> Result<Self, String> {
        let time = Time::of(&pool, plan)?;
        let settings = Settings {
            expected_keys: 0,
            index_cache: CacheBounds::default(),
            index_dram: Some(0),
            verify_reads: true,
            read_only: false,
            durability: Durability::Power,
            clock: time.clock.clone(),
        };
        let mut store =
            Direct::open::<Index<M>>(pool.clone(), settings).map_err(|error| error.to_string())?;
        // In two runs of three, the short batches of a run go through several pieces.
        store.publish_in_pieces_of([64, 1, 2][(plan.seed % 3) as usize]);
        let store = Arc::new(store);
        Ok(Self { store, pool, keys: plan.names(), time, is_shared: plan.threads > 1 })
    }

    fn put(&self, key: Key, version: Version) -> Result<(), WriteError> {
        let value = value(key, version);
        self.store.put(
            Put { key: &self.keys[key], value: &value, expires_at: self.time.expiry(version) },
            Durably::Store,
        )
    }

    /// Changes a key to what `decide` returns for its version.
    fn modify(
        &self,
        key: Key,
        decide: impl Fn(Option<Version>) -> Option<Option<Version>>,
    ) -> Result<Option<Version>, WriteError> {
        let mut seen = None;
        self.store.modify(
            &self.keys[key],
            &mut |entry| {
                seen = entry.and_then(|entry| version_of(key, entry).ok());
                match decide(seen) {
                    None => Change::Keep,
                    Some(None) => Change::Remove,
                    Some(Some(version)) => {
                        Change::Put { value: value(key, version), expires_at: self.time.expiry(version) }
                    }
                }
            },
            Durably::Store,
        )?;
        Ok(seen)
    }

    /// Changes a key if it has the expected version, by a commit that expects the observed token.
    fn swap(
        &self,
        key: Key,
        expected: Option<Version>,
        new: Option<Version>,
    ) -> Result<Option<Version>, WriteError> {
        loop {
            let known = self.store.version(&self.keys[key])?;
            let (seen, token) = self.seen(key)?;
            if seen != expected {
                return Ok(seen);
            }
            let value = new.map(|version| (value(key, version), self.time.expiry(version)));
            let what = match &value {
                Some((value, expires_at)) => WriteKind::Put { value, expires_at: *expires_at },
                None => WriteKind::Remove,
            };
            // Otherwise another thread has changed the key in between: retry.
            if known.token() == token {
                let write = Write { key: &self.keys[key], what };
                match self.store.commit(&[write], &[(&self.keys[key], known)], Durably::Store)? {
                    Commit::Done => return Ok(seen),
                    Commit::Changed(_) if self.is_shared => {}
                    Commit::Changed(_) => return Err(changed()),
                }
            }
        }
    }

    fn seen(&self, key: Key) -> Result<(Option<Version>, Option<Token>), WriteError> {
        let value = self.store.get(&self.keys[key])?;
        let token = value.as_ref().map(|value| value.token());
        Ok((value.and_then(|value| version_of(key, value.entry()).ok()), token))
    }

    /// Whether exactly the keys of `effects` expire at the clock's next tick.
    fn expire_at_next_tick(&self, effects: &[Effect]) -> bool {
        // With several threads, the others may have written meanwhile.
        let may_tick = self.time.is_on && !self.is_shared && effects.iter().all(|(_, to)| to.is_none());
        let goes = |key: &Vec<u8>| {
            let entry = self.store.get(key).ok().flatten();
            entry.is_some_and(|entry| entry.expires_at() == Some(self.time.next()))
        };
        let is_named = |key| effects.iter().any(|&(named, _)| named == key);
        may_tick && self.keys.iter().enumerate().all(|(key, bytes)| goes(bytes) == is_named(key))
    }

    /// Removes a key; in runs with expiry, every other time by letting it expire now.
    fn remove(&self, key: Key) -> Result<(), WriteError> {
        if !self.time.is_on {
            return self.store.remove(&self.keys[key], Durably::Store).map(drop);
        }
        let now = self.time.clock.now_ms();
        self.store.modify(
            &self.keys[key],
            &mut |entry| match entry.map(|entry| version_of(key, entry)) {
                Some(Ok(version)) if version % 2 == 1 => Change::Expire(Some(now)),
                _ => Change::Remove,
            },
            Durably::Store,
        )
    }

    /// Commits all effects as one batch, which expects that the key after the first is unchanged.
    fn commit(&self, effects: &[Effect]) -> Result<(), WriteError> {
        let values: Vec<_> =
            effects.iter().map(|&(key, to)| (key, to, to.map(|version| value(key, version)))).collect();
        let writes: Vec<Write<'_>> = values
            .iter()
            .map(|(key, to, value)| {
                let what = match (to, value) {
                    (Some(version), Some(value)) => {
                        WriteKind::Put { value, expires_at: self.time.expiry(*version) }
                    }
                    _ => WriteKind::Remove,
                };
                Write { key: &self.keys[*key], what }
            })
            .collect();
        let kept = &self.keys[(effects[0].0 + 1) % self.keys.len()];
        // Only with several threads, another may change that key meanwhile.
        for _ in 0..100 {
            let token = self.store.token(kept)?;
            match self.store.commit(&writes, &[(kept, token.into())], Durably::Store)? {
                Commit::Done => return Ok(()),
                Commit::Changed(_) if self.is_shared => {}
                Commit::Changed(_) => break,
            }
        }
        Err(changed())
    }

    fn snapshot_many(&self, keys: &[Key]) -> Result<Vec<Option<Version>>, String> {
        let mut found = Vec::new();
        let bytes: Vec<&[u8]> = keys.iter().map(|&key| &*self.keys[key]).collect();
        self.store.snapshot_many(&bytes, &mut |nth, entry| {
            let entry = entry.map_err(|error| error.to_string());
            found.push(entry.and_then(|entry| entry.map(|entry| version_of(keys[nth], entry)).transpose()));
        });
        found.into_iter().collect()
    }

    /// Reads key by key, as a read-only transaction; `None` if it must retry. An absent key must be
    /// absent `all_along`, or else at the end only.
    fn read_as_one(&self, keys: &[Key], all_along: bool) -> Result<Option<Vec<Option<Version>>>, String> {
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for &key in keys {
            let known = self.store.version(&self.keys[key]).map_err(|error| error.to_string())?;
            let value = self.store.get(&self.keys[key]).map_err(|error| error.to_string())?;
            let token = value.as_ref().map(|value| value.token());
            found.push(value.map(|value| version_of(key, value.entry())).transpose()?);
            let version = if all_along && known.token() == token { known } else { token.into() };
            expected.push((&*self.keys[key], version));
        }
        match self.store.commit(&[], &expected, Durably::Store) {
            Ok(Commit::Done) => Ok(Some(found)),
            Ok(Commit::Changed(_)) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Background work, which changes no value.
    fn background(&self, step: u64) -> Result<(), WriteError> {
        match step % 3 {
            0 if step / 3 % 2 == 1 => self.store.move_all(),
            0 => _ = (self.store.maintain(), self.store.compact()),
            1 => _ = self.store.sweep_expired(64),
            _ => {
                let key = &self.keys[(step / 3) as usize % self.keys.len()];
                self.store.modify(key, &mut |_| Change::Expire(Some(expiring::far_off())), Durably::Store)?;
            }
        }
        Ok(())
    }

    fn write(&self, op: &Op) -> Result<Option<Version>, WriteError> {
        let get = |key| self.get(key).unwrap_or(None);
        match *op {
            Op::Put(key, version) => {
                let before = get(key);
                self.put(key, version).map(|()| before)
            }
            Op::Insert(key, version) => self.modify(key, |seen| seen.is_none().then_some(Some(version))),
            Op::Update(key, version) => self.modify(key, |seen| seen.map(|_| Some(version))),
            Op::Remove(key) => {
                let before = get(key);
                self.remove(key).map(|()| before)
            }
            Op::Swap(key, expected, new) => self.swap(key, expected, new),
            Op::Batch(ref effects) if self.expire_at_next_tick(effects) => {
                self.time.tick(&self.pool);
                Ok(None)
            }
            Op::Batch(ref effects) => self.commit(effects).map(|()| None),
            Op::Puts(ref puts) => self.put_many(puts).into_iter().collect::<Result<(), _>>().map(|()| None),
            Op::Background(step) => self.background(step).map(|()| None),
        }
    }

    fn put_many(&self, puts: &[(Key, Version)]) -> Vec<Result<(), WriteError>> {
        let values: Vec<_> = puts.iter().map(|&(key, version)| value(key, version)).collect();
        let puts: Vec<Put<'_>> = puts
            .iter()
            .zip(&values)
            .map(|(&(key, version), value)| Put {
                key: &self.keys[key],
                value,
                expires_at: self.time.expiry(version),
            })
            .collect();
        self.store.put_many(&puts, Durably::Store)
    }
}

impl<M: MappedMedium> Subject<M> for EngineUnderTest<M> {
    fn create(medium: M, plan: &Plan) -> Self {
        let pool = options(plan).create_on(medium).expect("a pool in new memory");
        Self::over(pool, plan).expect("a store in a new pool")
    }

    fn share(medium: M, plan: &Plan, liveness: Arc<dyn Liveness>, first: bool) -> Result<Self, String> {
        Self::over(shared(medium, plan, liveness, first)?, plan)
    }

    fn recover_dead(&self) {
        self.store.recover_dead();
    }

    fn recover(medium: M, plan: &Plan) -> Result<Option<Self>, String> {
        match options(plan).open_on(medium) {
            Ok(pool) => Self::over(pool, plan).map(Some),
            Err(error) if is_unmade(plan, &error) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    fn apply(&self, op: &Op) -> Reply {
        let is_full = |error: &WriteError| matches!(error, WriteError::PoolFull { .. });
        if let Op::Puts(puts) = op {
            return reply_of_puts(&self.put_many(puts), is_full);
        }
        match self.write(op) {
            Ok(found) => Reply::Found(found),
            Err(error) if is_full(&error) => Reply::Full,
            Err(_) => Reply::Broken("the operation is refused"),
        }
    }

    fn knows_what_it_found(&self, op: &Op) -> bool {
        !matches!(op, Op::Put(..) | Op::Remove(_))
    }

    fn get(&self, key: Key) -> Result<Option<Version>, String> {
        let value = self.store.get(&self.keys[key]).map_err(|error| error.to_string())?;
        value.map(|value| version_of(key, value.entry())).transpose()
    }

    fn snapshot(&self, keys: &[Key]) -> Result<Vec<Option<Version>>, String> {
        match keys[0] % 3 {
            0 => self.snapshot_many(keys),
            kind => loop {
                if let Some(found) = self.read_as_one(keys, kind == 1)? {
                    return Ok(found);
                }
            },
        }
    }

    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        let mut wrong = None;
        let mut cursor = Cursor::START;
        loop {
            let next = self.store.scan(&cursor, 100, &mut |bytes, entry| {
                let key = self.keys.iter().position(|key| key == bytes).unwrap_or(usize::MAX);
                match version_of(key, entry) {
                    Ok(version) => each(key, version),
                    Err(why) => wrong = Some(format!("a scan finds {why}")),
                }
            });
            cursor = next.map_err(|error| error.to_string())?;
            if cursor.is_end() {
                return wrong.map_or(Ok(()), Err);
            }
        }
    }

    fn collect(&self) {
        self.store.collect(&|| false);
    }

    fn verify(&self) -> Vec<String> {
        self.store.check(&mut |_, _| {}).findings.iter().map(ToString::to_string).collect()
    }

    fn blocks(&self) -> Vec<(u64, u64)> {
        self.store.reachable()
    }

    fn abandon(self) {
        let Self { store, pool, .. } = self;
        drop(store);
        pool.abandon();
    }

    fn salvaged(medium: &dyn Fn() -> M, plan: &Plan) -> Result<Vec<(Key, Version)>, String> {
        refused_after_reboot(medium(), plan)?;
        let Ok(pool) = options(plan).boot_id(REBOOTED).salvage(true).open_on(medium()) else {
            return Ok(Vec::new());
        };
        // A salvage may miss records, but must show no wrong ones.
        let Ok(subject) = Self::over(pool, plan) else { return Ok(Vec::new()) };
        let (mut found, mut wrong) = (Vec::new(), None);
        subject.store.salvage(&mut |entry| {
            let Ok((bytes, entry)) = entry else { return };
            let key = subject.keys.iter().position(|key| key == bytes);
            match key.map(|key| (key, version_of(key, entry))) {
                Some((key, Ok(version))) => found.push((key, version)),
                Some((key, Err(why))) => wrong = Some(format!("for k{key} salvage shows {why}")),
                None => wrong = Some("salvage shows a key that no operation wrote".into()),
            }
        });
        subject.abandon();
        wrong.map_or(Ok(found), Err)
    }
}
