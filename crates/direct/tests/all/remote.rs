//! Tests: gets by a reader elsewhere, which sees bytes of the pool and nothing else.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use terrace_direct::remote::{Get, address_in, get};
use terrace_direct::{Direct, Kind};
use terrace_engine::{Change, Durably, Engine, Pooled, Put, Value, Write, WriteKind};
use terrace_index::hash::remote::{Answer, Read, Reads, Remote};
use terrace_index::hash::{Clht, Turbo};
use terrace_medium::{Dram, MappedMedium, Shm};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{TappedShm, Tearing, jittery, torn_read};

/// Enough for most records of these tests.
const GUESS: usize = 256;
/// Keys for which a table has just doubled to 2^11 buckets, and ones that it has room for.
const DOUBLED: u64 = 5600;
const ROOM: u64 = 9000;

fn open<M: MappedMedium>(pool: &Pool<M>) -> Direct<M> {
    Direct::open::<Clht<M, Kind>>(pool.clone(), crate::costs::settings(0)).expect("a store")
}

fn pool<M: MappedMedium>() -> Pool<M> {
    PoolOptions::anonymous().size(32 << 20).hash_seed(5).create().expect("memory for a pool")
}

/// A remote reader of the store in a pool.
struct Elsewhere<'p, M: MappedMedium> {
    pool: &'p Pool<M>,
    remote: Remote,
}

impl<'p, M: MappedMedium> Elsewhere<'p, M> {
    fn of(pool: &'p Pool<M>) -> Self {
        let address = address_in(pool).expect("a sound index").expect("a store");
        Self { pool, remote: Remote::new(address) }
    }

    fn get(&mut self, key: &[u8], guess: usize) -> Answer<Value<'static>> {
        let pool = self.pool;
        self.get_by(key, guess, |range| torn_read(pool, range, 0, || ()))
    }

    /// A get as `read` reads the pool.
    fn get_by(
        &mut self,
        key: &[u8],
        guess: usize,
        mut read: impl FnMut((u64, usize)) -> Option<Vec<u8>>,
    ) -> Answer<Value<'static>> {
        let mut fetch = |reads: Reads| {
            let parts: Result<Vec<_>, _> =
                reads.iter().map(|Read { offset, len }| read((offset, len)).ok_or((offset, len))).collect();
            Ok(parts?.concat())
        };
        let got: Result<_, (u64, usize)> = get(&mut self.remote, key, guess, &mut fetch);
        got.unwrap_or_else(|(offset, len)| panic!("a get wants {len} bytes at {offset:#x}"))
    }

    /// The round trips of gets of `keys`, all of which are found.
    fn rounds(&mut self, keys: u64) -> u64 {
        let before = self.remote.rounds();
        for number in 0..keys {
            let found = self.get(&key(number), GUESS);
            assert!(matches!(&found, Answer::Found(value) if value[..8] == number.to_le_bytes()), "{number}");
        }
        self.remote.rounds() - before
    }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

fn put<M: MappedMedium>(store: &Direct<M>, key: &[u8], value: &[u8], expires_at: Option<u64>) {
    store.put(Put { key, value, expires_at }, Durably::Store).expect("room for a record");
}

fn is_resizing<M: MappedMedium>(store: &Direct<M>) -> bool {
    store.stats().index.expect("an index").resizing
}

#[test]
fn get_returns_what_the_store_returns() {
    let pool = pool::<Dram>();
    let store = open(&pool);
    let mut elsewhere = Elsewhere::of(&pool);
    let keys: Vec<Vec<u8>> = (0..60).map(|n: usize| vec![n as u8; 1 + n * n % 300]).collect();
    for (n, key) in keys.iter().enumerate() {
        put(&store, key, &vec![!n as u8; n * 71 % 4097], (n % 3 == 0).then_some(1 + n as u64));
    }
    put(&store, &keys[7], &[7; 4096], None);
    put(&store, &keys[8], &[8; 4097], None);
    store.remove(&keys[9], Durably::Store).unwrap();
    let writes =
        [10, 11].map(|n| Write { key: &keys[n], what: WriteKind::Put { value: b"batch", expires_at: None } });
    let removes = [Write { key: &keys[12], what: WriteKind::Remove }];
    store.commit(&[&writes[..], &removes].concat(), &[], Durably::Store).unwrap();
    store.modify(&keys[13], &mut |_| Change::Expire(Some(99)), Durably::Store).unwrap();
    for guess in [0, 16, 20, 64, 300, 8192] {
        for (n, key) in keys.iter().enumerate() {
            match (n, store.get(key).unwrap(), elsewhere.get(key, guess)) {
                (8, Some(_), Answer::Ask) | (9 | 12, None, Answer::Absent) => {}
                (0..8 | 10 | 11 | 13.., Some(value), Answer::Found(found)) => {
                    assert_eq!(found.entry(), value.entry(), "{n}");
                }
                (n, local, remote) => panic!("{n}: {local:?} here, {remote:?} elsewhere"),
            }
        }
        assert_eq!(elsewhere.get(b"absent", guess), Answer::Absent);
    }
}

#[test]
fn gets_in_lockstep_share_their_rounds() {
    let pool = pool::<Dram>();
    let (store, _guard) = (open(&pool), pool.pin());
    (0..200).for_each(|number| put(&store, &key(number), &number.to_le_bytes(), None));
    let mut elsewhere = Elsewhere::of(&pool);
    elsewhere.rounds(1);
    let keys: Vec<_> = (0..220).map(key).collect();
    let mut gets: Vec<_> = keys.iter().map(|key| Some(Get::new(&elsewhere.remote, key, GUESS))).collect();
    let (mut rounds, mut most) = (0, 0);
    while gets.iter().any(Option::is_some) {
        rounds += 1;
        for (number, slot) in (0u64..).zip(&mut gets) {
            let Some(get) = slot else { continue };
            let read = |Read { offset, len }| torn_read(&pool, (offset, len), 0, || ()).unwrap();
            match (get.next(&get.reads().iter().map(read).collect::<Vec<_>>().concat()), number < 200) {
                (None, _) => continue,
                (Some(Answer::Found(value)), true) => assert!(value[..8] == number.to_le_bytes(), "{number}"),
                (Some(Answer::Absent), false) => {}
                (answer, _) => panic!("{number}: {answer:?}"),
            }
            most = most.max(get.rounds());
            get.end(&mut elsewhere.remote);
            *slot = None;
        }
    }
    assert!(rounds == most && (2..=4).contains(&rounds), "{rounds} rounds, {most} of one get");
}

#[test]
fn get_that_ends_late_teaches_no_old_root() {
    let pool = pool::<Dram>();
    let store = open(&pool);
    put(&store, b"key", b"value", None);
    let mut elsewhere = Elsewhere::of(&pool);
    assert!(matches!(elsewhere.get(b"key", GUESS), Answer::Found(_)));
    let get = Get::new(&elsewhere.remote, b"key", GUESS);
    elsewhere.remote.renew();
    get.end(&mut elsewhere.remote);
    let before = elsewhere.remote.rounds();
    assert!(matches!(elsewhere.get(b"key", GUESS), Answer::Found(_)));
    assert_eq!(elsewhere.remote.rounds() - before, 4, "it reads the root twice, a bucket and a record");
}

#[test]
fn address_is_that_of_a_sound_clht_only() {
    let pool = pool::<Dram>();
    assert!(matches!(address_in(&pool), Ok(None)));
    let store = open(&pool);
    let address = address_in(&pool).unwrap().unwrap();
    assert_eq!((address.seed, address.end), (5, pool.size()));
    drop(store);
    let other = self::pool::<Dram>();
    let _store = Direct::open::<Turbo<Dram, Kind>>(other.clone(), crate::costs::settings(0)).unwrap();
    assert!(address_in(&other).is_err());
}

/// Round trips of gets of so many keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rounds {
    gets: u64,
    rounds: u64,
}

impl Rounds {
    fn add(&mut self, gets: u64, rounds: u64) {
        (self.gets, self.rounds) = (self.gets + gets, self.rounds + rounds);
    }

    /// In hundredths, rounded up.
    fn average(&self) -> u64 {
        (100 * self.rounds).div_ceil(self.gets)
    }
}

/// A table fills up, and then doubles.
#[test]
fn get_costs_as_many_rounds_as_promised() {
    let pool = pool::<Dram>();
    let (store, _guard) = (open(&pool), pool.pin());
    let (mut elsewhere, mut keys) = (Elsewhere::of(&pool), 0);
    let mut sample = |keys| {
        elsewhere.remote.renew();
        elsewhere.rounds(1);
        elsewhere.rounds(keys)
    };
    let [mut growing, mut fullest, mut resizing] = [(); 3].map(|()| Rounds::default());
    while keys < ROOM || !is_resizing(&store) {
        put(&store, &key(keys), &keys.to_le_bytes(), None);
        keys += 1;
        // From one doubling to the next.
        if keys >= DOUBLED && keys % 400 == 0 {
            assert!(!is_resizing(&store) || keys >= ROOM, "{keys} keys");
            growing.add(keys, sample(keys));
        }
    }
    fullest.add(keys, sample(keys));
    while is_resizing(&store) {
        let rounds = sample(keys);
        assert!(100 * rounds <= 315 * keys, "{rounds} rounds for {keys} gets");
        resizing.add(keys, rounds);
        (0..32).for_each(|_| _ = store.maintain());
    }
    let averages = [&growing, &fullest, &resizing].map(Rounds::average);
    assert!(averages[0] <= 208 && averages[1] <= 215 && averages[2] <= 315, "{averages:?}");
    let counted = |gets, rounds| Rounds { gets, rounds };
    let expected = [counted(93_600, 191_776), counted(10_171, 21_344), counted(50_855, 129_793)];
    assert_eq!([growing, fullest, resizing], expected);
}

/// The versions of a key's current or next write, and of its last completed one.
#[derive(Default)]
struct Versions {
    begun: AtomicU64,
    done: AtomicU64,
}

/// Keys that are always present.
const LASTING: u64 = 48;
/// Keys that come and go: at least so often, and until so many gets were answered. At most so
/// often, should the readers fail.
const PASSING: u64 = 1500;
const WAVES: u64 = 8;
const GETS: u64 = 2000;
const WAVES_MAX: u64 = 400;

struct Race {
    pool: Pool<TappedShm>,
    store: Direct<TappedShm>,
    versions: Vec<Versions>,
    /// Gets that were answered, and those that had to ask.
    gets: [AtomicU64; 2],
    is_over: AtomicBool,
}

/// A key's number, a version, and bytes that both determine.
fn value(number: u64, version: u64) -> Vec<u8> {
    let mut value = [number.to_le_bytes(), version.to_le_bytes()].concat();
    value.resize(16 + ((number + version * 7) % 200) as usize, version as u8);
    value
}

/// The version in a value of a key.
fn version_of(number: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    assert_eq!(bytes, value(number, version), "{number}");
    version
}

impl Race {
    fn new() -> Self {
        let pool = jittery(pool);
        let store = open(&pool);
        let versions = (0..LASTING).map(|_| Versions::default()).collect();
        (0..LASTING).for_each(|number| put(&store, &key(number), &value(number, 0), None));
        Self { pool, store, versions, gets: Default::default(), is_over: AtomicBool::new(false) }
    }

    /// Writes lasting keys of one half, three times out of four two of them in a batch. Adds and
    /// removes passing keys.
    fn write(&self, half: u64) {
        let passing = || (LASTING..LASTING + PASSING).filter(move |number| number % 2 == half);
        let mut version = 0;
        for wave in 0..WAVES_MAX {
            if wave % 2 == 0 && wave >= WAVES && self.gets[0].load(SeqCst) >= GETS {
                return;
            }
            for (turn, passing) in (0..).zip(passing()) {
                match wave % 2 {
                    0 => put(&self.store, &key(passing), &value(passing, 0), None),
                    _ => assert!(self.store.remove(&key(passing), Durably::Store).unwrap()),
                }
                version += 1;
                let of = |turn: u64| turn * 2 % LASTING + half;
                let numbers = [of(turn), of(turn + 5)];
                self.write_lasting(&numbers[..if turn % 4 == 0 { 1 } else { 2 }], version);
            }
        }
    }

    fn write_lasting(&self, numbers: &[u64], version: u64) {
        let of = |number: u64| &self.versions[number as usize];
        numbers.iter().for_each(|&number| of(number).begun.store(version, SeqCst));
        let new: Vec<_> = numbers.iter().map(|&number| (key(number), value(number, version))).collect();
        match &new[..] {
            [(key, value)] => put(&self.store, key, value, None),
            new => {
                let put = |value| WriteKind::Put { value, expires_at: None };
                let writes: Vec<_> = new.iter().map(|(key, value)| Write { key, what: put(value) }).collect();
                self.store.commit(&writes, &[], Durably::Store).expect("room for a batch");
            }
        }
        numbers.iter().for_each(|&number| of(number).done.store(version, SeqCst));
    }

    /// Moves records and steps of resizes.
    fn maintain(&self) {
        while !self.is_over.load(SeqCst) {
            self.store.maintain();
            self.store.move_all();
        }
    }

    /// Gets keys as a reader elsewhere, several with one pin and one look at the root.
    fn read(&self, seed: u64) {
        let (mut elsewhere, mut draws) = (Elsewhere::of(&self.pool), seed);
        let mut tearing = Tearing::new(seed);
        while !self.is_over.load(SeqCst) {
            let _guard = self.pool.pin();
            elsewhere.remote.renew();
            for turn in 0..16 {
                draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let number = (draws >> 33) % (LASTING + 8);
                let versions = self.versions.get(number as usize);
                let since = versions.map_or(0, |versions| versions.done.load(SeqCst));
                // Only the head of a record first: what lies behind a record is another thread's.
                let pause = || {
                    if draws & 7 << 40 == 0 {
                        thread::yield_now()
                    }
                };
                let mut late = draws;
                let mut words = |range: (u64, usize)| {
                    late = late.rotate_left(11) ^ range.0;
                    torn_read(&self.pool, range, late, pause)
                };
                let mut bytes = |range| tearing.read(&self.pool, range, pause);
                let found = match turn % 2 {
                    0 => elsewhere.get_by(&key(number), 16, &mut words),
                    _ => elsewhere.get_by(&key(number), 16, &mut bytes),
                };
                let until = versions.map_or(0, |versions| versions.begun.load(SeqCst));
                match &found {
                    Answer::Found(found) => {
                        let version = version_of(number, found);
                        assert!((since..=until).contains(&version), "{number}: {version}, {since}..={until}");
                    }
                    Answer::Absent => assert!(versions.is_none(), "{number} is absent at version {since}"),
                    Answer::Ask => {}
                }
                self.gets[usize::from(matches!(found, Answer::Ask))].fetch_add(1, SeqCst);
            }
        }
    }
}

#[test]
fn get_beside_writers_and_batches_is_right() {
    let race = Race::new();
    thread::scope(|scope| {
        let race = &race;
        let readers = [1, 2].map(|seed| scope.spawn(move || race.read(seed)));
        let upkeep = scope.spawn(move || race.maintain());
        let writers = [0, 1].map(|half| scope.spawn(move || race.write(half)));
        writers.into_iter().for_each(|writer| writer.join().expect("writers succeed"));
        race.is_over.store(true, SeqCst);
        upkeep.join().expect("upkeep succeeds");
        readers.into_iter().for_each(|reader| reader.join().expect("readers see no wrong value"));
    });
    let resizes = race.store.stats().index.expect("an index").resizes;
    let [answered, asked] = race.gets.each_ref().map(|gets| gets.load(SeqCst));
    // How many ask depends on how long a writer stands still in the middle of a change.
    assert!(resizes >= 6 && answered >= GETS, "{resizes} resizes, {answered} gets answered, {asked} asked");
    assert!(race.store.check(&mut |_, _| ()).findings.is_empty());
}

#[test]
fn get_after_a_restart_in_a_resize_is_right() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = || PoolOptions::at(directory.path().join("pool")).size(8 << 20).hash_seed(5);
    let pool = options().create::<Shm>().unwrap();
    let store = open(&pool);
    let mut keys = 0;
    while keys < 3000 || !is_resizing(&store) {
        put(&store, &key(keys), &keys.to_le_bytes(), None);
        keys += 1;
    }
    (0..8).for_each(|_| _ = store.maintain());
    assert!(is_resizing(&store));
    let mut before = Elsewhere::of(&pool);
    before.rounds(keys);
    let address = *before.remote.address();
    drop(store);
    pool.abandon();
    let pool = options().open::<Shm>().unwrap();
    let store = open(&pool);
    assert!(is_resizing(&store));
    let mut after = Elsewhere::of(&pool);
    assert_eq!(*after.remote.address(), address);
    after.rounds(keys);
    // A key of a group that has moved, and one of a group that has not.
    for number in 0..keys {
        put(&store, &key(number), &number.to_le_bytes(), Some(1 + number));
        let found = after.get(&key(number), GUESS);
        assert!(matches!(&found, Answer::Found(value) if value.expires_at() == Some(1 + number)), "{number}");
    }
}
