//! Random operations compared with a `BTreeMap`.

use super::families::{Family, families};
use super::subject::{Make, NAME, Setup, Subject};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use terrace_index::{Deferred, Swapped};
use terrace_testkit::{KeySort, TIMES};

#[derive(Clone, Copy, Debug)]
enum Op {
    Get,
    Insert,
    Update,
    Upsert,
    Remove,
    SwapAsExpected,
    SwapToNothing,
    SwapUnexpected,
    Maintain,
}

const OPS: [Op; 9] = [
    Op::Get,
    Op::Insert,
    Op::Update,
    Op::Upsert,
    Op::Remove,
    Op::SwapAsExpected,
    Op::SwapToNothing,
    Op::SwapUnexpected,
    Op::Maintain,
];

/// A subject and its expected content.
struct Run {
    subject: Subject,
    model: BTreeMap<u64, u64>,
    version: u64,
}

impl Run {
    fn new(subject: Subject) -> Self {
        Self { subject, model: BTreeMap::new(), version: 0 }
    }

    fn apply(&mut self, op: Op, number: u64) {
        let Self { subject, model, .. } = self;
        let pin = subject.pin();
        self.version += 1;
        let (version, before) = (self.version, model.get(&number).copied());
        match op {
            Op::Get => assert_eq!(pin.get(number), before),
            Op::Insert => {
                assert_eq!(pin.insert(number, version).expect("room"), before);
                model.entry(number).or_insert(version);
            }
            Op::Update => {
                assert_eq!(pin.update(number, version), before);
                model.entry(number).and_modify(|old| *old = version);
            }
            Op::Upsert => {
                assert_eq!(pin.upsert(number, version), before);
                model.insert(number, version);
            }
            Op::Remove => assert_eq!(pin.remove(number), model.remove(&number)),
            Op::SwapAsExpected => {
                let word = pin.find(number);
                assert_eq!(pin.swap(number, word, Some(version)), Ok(()));
                model.insert(number, version);
            }
            Op::SwapToNothing => {
                let word = pin.find(number);
                assert_eq!(pin.swap(number, word, None), Ok(()));
                model.remove(&number);
            }
            Op::SwapUnexpected => {
                let word = pin.find(number);
                let other = if word.is_some() { None } else { Some(8) };
                assert_eq!(pin.swap(number, other, Some(version)), Err(word));
            }
            Op::Maintain => drop(pin.raw.maintain()),
        }
    }
}

/// Single operations answer as a map does, through growth and shrinking.
pub(super) fn behaves_as_a_map(make: Make<'_>) {
    for (keys, length, cases) in [(8u64, 100usize, 60), (400, 2000, 12)] {
        let ops = vec((prop::sample::select(&OPS[..]), 0..keys), 1..length);
        check(cases, &ops, |ops| {
            let mut run = Run::new(Subject::new(make(Setup::with_capacity(0)), 0..keys));
            ops.into_iter().for_each(|(op, number)| run.apply(op, number));
            run.subject.assert_holds(&run.model);
        });
    }
}

/// As [`behaves_as_a_map`], for the keys of each family: for all of them, and for some that follow
/// each other in order.
pub(super) fn each_family_is_a_map(sort: KeySort, make: Make<'_>) {
    const NEIGHBOURS: usize = 30;
    for Family { name, keys } in families(sort) {
        for (width, length, cases) in [(keys.len(), 600, 4), (NEIGHBOURS.min(keys.len()), 150, 8)] {
            let ops = vec((prop::sample::select(&OPS[..]), 0..width as u64), 1..length);
            check_family(name, cases, &(0..=keys.len() - width, ops), |(first, ops)| {
                let keys = keys[first..first + width].to_vec();
                let mut run = Run::new(Subject::of(make(Setup::with_capacity(0)), keys));
                ops.into_iter().for_each(|(op, number)| run.apply(op, number));
                run.subject.assert_holds(&run.model);
            });
        }
    }
}

/// Deferred changes are visible at once, mix with others, and stay the same once persisted.
pub(super) fn deferred_changes_behave_alike(make: Make<'_>) {
    let batches = vec(vec((0..40u64, any::<bool>()), 1..30), 1..12);
    check(20, &batches, |batches| {
        let subject = Subject::new(make(Setup::with_capacity(0)), 0..40);
        let (mut model, mut version) = (BTreeMap::new(), 0);
        for batch in batches {
            let pin = subject.pin();
            let mut deferred = Deferred::default();
            for (number, put) in batch {
                version += 1;
                let before = pin.find(number);
                let new = put.then(|| pin.word(number, version).expect("room"));
                let key = subject.key(number);
                let swapped = pin.raw.compare_and_swap_deferred(key, before, new, &mut deferred);
                assert_eq!(swapped.expect("room"), Swapped::Done);
                if put {
                    model.insert(number, version)
                } else {
                    model.remove(&number)
                };
                assert_eq!(pin.get(number), model.get(&number).copied(), "before it is persisted");
            }
            if version % 2 == 0 {
                assert_eq!(pin.upsert(0, version), model.insert(0, version), "a write in between");
            }
            pin.raw.persist_deferred(deferred);
        }
        subject.assert_holds(&model);
    });
}

/// A reopened index has its content, also in the middle of a resize.
pub(super) fn recovers_everything(make: Make<'_>) {
    for keys in [0u64, 1, 30, 1000, 1500, 5000] {
        let subject = Subject::new(make(Setup::with_capacity(0)), 0..keys);
        let pin = subject.pin();
        for number in 0..keys {
            assert_eq!(pin.insert(number, 1).expect("room"), None);
        }
        drop(pin);
        let (of, pool) = (subject.index.index_type(), subject.index.pool());
        drop(subject);
        let index = of.recover(&*pool, NAME).expect("a sound index").expect("an index of that name");
        assert!(of.recover(&*pool, "another").expect("a sound pool").is_none());
        Subject::new(index, 0..keys).assert_holds(&(0..keys).map(|number| (number, 1)).collect());
    }
}

/// Runs `test` on `cases` values of `strategy`; on failure reports the smallest failing one. The
/// values are the same each time, unless [`Longer`] is set.
pub(super) fn check<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value)) {
    if let Some(failure) = failure(cases, strategy, test) {
        panic!("{failure}");
    }
}

/// As [`check`], for keys of the family of this name.
pub(super) fn check_family<S: Strategy>(name: &str, cases: u32, strategy: &S, test: impl Fn(S::Value)) {
    if let Some(failure) = failure(cases, strategy, test) {
        panic!("{name}: {failure}");
    }
}

fn failure<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value)) -> Option<String> {
    let longer = Longer::from_environment();
    let cases = cases.saturating_mul(longer.map_or(1, |longer| longer.times));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new_with_rng(config, Longer::rng(longer)).run(strategy, |value| {
        test(value);
        Ok(())
    });
    let failure = outcome.err()?;
    Some(match longer {
        None => failure.to_string(),
        Some(Longer { times, seed }) => format!("{failure}\nto repeat it: {TIMES}={times} {SEED}={seed}"),
    })
}

/// The seed of these values, as reported by a failure.
const SEED: &str = "TERRACE_MODEL_SEED";

/// Settings for longer runs with other values each time, for nightly tests.
#[derive(Clone, Copy)]
struct Longer {
    times: u32,
    seed: u64,
}

impl Longer {
    /// The settings in the environment, if any. One seed for the whole process.
    fn from_environment() -> Option<Self> {
        static SETTINGS: LazyLock<Option<Longer>> = LazyLock::new(|| {
            let variable = |name| std::env::var(name).ok();
            let times: Option<u32> = variable(TIMES).map(|times| times.parse().expect("a number of times"));
            let seed: Option<u64> = variable(SEED).map(|seed| seed.parse().expect("a number"));
            (times.is_some() || seed.is_some()).then(|| Longer {
                times: times.unwrap_or(1),
                seed: seed.unwrap_or_else(|| RandomState::new().hash_one(0)),
            })
        });
        *SETTINGS
    }

    fn rng(longer: Option<Self>) -> TestRng {
        let algorithm = RngAlgorithm::ChaCha;
        let Some(Self { seed, .. }) = longer else { return TestRng::deterministic_rng(algorithm) };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        TestRng::from_seed(algorithm, &bytes)
    }
}
