//! Crashes at every store of a history, and of the recovery from it.
//!
//! What a crash must leave is noted after each operation: with a log, and for an index without
//! buffers, the answers of the layer; else those of the index below. A crash in an operation may
//! leave each key as before it or as after it, and nothing else.

use crate::baselines::space::FIRST;
use crate::baselines::spot::{Removing, Spot, SpotSizes, SpotVariant, Spotted};
use crate::baselines::tests::crash::{BYTES, Content, Crashing, memory};
use crate::baselines::{SkipList, SpotCceh, SpotFastFair};
use crate::baselines::{Space, hashes};
use crate::{Random, spread};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use terrace_testkit::crash::{
    Expectation, Explored, Explorer, Judge, Limits, Memory, Profile, Seen, Violation,
};
use terrace_testkit::{Layered, Recording, Trace};

type Layer<S> = Spot<Crashing, S>;
/// The number of a key, and its new version; none removes it.
type Op = (usize, Option<u64>);
/// Removes a key of an index that can.
type Remove<S> = fn(&mut Layer<S>, u64);

/// Which layer a process opens.
struct Setup<S> {
    variant: SpotVariant,
    sizes: SpotSizes,
    keys: Vec<u64>,
    /// None, if the index cannot.
    remove: Option<Remove<S>>,
    /// A figure of a layer that grows with an operation to crash in.
    watched: fn(&Layer<S>) -> u64,
}

impl<S: Spotted<Crashing>> Setup<S> {
    /// The layer in some memory, if it exists. The process takes memory from `next` on.
    fn open(&self, memory: &Memory<true>, next: usize) -> Option<Layer<S>> {
        let space = Space::over(Layered::over(Arc::new(memory.clone())), next as u64);
        Layer::open(Arc::new(space), FIRST, self.variant, self.sizes)
            .map(|opened| opened.expect("room for what the log holds"))
    }

    fn content(&self, get: impl Fn(u64) -> Option<u64>) -> Content {
        self.keys.iter().map(|key| get(*key)).collect()
    }

    fn apply(&self, spot: &mut Layer<S>, (number, version): Op, model: &mut Content) {
        match (version, self.remove) {
            (Some(version), _) => spot.put(self.keys[number], version).expect("room for a key"),
            (None, Some(remove)) => remove(spot, self.keys[number]),
            (None, None) => return,
        }
        model[number] = version;
    }

    /// What a crash after the last operation must leave.
    fn durable(&self, spot: &Layer<S>, model: &Content) -> Content {
        if self.variant.logs || self.variant.merge.is_none() {
            return model.clone();
        }
        let below = self.content(|key| spot.below().get(key));
        for number in (0..self.keys.len()).filter(|&number| below[number] != model[number]) {
            let key = self.keys[number];
            let unit = spot.below().unit(key);
            assert!(spot.buffers.get(unit, key).is_some(), "key {number} is lost, and not in a buffer");
        }
        below
    }
}

/// What a process did to a new layer.
struct History<'s, S> {
    setup: &'s Setup<S>,
    trace: Trace,
    /// What must be there after so many operations.
    after: Vec<Rc<Content>>,
    /// The first event behind so many operations.
    ends: Vec<usize>,
    /// The last operation after which the watched figure was greater.
    grown: usize,
}

impl<'s, S: Spotted<Crashing>> History<'s, S> {
    /// Runs operations. Notes what must be there from the end of so many on.
    fn new(setup: &'s Setup<S>, ops: &[Op], noted: usize) -> Self {
        let memory = memory(&[]);
        let recording = Arc::new(Recording::over(memory.clone()));
        let space = Arc::new(Space::over(Layered::over(recording.clone()), FIRST));
        let mut spot = Layer::<S>::create(space, setup.variant, setup.sizes).expect("room for a layer");
        let mut model = vec![None; setup.keys.len()];
        let (mut grown, mut before) = (0, 0);
        let (unknown, mut after, mut ends) = (Rc::new(model.clone()), Vec::new(), Vec::new());
        for op in std::iter::once(None).chain(ops.iter().copied().map(Some)) {
            op.into_iter().for_each(|op| setup.apply(&mut spot, op, &mut model));
            if after.len() < noted {
                after.push(unknown.clone());
            } else {
                assert_eq!(setup.content(|key| spot.get(key)), model, "after {op:?}");
                after.push(Rc::new(setup.durable(&spot, &model)));
            }
            let watched = (setup.watched)(&spot);
            if watched > std::mem::replace(&mut before, watched) {
                grown = ends.len().saturating_sub(1);
            }
            recording.mark(after.len() as u64);
            // It allows a run only so many accesses.
            memory.begin();
            ends.push(recording.len());
        }
        Self { setup, trace: recording.trace(), after, ends, grown }
    }

    /// Explores all events from one on, all states of an event if they are so few. Of one state in
    /// so many, the recovery crashes, too; of none if that is 0.
    fn explore(&self, from: usize, states: u64, nested_one_in: u64) -> Explored {
        let seen = Seen::new();
        let limits = Limits {
            exhaustive: [states, 8, 0],
            samples: [states / 8, 4, 0],
            nested_one_in: [nested_one_in, 0, 0],
            revived_one_in: 0,
            ..Limits::default()
        };
        let mut explorer = Explorer::new(memory(&[]), Profile::Pmem.rules(), limits, &seen, &|| false);
        let mut judge = LayerJudge { history: self, expectation: expectation(None, &self.after[0]) };
        let start = vec![0; BYTES / 8];
        if let Some(found) = explorer.explore((&start, &self.trace), from, 7, &mut judge) {
            let (setup, events) = (self.setup, self.trace.events());
            let around = &events[found.event.saturating_sub(6)..=found.event.min(events.len() - 1)];
            panic!("{} {}: {}\nafter {around:#?}", S::NAME, setup.variant.name(), found.wrong);
        }
        explorer.explored
    }
}

/// What a crash may leave between a state and the next one; no state is before the creation.
fn expectation(before: Option<&Content>, after: &Content) -> Expectation {
    let may_be_absent = before.is_none();
    let before = before.cloned().unwrap_or_else(|| vec![None; after.len()]);
    let differs = |&number: &usize| before[number] != after[number];
    let loose = (0..after.len()).filter(differs).map(|number| (number, after[number])).collect();
    Expectation { before, loose, may_be_absent, ..Expectation::default() }
}

struct LayerJudge<'h, S> {
    history: &'h History<'h, S>,
    expectation: Expectation,
}

impl<S: Spotted<Crashing>> LayerJudge<'_, S> {
    /// Changes after a crash do what they should, and are there when all is merged.
    fn go_on(&self, spot: &mut Layer<S>, mut model: Content) -> Result<Content, Violation> {
        let setup = self.history.setup;
        for number in (0..setup.keys.len()).step_by((setup.keys.len() / 40).max(3)) {
            let version = (number % 2 == 0 || setup.remove.is_none()).then_some(9_000 + number as u64);
            setup.apply(spot, (number, version), &mut model);
        }
        compare(&setup.content(|key| spot.get(key)), &model, "after further changes")?;
        spot.merge_all().map_err(|full| full.to_string())?;
        compare(&setup.content(|key| spot.below().get(key)), &model, "after all merges")?;
        Ok(model)
    }
}

fn compare(found: &Content, model: &Content, when: &str) -> Result<(), Violation> {
    let differs = (0..model.len()).find(|&number| found[number] != model[number]);
    let text =
        |number: usize| format!("{when}: key {number} is {:?}, not {:?}", found[number], model[number]);
    differs.map_or(Ok(()), |number| Err(text(number)))
}

impl<S: Spotted<Crashing>> Judge<true> for LayerJudge<'_, S> {
    fn pass(&mut self, mark: u64) -> bool {
        let after = &self.history.after;
        let before = &after[mark as usize - 1];
        self.expectation = expectation(Some(before), after.get(mark as usize).unwrap_or(before));
        true
    }

    fn expectation(&self) -> u64 {
        let all = self
            .expectation
            .before
            .iter()
            .flatten()
            .chain(self.expectation.loose.iter().filter_map(|(_, to)| to.as_ref()));
        all.fold(u64::from(self.expectation.may_be_absent), |number, version| spread(number ^ version))
    }

    fn judge(&mut self, memory: &Memory<true>, _: u64) -> Result<(), Violation> {
        let setup = self.history.setup;
        let Some(mut spot) = setup.open(memory, BYTES * 3 / 4) else {
            let is_allowed = self.expectation.may_be_absent;
            return if is_allowed { Ok(()) } else { Err("the layer is gone".into()) };
        };
        let found = setup.content(|key| spot.get(key));
        self.expectation.check(&found)?;
        let model = self.go_on(&mut spot, found)?;
        drop(spot);
        let spot = setup.open(memory, BYTES).ok_or("the layer is gone after a second opening")?;
        compare(&setup.content(|key| spot.get(key)), &model, "opened again")
    }

    fn recovery(&mut self, image: &[u64]) -> Option<Trace> {
        let recording = Arc::new(Recording::over(memory(image)));
        let space = Space::over(Layered::over(recording.clone()), BYTES as u64 / 2);
        let setup = self.history.setup;
        let opened = Layer::<S>::open(Arc::new(space), FIRST, setup.variant, setup.sizes)?;
        drop(opened.expect("room for what the log holds"));
        Some(recording.trace())
    }

    fn revival(&mut self, _: &[u64]) -> Option<Trace> {
        None
    }

    fn remember(&self) -> Expectation {
        self.expectation.clone()
    }

    fn restore(&mut self, expectation: Expectation) {
        self.expectation = expectation;
    }
}

/// All keys in random order; then changes of some of them.
fn ops(keys: usize, more: usize) -> Vec<Op> {
    let (mut order, mut random) = ((0..keys).collect::<Vec<_>>(), Random::new(5));
    (1..keys).for_each(|nth| order.swap(nth, random.below(nth as u64 + 1) as usize));
    let changes = (0..more as u64).map(|nth| {
        let number = random.below(keys as u64) as usize;
        (number, (random.below(3) > 0).then_some(1_000 + nth))
    });
    let inserts: Vec<Op> = order.into_iter().map(|number| (number, Some(number as u64 + 1))).collect();
    inserts.into_iter().chain(changes).collect()
}

fn removes<S: Spotted<Crashing> + Removing>(spot: &mut Layer<S>, key: u64) {
    spot.remove(key).expect("room for a removal");
}

/// Crashes a small history everywhere, in all variants.
fn crash_everywhere<S: Spotted<Crashing>>(keys: u64, buffered: usize, remove: Option<Remove<S>>) {
    for variant in SpotVariant::ALL {
        let sizes = SpotSizes { buffered: Some(buffered), logged: 16 };
        let setup =
            Setup { variant, sizes, keys: (0..keys).map(spread).collect(), remove, watched: Layer::bytes };
        let history = History::new(&setup, &ops(keys as usize, keys as usize / 2), 0);
        let explored = history.explore(0, 256, 16);
        let is_enough = explored.points > keys && explored.recoveries > 0;
        assert!(is_enough, "{}: {explored:?}", variant.name());
    }
}

#[test]
fn crash_of_cceh_loses_nothing_acknowledged() {
    crash_everywhere::<SpotCceh<_>>(14, 5, Some(removes));
}

#[test]
fn crash_of_fast_fair_loses_nothing_acknowledged() {
    crash_everywhere::<SpotFastFair<_>>(70, 7, Some(removes));
}

#[test]
fn crash_of_skip_list_loses_nothing_acknowledged() {
    crash_everywhere::<SkipList<_>>(50, 5, None);
}

/// Crashes the last operation that made a watched figure greater, and its recovery, in all
/// variants. It comes after so many. Of one state in so many, the recovery crashes, too.
fn crash_when_grown<S: Spotted<Crashing>>(
    keys: &[u64],
    buffered: usize,
    (after, watched): (usize, fn(&Layer<S>) -> u64),
    nested_one_in: u64,
    remove: Remove<S>,
) {
    let ops: Vec<Op> = (0..keys.len()).map(|number| (number, Some(number as u64 + 1))).collect();
    for variant in SpotVariant::ALL {
        let sizes = SpotSizes { buffered: Some(buffered), logged: 100 };
        let setup = Setup::<S> { variant, sizes, keys: keys.to_vec(), remove: Some(remove), watched };
        let grown = History::new(&setup, &ops, ops.len() + 1).grown;
        assert!(grown > after, "{}: {grown}", variant.name());
        let history = History::new(&setup, &ops[..=grown], grown);
        // A replay merges many units; the smaller histories crash those.
        let nested_one_in = if variant.logs { 0 } else { nested_one_in };
        let explored = history.explore(history.ends[grown], 16, nested_one_in);
        let is_enough = explored.points > 5 && (variant.logs || explored.nested > 0);
        assert!(is_enough, "{}: {explored:?}", variant.name());
    }
}

/// A split of a segment that several words of the directory name.
#[test]
fn crash_in_a_split_of_cceh_loses_nothing_acknowledged() {
    const SIDE: usize = 850;
    // Keys of one quarter of all hashes make the directory deep, those of the other half then split
    // a segment of depth 1.
    let of = |quarters: Range<u64>| {
        (0..).map(spread).filter(move |key| quarters.contains(&(hashes(*key)[0] >> 62)))
    };
    let keys: Vec<u64> = of(0..1).take(SIDE).chain(of(2..4).take(SIDE)).collect();
    crash_when_grown::<SpotCceh<_>>(&keys, 20, (SIDE, Layer::bytes), 1, removes);
}

/// A split of a leaf whose parent is full, and the only one.
#[test]
fn crash_in_a_split_of_a_parent_loses_nothing_acknowledged() {
    let keys: Vec<u64> = (0..1000).map(spread).collect();
    crash_when_grown::<SpotFastFair<_>>(&keys, 15, (300, |spot| spot.below().levels()), 8, removes);
}
