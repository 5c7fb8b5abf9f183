//! Tests: scans by cursor, on every index. From any cursor on they miss no key, whatever the table
//! does between two calls.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use terrace_index::Place;
use terrace_index::cursor::{CURSOR_LIMIT, Cursor, cursor_at, position_of};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::{Bytes, KeyKind, PointIndex, Stored, U64};
use terrace_medium::Dram;
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{TestKeys, TestRecord};

/// Keys that are present throughout.
const STABLE: u64 = 300;
/// Keys that are inserted and removed beside them: enough for every index to grow and to shrink.
const CHURN: u64 = 6000;

trait Index: PointIndex<Medium = Dram> + Stored<Medium = Dram> {}
impl<I: PointIndex<Medium = Dram> + Stored<Medium = Dram>> Index for I {}

struct Subject<I: Index>
where
    I::Kind: TestKeys,
{
    pool: Pool<Dram>,
    index: I,
    coming: bool,
    churned: u64,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl<I: Index> Subject<I>
where
    I::Kind: TestKeys,
{
    /// The smallest index, with the stable keys.
    fn new(seed: u64) -> Self {
        let pool = PoolOptions::anonymous().size(64 << 20).hash_seed(seed).create().unwrap();
        let index = I::create(&pool, "index", 0).unwrap();
        let subject = Self { pool, index, coming: true, churned: 0 };
        (0..STABLE).for_each(|number| subject.insert(number));
        subject
    }

    fn insert(&self, number: u64) {
        let guard = self.pool.pin();
        let key = I::Kind::key(number);
        let word = I::Kind::word(&guard, key.borrow(), number, 1).unwrap();
        self.index.insert(&guard, key.borrow(), word).unwrap();
    }

    fn remove(&self, number: u64) {
        let guard = self.pool.pin();
        let key = I::Kind::key(number);
        let word = self.index.remove(&guard, key.borrow()).unwrap();
        I::Kind::free_word(&guard, word, true);
    }

    /// Inserts or removes up to `most` of these keys, all of them by turns.
    fn churn(&mut self, most: u64) {
        for _ in 0..most {
            match self.coming {
                true => self.insert(STABLE + self.churned),
                false => self.remove(STABLE + self.churned),
            }
            self.churned += 1;
            if self.churned == CHURN {
                (self.coming, self.churned) = (!self.coming, 0);
            }
        }
        while self.index.maintain(&self.pool.pin()) {}
    }

    /// One call of a scan: the stable keys that it visits are added to `seen`.
    fn step(&self, cursor: Cursor, at_least: usize, seen: &mut BTreeSet<u64>) -> Cursor {
        let guard = self.pool.pin();
        let next = self.index.scan(&guard, &place_of(cursor), at_least, |word| {
            let (number, _) = I::Kind::read(&guard, word);
            seen.extend(Some(number).filter(|number| *number < STABLE));
        });
        // A client that keeps it as a double.
        let next = cursor_of(&next) as f64 as Cursor;
        assert!(next < CURSOR_LIMIT);
        next
    }

    /// All stable keys from a cursor on.
    fn rest(&self, cursor: Cursor, at_least: usize) -> BTreeSet<u64> {
        let (mut seen, mut cursor) = (BTreeSet::new(), cursor);
        for _ in 0..2 * (STABLE + CHURN) {
            cursor = self.step(cursor, at_least, &mut seen);
            if cursor == 0 {
                return seen;
            }
        }
        panic!("a scan of at most {} keys does not end", STABLE + CHURN);
    }
}

fn place_of(cursor: Cursor) -> Place {
    Place::Hash(position_of(cursor).expect("a cursor that a scan has returned"))
}

/// The cursor of the place where a scan stopped; 0 at the end.
fn cursor_of(place: &Place) -> Cursor {
    match *place {
        Place::Hash(position) => cursor_at(position),
        Place::End => 0,
        _ => panic!("no place where a scan of a hash index stops"),
    }
}

/// Scans call by call while the table grows and shrinks. Then scans once more from each returned
/// cursor, in tables of other sizes.
fn misses_nothing<I: Index>()
where
    I::Kind: TestKeys,
{
    for (seed, at_least, churn) in [(1, 1, 1), (2, 1, 97), (3, 10, 400), (4, 1, 2500)] {
        let mut subject = Subject::<I>::new(seed);
        let mut cursors: Vec<(Cursor, BTreeSet<u64>)> = Vec::new();
        for _ in 0..3 {
            let (mut cursor, mut seen) = (0, BTreeSet::new());
            loop {
                cursor = subject.step(cursor, at_least, &mut seen);
                if cursor == 0 {
                    break;
                }
                cursors.push((cursor, seen.clone()));
                subject.churn(churn);
            }
            assert_eq!(seen.len() as u64, STABLE, "of a scan with COUNT {at_least}, beside {churn} a call");
        }
        let resizes = subject.index.stats(&subject.pool.pin()).resizes;
        assert!(churn < 97 || resizes > 1, "the scans met {resizes} resizes");
        let some = (cursors.len() / 200).max(1);
        for (cursor, before) in cursors.into_iter().step_by(some) {
            subject.churn(CHURN / 7);
            let missing = STABLE - before.union(&subject.rest(cursor, 50)).count() as u64;
            assert_eq!(missing, 0, "keys from cursor {cursor} on");
        }
    }
}

/// A scan from any number below the limit ends, and one from 0 finds all keys.
fn takes_any_cursor<I: Index>()
where
    I::Kind: TestKeys,
{
    let (mut subject, mut random) = (Subject::<I>::new(7), Random(7));
    for round in 0..400 {
        subject.churn(random.next() % 200);
        let bits = random.next() % 54;
        let cursor = match round {
            0..54 => (1 << round) % CURSOR_LIMIT,
            54..108 => CURSOR_LIMIT - (1 << (round - 54)),
            _ => (random.next() % CURSOR_LIMIT) >> bits,
        };
        let seen = subject.rest(cursor, 1 + random.next() as usize % 3);
        assert!(cursor != 0 || seen.len() as u64 == STABLE, "from cursor {cursor} on");
    }
    // An index takes any position, also positions without a cursor.
    for _ in 0..200 {
        let guard = subject.pool.pin();
        let (mut place, mut calls) = (Place::Hash(random.next()), 0);
        while !place.is_end() {
            place = subject.index.scan(&guard, &place, 1, |_| {});
            calls += 1;
            assert!(calls < 2 * (STABLE + CHURN));
        }
    }
}

/// Keys whose hashes agree in their upper bits: they share a place, or only lower bits of the
/// cursor distinguish them.
fn visits_places_whole<I: Index<Kind = U64>>() {
    const ALIKE: usize = 40;
    let pool = PoolOptions::anonymous().size(64 << 20).hash_seed(9).create().unwrap();
    let index = I::create(&pool, "index", 0).unwrap();
    let mut subject = Subject { pool, index, coming: true, churned: 0 };
    let top = |number: &u64| U64::hash(number, subject.pool.hash_seed()) >> 51;
    let alike: Vec<u64> = (1 << 30..).filter(|number| top(number) == 0x1234).take(ALIKE).collect();
    for at_least in [1, 7] {
        alike.iter().for_each(|&number| subject.insert(number));
        subject.churn(CHURN);
        let (mut seen, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let next = subject.index.scan(&subject.pool.pin(), &place_of(cursor), at_least, |word| {
                seen.insert(U64::read(&subject.pool.pin(), word).0);
            });
            let next = cursor_of(&next);
            assert!(next == 0 || next > cursor, "from {cursor} to {next}");
            cursor = next;
            if cursor == 0 {
                break;
            }
            subject.churn(300);
        }
        assert!(alike.iter().all(|number| seen.contains(number)));
        alike.iter().for_each(|&number| subject.remove(number));
    }
}

macro_rules! on_each {
    ($($name:ident: $index:ident),*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn scan_misses_nothing_from_any_cursor() {
                misses_nothing::<$index<Dram, U64>>();
            }

            #[test]
            fn scan_of_strings_misses_nothing_from_any_cursor() {
                misses_nothing::<$index<Dram, Bytes<TestRecord>>>();
            }

            #[test]
            fn scan_from_any_number_ends() {
                takes_any_cursor::<$index<Dram, U64>>();
                takes_any_cursor::<$index<Dram, Bytes<TestRecord>>>();
            }

            #[test]
            fn places_with_many_keys_are_visited_whole() {
                visits_places_whole::<$index<Dram, U64>>();
            }
        }
    )*};
}

on_each!(clht: Clht, level: Level, rewo: Rewo, turbo: Turbo);
