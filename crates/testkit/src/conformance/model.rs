//! Random operations beside a `BTreeMap`.

use super::subject::{Index, NAME, Setup, Subject};
use crate::TestKeys;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;
use terrace_index::{Deferred, PointIndex, Stored, Swapped};

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

/// What happens to a subject, and what should.
struct Run<I: Index>
where
    I::Kind: TestKeys,
{
    subject: Subject<I>,
    model: BTreeMap<u64, u64>,
    version: u64,
}

impl<I: Index> Run<I>
where
    I::Kind: TestKeys,
{
    fn new(index: I, keys: u64) -> Self {
        Self { subject: Subject::new(index, 0..keys), model: BTreeMap::new(), version: 0 }
    }

    fn apply(&mut self, op: Op, number: u64) {
        let Self { subject, model, .. } = self;
        let guard = subject.pin();
        self.version += 1;
        let (version, before) = (self.version, model.get(&number).copied());
        match op {
            Op::Get => assert_eq!(subject.get(&guard, number), before),
            Op::Insert => {
                assert_eq!(subject.insert(&guard, number, version).expect("room"), before);
                model.entry(number).or_insert(version);
            }
            Op::Update => {
                assert_eq!(subject.update(&guard, number, version), before);
                model.entry(number).and_modify(|old| *old = version);
            }
            Op::Upsert => {
                assert_eq!(subject.upsert(&guard, number, version), before);
                model.insert(number, version);
            }
            Op::Remove => assert_eq!(subject.remove(&guard, number), model.remove(&number)),
            Op::SwapAsExpected => {
                let word = subject.index.get(&guard, subject.key(number));
                assert_eq!(subject.swap(&guard, number, word, Some(version)), Ok(()));
                model.insert(number, version);
            }
            Op::SwapToNothing => {
                let word = subject.index.get(&guard, subject.key(number));
                assert_eq!(subject.swap(&guard, number, word, None), Ok(()));
                model.remove(&number);
            }
            Op::SwapUnexpected => {
                let word = subject.index.get(&guard, subject.key(number));
                let other = if word.is_some() { None } else { Some(8) };
                assert_eq!(subject.swap(&guard, number, other, Some(version)), Err(word));
            }
            Op::Maintain => drop(subject.index.maintain(&guard)),
        }
    }
}

/// Single operations answer as a map's would, through growth and shrinking.
pub(super) fn behaves_as_a_map<I: Index>(make: &impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
{
    for (keys, length, cases) in [(8u64, 100usize, 60), (400, 2000, 12)] {
        let ops = vec((prop::sample::select(&OPS[..]), 0..keys), 1..length);
        check(cases, &ops, |ops| {
            let mut run = Run::new(make(Setup::with_capacity(0)), keys);
            ops.into_iter().for_each(|(op, number)| run.apply(op, number));
            run.subject.assert_holds(&run.model);
        });
    }
}

/// Changes whose fence is deferred are seen at once, mix with others, and are the same once settled.
pub(super) fn deferred_changes_behave_alike<I: Index>(make: &impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
{
    let batches = vec(vec((0..40u64, any::<bool>()), 1..30), 1..12);
    check(20, &batches, |batches| {
        let subject = Subject::new(make(Setup::with_capacity(0)), 0..40);
        let (mut model, mut version) = (BTreeMap::new(), 0);
        for batch in batches {
            let guard = subject.pin();
            let mut deferred = Deferred::default();
            for (number, put) in batch {
                version += 1;
                let before = subject.index.get(&guard, subject.key(number));
                let new = put.then(|| subject.word(&guard, number, version).expect("room"));
                let swapped = subject.index.compare_and_swap_deferred(
                    &guard,
                    subject.key(number),
                    before,
                    new,
                    &mut deferred,
                );
                assert_eq!(swapped.expect("room"), Swapped::Done);
                if put {
                    model.insert(number, version)
                } else {
                    model.remove(&number)
                };
                assert_eq!(subject.get(&guard, number), model.get(&number).copied(), "before it is settled");
            }
            if version % 2 == 0 {
                assert_eq!(
                    subject.upsert(&guard, 0, version),
                    model.insert(0, version),
                    "a write among them"
                );
            }
            subject.index.settle(&guard, deferred);
        }
        subject.assert_holds(&model);
    });
}

/// An index that is found again by its name holds what it held, also in the middle of a resize.
pub(super) fn recovers_with_everything<I: Index>(make: &impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
{
    for keys in [0u64, 1, 30, 1000, 1500, 5000] {
        let subject = Subject::new(make(Setup::with_capacity(0)), 0..keys);
        let guard = subject.pin();
        for number in 0..keys {
            assert_eq!(subject.insert(&guard, number, 1).expect("room"), None);
        }
        drop(guard);
        let pool = PointIndex::pool(&subject.index).clone();
        drop(subject);
        let index =
            <I as Stored>::recover(&pool, NAME).expect("a sound index").expect("an index of that name");
        assert!(<I as Stored>::recover(&pool, "another").expect("a sound pool").is_none());
        Subject::new(index, 0..keys).assert_holds(&(0..keys).map(|number| (number, 1)).collect());
    }
}

/// Runs `test` on `cases` values of `strategy`; on failure says which smallest one fails. The same values each time.
pub(super) fn check<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value)) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, rng).run(strategy, |value| {
        test(value);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
