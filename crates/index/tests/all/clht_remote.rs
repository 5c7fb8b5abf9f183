//! Tests: remote lookups of P-CLHT beside threads that write, while its table grows and shrinks.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use terrace_index::hash::Clht;
use terrace_index::hash::remote::{Answer, Read, Reads, Remote};
use terrace_index::{Bytes, KeyKind, PointIndex, Stored};
use terrace_pool::PoolOptions;
use terrace_testkit::{TappedShm, Tearing, TestKeys, TestRecord, jittery, torn_read};

type Strings = Bytes<TestRecord>;
type Medium = TappedShm;
type Index = Clht<Medium, Strings>;

/// Keys that are always present; each has a writer of its own half.
const LASTING: u64 = 64;
/// Keys that come and go, so that the table grows and shrinks.
const PASSING: u64 = 3000;
/// At least so often they come and go, and until readers have made so many reads.
const WAVES: u64 = 12;
const READS: u64 = 2000;
/// Resizes that happen beside them, at least.
const RESIZES: u64 = 10;
/// At most so often, should the readers fail.
const WAVES_MAX: u64 = 600;

/// The first version of a key's current or next write, and that of its last completed one.
#[derive(Default)]
struct Versions {
    begun: AtomicU64,
    done: AtomicU64,
}

struct Race {
    index: Index,
    versions: Vec<Versions>,
    /// Searches that were answered, and those that had to ask.
    reads: [AtomicU64; 2],
    is_over: AtomicBool,
}

impl Race {
    fn new() -> Self {
        let pool = jittery(|| PoolOptions::anonymous().size(16 << 20).hash_seed(11).create());
        let pool = pool.expect("memory for a pool");
        let index = Index::create(&pool, "remote", 0).expect("room for a table");
        let versions = (0..LASTING).map(|_| Versions::default()).collect();
        let race = Self { index, versions, reads: Default::default(), is_over: AtomicBool::new(false) };
        (0..LASTING).for_each(|number| race.put(number, 0));
        race
    }

    fn put(&self, number: u64, version: u64) {
        let guard = self.index.pool().pin();
        let key = Strings::key(number);
        let word = Strings::word(&guard, &key, number, version).expect("room for a record");
        let old = self.index.upsert(&guard, &key, word).expect("room for a slot");
        old.into_iter().for_each(|old| Strings::free_word(&guard, old, true));
    }

    fn remove(&self, number: u64) {
        let guard = self.index.pool().pin();
        let old = self.index.remove(&guard, &Strings::key(number));
        Strings::free_word(&guard, old.expect("this thread has added it"), true);
    }

    fn resizes(&self) -> u64 {
        self.index.stats(&self.index.pool().pin()).resizes
    }

    /// Writes the lasting keys of one half again and again; adds and removes passing keys.
    fn write(&self, half: u64) {
        let passing = || (LASTING..LASTING + PASSING).filter(move |number| number % 2 == half);
        let mut version = 0;
        for wave in 0..WAVES_MAX {
            let has_read = self.reads[0].load(SeqCst) >= READS;
            if wave % 2 == 0 && wave >= WAVES && has_read && self.resizes() >= RESIZES {
                return;
            }
            for (turn, number) in passing().enumerate() {
                if wave % 2 == 0 {
                    self.put(number, 0)
                } else {
                    self.remove(number)
                }
                let lasting = turn as u64 * 2 % LASTING + half;
                version += 1;
                let versions = &self.versions[lasting as usize];
                versions.begun.store(version, SeqCst);
                self.put(lasting, version);
                versions.done.store(version, SeqCst);
            }
        }
    }

    /// Reads all keys as a reader elsewhere, several of them with one pin and one look at the root.
    fn read(&self, seed: u64) {
        let (mut remote, mut draws) = (Remote::new(self.index.address()), seed);
        let mut tearing = Tearing::new(seed);
        while !self.is_over.load(SeqCst) {
            let guard = self.index.pool().pin();
            remote.renew();
            for turn in 0..16 {
                draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let number = (draws >> 33) % (LASTING + 8);
                let versions = self.versions.get(number as usize);
                let since = versions.map_or(0, |versions| versions.done.load(SeqCst));
                // Seldom: on a busy machine it takes long.
                let pause = || {
                    if draws & 7 << 40 == 0 {
                        thread::yield_now()
                    }
                };
                let mut late = draws;
                let mut words = |range: (u64, usize)| {
                    late = late.rotate_left(11) ^ range.0;
                    torn_read(self.index.pool(), range, late, pause)
                };
                let mut bytes = |range| tearing.read(self.index.pool(), range, pause);
                let (found, mut is_answer) = match turn % 2 {
                    0 => (self.find(&mut remote, number, &mut words), true),
                    _ => (self.find(&mut remote, number, &mut bytes), true),
                };
                match (versions, found) {
                    (Some(versions), Answer::Found(version)) => {
                        let until = versions.begun.load(SeqCst);
                        assert!((since..=until).contains(&version), "{number}: {version}, {since}..={until}");
                    }
                    (None, Answer::Found(version)) => assert_eq!(version, 0, "{number}"),
                    (None, Answer::Absent) => {}
                    // Its slot, or one beside it, changes all the time.
                    (_, Answer::Ask) => is_answer = false,
                    (Some(_), Answer::Absent) => panic!("{number} is absent at version {since}"),
                }
                self.reads[usize::from(!is_answer)].fetch_add(1, SeqCst);
            }
            drop(guard);
        }
    }

    /// The version of a key, as `read` reads the pool.
    fn find(
        &self,
        remote: &mut Remote,
        number: u64,
        mut read: impl FnMut((u64, usize)) -> Option<Vec<u8>>,
    ) -> Answer<u64> {
        let hash = Strings::hash(&Strings::key(number), remote.address().seed);
        let mut fetch = |reads: Reads| {
            let parts: Result<Vec<_>, _> =
                reads.iter().map(|Read { offset, len }| read((offset, len)).ok_or((offset, len))).collect();
            Ok(parts?.concat())
        };
        // The head of a record: magic, number, version.
        let found = remote.find(hash, 24, &mut fetch, |_, head| {
            let word =
                |nth: usize| u64::from_le_bytes(head[8 * nth..8 * nth + 8].try_into().expect("a word"));
            (word(1) == number).then(|| Answer::Found(word(2)))
        });
        found.unwrap_or_else(|(offset, len)| panic!("a lookup wants {len} bytes at {offset:#x}"))
    }
}

#[test]
fn lookup_beside_writers_finds_what_was_there() {
    let race = Race::new();
    thread::scope(|scope| {
        let readers = [1, 2].map(|seed| {
            scope.spawn({
                let race = &race;
                move || race.read(seed)
            })
        });
        let writers = [0, 1].map(|half| {
            scope.spawn({
                let race = &race;
                move || race.write(half)
            })
        });
        writers.into_iter().for_each(|writer| writer.join().expect("writers succeed"));
        race.is_over.store(true, SeqCst);
        readers.into_iter().for_each(|reader| reader.join().expect("readers see no wrong value"));
    });
    let (guard, resizes) = (race.index.pool().pin(), race.resizes());
    let [answered, asked] = race.reads.each_ref().map(|reads| reads.load(SeqCst));
    assert!(
        resizes >= RESIZES && answered >= READS && answered > asked,
        "{resizes} resizes, {answered} searches answered, {asked} asked"
    );
    assert_eq!((race.index.verify(&guard), race.index.damage()), (vec![], None));
}

#[test]
fn lookup_finds_each_key_at_each_size() {
    let race = Race::new();
    let guard = race.index.pool().pin();
    let mut remote = Remote::new(race.index.address());
    let mut read = |range| torn_read(race.index.pool(), range, 0, || ());
    for count in LASTING..LASTING + 400 {
        race.put(count, 0);
        for number in (0..count + 3).step_by(7).chain(count - 1..=count + 1) {
            let expected = if number <= count { Answer::Found(0) } else { Answer::Absent };
            assert_eq!(race.find(&mut remote, number, &mut read), expected, "{number} of {count}");
        }
        remote.renew();
    }
    for gone in LASTING..LASTING + 400 {
        race.remove(gone);
        for number in [0, gone - 1, gone, gone + 1, LASTING + 399] {
            let is_there = number < LASTING || (gone + 1..LASTING + 400).contains(&number);
            let expected = if is_there { Answer::Found(0) } else { Answer::Absent };
            assert_eq!(race.find(&mut remote, number, &mut read), expected, "{number} without {gone}");
        }
    }
    assert!(race.index.stats(&guard).resizes >= 4);
}
