//! A process is killed at random moments while it writes; every write that returned is there afterwards, and nothing else.
//!
//! The child is this test binary again. Each of its threads has keys of its own and says on its standard output which of its operations have returned; the
//! operations follow from a seed, so the parent knows what they were. The one that was cut off may have happened or not: a batch as a whole, puts
//! of a pipeline up to any one of them.

mod common;

use common::{Draws, Medium, Site, assert_sound, contents};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;
use terrace::{ByteSize, Change, Put, Store};

const THREADS: u64 = 2;
const KEYS: u64 = 30;
const FAR: u64 = 4_102_444_800_000;

type State = (Vec<u8>, Option<u64>);
type Model = BTreeMap<Vec<u8>, State>;

/// A change of one key.
#[derive(Clone)]
enum Step {
    Put(Vec<u8>, Vec<u8>, Option<u64>),
    Remove(Vec<u8>),
    Increment(Vec<u8>),
    Expire(Vec<u8>, u64),
}

/// What one call does: one step, several in a pipeline, or several as one.
enum Op {
    Each(Vec<Step>),
    All(Vec<Step>),
}

fn key(thread: u64, draws: &mut Draws) -> Vec<u8> {
    format!("thread {thread} key {}", draws.below(KEYS)).into_bytes()
}

fn put(thread: u64, draws: &mut Draws) -> Step {
    let len = [1, 20, 300, 6000][draws.below(4) as usize];
    let at = (draws.below(4) == 0).then(|| FAR + draws.below(1000));
    Step::Put(key(thread, draws), vec![draws.below(256) as u8; len], at)
}

fn any(thread: u64, draws: &mut Draws) -> Step {
    match draws.below(4) {
        0 => Step::Remove(key(thread, draws)),
        1 => Step::Expire(key(thread, draws), FAR + draws.below(1000)),
        _ => put(thread, draws),
    }
}

fn op(thread: u64, draws: &mut Draws) -> Op {
    match draws.below(6) {
        0 => Op::Each(vec![Step::Increment(format!("thread {thread} counter").into_bytes())]),
        1 => Op::Each((0..10).map(|_| put(thread, draws)).collect()),
        2 | 3 => Op::All((0..8).map(|_| any(thread, draws)).collect()),
        _ => Op::Each(vec![any(thread, draws)]),
    }
}

impl Step {
    fn apply(&self, model: &mut Model) {
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
    fn run(&self, store: &Store) {
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
                };
                store.transaction(&[], run).unwrap().unwrap();
            }
        }
    }

    /// Every state that the store may be in if it was killed during this.
    fn partly(&self, model: &Model) -> Vec<Model> {
        let steps = match self {
            Self::Each(steps) | Self::All(steps) => steps,
        };
        let mut states = vec![model.clone()];
        for step in steps {
            let mut next = states.last().unwrap().clone();
            step.apply(&mut next);
            states.push(next);
        }
        match self {
            Self::Each(_) => states,
            Self::All(_) => vec![states.pop().unwrap_or_default(), model.clone()],
        }
    }

    fn apply(&self, model: &mut Model) {
        let (Self::Each(steps) | Self::All(steps)) = self;
        steps.iter().for_each(|step| step.apply(model));
    }
}

fn seed(round: u64, thread: u64) -> Draws {
    Draws(round * 1000 + thread)
}

fn site(path: &std::path::Path, medium: Medium) -> terrace::Options {
    let options = Store::options().path(path).size(ByteSize::mib(32)).huge_pages(false);
    match medium {
        Medium::Pmem => options.durability(terrace::Durability::Power).assume_persistent(true),
        _ => options,
    }
}

/// Not a test by itself: what the child does until it is killed.
#[test]
fn child() {
    let Ok(task) = std::env::var("TERRACE_KILL_CHILD") else { return };
    let mut parts = task.splitn(3, ' ');
    let round: u64 = parts.next().unwrap().parse().unwrap();
    let medium = if parts.next() == Some("pmem") { Medium::Pmem } else { Medium::Shm };
    let store = site(parts.next().unwrap().as_ref(), medium).open().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut draws = seed(round, thread);
                for n in 1..u64::MAX {
                    op(thread, &mut draws).run(store);
                    std::io::stdout().write_all(format!("\ndone {thread} {n}\n").as_bytes()).unwrap();
                }
            });
        }
    });
}

/// Runs the child for a while, kills it, and returns how many operations of each thread returned.
fn run_and_kill(round: u64, medium: Medium, path: &std::path::Path, after: Duration) -> Vec<u64> {
    let name = if medium == Medium::Pmem { "pmem" } else { "shm" };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env("TERRACE_KILL_CHILD", format!("{round} {name} {}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.stdout.take().unwrap();
    let mut done = vec![0; THREADS as usize];
    #[allow(clippy::disallowed_methods, reason = "a test owns its threads")]
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some((thread, n)) = line.strip_prefix("done ").and_then(|rest| rest.split_once(' '))
                && let (Ok(thread), Ok(n)) = (thread.parse::<usize>(), n.parse::<u64>())
            {
                done[thread] = n;
            }
        }
        done
    });
    #[allow(clippy::disallowed_methods, reason = "the moment of the kill is what is random here")]
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// The part of a store's contents that belongs to a thread.
fn part(found: &Model, thread: u64) -> Model {
    let prefix = format!("thread {thread} ").into_bytes();
    found.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Where two states differ, for people.
fn difference(expected: &Model, found: &Model) -> String {
    let shown = |state: Option<&State>| state.map(|(value, at)| (value.len(), value.first().copied(), *at));
    let keys: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    let differ = keys.into_iter().filter(|key| expected.get(*key) != found.get(*key));
    let lines = differ.map(|key| {
        let key_text = key.escape_ascii();
        format!("{key_text}: expected {:?}, found {:?}", shown(expected.get(key)), shown(found.get(key)))
    });
    lines.collect::<Vec<_>>().join("; ")
}

fn kill_often(medium: Medium, rounds: u64) -> (u64, u64) {
    let site_of_pool = Site::new(medium, ByteSize::mib(32));
    let path = &site_of_pool.path;
    site(path, medium).create().unwrap().close().unwrap();
    let mut models = vec![Model::new(); THREADS as usize];
    let (mut operations, mut batches_cut) = (0, 0);
    let mut draws = Draws(77);
    for round in 0..rounds {
        let done = run_and_kill(round, medium, path, Duration::from_millis(20 + draws.below(80)));
        let store = site(path, medium).open().unwrap();
        batches_cut += u64::from(store.stats().batch_finished.is_some());
        let found = contents(&store);
        for thread in 0..THREADS {
            let model = &mut models[thread as usize];
            let mut ops = seed(round, thread);
            for _ in 0..done[thread as usize] {
                op(thread, &mut ops).apply(model);
            }
            let found = part(&found, thread);
            let possible = op(thread, &mut ops).partly(model);
            assert!(
                possible.contains(&found),
                "{medium:?}, round {round}, thread {thread}: {} operations returned, but the store has neither their state nor the \
                 next one's: {}",
                done[thread as usize],
                difference(model, &found)
            );
            *model = found;
            operations += done[thread as usize];
        }
        if round % 3 == 0 {
            store.wait_until_collected();
            assert_sound(&store);
        }
        if round % 4 == 0 {
            store.close().unwrap();
        } else {
            drop(store);
        }
    }
    (operations, batches_cut)
}

#[test]
fn what_returned_survives_a_kill() {
    let rounds = std::env::var("TERRACE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    for medium in [Medium::Shm, Medium::Pmem] {
        let (operations, batches_cut) = kill_often(medium, rounds / 2);
        assert!(operations > 100 * rounds / 2, "{medium:?}: only {operations} operations");
        eprintln_counts(medium, rounds / 2, operations, batches_cut);
    }
}

#[allow(clippy::print_stderr, reason = "the counts are the test's evidence")]
fn eprintln_counts(medium: Medium, rounds: u64, operations: u64, batches_cut: u64) {
    eprintln!(
        "{medium:?}: {rounds} kills, {operations} operations had returned, {batches_cut} batches were cut off"
    );
}

/// Also memory comes back: a store that is killed again and again does not fill up.
#[test]
fn kills_leave_no_memory_behind() {
    let site_of_pool = Site::new(Medium::Shm, ByteSize::mib(32));
    let path = &site_of_pool.path;
    site(path, Medium::Shm).create().unwrap().close().unwrap();
    let mut used = Vec::new();
    for round in 0..4 {
        run_and_kill(round, Medium::Shm, path, Duration::from_millis(60));
        let store = site(path, Medium::Shm).open().unwrap();
        store.wait_until_collected();
        let data = contents(&store);
        store.clear().unwrap();
        drop(data);
        assert_sound(&store);
        used.push(store.stats().overhead_bytes);
        assert_eq!(store.stats().data_bytes, 0);
    }
    assert!(used.iter().max() < Some(&(used[0] + (1 << 20))), "{used:?}");
}
