//! What threads may load by the C11 memory model, as it would be with all orders, and in each world in which one of them is missing. See [`weak`](super::weak) for what it is.

use super::races::{Races, Rival};
use super::reach::{Choice, Number};
use super::seen::{Ordered, Seen, View};
use super::tail::{Late, Tail};
use super::worlds::{World, Worlds};
use crate::crash::Wrong;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Release, SeqCst};
use terrace_medium::{Access, Order};

/// What an access is weakened by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weak {
    /// What comes behind it may come before.
    Acquire,
    /// What comes before it may come behind.
    Release,
    /// It has its place in no order of all threads.
    Total,
}

/// An order that is missing at one place of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weakening {
    /// The place.
    pub site: &'static Location<'static>,
    /// What is missing.
    pub weak: Weak,
}

impl Weakening {
    /// Where it is in the source: `pool/lock.rs:177`.
    pub fn place(&self) -> String {
        crate::crash::place(self.site)
    }
}

/// All that can be missing at the places that were passed.
pub type Weakenings = BTreeSet<Weakening>;

/// How many loads could be of something older, by their places in the source.
pub type Differences = BTreeMap<&'static Location<'static>, u64>;

/// Two places of the source: where something was loaded with Acquire, and where that had been stored.
pub type Pair = (&'static Location<'static>, &'static Location<'static>);

/// Which orders are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// None.
    None,
    /// This one.
    One(Weakening),
    /// None, but of each it is noted what would come of that.
    Each,
}

/// A value that a word held or holds.
pub(super) struct Value {
    pub(super) value: u64,
    /// How many stores came before it, and where it was stored, if that was in a call.
    pub(super) at: u64,
    pub(super) site: Option<&'static Location<'static>>,
    /// Whether it was made of the one before, by an exchange: then nothing comes between the two.
    is_exchange: bool,
    /// What who acquires it has to see from then on.
    carried: Worlds<View>,
}

/// A thread.
#[derive(Default)]
pub(super) struct Thread {
    /// Whether it is within a call; what is around that is done by one thread after the other.
    pub(super) calls: bool,
    /// Whether it has been.
    pub(super) has_called: bool,
    /// Accesses within calls.
    clock: u32,
    pub(super) seen: Worlds<Seen>,
    /// Old values that it may still load in this call.
    pub(super) old: u32,
    pub(super) order: Option<(Order, &'static Location<'static>)>,
    pub(super) tail: Tail,
}

/// All of it.
#[derive(Default)]
pub(super) struct Model {
    pub(super) passed: Weakenings,
    /// The number of the world in which each order is missing that is looked at.
    pub(super) worlds: HashMap<Weakening, World>,
    /// Loads in each world that could be of something older than with all orders, by their places.
    pub(super) differences: BTreeMap<World, Differences>,
    /// The first race of each world that would not be one with all orders.
    pub(super) raced: BTreeMap<World, Wrong>,
    /// The first race with all orders.
    pub(super) race: Option<Wrong>,
    /// Where something was loaded with Acquire, and where that had been stored.
    pub(super) pairs: HashSet<Pair>,
    /// Whether anybody asks for them.
    pub(super) notes_pairs: bool,
    /// Words that were stored to within calls, by their place in the medium.
    pub(super) words: HashMap<u64, usize>,
    pub(super) values: Vec<Vec<Value>>,
    /// Stores so far.
    stores: u64,
    pub(super) threads: BTreeMap<u64, Thread>,
    /// What all barriers have in common.
    common: Worlds<View>,
    /// What all have in common that have synchronised outside of the medium.
    elsewhere: Worlds<View>,
    races: Races,
    rivals: Vec<Rival>,
    /// The world of the run, once somebody was shown what he could not have been shown in any other: what follows from that would not have been done with all orders, so that is no measure for it.
    pub(super) departed: Option<World>,
}

/// What an order can lose.
pub(super) fn losses(order: Order) -> &'static [Weak] {
    const ALL: [Weak; 3] = [Weak::Acquire, Weak::Release, Weak::Total];
    match order {
        Order::Load(Acquire) | Order::Rmw(Acquire) | Order::RmwFailed(Acquire | SeqCst) => &ALL[..1],
        Order::Store(Release) | Order::Rmw(Release) => &ALL[1..2],
        Order::Rmw(AcqRel) => &ALL[..2],
        Order::Load(SeqCst) => &[Weak::Acquire, Weak::Total],
        Order::Store(SeqCst) => &ALL[1..],
        Order::Rmw(SeqCst) => &ALL,
        Order::Barrier | Order::BarrierOfAll => &ALL[2..],
        Order::Load(_) | Order::Store(_) | Order::Rmw(_) | Order::RmwFailed(_) | Order::Elsewhere => &[],
    }
}

/// The bytes that an access is to, and whether it stores.
pub(super) fn extent(access: Access) -> (usize, bool) {
    match access {
        Access::Load | Access::RmwFailed => (8, false),
        Access::Store | Access::Rmw => (8, true),
        Access::Read(len) => (len, false),
        Access::Copy(len) | Access::StreamedCopy(len) => (len, true),
    }
}

/// The worlds in which one of these differs.
macro_rules! worlds_of {
    ($($it:expr),+) => {{
        let mut worlds = BTreeSet::new();
        $($it.add_to(&mut worlds);)+
        worlds
    }};
}

impl Model {
    pub(super) fn by_weakening<T: Clone>(
        &self,
        of: impl Fn(&Self) -> &BTreeMap<World, T>,
    ) -> BTreeMap<Weakening, T> {
        let of = of(self);
        self.worlds.iter().filter_map(|(&it, world)| Some((it, of.get(world)?.clone()))).collect()
    }

    pub(super) fn thread(&mut self, thread: u64) -> &mut Thread {
        self.threads.entry(thread).or_default()
    }

    /// What a word has held; if nobody has stored to it within a call yet, it begins with `held`.
    pub(super) fn word(&mut self, word: u64, held: u64) -> usize {
        let next = self.values.len();
        let number = *self.words.entry(word).or_insert(next);
        if number == next {
            self.values.push(vec![Value {
                value: held,
                at: 0,
                site: None,
                is_exchange: false,
                carried: Worlds::default(),
            }]);
        }
        number
    }

    /// The number of the value that a word holds.
    pub(super) fn last(&self, number: usize) -> Number {
        self.values[number].len() as Number - 1
    }

    /// The value that a word held so many stores ago.
    pub(super) fn ago(&self, number: usize, stores: u64) -> Number {
        let until = self.stores.saturating_sub(stores);
        self.values[number].partition_point(|value| value.at <= until).saturating_sub(1) as Number
    }

    /// Where a word was last stored to.
    pub(super) fn last_site(&self, number: usize) -> Option<&'static Location<'static>> {
        self.values[number].last().and_then(|value| value.site)
    }

    /// What an access with this order orders at this place, in all worlds.
    pub(super) fn orders(&self, order: Ordering, site: &'static Location<'static>) -> Worlds<Ordered> {
        let all = Ordered {
            acquires: matches!(order, Acquire | AcqRel | SeqCst),
            releases: matches!(order, Release | AcqRel | SeqCst),
            is_total: order == SeqCst,
        };
        let mut orders = Worlds::all(all);
        for weak in [Weak::Acquire, Weak::Release, Weak::Total] {
            if let Some(&world) = self.worlds.get(&Weakening { site, weak }) {
                let it = orders.of_mut(world);
                match weak {
                    Weak::Acquire => it.acquires = false,
                    Weak::Release => it.releases = false,
                    Weak::Total => it.is_total = false,
                }
            }
        }
        orders
    }

    /// What the access orders that `me` is at.
    pub(super) fn ordered_now(&self, me: u64, access: Access) -> Worlds<Ordered> {
        match (access, self.threads.get(&me).and_then(|thread| thread.order)) {
            (Access::Load, Some((Order::Load(order), site)))
            | (Access::Store, Some((Order::Store(order), site)))
            | (Access::Rmw, Some((Order::Rmw(order), site)))
            | (Access::RmwFailed, Some((Order::RmwFailed(order), site))) => self.orders(order, site),
            _ => Worlds::default(),
        }
    }

    /// What `dead` may have left behind in `world` that it would not have with all orders: stores that need not have been made when it died, which a later one that was made would have kept before it.
    /// Each with what its word held before.
    pub(super) fn late(&self, dead: u64, world: World) -> Vec<(Late, u64)> {
        let Some(it) = self.threads.get(&dead) else { return Vec::new() };
        let is_seen = |late: &Late| {
            let others = self.threads.iter().filter(|(thread, _)| **thread != dead);
            let mut views = others.map(|(_, other)| &other.seen.of(world).view);
            views.any(|view| view.of(late.number) >= late.value)
        };
        let late: Vec<Late> = it.tail.late(world).copied().collect();
        let is_late = |number, value| late.iter().any(|late| (late.number, late.value) == (number, value));
        let before = |late: &Late| {
            let first = (1..late.value).rev().find(|&value| !is_late(late.number, value));
            self.values[late.number][first.unwrap_or(0) as usize].value
        };
        let is_last = |late: &&Late| late.value == self.last(late.number) && !is_seen(late);
        late.iter().filter(is_last).map(|late| (*late, before(late))).collect()
    }

    /// Notes which stores of `dead` need not have been made when it died, in each world.
    pub(super) fn note_late(&mut self, dead: u64) {
        let worlds = self.threads.get(&dead).map_or(Vec::new(), |it| it.tail.worlds());
        for world in worlds {
            for (late, _) in self.late(dead, world) {
                *self.differences.entry(world).or_default().entry(late.site).or_default() += 1;
            }
        }
    }

    /// All that `thread` and others with a barrier before have done comes before all that it does from now on; but not in the world in which that is missing.
    pub(super) fn barrier(&mut self, thread: u64, missing: Option<World>) {
        let Self { threads, common, .. } = self;
        let seen = &mut threads.entry(thread).or_default().seen;
        for world in worlds_of!(seen, common).into_iter().chain(missing) {
            let (seen, common) = (seen.of_mut(world), common.of_mut(world));
            if missing != Some(world) {
                seen.barrier(common);
            }
        }
        seen.would_be.barrier(&mut common.would_be);
        seen.settle();
        common.settle();
        threads.entry(thread).or_default().tail.keep(missing);
    }

    /// Every thread passes a barrier, and `me` before and behind them; but not in the world in which that is missing.
    pub(super) fn barrier_of_all(&mut self, me: u64, missing: Option<World>) {
        let others: Vec<u64> = self.threads.keys().copied().filter(|&other| other != me).collect();
        std::iter::once(me).chain(others).chain([me]).for_each(|thread| self.barrier(thread, missing));
    }

    /// `me` synchronises with all others that have come to such a place.
    pub(super) fn meet_elsewhere(&mut self, me: u64) {
        let Self { threads, elsewhere, .. } = self;
        let seen = &mut threads.entry(me).or_default().seen;
        let meet = |seen: &mut Seen, elsewhere: &mut View| {
            seen.view.join(elsewhere);
            elsewhere.join(&seen.view);
        };
        for world in worlds_of!(seen, elsewhere) {
            meet(seen.of_mut(world), elsewhere.of_mut(world));
        }
        meet(&mut seen.would_be, &mut elsewhere.would_be);
        seen.settle();
        elsewhere.settle();
        threads.entry(me).or_default().tail.keep(None);
    }

    /// `me` is told that `dead` does nothing more: with that it has all that `dead` did.
    pub(super) fn learn(&mut self, me: u64, dead: u64) {
        let left = self.thread(dead).seen.clone();
        let seen = &mut self.thread(me).seen;
        for world in worlds_of!(left, seen) {
            seen.of_mut(world).view.join(&left.of(world).view);
        }
        seen.would_be.view.join(&left.would_be.view);
        seen.settle();
    }

    /// `me` is about to load or change a word by a SeqCst access.
    pub(super) fn enter_total(&mut self, me: u64, number: usize, ordered: &Worlds<Ordered>) {
        if !ordered.would_be.is_total {
            return;
        }
        let Self { threads, common, .. } = self;
        let seen = &mut threads.entry(me).or_default().seen;
        for world in worlds_of!(seen, common, ordered) {
            let seen = seen.of_mut(world);
            if ordered.of(world).is_total {
                seen.view.raise(number, common.of(world).of(number));
            }
        }
        seen.would_be.view.raise(number, common.would_be.of(number));
        seen.settle();
    }

    /// `me` has loaded the value with this number.
    pub(super) fn loaded(&mut self, me: u64, number: usize, value: Number, ordered: &Worlds<Ordered>) {
        let Self { threads, values, pairs, notes_pairs, .. } = self;
        let it = threads.entry(me).or_default();
        let (seen, order) = (&mut it.seen, it.order);
        let Value { carried, site, .. } = &values[number][value as usize];
        if *notes_pairs
            && ordered.would_be.acquires
            && let (Some((_, here)), &Some(there)) = (order, site)
        {
            pairs.insert((here, there));
        }
        for world in worlds_of!(seen, carried, ordered) {
            seen.of_mut(world).load(number, value, carried.of(world), *ordered.of(world));
        }
        seen.would_be.load(number, value, &carried.would_be, ordered.would_be);
        seen.settle();
    }

    /// `me` has stored `value`.
    pub(super) fn stored(
        &mut self,
        me: u64,
        number: usize,
        value: u64,
        site: Option<&'static Location<'static>>,
        is_exchange: bool,
        ordered: &Worlds<Ordered>,
    ) {
        let (last, next) = (self.last(number), self.last(number) + 1);
        if is_exchange {
            self.loaded(me, number, last, ordered);
        }
        let Self { threads, values, common, stores, .. } = self;
        let seen = &mut threads.entry(me).or_default().seen;
        seen.each(|seen| seen.view.raise(number, next));
        let before = is_exchange.then(|| &values[number][last as usize].carried);
        let mut worlds = worlds_of!(seen, ordered);
        before.into_iter().for_each(|before| before.add_to(&mut worlds));
        let would_be = seen.would_be.carried(ordered.would_be, before.map(|before| &before.would_be));
        let mut carried = Worlds::all(would_be);
        for &world in &worlds {
            let before = before.map(|before| before.of(world));
            *carried.of_mut(world) = seen.of(world).carried(*ordered.of(world), before);
        }
        carried.settle();
        if ordered.would_be.is_total {
            common.add_to(&mut worlds);
            for &world in worlds.iter() {
                let common = common.of_mut(world);
                if ordered.of(world).is_total {
                    common.raise(number, next);
                }
            }
            common.would_be.raise(number, next);
            common.settle();
        }
        *stores += 1;
        values[number].push(Value { value, at: *stores, site, is_exchange, carried });
        threads.entry(me).or_default().tail.stored(ordered);
    }

    /// `me` comes to its next access, in a call.
    pub(super) fn tick(&mut self, me: u64) {
        let it = self.thread(me);
        it.clock += 1;
        let clock = it.clock;
        it.seen.each(|seen| seen.view.tick(me as usize, clock));
    }

    /// Whether others' accesses to these words have to come before that which `me` has just done, and do.
    pub(super) fn judge_races(
        &mut self,
        me: u64,
        access: Access,
        words: Range<u64>,
        site: &'static Location<'static>,
    ) {
        let Self { threads, races, rivals, raced, race, departed, .. } = self;
        let it = threads.entry(me).or_default();
        for word in words {
            rivals.clear();
            races.touch(me as usize, it.clock, access, word, site, rivals);
            for rival in rivals.iter() {
                let story = || rival.story(me as usize, site);
                if let Some(world) = *departed {
                    if !rival.comes_before(&it.seen.of(world).view) {
                        raced.entry(world).or_insert_with(story);
                    }
                    continue;
                }
                if !rival.comes_before(&it.seen.would_be.view) {
                    race.get_or_insert_with(story);
                    continue;
                }
                for (world, _) in it.seen.differing().filter(|(_, seen)| !rival.comes_before(&seen.view)) {
                    raced.entry(world).or_insert_with(story);
                }
            }
        }
    }

    /// Behind which value of a word a store of `me` may have its place, though others have come since, in the world of the run: the oldest there is. Of the other worlds it is noted where they have one.
    pub(super) fn overtaken(
        &mut self,
        me: u64,
        number: usize,
        word: u64,
        is: Option<World>,
    ) -> Option<Choice> {
        let (seen, values) = (&self.threads[&me].seen, &self.values[number]);
        let first_sound = seen.would_be.view.of(number);
        let site = self.threads[&me].order.map_or(Location::caller(), |order| order.1);
        let oldest = |seen: &Seen| {
            (seen.view.of(number)..first_sound).find(|&at| !values[at as usize + 1].is_exchange)
        };
        for (world, _) in seen.differing().filter(|(_, seen)| oldest(seen).is_some()) {
            *self.differences.entry(world).or_default().entry(site).or_default() += 1;
        }
        let oldest = oldest(seen.of(is?))?;
        Some(Choice { word, site, oldest, first_sound, last: first_sound, differs: true })
    }

    /// Whether a store may have its place between this value and the next one.
    pub(super) fn has_room_behind(&self, number: usize, value: Number) -> bool {
        self.values[number].get(value as usize + 1).is_none_or(|next| !next.is_exchange)
    }

    /// `me` has stored to a word, right behind the value with this number; what came since has taken the place of that already. An exchange has found that value.
    pub(super) fn stored_behind(
        &mut self,
        me: u64,
        number: usize,
        value: Number,
        is_exchange: bool,
        ordered: &Worlds<Ordered>,
    ) {
        if is_exchange {
            self.loaded(me, number, value, ordered);
        }
        self.thread(me).seen.each(|seen| seen.view.raise(number, value + 1));
    }

    /// What `me` may load of a word in the world of the run; of the other worlds it is noted whether they differ.
    pub(super) fn choice(&mut self, me: u64, number: usize, word: u64, is: Option<World>) -> Choice {
        let seen = &self.threads[&me].seen;
        let first_sound = seen.would_be.view.of(number);
        let of = |at: Number| self.values[number][at as usize].value;
        let differs = |oldest: Number| (oldest..first_sound).any(|at| of(at) != of(first_sound));
        // Who reads bytes comes with the place of the access before.
        let site = self.threads[&me].order.map_or(Location::caller(), |order| order.1);
        for (world, _) in seen.differing().filter(|(_, seen)| differs(seen.view.of(number))) {
            *self.differences.entry(world).or_default().entry(site).or_default() += 1;
        }
        let oldest = is.map_or(first_sound, |is| seen.of(is).view.of(number));
        Choice { word, site, oldest, first_sound, last: self.last(number), differs: differs(oldest) }
    }
}
