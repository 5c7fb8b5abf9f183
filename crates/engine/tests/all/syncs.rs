//! Tests: each sync of the engines on files is needed. Without it, some crash loses what was
//! acknowledged, or leaves a store that does not open.
//!
//! Histories run once for each of their syncs, which is put off until the next sync of the same
//! file or directory. Before each later call, and between acts, directed crashes show whether the
//! sync is missing. A sync that is left out for good has the same effects, and more.
#![allow(clippy::print_stdout, reason = "the counts, for --nocapture")]

use crate::contents::{Model, contents};
use crate::moments::{Act, History, Look, Moment, Start, reopen, wrong};
use crate::script::Step;
use crate::small::{Draws, PATH};
use crate::subject::{OfTiered, OfWip, Subject, clock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_disk::codec::put_varint;
use terrace_disk::{Directory, Manifest};
use terrace_engine::{Chore, Durability};
use terrace_testkit::simfs::{Call, CallKind, Handle, SimFs};

/// Moments that are looked at after a sync that is left out, at most.
const MOMENTS: usize = 60;

/// A history, and what it begins with.
struct Scenario {
    name: &'static str,
    durability: Durability,
    start: Start,
    acts: Vec<Act>,
}

/// A call that changes the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    kind: CallKind,
    path: PathBuf,
    /// Syncs before it.
    syncs: u64,
}

/// Whether this call is of the notes of how far log and manifest went. They are evidence of damage,
/// and no crash needs them; tests of the log look at their syncs.
fn is_note(call: Option<Call<'_>>) -> bool {
    call.is_some_and(|call| call.path.ends_with("ENDS"))
}

impl Seen {
    fn is_sync(&self) -> bool {
        matches!(self.kind, CallKind::Sync | CallKind::SyncDirectory)
    }
}

impl Scenario {
    /// Runs it on a disk, with a look at each moment.
    fn run<S: Subject>(&self, prepare: impl FnOnce(&SimFs), look: Look) {
        let mut start = self.start.clone();
        match &mut start {
            Start::Empty(disk) | Start::Killed(disk, _) | Start::Crashed(disk, _) => *disk = disk.fork(),
        }
        prepare(start.disk());
        History::<S>::begin(start, self.durability, look).run(&self.acts);
    }

    /// All calls that change the disk. With every sync, a directed crash must show nothing.
    fn trace<S: Subject>(&self) -> Vec<Seen> {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (note, name) = (seen.clone(), self.name);
        let mut syncs = 0;
        let look = move |moment: &Moment<'_>| {
            let mut seen = note.lock().unwrap_or_else(PoisonError::into_inner);
            let call = moment.call.map(|call| Seen { kind: call.kind, path: call.path.into(), syncs });
            syncs += u64::from(call.as_ref().is_some_and(Seen::is_sync));
            if is_note(moment.call) {
                return true;
            }
            seen.extend(call);
            if seen.len().is_multiple_of(16) {
                let mut crashes = moment.disk.directed_crashes();
                let wrong = crashes.find_map(|left| wrong::<S>(&left, moment.allowed, |_| None));
                assert_eq!(wrong, None, "{name}: call {}", seen.len());
            }
            true
        };
        self.run::<S>(|_| {}, Box::new(look));
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// What a crash shows if this sync is put off until the next one of the same file or directory.
    fn missed<S: Subject>(&self, place: usize, trace: &[Seen]) -> Option<String> {
        let found: Arc<Mutex<Option<String>>> = Arc::default();
        let note = found.clone();
        let synced = trace[place].clone();
        let nth = synced.syncs;
        let (mut calls, mut looked) = (0, 0);
        let look = move |moment: &Moment<'_>| {
            if is_note(moment.call) {
                return true;
            }
            calls += usize::from(moment.call.is_some());
            if calls <= place + 1 && !(calls == place + 1 && moment.call.is_none()) {
                return true;
            }
            let mut crashes = moment.disk.directed_crashes();
            let wrong = crashes.find_map(|left| wrong::<S>(&left, moment.allowed, |_| None));
            looked += 1;
            let is_made_up =
                moment.call.is_some_and(|call| call.kind == synced.kind && *call.path == *synced.path);
            let is_over = wrong.is_some() || looked > MOMENTS || is_made_up;
            *note.lock().unwrap_or_else(PoisonError::into_inner) = wrong;
            !is_over
        };
        self.run::<S>(|disk| disk.skip_sync(disk.sync_count() + nth), Box::new(look));
        let found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.clone()
    }
}

/// The places of syncs among the calls.
fn sync_places(trace: &[Seen]) -> Vec<usize> {
    let places = trace.iter().enumerate().filter(|(_, seen)| seen.is_sync());
    places.map(|(place, _)| place).collect()
}

fn key(number: u64) -> Vec<u8> {
    format!("key {:03}", number * 37 % 200).into_bytes()
}

fn put(number: u64, len: usize) -> Act {
    Act::Do(Step::Put(key(number), vec![number as u8; len]))
}

/// Puts that fill more than two segments of the log.
fn puts(from: u64) -> impl Iterator<Item = Act> {
    (from..from + 9).map(|number| put(number, 1700))
}

/// Writes until there are several buckets, with all kinds of background work.
fn splitting(extra: &[Act]) -> Vec<Act> {
    let mut acts = Vec::new();
    for round in 0..5 {
        acts.extend(puts(round * 9));
        acts.extend(extra.iter().filter(|_| round % 2 == 0).cloned());
        acts.push(Act::All(Chore::Flush));
        acts.push(Act::All(Chore::Merge));
    }
    acts
}

fn batch(from: u64) -> Act {
    let mut draws = Draws(from);
    let entries = (from..from + 9).map(|number| (key(number), (draws.roll(4) > 0).then(|| vec![7; 200])));
    Act::Do(Step::Batch(entries.collect()))
}

fn scenario(name: &'static str, durability: Durability, acts: impl IntoIterator<Item = Act>) -> Scenario {
    let start = Start::Empty(SimFs::new(["/data"]));
    Scenario { name, durability, start, acts: acts.into_iter().collect() }
}

/// An engine whose syncs are left out.
trait Synced: Subject {
    /// The name of the engine.
    const NAME: &str;
    /// Kinds of syncs of which some must be needed.
    const NEEDED: &[&str];
    /// Syncs that must be needed in all, at least.
    const LEAST: usize;

    /// Histories that need all syncs.
    fn scenarios() -> Vec<Scenario>;

    /// Edits of a manifest that change nothing, and make it long.
    fn long_edits() -> Vec<Vec<u8>>;

    /// Why this sync is not needed here, if it is one of those.
    fn excuse(trace: &[Seen], place: usize) -> Option<&'static str>;
}

/// Histories of any engine.
fn common<S: Synced>() -> Vec<Scenario> {
    use Durability::{Interval, Power, Process};
    let checkpoint = || Act::Do(Step::Checkpoint("/data/copy".into()));
    let flush = || Act::Do(Step::Flush);
    let short = [put(1, 100), Act::Sync, batch(2), flush(), put(3, 30), checkpoint(), Act::Sync, put(4, 10)];
    let mut cleared: Vec<Act> = puts(0).collect();
    cleared.extend([Act::Do(Step::Clear), put(1, 20), flush(), put(2, 9), Act::Close, put(3, 9), Act::Sync]);
    let synced = [
        put(1, 9),
        Act::Sync,
        put(2, 9),
        Act::Interval,
        put(3, 9),
        Act::Close,
        put(4, 9),
        Act::Kill,
        put(5, 9),
        Act::Sync,
    ];
    let mut all = vec![
        scenario("short", Power, short.clone()),
        scenario("short, process", Process, short),
        scenario("cleared", Power, cleared.clone()),
        scenario("cleared, process", Process, cleared),
        scenario("interval", Interval, synced.clone()),
        scenario("killed", Power, synced),
    ];
    all.extend(after_kills::<S>(&long_manifest::<S>(), "Rename"));
    all.push(long_manifest::<S>());
    all
}

impl Synced for OfWip {
    const NAME: &str = "wip";
    const NEEDED: &[&str] =
        &["log", "table", "MANIFEST", "new", "directory after Remove log", "directory after Rename"];
    const LEAST: usize = 500;

    fn scenarios() -> Vec<Scenario> {
        let power = splitting(&[Act::Compact]);
        let mut all = common::<Self>();
        all.push(scenario("split, process", Durability::Process, splitting(&[batch(5)])));
        all.extend(after_kills::<Self>(&scenario("split", Durability::Power, power.clone()), ""));
        all.push(scenario("split", Durability::Power, power));
        all
    }

    /// Each flushes a bucket that does not exist, many times.
    fn long_edits() -> Vec<Vec<u8>> {
        let mut edit = vec![0; 5];
        put_varint(&mut edit, 60_000);
        (0..60_000).for_each(|_| edit.extend([99, 0]));
        edit.push(0);
        vec![edit; 9]
    }

    fn excuse(trace: &[Seen], place: usize) -> Option<&'static str> {
        excuse(trace, place).or_else(|| {
            let is_named = is(trace, place.checked_sub(1), CallKind::Sync, ".table")
                && is(trace, Some(place + 1), CallKind::Name, "");
            is_named
                .then_some("of a table's name: the manifest is written anew, which syncs the directory too")
        })
    }
}

impl Synced for OfTiered {
    const NAME: &str = "tiered";
    const NEEDED: &[&str] =
        &["log", "block", "large", "MANIFEST", "new", "directory after Sync block", "directory after Rename"];
    const LEAST: usize = 300;

    fn scenarios() -> Vec<Scenario> {
        let power = sealing(&[Act::Compact]);
        let mut all = common::<Self>();
        all.push(scenario("sealed, process", Durability::Process, sealing(&[batch(5)])));
        all.extend(after_kills::<Self>(&scenario("sealed", Durability::Power, power.clone()), ""));
        all.push(scenario("sealed", Durability::Power, power));
        all
    }

    /// One adds blocks, and the other removes them.
    fn long_edits() -> Vec<Vec<u8>> {
        let names = |lists: [u64; 2]| {
            let mut edit = vec![0];
            for count in lists {
                put_varint(&mut edit, count);
                (0..count).for_each(|number| {
                    put_varint(&mut edit, number);
                    put_varint(&mut edit, number);
                });
            }
            edit.push(0);
            edit
        };
        vec![names([120_000, 0]), names([0, 120_000])]
    }

    fn excuse(trace: &[Seen], place: usize) -> Option<&'static str> {
        let is = |place, kind, end| is(trace, place, kind, end);
        let (before, back) = (&trace[..place], place.checked_sub(1));
        let is_name =
            |seen: &Seen| seen.kind == CallKind::Name && seen.path.to_string_lossy().ends_with(".large");
        let is_large = is(Some(place), CallKind::Sync, ".large");
        let is_of_names = is(back, CallKind::Sync, ".large");
        let since = |kind| before.iter().rev().take_while(move |seen: &&Seen| seen.kind != kind);
        let same = |seen: &Seen| seen.path == trace[place].path;
        let is_of_file = [".log", ".large", ".block"].iter().any(|end| is(back, CallKind::Sync, end));
        let is_of_directory = is(Some(place), CallKind::SyncDirectory, "") && is_of_file;
        excuse(trace, place).or(match () {
            () if is_large
                && !before
                    .iter()
                    .rev()
                    .take_while(|seen| !(seen.is_sync() && same(seen)))
                    .any(|seen| is_name(seen) && same(seen)) =>
            {
                Some("of a large value that an open finds: it was durable before")
            }
            () if is_of_names && !since(CallKind::SyncDirectory).any(is_name) => {
                Some("of the names of large values that an open finds: they were durable before")
            }
            () if (is_large || is_of_names) && is_cleared(&trace[place + 1..]) => {
                Some("of large values that a clear of the store removes")
            }
            () if is(back, CallKind::Sync, ".block") && is(Some(place + 1), CallKind::Name, "") => {
                Some("of a block's name: the manifest is written anew, which syncs the directory too")
            }
            () if is_of_directory && is_synced_before_use(&trace[place + 1..]) => {
                Some("of the directory, which is synced again before anything relies on it")
            }
            () if is_of_directory && !since(CallKind::SyncDirectory).any(changes_names) => {
                Some("of names that the sync before this one has covered")
            }
            () => None,
        })
    }
}

fn changes_names(seen: &Seen) -> bool {
    matches!(seen.kind, CallKind::Name | CallKind::Rename | CallKind::Remove)
}

/// Whether the directory is synced before the manifest, and before the log but where that is synced
/// for a block.
fn is_synced_before_use(next: &[Seen]) -> bool {
    let is_of = |seen: &Seen, part| seen.path.to_string_lossy().contains(part);
    let until = next.iter().position(|seen| seen.kind == CallKind::SyncDirectory);
    let is_for_block = |place: usize| {
        let then = next[place..].iter().find(|seen| !(seen.is_sync() && is_of(seen, ".log")));
        then.is_some_and(|seen| is_of(seen, ".block"))
    };
    let relies = |(place, seen): (usize, &Seen)| {
        seen.is_sync() && (is_of(seen, "MANIFEST") || is_of(seen, ".log") && !is_for_block(place))
    };
    until.is_some_and(|until| !next[..until].iter().enumerate().any(relies))
}

/// Whether the next that is not a sync, nor an edit of the manifest, is the removal of a file of a
/// large value: the clear of a store, whose writes were in the log already.
fn is_cleared(next: &[Seen]) -> bool {
    let is_edit = |seen: &&Seen| {
        seen.is_sync() || seen.kind == CallKind::Write && seen.path.to_string_lossy().contains("MANIFEST")
    };
    let other = next.iter().find(|seen| !is_edit(seen));
    other.is_some_and(|seen| seen.kind == CallKind::Remove && seen.path.to_string_lossy().ends_with(".large"))
}

/// Writes that fill blocks, and overwrite and remove what is in them, with large values.
fn sealing(extra: &[Act]) -> Vec<Act> {
    // A value that came again could be lost, and the older one would be found in its place.
    let put =
        |round: u64, number, len| Act::Do(Step::Put(key(number), vec![(number + 50 * round) as u8; len]));
    let mut acts = Vec::new();
    for round in 0..4 {
        acts.extend((0..10).map(|number| put(round, number * (round % 2 + 1), 600 + number as usize * 60)));
        acts.push(put(round, round, 1500));
        // No large one of this round: what is removed may as well be lost.
        acts.extend([1, 2, 4].map(|number| Act::Do(Step::Remove(key(number + round)))));
        acts.push(Act::Do(Step::Flush));
        acts.extend(extra.iter().filter(|_| round % 2 == 1).cloned());
        acts.push(Act::All(Chore::Flush));
        acts.push(Act::All(Chore::Merge));
    }
    acts
}

/// Histories that begin with what a process leaves that is killed just before a sync: the last one
/// of each kind of file, and of the directory after each kind of change. `change` is the kind of
/// the call before it; all kinds, if it is empty.
fn after_kills<S: Subject>(of: &Scenario, change: &str) -> Vec<Scenario> {
    let kills: Arc<Mutex<BTreeMap<String, SimFs>>> = Arc::default();
    let (note, mut before) = (kills.clone(), String::new());
    let look = move |moment: &Moment<'_>| {
        let Some(call) = moment.call else { return true };
        let kind = call.path.extension().map_or("other".into(), |end| end.to_string_lossy().into_owned());
        match call.kind {
            CallKind::Sync | CallKind::SyncDirectory => {
                let left = moment.disk.fork();
                note.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("{before} {kind}"), left);
            }
            _ => before = format!("{:?} {kind}", call.kind),
        }
        true
    };
    of.run::<S>(|_| {}, Box::new(look));
    let kills = std::mem::take(&mut *kills.lock().unwrap_or_else(PoisonError::into_inner));
    let begun = kills.into_iter().filter(|(kind, _)| kind.starts_with(change)).filter_map(|(_, left)| {
        let found = contents(&reopen::<S>(left.fork(), PATH).ok()?).ok()?;
        let acts = vec![put(150, 7), Act::Do(Step::Flush), put(151, 7)];
        let start = Start::Killed(left, found);
        Some(Scenario { name: "after a kill", durability: of.durability, start, acts })
    });
    begun.collect()
}

/// A history with a manifest that is due to be written anew.
fn long_manifest<S: Synced>() -> Scenario {
    let disk = SimFs::new(["/data"]);
    drop(S::create(disk.clone(), PATH, S::small(Durability::Power, &clock())).expect("an empty disk"));
    let path = Path::new(PATH);
    let store = Directory::open(&disk.handle(), path, S::NAME, true).expect("a store").identity().store;
    let mut manifest = Manifest::open(&disk.handle(), path, store, &mut |_| Ok(())).expect("a manifest");
    S::long_edits().iter().for_each(|edit| manifest.append(edit).expect("a sound disk"));
    let acts = [put(1, 9), Act::Do(Step::Flush), put(2, 9), Act::Do(Step::Flush), put(3, 9)];
    let start = Start::Crashed(disk, Model::new());
    Scenario { start, ..scenario("long manifest", Durability::Power, acts) }
}

fn is(trace: &[Seen], place: Option<usize>, kind: CallKind, end: &str) -> bool {
    let seen = place.and_then(|place| trace.get(place));
    seen.is_some_and(|seen| seen.kind == kind && seen.path.to_string_lossy().ends_with(end))
}

/// Why this sync is not needed here, if it is one of those.
fn excuse(trace: &[Seen], place: usize) -> Option<&'static str> {
    let is = |place, kind, end| is(trace, place, kind, end);
    let back = |by| place.checked_sub(by);
    let is_sync = |end| is(Some(place), CallKind::Sync, end);
    match () {
        () if is_sync(".log") && is(Some(place + 1), CallKind::SyncDirectory, "") => {
            Some("of a prepared segment: it finds out early that there is no room")
        }
        () if is_sync(".log")
            && is(back(1), CallKind::Write, ".log")
            && is(back(2), CallKind::Write, ".log") =>
        {
            Some("of a closed or reopened segment: all its records were durable before")
        }
        () if is_sync("") && is(Some(place + 1), CallKind::Name, "CURRENT.new") => {
            Some("of an opened manifest: its edits were durable before")
        }
        () if is(back(1), CallKind::Sync, ".log") && !is(back(3), CallKind::Name, ".log") => {
            Some("of a segment that is emptied: it has had its name")
        }
        () if is(back(1), CallKind::Remove, ".log") => {
            // Numbers must have no gap.
            let next = trace[place + 1..].iter().take_while(|seen| seen.kind != CallKind::SyncDirectory);
            let is_last = !next.into_iter().any(|seen| {
                seen.kind == CallKind::Remove && seen.path.extension().is_some_and(|end| end == "log")
            });
            is_last.then_some("of the last segment that is released: the next flush syncs the directory")
        }
        () if is(back(1), CallKind::Rename, "TERRACE") => {
            Some("of a new directory: opening the store syncs it again, but not that of a checkpoint")
        }
        () if is(back(1), CallKind::Rename, "CURRENT") => {
            let since = trace[..place - 1].iter().rev();
            let mut since = since.take_while(|seen| !seen.path.ends_with("CURRENT"));
            let is_named =
                |seen: &Seen| seen.kind == CallKind::Name && seen.path.to_string_lossy().contains("MANIFEST");
            let is_new = since.any(is_named);
            (!is_new).then_some("of an opened manifest: the old name leads to it too")
        }
        () => None,
    }
}

/// What a sync is of, for people.
fn kind_of(trace: &[Seen], place: usize) -> String {
    let end = |path: &Path| path.extension().unwrap_or(path.file_name().unwrap_or_default()).to_owned();
    let seen = &trace[place];
    let before = place.checked_sub(1).map(|before| &trace[before]);
    match (seen.kind, before) {
        (CallKind::SyncDirectory, Some(before)) => {
            format!("directory after {:?} {}", before.kind, end(&before.path).to_string_lossy())
        }
        _ => end(&seen.path).to_string_lossy().into(),
    }
}

fn try_syncs<S: Synced>() {
    // Of each kind: noticed, excused, spared.
    let mut kinds: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let mut spared = Vec::new();
    for scenario in S::scenarios() {
        let trace = scenario.trace::<S>();
        for place in sync_places(&trace) {
            // What a killed process has left may need a sync that is excused elsewhere.
            let excused = S::excuse(&trace, place).is_some();
            let is_tried = !excused || matches!(scenario.start, Start::Killed(..));
            let verdict = match is_tried && scenario.missed::<S>(place, &trace).is_some() {
                true => 0,
                false if excused => 1,
                false => 2,
            };
            kinds.entry(kind_of(&trace, place)).or_default()[verdict] += 1;
            if verdict == 2 {
                let around = &trace[place.saturating_sub(3)..(place + 3).min(trace.len())];
                spared.push(format!("{}: {:?} within {around:?}", scenario.name, trace[place]));
            }
        }
    }
    let sum = |verdict: usize| kinds.values().map(|counts| counts[verdict]).sum::<usize>();
    let (noticed, excused) = (sum(0), sum(1));
    println!("{noticed} syncs noticed, {excused} excused, {} spared: {kinds:?}", spared.len());
    spared.iter().for_each(|spared| println!("{spared}"));
    assert!(noticed > S::LEAST, "{noticed} syncs are too few");
    assert!(spared.len() * 100 <= noticed + spared.len(), "these are not missed: {}", spared.join("\n"));
    let is_needed = |kind: &str| kinds.iter().any(|(of, counts)| of.starts_with(kind) && counts[0] > 0);
    for kind in S::NEEDED {
        assert!(is_needed(kind), "no sync of this kind is needed: {kind}");
    }
}

#[test]
fn syncs_that_are_left_out_are_noticed() {
    try_syncs::<OfWip>();
}

#[test]
fn syncs_of_the_tiered_engine_that_are_left_out_are_noticed() {
    try_syncs::<OfTiered>();
}
