//! Tests: whatever state a power failure leaves, the disk engine opens it, and finds what was
//! acknowledged.
//!
//! Short histories meet all states at each call. Long ones meet a random state at each call. Now
//! and then power fails again at each call of the opening that follows.
#![allow(clippy::print_stdout, reason = "the counts, for --nocapture")]

use crate::contents::contents;
use crate::moments::{Act, History, Moment, Start, reopen, wrong};
use crate::script::{Step, history};
use crate::small::{Draws, PATH, tiny};
use crate::subject::{OfTiered, OfWip, Subject};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_engine::{Chore, Durability, Durably, Engine, ManualClock, OnDisk, Put, Rest};
use terrace_testkit::simfs::SimFs;
use terrace_wip::{Settings, Wip};

/// States that are looked at before each call of a short history, at most.
const STATES: usize = 24;

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    moments: usize,
    /// Moments with all their states.
    whole: usize,
    states: usize,
    /// States that there are, at most.
    of: f64,
    /// Second crashes.
    twice: usize,
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            moments: self.moments + other.moments,
            whole: self.whole + other.whole,
            states: self.states + other.states,
            of: self.of + other.of,
            twice: self.twice + other.twice,
        }
    }
}

fn unsound(store: &dyn Engine) -> Option<String> {
    let report = store.check(&mut |_, _| {});
    (!report.is_sound()).then(|| format!("{:?}", report.findings))
}

/// Looks at so many states of each moment of a history, or at all if there are fewer.
fn look_at<S: Subject>(start: Start, durability: Durability, acts: &[Act], states: usize) -> Counts {
    let counts: Arc<Mutex<Counts>> = Arc::default();
    let (all, mut nth) = (counts.clone(), 0);
    let look = move |moment: &Moment<'_>| {
        nth += 1;
        let left = moment.disk.crash_states(states, nth);
        let mut seen = Counts { moments: 1, states: left.len(), ..Counts::default() };
        seen.whole = usize::from(left.len() < states);
        seen.of = if left.len() < states { left.len() as f64 } else { moment.disk.crash_states_max() };
        for (state, left) in left.into_iter().enumerate() {
            let again = (nth + state as u64).is_multiple_of(60).then(|| left.fork());
            if let Some(wrong) = wrong::<S>(&left, moment.allowed, unsound) {
                panic!("moment {nth}, before {:?}, state {state}: {wrong}", moment.call);
            }
            seen.twice += again.map_or(0, |left| crash_again::<S>(&left, nth));
        }
        let mut counts = all.lock().unwrap_or_else(PoisonError::into_inner);
        *counts = counts.plus(seen);
        true
    };
    History::<S>::begin(start, durability, Box::new(look)).run(acts);
    *counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets power fail again at each call of the opening after a crash. Returns how often.
fn crash_again<S: Subject>(left: &SimFs, seed: u64) -> usize {
    let Ok(store) = reopen::<S>(left.fork(), PATH) else { return 0 };
    let found = contents(&store).expect("a sound store");
    let count: Arc<Mutex<usize>> = Arc::default();
    let counted = count.clone();
    let look = move |moment: &Moment<'_>| {
        let mut count = counted.lock().unwrap_or_else(PoisonError::into_inner);
        for left in moment.disk.crash_states(3, seed + *count as u64) {
            *count += 1;
            if let Some(wrong) = wrong::<S>(&left, moment.allowed, |_| None) {
                panic!("second crash, before {:?}: {wrong}", moment.call);
            }
        }
        true
    };
    drop(History::<S>::begin(Start::Crashed(left.fork(), found), Durability::Power, Box::new(look)));
    *count.lock().unwrap_or_else(PoisonError::into_inner)
}

fn put(number: u64, len: usize) -> Act {
    Act::Do(Step::Put(format!("key {:03}", number * 37 % 200).into_bytes(), vec![number as u8; len]))
}

fn batch(from: u64) -> Act {
    let mut draws = Draws(from);
    let keys = (from..from + 6).map(|number| format!("key {:03}", number * 29 % 200).into_bytes());
    Act::Do(Step::Batch(keys.map(|key| (key, (draws.roll(3) > 0).then(|| vec![from as u8; 90]))).collect()))
}

/// A store whose bucket is due to be split.
fn full() -> Start {
    let disk = SimFs::new(["/data"]);
    let puts = |round: u64| (round * 12..round * 12 + 12).map(|number| put(number, 900));
    let mut acts: Vec<Act> = (0..16).flat_map(|round| puts(round).chain([Act::All(Chore::Flush)])).collect();
    acts.push(Act::Close);
    History::<OfWip>::begin(Start::Empty(disk.clone()), Durability::Power, Box::new(|_| true)).run(&acts);
    disk.crash(1);
    let store = reopen::<OfWip>(disk.fork(), PATH).expect("a store");
    let found = contents(&store).expect("a sound store");
    Start::Crashed(disk, found)
}

/// Short histories from an empty disk, and from a full bucket on.
fn short() -> Vec<(&'static str, Start, Durability, Vec<Act>)> {
    use Durability::{Power, Process};
    let empty = || Start::Empty(SimFs::new(["/data"]));
    let flush = || Act::Do(Step::Flush);
    let checkpoint = || Act::Do(Step::Checkpoint("/data/copy".into()));
    let merge = || Act::Do(Step::Work(Chore::Merge));
    let written = vec![put(1, 100), batch(2), flush(), put(3, 5000), batch(4)];
    let cleared = vec![batch(1), Act::Do(Step::Clear), put(2, 9), flush(), Act::Close, put(3, 9)];
    let copied = vec![put(1, 9), flush(), batch(2), checkpoint(), put(3, 9), Act::Kill];
    let synced = vec![batch(1), put(2, 9), Act::Sync, put(3, 9), Act::Kill, batch(4)];
    vec![
        ("written", empty(), Power, written.clone()),
        ("written, process", empty(), Process, written),
        ("cleared", empty(), Power, cleared.clone()),
        ("cleared, process", empty(), Process, cleared),
        ("copied", empty(), Power, copied.clone()),
        ("copied, process", empty(), Process, copied),
        ("synced, process", empty(), Process, synced),
        ("split", full(), Power, vec![batch(1), merge(), put(2, 50), merge(), merge(), batch(3)]),
        ("split, process", full(), Process, vec![put(1, 9), merge(), batch(2), flush()]),
        ("compacted", full(), Process, vec![batch(1), Act::Compact]),
        ("cleared when full", full(), Process, vec![put(1, 9), merge(), Act::Do(Step::Clear), put(2, 9)]),
    ]
}

/// Short histories of the tiered engine: blocks are sealed, rewritten and gathered.
fn short_tiered() -> Vec<(&'static str, Start, Durability, Vec<Act>)> {
    use Durability::{Power, Process};
    let empty = || Start::Empty(SimFs::new(["/data"]));
    let flush = || Act::Do(Step::Flush);
    let remove = |number: u64| Act::Do(Step::Remove(format!("key {:03}", number * 37 % 200).into_bytes()));
    let written = vec![put(1, 100), batch(2), flush(), put(3, 5000), batch(4), put(3, 90), flush()];
    let removed = vec![put(1, 9), put(2, 9), flush(), remove(1), flush(), Act::Compact, put(3, 9), Act::Kill];
    let again =
        vec![put(1, 9), flush(), remove(1), Act::Compact, put(1, 8), Act::Compact, remove(1), Act::Close];
    let cleared = vec![batch(1), Act::Do(Step::Clear), put(2, 9), flush(), Act::Close, put(3, 2000)];
    let copied = vec![
        put(1, 9),
        flush(),
        put(2, 3000),
        Act::Do(Step::Checkpoint("/data/copy".into())),
        put(3, 9),
        Act::Kill,
    ];
    let synced = vec![batch(1), put(2, 9), Act::Sync, put(3, 4000), Act::Kill, batch(4)];
    let mut rewritten: Vec<Act> = (0..6).map(|number| put(number, 600)).chain([flush()]).collect();
    rewritten.extend((0..4).map(|number| put(number, 590)).chain([Act::All(Chore::Merge), put(9, 9)]));
    let mut all = Vec::new();
    for durability in [Power, Process] {
        for (name, acts) in [
            ("rewritten", &rewritten),
            ("written", &written),
            ("removed", &removed),
            ("again", &again),
            ("cleared", &cleared),
            ("copied", &copied),
            ("synced", &synced),
        ] {
            all.push((name, empty(), durability, acts.clone()));
        }
    }
    all
}

fn try_short<S: Subject>(histories: Vec<(&'static str, Start, Durability, Vec<Act>)>) {
    let mut sum = Counts::default();
    for (name, start, durability, acts) in histories {
        let counts = look_at::<S>(start, durability, &acts, STATES);
        println!("{name}: {counts:?}");
        sum = sum.plus(counts);
    }
    println!("in all: {sum:?}");
    assert!(sum.states > 5000 && sum.twice > 1000, "{sum:?}");
}

#[test]
fn all_states_of_short_histories_are_sound() {
    try_short::<OfWip>(short());
}

#[test]
fn all_states_of_short_tiered_histories_are_sound() {
    try_short::<OfTiered>(short_tiered());
}

fn try_long<S: Subject>() {
    let mut sum = Counts::default();
    for seed in 0.. {
        let durability = [Durability::Power, Durability::Process][seed as usize % 2];
        let mut acts: Vec<Act> = history(seed, 150).into_iter().map(Act::Do).collect();
        (1..15).for_each(|nth| acts.insert(nth * 10, [Act::Sync, Act::Kill, Act::Close][nth % 3].clone()));
        sum = sum.plus(look_at::<S>(Start::Empty(SimFs::new(["/data"])), durability, &acts, 1));
        if sum.states >= 10_000 {
            break;
        }
    }
    println!("{sum:?}");
    assert!(sum.twice > 100, "{sum:?}");
}

#[test]
fn ten_thousand_crash_points_lose_nothing() {
    try_long::<OfWip>();
}

#[test]
fn ten_thousand_crash_points_of_tiered_histories_lose_nothing() {
    try_long::<OfTiered>();
}

/// A crash may take the last numbers of the log, but a joined bucket counts as flushed up to them.
#[test]
fn writes_to_a_joined_bucket_survive_two_crashes() {
    let (disk, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let settings = Settings { clock: clock.clone(), ..tiny(Durability::Process) };
    let store = Wip::create(disk.clone(), Path::new(PATH), settings.clone()).unwrap();
    let key = |number: u64| format!("key {number:03}").into_bytes();
    let put = |store: &Wip, number: u64, how: Durably| {
        store.put(Put { key: &key(number), value: &[1; 900], expires_at: None }, how).unwrap();
    };
    (0..200).for_each(|number| put(&store, number, Durably::Later));
    OnDisk::flush(&store).unwrap();
    (0..199).for_each(|number| store.delete(&key(number), Durably::Later).unwrap());
    OnDisk::compact(&store, Bound::Unbounded, Bound::Unbounded).unwrap();
    (200..205).for_each(|number| put(&store, number, Durably::Store));
    let joins = || store.stats().disk.unwrap().joins;
    for _ in 0..60 {
        while joins() == 0 && store.step(Chore::Merge, &|| false) == Rest::More {}
        clock.advance(1000);
    }
    assert!(joins() > 0);
    drop(store);
    let crash = |disk: &SimFs| disk.directed_crashes().next().expect("everything is lost");
    let left = crash(&disk);
    let store = Wip::open(left.clone(), Path::new(PATH), settings.clone()).unwrap();
    put(&store, 0, Durably::AtLeast(Durability::Power));
    drop(store);
    let store = Wip::open(crash(&left), Path::new(PATH), settings).unwrap();
    assert!(store.get(&key(0)).unwrap().is_some(), "a durable write is lost");
}
