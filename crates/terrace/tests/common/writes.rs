//! Random writes of threads that each own their keys, and the effect of these writes on a model.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use super::Draws;
use terrace::{Change, Put, Store, WriteError};
use terrace_testkit::process::{Contents, Journal, Operation, acknowledge};

const KEYS: u64 = 30;
const FAR: u64 = 4_102_444_800_000;

/// A change of one key.
#[derive(Clone)]
pub enum Step {
    Put(Vec<u8>, Vec<u8>, Option<u64>),
    Remove(Vec<u8>),
    Increment(Vec<u8>),
    Expire(Vec<u8>, u64),
}

/// One call: one step, several steps in a pipeline, or several as a batch.
pub enum Op {
    Each(Vec<Step>),
    All(Vec<Step>),
}

/// A random one of the thread's keys that have values. Its counter is another key.
pub fn key(thread: u64, draws: &mut Draws) -> Vec<u8> {
    format!("thread {thread} key {}", draws.below(KEYS)).into_bytes()
}

/// A value of `key`: the version, then a byte that follows from key, version and length, repeated.
/// So a reader can tell whether the value is intact and belongs to the key.
pub fn value(key: &[u8], version: u8, len: usize) -> Vec<u8> {
    let seed = (len as u64) << 8 | u64::from(version);
    let mixed = key.iter().fold(seed, |mixed, &byte| Draws(mixed ^ u64::from(byte)).below(u64::MAX));
    let mut value = vec![mixed as u8; len];
    value[0] = version;
    value
}

fn put(thread: u64, draws: &mut Draws) -> Step {
    let len = [1, 20, 300, 6000][draws.below(4) as usize];
    let at = (draws.below(4) == 0).then(|| FAR + draws.below(1000));
    let key = key(thread, draws);
    let value = value(&key, draws.below(256) as u8, len);
    Step::Put(key, value, at)
}

fn any(thread: u64, draws: &mut Draws) -> Step {
    match draws.below(4) {
        0 => Step::Remove(key(thread, draws)),
        1 => Step::Expire(key(thread, draws), FAR + draws.below(1000)),
        _ => put(thread, draws),
    }
}

pub fn op(thread: u64, draws: &mut Draws) -> Op {
    match draws.below(6) {
        0 => Op::Each(vec![Step::Increment(format!("thread {thread} counter").into_bytes())]),
        1 => Op::Each((0..10).map(|_| put(thread, draws)).collect()),
        2 | 3 => Op::All((0..8).map(|_| any(thread, draws)).collect()),
        _ => Op::Each(vec![any(thread, draws)]),
    }
}

impl Step {
    fn key(&self) -> &Vec<u8> {
        match self {
            Self::Put(key, ..) | Self::Remove(key) | Self::Increment(key) | Self::Expire(key, _) => key,
        }
    }

    fn apply(&self, model: &mut Contents) {
        match self {
            Self::Put(key, value, at) => drop(model.insert(key.clone(), (value.clone(), *at))),
            Self::Remove(key) => drop(model.remove(key)),
            Self::Increment(key) => {
                let old = model
                    .get(key)
                    .map_or(0, |(value, _)| std::str::from_utf8(value).unwrap().parse().unwrap());
                model.insert(key.clone(), ((old + 1u64).to_string().into_bytes(), None));
            }
            Self::Expire(key, at) => {
                if let Some((_, expires_at)) = model.get_mut(key) {
                    *expires_at = Some(*at);
                }
            }
        }
    }

    fn run(&self, store: &Store) {
        match self {
            Self::Put(key, value, at) => {
                store.put_many(&[Put { key, value, expires_at: *at }]).pop().unwrap().unwrap();
            }
            Self::Remove(key) => drop(store.remove(key).unwrap()),
            Self::Increment(key) => drop(store.increment(key, 1).unwrap()),
            Self::Expire(key, at) => store.modify(key, |_| (Change::Expire(Some(*at)), ())).unwrap(),
        }
    }
}

impl Op {
    pub fn run(&self, store: &Store) {
        match self {
            Self::Each(steps) if steps.len() == 1 => steps[0].run(store),
            Self::Each(steps) => {
                let puts: Vec<Put<'_>> = steps
                    .iter()
                    .filter_map(|step| match step {
                        Step::Put(key, value, at) => Some(Put { key, value, expires_at: *at }),
                        _ => None,
                    })
                    .collect();
                store.put_many(&puts).into_iter().for_each(|done| done.unwrap());
            }
            Self::All(steps) => {
                let run = |transaction: &mut terrace::Transaction<'_>| {
                    for step in steps {
                        match step {
                            Step::Put(key, value, at) => transaction.put_expiring(key, value, *at).unwrap(),
                            Step::Remove(key) => drop(transaction.remove(key).unwrap()),
                            Step::Expire(key, at) => {
                                transaction.modify(key, |_| (Change::Expire(Some(*at)), ())).unwrap();
                            }
                            Step::Increment(_) => unreachable!("not in a batch"),
                        }
                    }
                    Ok::<(), WriteError>(())
                };
                store.transaction(run).unwrap();
            }
        }
    }

    /// The atomic parts of the call.
    pub fn parts(&self) -> Vec<Whole> {
        match self {
            Self::Each(steps) => steps.iter().map(|step| Whole(vec![step.clone()])).collect(),
            Self::All(steps) => vec![Whole(steps.clone())],
        }
    }
}

/// Steps that happen all or not at all.
pub struct Whole(Vec<Step>);

impl Operation for Whole {
    fn apply(&self, contents: &mut Contents) {
        self.0.iter().for_each(|step| step.apply(contents));
    }

    fn keys(&self) -> Vec<&[u8]> {
        self.0.iter().map(|step| step.key().as_slice()).collect()
    }
}

/// Writes until the process is killed, in a thread for each of `writers`. Its operations follow
/// from its seed and are acknowledged as they return, by its position in `writers`. The first
/// process has one more thread, which moves all entries repeatedly.
pub fn write_until_killed(store: &Store, writers: std::ops::Range<u64>, seed: impl Fn(u64) -> Draws) {
    std::thread::scope(|scope| {
        if writers.start == 0 {
            scope.spawn(|| {
                loop {
                    store.upkeep().move_all();
                    std::thread::yield_now();
                }
            });
        }
        for (place, writer) in writers.enumerate() {
            let mut draws = seed(writer);
            scope.spawn(move || {
                for n in 1..u64::MAX {
                    op(writer, &mut draws).run(store);
                    acknowledge(place, n);
                }
            });
        }
    });
}

/// Records in a journal that the first `returned` operations of `draws` have returned, and that the
/// next one was begun.
pub fn fill_journal(journal: &mut Journal<Whole>, thread: u64, draws: &mut Draws, returned: u64) {
    for _ in 0..returned {
        journal.begin(op(thread, draws).parts());
        journal.acknowledge();
    }
    journal.begin(op(thread, draws).parts());
}
