//! Ways down the tree, and reads of single keys.
//!
//! A thread goes from page to page by numbers. It never waits: a page whose right part is not yet
//! known above leads it to its right neighbour. A page that has left the tree has a tombstone, and
//! the thread starts again at the root. A page that waits to be absorbed is still read: nothing it
//! holds has changed since it was frozen.

use super::super::keys::OrderedKind;
use super::entry::Entry;
use super::page::{Page, Pid, Probe, ROOT_PAGE};
use super::slots::Held;
use super::tree::Tree;
use crate::Damage;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

/// Ways that lead nowhere, after which the tree counts as damaged: each way is to meet another page
/// that has left the tree meanwhile.
const WAYS: u32 = 10_000;

/// Pages on a way that is no circle.
const STEPS: u32 = 1 << 20;

/// A page that a search has found.
pub(super) struct Spot<'g, K> {
    pub(super) word: &'g Word,
    /// Its entry, durable.
    pub(super) entry: Entry,
    pub(super) page: Page<'g, K>,
    /// A page on the way that led to its right neighbour: the page above does not know that one.
    pub(super) stray: Option<Pid>,
}

impl<K> Clone for Spot<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Spot<'_, K> {}

/// The next page of a way, or none.
pub(super) enum Step<'g, K> {
    /// At the page of the wanted level.
    Arrived(Spot<'g, K>),
    /// On a way down or to the right.
    Onwards(Way),
    /// The way leads nowhere any more.
    Lost,
}

/// How far a search has come.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) pid: Pid,
    stray: Option<Pid>,
    /// The page's level is below this.
    level: usize,
    steps: u32,
}

impl Way {
    pub(super) const START: Self = Self { pid: ROOT_PAGE, stray: None, level: usize::MAX, steps: 0 };
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// The page of this number; `None` if it has left the tree.
    #[inline(always)]
    pub(super) fn page<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        pid: Pid,
    ) -> Result<Option<Spot<'g, K>>, Damage> {
        let Some(word) = self.entry_word(pid) else {
            let at = self.directory.offset().raw();
            return Err(self.record_damage(at, "the mapping table has no such page"));
        };
        let entry = self.follow_entry(word);
        if !entry.is_page() && entry.is_sound() {
            return Ok(None);
        }
        let page = self.open_page(guard, pid, entry)?;
        Ok(Some(Spot { word, entry, page, stray: None }))
    }

    /// Takes one step of a way to the page of `level` for a probe.
    #[inline(always)]
    pub(super) fn step<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        way: Way,
        probe: Probe<'_>,
        level: usize,
    ) -> Result<Step<'g, K>, Damage> {
        let Some(spot) = self.page(guard, way.pid)? else { return Ok(Step::Lost) };
        let page = &spot.page;
        let steps = way.steps + 1;
        if page.level >= way.level || steps > STEPS {
            return Err(self.record_damage(page.offset, "a page lies where no page of its level can be"));
        }
        if page.is_left_of(probe) {
            let onwards = Way { pid: page.sibling, stray: Some(page.pid), level: page.level + 1, steps };
            return Ok(Step::Onwards(onwards));
        }
        if page.level <= level {
            return Ok(Step::Arrived(Spot { stray: way.stray, ..spot }));
        }
        let child = page.child(page.entry_for(probe));
        Ok(Step::Onwards(Way { pid: child, stray: way.stray, level: page.level, steps }))
    }

    /// The page of `level` to which a probe leads; of a lower level, if the tree has no such one.
    #[inline(always)]
    pub(super) fn descend<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        probe: Probe<'_>,
        level: usize,
    ) -> Result<Spot<'g, K>, Damage> {
        let mut ways = 0;
        let mut way = Way::START;
        loop {
            match self.step(guard, way, probe, level)? {
                Step::Arrived(spot) => return Ok(spot),
                Step::Onwards(onwards) => way = onwards,
                Step::Lost => {
                    ways += 1;
                    if ways > WAYS {
                        let at = self.directory.offset().raw();
                        return Err(self.record_damage(at, "a link leads to a page that is not in the tree"));
                    }
                    way = Way::START;
                }
            }
        }
    }

    /// As [`Tree::descend`], for what relies on the page's place: damage if the page lies to the
    /// right of the probe. A read of a key that is then not found says so itself.
    pub(super) fn descend_soundly<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        probe: Probe<'_>,
        level: usize,
    ) -> Result<Spot<'g, K>, Damage> {
        let spot = self.descend(guard, probe, level)?;
        if spot.page.is_right_of(probe) {
            return Err(self.record_damage(spot.page.offset, "a page on the way to a key is above it"));
        }
        Ok(spot)
    }

    /// See [`PointIndex::get`](crate::PointIndex::get).
    #[inline(always)]
    pub(super) fn search(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        let bytes = K::bytes(key);
        let spot = self.descend(guard, Probe::at(&bytes), 0).ok()?;
        self.find_in(guard, &spot, (key, &bytes)).map(|held| held.word)
    }

    /// The place of a key in a leaf; `None` also if a slot of it is damaged.
    #[inline(always)]
    pub(super) fn find_in<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        spot: &Spot<'g, K>,
        key: (&K::Key, &[u8]),
    ) -> Option<Held> {
        let overlay = self.overlay_of(guard, spot).ok()?;
        let held = spot.page.find(guard, &overlay, key);
        self.persist_in_place(spot);
        held
    }

    /// See [`PointIndex::get_sound`](crate::PointIndex::get_sound).
    #[inline]
    pub(super) fn search_soundly(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        let bytes = K::bytes(key);
        let spot = self.descend(guard, Probe::at(&bytes), 0)?;
        let overlay = self.overlay_of(guard, &spot)?;
        let held = spot.page.find(guard, &overlay, (key, &bytes));
        self.persist_in_place(&spot);
        match held {
            // The record says that it is the key's. An integer has only its page.
            Some(held) if K::LEAF_BYTES == 0 => Ok(Some(held.word)),
            Some(held) => self.check_content(guard, &spot).map(|()| Some(held.word)),
            None => {
                self.check_way(guard, &bytes)?;
                if spot.entry.is_in_place() {
                    self.live(guard, &spot)?;
                }
                match spot.page.unsound(guard, &overlay, &bytes).or(self.damage.get().copied()) {
                    Some(damage) => Err(damage),
                    None => Ok(None),
                }
            }
        }
    }

    /// Checks the content of all pages on the way to a key.
    #[inline(never)]
    fn check_way(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<(), Damage> {
        let mut way = Way::START;
        for _ in 0..STEPS {
            if let Some(spot) = self.page(guard, way.pid)? {
                self.check_content(guard, &spot)?;
                if spot.page.is_right_of(Probe::at(key)) {
                    return Err(
                        self.record_damage(spot.page.offset, "a page on the way to a key is above it")
                    );
                }
            }
            match self.step(guard, way, Probe::at(key), 0)? {
                Step::Arrived(_) => return Ok(()),
                Step::Onwards(onwards) => way = onwards,
                Step::Lost => way = Way::START,
            }
        }
        Err(self
            .record_damage(self.directory.offset().raw(), "a link leads to a page that is not in the tree"))
    }
}
