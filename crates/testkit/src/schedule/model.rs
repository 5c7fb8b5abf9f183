//! The values that threads may load under the C11 memory model, with all orderings in place and
//! with one weakened. See [`weak`](super::weak).

use super::races::{Races, Rival};
use super::reach::{Choice, Number};
use super::seen::{Ordered, Seen, View};
use super::tail::{LateStore, PendingStores};
use super::worlds::Variants;
use crate::crash::Violation;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Release, SeqCst};
use terrace_medium::{Access, Order};

/// The part of an ordering that a weakening removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weak {
    /// Acquire: later accesses may then be moved before it.
    Acquire,
    /// Release: earlier accesses may then be moved after it.
    Release,
    /// SeqCst: the access then has no place in the total order.
    Total,
}

/// An ordering that is weakened at one place of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weakening {
    /// The place.
    pub site: &'static Location<'static>,
    /// The removed part.
    pub weak: Weak,
    /// The name of the access, if it has one.
    pub point: Option<&'static str>,
}

impl Weakening {
    /// Where it is in the source: `sync/lock.rs:177`.
    pub fn place(&self) -> String {
        crate::crash::place(self.site)
    }
}

/// All possible weakenings of the accesses of a run.
pub type Weakenings = BTreeSet<Weakening>;

/// A value that a word held or holds.
pub(super) struct Value {
    pub(super) value: u64,
    /// Whether a read-modify-write made it from the value before; no store can then come between
    /// the two.
    is_exchange: bool,
    /// The view that an acquire load of it adds.
    carried: Variants<View>,
}

/// A place in the source, and the name of the access there, if it has one.
pub(super) type Site = (&'static Location<'static>, Option<&'static str>);

/// The state of a thread.
#[derive(Default)]
pub(super) struct Thread {
    /// Whether it is within a call. Accesses between calls do not run concurrently.
    pub(super) calls: bool,
    /// Whether it has made a call.
    pub(super) has_called: bool,
    /// Number of its accesses within calls.
    clock: u32,
    pub(super) seen: Variants<Seen>,
    /// Stale values that it may still load in this call.
    pub(super) old: u32,
    pub(super) order: Option<(Order, Site)>,
    pub(super) tail: PendingStores,
}

impl Thread {
    /// The name of its last access to a word; a read of bytes has none of its own.
    fn point(&self) -> Option<&'static str> {
        self.order.and_then(|order| order.1.1)
    }
}

/// The state of the memory model.
#[derive(Default)]
pub(super) struct Model {
    pub(super) passed: Weakenings,
    /// The weakening of the run.
    pub(super) missing: Option<Weakening>,
    /// The first race of the run that would not be one with all orderings.
    pub(super) raced: Option<Violation>,
    /// The first race with all orderings.
    pub(super) race: Option<Violation>,
    /// Words that were stored to within calls, by their index in the medium.
    pub(super) words: HashMap<u64, usize>,
    pub(super) values: Vec<Vec<Value>>,
    pub(super) threads: BTreeMap<u64, Thread>,
    /// The view shared by all barriers.
    common: Variants<View>,
    /// The view shared by all threads that synchronised outside the medium.
    elsewhere: Variants<View>,
    races: Races,
    rivals: Vec<Rival>,
    /// Whether a thread saw something that only the weakening allows. The rest of the run is then
    /// not a run with all orderings.
    pub(super) has_diverged: bool,
}

/// The parts of an ordering that can be weakened.
pub(super) fn losses(order: Order) -> &'static [Weak] {
    const ALL: [Weak; 3] = [Weak::Acquire, Weak::Release, Weak::Total];
    match order {
        Order::Load(Acquire) | Order::Rmw(Acquire) | Order::RmwFailed(Acquire | SeqCst) => &ALL[..1],
        Order::Store(Release) | Order::Rmw(Release) => &ALL[1..2],
        Order::Rmw(AcqRel) => &ALL[..2],
        Order::Load(SeqCst) => &[Weak::Acquire, Weak::Total],
        Order::Store(SeqCst) => &ALL[1..],
        Order::Rmw(SeqCst) => &ALL,
        Order::Barrier | Order::GlobalBarrier => &ALL[2..],
        Order::Load(_) | Order::Store(_) | Order::Rmw(_) | Order::RmwFailed(_) | Order::External => &[],
    }
}

/// The length of an access in bytes, and whether it stores.
pub(super) fn extent(access: Access) -> (usize, bool) {
    match access {
        Access::Load | Access::RmwFailed => (8, false),
        Access::Store | Access::Rmw => (8, true),
        Access::Read(len) => (len, false),
        Access::Copy(len) | Access::StreamedCopy(len) => (len, true),
    }
}

impl Model {
    /// A model with this weakening.
    pub(super) fn without(missing: Option<Weakening>) -> Self {
        Self { missing, ..Self::default() }
    }

    /// Whether this is the weakening of the run.
    pub(super) fn is_weakened(&self, site: &'static Location<'static>, weak: Weak) -> bool {
        self.missing.is_some_and(|missing| (missing.site, missing.weak) == (site, weak))
    }

    pub(super) fn thread(&mut self, thread: u64) -> &mut Thread {
        self.threads.entry(thread).or_default()
    }

    /// The number of a word. On its first use, the word's history begins with `held`.
    pub(super) fn word(&mut self, word: u64, held: u64) -> usize {
        let next = self.values.len();
        let number = *self.words.entry(word).or_insert(next);
        if number == next {
            self.values.push(vec![Value { value: held, is_exchange: false, carried: Variants::default() }]);
        }
        number
    }

    /// The number of the latest value of a word.
    pub(super) fn last(&self, number: usize) -> Number {
        self.values[number].len() as Number - 1
    }

    /// The effect of an access with this ordering at this place.
    pub(super) fn orders(&self, order: Ordering, site: &'static Location<'static>) -> Variants<Ordered> {
        let mut orders = Variants::both(Ordered {
            acquires: matches!(order, Acquire | AcqRel | SeqCst),
            releases: matches!(order, Release | AcqRel | SeqCst),
            is_total: order == SeqCst,
        });
        match self.missing.filter(|missing| missing.site == site) {
            Some(Weakening { weak: Weak::Acquire, .. }) => orders.in_run_mut().acquires = false,
            Some(Weakening { weak: Weak::Release, .. }) => orders.in_run_mut().releases = false,
            Some(Weakening { weak: Weak::Total, .. }) => orders.in_run_mut().is_total = false,
            None => {}
        }
        orders
    }

    /// The effect of the current access of `me`.
    pub(super) fn ordered_now(&self, me: u64, access: Access) -> Variants<Ordered> {
        match (access, self.threads.get(&me).and_then(|thread| thread.order)) {
            (Access::Load, Some((Order::Load(order), (site, _))))
            | (Access::Store, Some((Order::Store(order), (site, _))))
            | (Access::Rmw, Some((Order::Rmw(order), (site, _))))
            | (Access::RmwFailed, Some((Order::RmwFailed(order), (site, _)))) => self.orders(order, site),
            _ => Variants::default(),
        }
    }

    /// Stores of the crashed thread `dead` that may be missing in the run but not with all
    /// orderings: a later store became visible that should have kept them before it. Each comes
    /// with the word's previous value.
    pub(super) fn late(&self, dead: u64) -> Vec<(LateStore, u64)> {
        let Some(it) = self.threads.get(&dead) else { return Vec::new() };
        let is_seen = |late: &LateStore| {
            let others = self.threads.iter().filter(|(thread, _)| **thread != dead);
            let mut views = others.map(|(_, other)| &other.seen.in_run().view);
            views.any(|view| view.of(late.number) >= late.value)
        };
        let late: Vec<LateStore> = it.tail.late().copied().collect();
        let is_late = |number, value| late.iter().any(|late| (late.number, late.value) == (number, value));
        let before = |late: &LateStore| {
            let first = (1..late.value).rev().find(|&value| !is_late(late.number, value));
            self.values[late.number][first.unwrap_or(0) as usize].value
        };
        let is_last = |late: &&LateStore| late.value == self.last(late.number) && !is_seen(late);
        late.iter().filter(is_last).map(|late| (*late, before(late))).collect()
    }

    /// A barrier of `thread`: everything done before it, also by other threads before their
    /// barriers, precedes everything that it does later. Not in the run, if this is the weakened
    /// ordering.
    pub(super) fn barrier(&mut self, thread: u64, is_missing: bool) {
        let Self { threads, common, .. } = self;
        let it = threads.entry(thread).or_default();
        let seen = &mut it.seen;
        if seen.differs() || common.differs() || is_missing {
            let (seen, common) = (seen.in_run_mut(), common.in_run_mut());
            if !is_missing {
                seen.barrier(common);
            }
        }
        seen.with_all.barrier(&mut common.with_all);
        seen.normalise();
        common.normalise();
        it.tail.keep(is_missing);
    }

    /// Every thread executes a barrier, with one of `me` before and after. Not in the run, if this
    /// is the weakened ordering.
    pub(super) fn barrier_of_all(&mut self, me: u64, is_missing: bool) {
        let others: Vec<u64> = self.threads.keys().copied().filter(|&other| other != me).collect();
        std::iter::once(me).chain(others).chain([me]).for_each(|thread| self.barrier(thread, is_missing));
    }

    /// Synchronises `me` with all threads that did so before, outside the medium.
    pub(super) fn synchronise_elsewhere(&mut self, me: u64) {
        let Self { threads, elsewhere, .. } = self;
        let seen = &mut threads.entry(me).or_default().seen;
        let meet = |seen: &mut Seen, elsewhere: &mut View| {
            seen.view.join(elsewhere);
            elsewhere.join(&seen.view);
        };
        if seen.differs() || elsewhere.differs() {
            meet(seen.in_run_mut(), elsewhere.in_run_mut());
        }
        meet(&mut seen.with_all, &mut elsewhere.with_all);
        seen.normalise();
        elsewhere.normalise();
        threads.entry(me).or_default().tail.keep(false);
    }

    /// `me` observes the crash of `dead`, and so sees everything that it did.
    pub(super) fn observe_crash(&mut self, me: u64, dead: u64) {
        let left = self.thread(dead).seen.clone();
        let seen = &mut self.thread(me).seen;
        if left.differs() || seen.differs() {
            seen.in_run_mut().view.join(&left.in_run().view);
        }
        seen.with_all.view.join(&left.with_all.view);
        seen.normalise();
    }

    /// `me` is about to load or change a word by a SeqCst access.
    pub(super) fn enter_total(&mut self, me: u64, number: usize, ordered: &Variants<Ordered>) {
        if !ordered.with_all.is_total {
            return;
        }
        let Self { threads, common, .. } = self;
        let seen = &mut threads.entry(me).or_default().seen;
        if seen.differs() || common.differs() || ordered.differs() {
            let seen = seen.in_run_mut();
            if ordered.in_run().is_total {
                seen.view.raise(number, common.in_run().of(number));
            }
        }
        seen.with_all.view.raise(number, common.with_all.of(number));
        seen.normalise();
    }

    /// `me` has loaded the value with this number.
    pub(super) fn loaded(&mut self, me: u64, number: usize, value: Number, ordered: &Variants<Ordered>) {
        let Self { threads, values, .. } = self;
        let seen = &mut threads.entry(me).or_default().seen;
        let carried = &values[number][value as usize].carried;
        if seen.differs() || carried.differs() || ordered.differs() {
            seen.in_run_mut().load(number, value, carried.in_run(), *ordered.in_run());
        }
        seen.with_all.load(number, value, &carried.with_all, ordered.with_all);
        seen.normalise();
    }

    /// `me` has stored `value`.
    pub(super) fn stored(
        &mut self,
        me: u64,
        number: usize,
        value: u64,
        is_exchange: bool,
        ordered: &Variants<Ordered>,
    ) {
        let (last, next) = (self.last(number), self.last(number) + 1);
        if is_exchange {
            self.loaded(me, number, last, ordered);
        }
        let Self { threads, values, common, .. } = self;
        let seen = &mut threads.entry(me).or_default().seen;
        seen.each(|seen| seen.view.raise(number, next));
        let before = is_exchange.then(|| &values[number][last as usize].carried);
        let differs = seen.differs() || ordered.differs() || before.is_some_and(Variants::differs);
        let with_all = seen.with_all.carried(ordered.with_all, before.map(|before| &before.with_all));
        let mut carried = Variants::both(with_all);
        if differs {
            *carried.in_run_mut() = seen.in_run().carried(*ordered.in_run(), before.map(Variants::in_run));
            carried.normalise();
        }
        if ordered.with_all.is_total {
            if differs || common.differs() {
                let common = common.in_run_mut();
                if ordered.in_run().is_total {
                    common.raise(number, next);
                }
            }
            common.with_all.raise(number, next);
            common.normalise();
        }
        values[number].push(Value { value, is_exchange, carried });
        threads.entry(me).or_default().tail.stored(ordered);
    }

    /// Counts the next access of `me` in a call.
    pub(super) fn tick(&mut self, me: u64) {
        let it = self.thread(me);
        it.clock += 1;
        let clock = it.clock;
        it.seen.each(|seen| seen.view.tick(me as usize, clock));
    }

    /// Finds races: accesses of other threads to these words that should happen before the access
    /// of `me`, but do not.
    pub(super) fn find_races(
        &mut self,
        me: u64,
        access: Access,
        words: Range<u64>,
        site: &'static Location<'static>,
    ) {
        let Self { threads, races, rivals, raced, race, has_diverged, .. } = self;
        let it = threads.entry(me).or_default();
        for word in words {
            rivals.clear();
            races.touch(me as usize, it.clock, access, word, site, rivals);
            for rival in rivals.iter() {
                let story = || rival.describe(me as usize, site);
                if !*has_diverged && !rival.comes_before(&it.seen.with_all.view) {
                    race.get_or_insert_with(story);
                } else if !rival.comes_before(&it.seen.in_run().view) {
                    raced.get_or_insert_with(story);
                }
            }
        }
    }

    /// The places before other threads' stores that a store of `me` may take in the run: after the
    /// oldest possible value.
    pub(super) fn overtaken(&self, me: u64, number: usize, word: u64) -> Option<Choice> {
        let (it, values) = (&self.threads[&me], &self.values[number]);
        let first_sound = it.seen.with_all.view.of(number);
        let mut places = it.seen.in_run().view.of(number)..first_sound;
        let oldest = places.find(|&at| !values[at as usize + 1].is_exchange)?;
        Some(Choice { word, point: it.point(), oldest, first_sound, last: first_sound })
    }

    /// Whether a store may take its place between this value and the next one.
    pub(super) fn has_room_behind(&self, number: usize, value: Number) -> bool {
        self.values[number].get(value as usize + 1).is_none_or(|next| !next.is_exchange)
    }

    /// `me` has stored right after the value with this number, and later values have overwritten
    /// that store. A read-modify-write found that value.
    pub(super) fn stored_behind(
        &mut self,
        me: u64,
        number: usize,
        value: Number,
        is_exchange: bool,
        ordered: &Variants<Ordered>,
    ) {
        if is_exchange {
            self.loaded(me, number, value, ordered);
        }
        self.thread(me).seen.each(|seen| seen.view.raise(number, value + 1));
    }

    /// The values that `me` may load of a word in the run.
    pub(super) fn choice(&self, me: u64, number: usize, word: u64) -> Choice {
        let it = &self.threads[&me];
        let [oldest, first_sound] = [it.seen.in_run(), &it.seen.with_all].map(|seen| seen.view.of(number));
        Choice { word, point: it.point(), oldest, first_sound, last: self.last(number) }
    }
}
