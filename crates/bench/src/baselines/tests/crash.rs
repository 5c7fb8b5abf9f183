//! Crashes of the trees: every state that a crash may leave, at each point of a history, and what
//! the next process makes of it.

use crate::Random;
use crate::baselines::space::FIRST;
use crate::baselines::{KeyForm, OrderedBaseline, Space};
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use terrace_testkit::crash::{
    Expectation, Explored, Explorer, Judge, Limits, Memory, Op, Profile, Seen, Version, Violation,
};
use terrace_testkit::{Layered, Recording, Trace};

/// A medium whose changes are recorded, or one that holds what a crash left.
pub(in crate::baselines) type Crashing = Layered<true>;

/// Bytes of a tree's memory.
pub(in crate::baselines) const BYTES: usize = 256 << 10;

/// The offset of the first word that a tree allocates, its root's.
const ROOT: u64 = FIRST;

/// A tree that repairs what a crash left.
pub(in crate::baselines) trait Recovers<K: KeyForm>:
    OrderedBaseline<Crashing, K>
{
    /// The tree whose root's word is at this offset, if it exists.
    fn open(space: Arc<Space<Crashing>>, root: u64) -> Option<Self>;
    /// Removes a key, if the tree can.
    fn remove(&self, key: &K::Key) -> Option<u64>;
    /// The key of a number; greater for greater numbers.
    fn key(number: usize) -> K::Owned;
}

/// Inserts of the keys 0 to `keys` in random order.
pub(in crate::baselines) fn shuffled(keys: usize, seed: u64) -> Vec<Op> {
    let (mut order, mut random) = ((0..keys).collect::<Vec<_>>(), Random::new(seed));
    (1..keys).for_each(|nth| order.swap(nth, random.below(nth as u64 + 1) as usize));
    order.into_iter().map(|key| Op::Insert(key, key as u64 + 1)).collect()
}

pub(in crate::baselines) type Content = Vec<Option<Version>>;

fn content<K: KeyForm, T: Recovers<K>>(tree: &T, keys: usize) -> Content {
    (0..keys).map(|number| tree.get(T::key(number).borrow())).collect()
}

fn scan<K: KeyForm, T: Recovers<K>>(tree: &T) -> Vec<u64> {
    let mut values = Vec::new();
    tree.scan(T::key(0).borrow(), usize::MAX, &mut |value| values.push(value));
    values
}

/// Applies an operation to a tree and to the model, and checks that both agree.
fn apply<K: KeyForm, T: Recovers<K>>(tree: &T, op: &Op, model: &mut Content) -> Result<(), Violation> {
    let is_done = match *op {
        Op::Insert(key, version) => {
            tree.insert(T::key(key).borrow(), version).expect("room for a key") == model[key].is_none()
        }
        Op::Update(key, version) => tree.update(T::key(key).borrow(), version) == model[key].is_some(),
        Op::Remove(key) => tree.remove(T::key(key).borrow()) == model[key],
        _ => unreachable!("the trees know no {op}"),
    };
    op.do_to(model);
    if is_done { Ok(()) } else { Err(format!("{op} answers wrongly")) }
}

/// Checks that a tree has this content, by reads and by a scan.
fn check<K: KeyForm, T: Recovers<K>>(tree: &T, model: &Content, when: &str) -> Result<(), Violation> {
    let found = content(tree, model.len());
    if let Some(key) = (0..model.len()).find(|&key| found[key] != model[key]) {
        return Err(format!("{when}: key {key} is {:?}, not {:?}", found[key], model[key]));
    }
    let (scanned, all) = (scan(tree), model.iter().copied().flatten().collect::<Vec<_>>());
    if scanned == all { Ok(()) } else { Err(format!("{when}: a scan finds {scanned:?}, not {all:?}")) }
}

/// What a process did to a tree, from the image that it found.
pub(in crate::baselines) struct History {
    image: Vec<u64>,
    trace: Trace,
    before: Content,
    ops: Vec<Op>,
    /// The first event of each operation, and the number of events.
    starts: Vec<usize>,
}

/// What a crash leaves of the stores before it.
#[derive(Clone, Copy, Debug)]
pub(in crate::baselines) enum Left {
    /// All of them: the process was killed.
    All,
    /// Those that were written back and fenced: power failed. Only of a process that began with
    /// zeros.
    Durable,
}

const CREATED: u64 = 1;

fn mark(op: usize, is_end: bool) -> u64 {
    2 + 2 * op as u64 + u64::from(is_end)
}

impl History {
    /// Runs operations on a new tree.
    pub(in crate::baselines) fn new<K: KeyForm, T: Recovers<K>>(keys: usize, ops: Vec<Op>) -> Self {
        Self::record::<K, T>(&[], FIRST, vec![None; keys], ops)
    }

    /// Runs operations on the tree that a crash after so many events left. The process takes memory
    /// from `next` on.
    pub(in crate::baselines) fn crashed<K: KeyForm, T: Recovers<K>>(
        &self,
        (events, left): (usize, Left),
        next: u64,
        ops: Vec<Op>,
    ) -> Self {
        let image = self.left(events, left);
        let found = content(&opened::<K, T>(&image), self.before.len());
        let mut expectation = Expectation { before: self.before.clone(), ..Expectation::default() };
        for (op, begun) in self.ops.iter().zip(&self.starts).take_while(|(_, begun)| **begun < events) {
            let effects = op.effects(&expectation.before);
            if self.starts.iter().any(|next| next > begun && *next <= events) {
                op.do_to(&mut expectation.before);
            } else {
                expectation.under_way = vec![effects];
            }
        }
        expectation.check(&found).expect("nothing acknowledged is lost");
        Self::record::<K, T>(&image, next, found, ops)
    }

    fn record<K: KeyForm, T: Recovers<K>>(image: &[u64], next: u64, before: Content, ops: Vec<Op>) -> Self {
        let recording = Arc::new(Recording::over(memory(image)));
        let space = Arc::new(Space::over(Layered::over(recording.clone()), next));
        let tree = match image {
            [] => T::create(space).expect("room for a tree"),
            _ => T::open(space, ROOT).expect("a tree"),
        };
        recording.mark(CREATED);
        let (mut model, mut starts) = (before.clone(), Vec::new());
        for (nth, op) in ops.iter().enumerate() {
            starts.push(recording.len());
            recording.mark(mark(nth, false));
            apply(&tree, op, &mut model).expect("an answer as the model's");
            recording.mark(mark(nth, true));
        }
        starts.push(recording.len());
        check(&tree, &model, "at the end").expect("the model's content");
        Self { image: image.to_vec(), trace: recording.trace(), before, ops, starts }
    }

    /// The events of an operation.
    pub(in crate::baselines) fn events(&self, op: usize) -> Range<usize> {
        self.starts[op]..self.starts[op + 1]
    }

    /// The words that are not durable when an operation has returned, by offset.
    pub(in crate::baselines) fn not_durable(&self) -> BTreeSet<u64> {
        let words = self.starts.iter().flat_map(|&events| {
            let images = [Left::All, Left::Durable].map(|left| self.left(events, left));
            (0..BYTES / 8).filter(move |&word| images[0][word] != images[1][word])
        });
        words.map(|word| 8 * word as u64).collect()
    }

    /// The operation of the most events.
    pub(in crate::baselines) fn longest(&self) -> usize {
        (0..self.ops.len()).max_by_key(|&op| self.events(op).len()).expect("an operation")
    }

    /// What a crash after so many events leaves.
    pub(in crate::baselines) fn left(&self, events: usize, left: Left) -> Vec<u64> {
        match left {
            Left::All => {
                let mut image = vec![0; BYTES / 8];
                image[..self.image.len()].copy_from_slice(&self.image);
                self.trace.replay(&mut image, events);
                image
            }
            Left::Durable => {
                assert!(self.image.is_empty(), "a trace that begins with zeros");
                self.trace.begin(events).durable(BYTES / 8)
            }
        }
    }

    /// Checks the states that a crash may leave from event `from` on. After each, the next process
    /// runs `then`.
    pub(in crate::baselines) fn explore<K: KeyForm, T: Recovers<K>>(
        &self,
        from: usize,
        then: &[Op],
    ) -> Explored {
        let seen = Seen::new();
        let limits = Limits {
            exhaustive: [512, 0, 0],
            samples: [64, 0, 0],
            nested_one_in: [0; 3],
            revived_one_in: 0,
            ..Limits::default()
        };
        let mut explorer = Explorer::new(memory(&[]), Profile::Pmem.rules(), limits, &seen, &|| false);
        let mut judge = TreeJudge::<K, T>::new(self, then);
        let found = explorer.explore((&self.image, &self.trace), from, 7, &mut judge);
        if let Some(found) = found {
            let events = self.trace.events();
            let around = &events[found.event.saturating_sub(6)..=found.event];
            panic!("{}\nafter {around:#?}\nwith {:?}", found.wrong, found.lines);
        }
        explorer.explored
    }
}

/// The memory of a tree, recorded from now on.
pub(in crate::baselines) fn memory(image: &[u64]) -> Memory<true> {
    let memory = Memory::zeroed_reused(BYTES, BYTES).expect("memory for a tree");
    memory.set_all(image);
    memory.begin();
    memory
}

/// The tree in some memory, if it exists. It takes the memory's last part.
fn open<K: KeyForm, T: Recovers<K>>(memory: &Memory<true>) -> Option<T> {
    let medium = Layered::over(Arc::new(memory.clone()));
    T::open(Arc::new(Space::over(medium, BYTES as u64 * 3 / 4)), ROOT)
}

/// The tree in `image`, for checks that record nothing.
pub(in crate::baselines) fn opened<K: KeyForm, T: Recovers<K>>(image: &[u64]) -> T {
    open::<K, T>(&memory(image)).expect("a tree")
}

/// Knows what each crash of a history may leave.
struct TreeJudge<'h, K, T> {
    history: &'h History,
    then: &'h [Op],
    expectation: Expectation,
    passed: u64,
    kind: std::marker::PhantomData<(K, T)>,
}

impl<'h, K: KeyForm, T: Recovers<K>> TreeJudge<'h, K, T> {
    fn new(history: &'h History, then: &'h [Op]) -> Self {
        let before = history.before.clone();
        let expectation =
            Expectation { before, may_be_absent: history.image.is_empty(), ..Expectation::default() };
        Self { history, then, expectation, passed: 0, kind: std::marker::PhantomData }
    }
}

impl<K: KeyForm, T: Recovers<K>> Judge<true> for TreeJudge<'_, K, T> {
    fn pass(&mut self, mark: u64) -> bool {
        self.passed = mark;
        if mark == CREATED {
            self.expectation.may_be_absent = false;
            return true;
        }
        let op = &self.history.ops[(mark as usize - 2) / 2];
        if mark.is_multiple_of(2) {
            self.expectation.under_way = vec![op.effects(&self.expectation.before)];
        } else {
            self.expectation.under_way.clear();
            op.do_to(&mut self.expectation.before);
        }
        !mark.is_multiple_of(2)
    }

    fn expectation(&self) -> u64 {
        self.passed
    }

    fn judge(&mut self, memory: &Memory<true>, _: u64) -> Result<(), Violation> {
        let Some(tree) = open::<K, T>(memory) else {
            let is_allowed = self.expectation.may_be_absent;
            return if is_allowed { Ok(()) } else { Err("the tree is gone".into()) };
        };
        let mut model = content(&tree, self.history.before.len());
        self.expectation.check(&model)?;
        check(&tree, &model, "after the crash")?;
        self.then.iter().try_for_each(|op| apply(&tree, op, &mut model))?;
        check(&tree, &model, "after further operations")
    }

    fn recovery(&mut self, _: &[u64]) -> Option<Trace> {
        None
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
