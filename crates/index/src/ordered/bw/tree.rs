//! The tree below its operations: its handles, its shape, and how entries are followed and changed.

use super::super::base::{Base, ROOT_OWN};
use super::super::keys::OrderedKind;
use super::entry::Entry;
use super::find::Spot;
use super::page::{Page, Pid};
use super::slots::Overlay;
use super::table::Directory;
use crate::change::Fencing;
use crate::{Damage, StoreError};
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::{Fixed, Guard};

/// The sizes of a tree's pages, which its root keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// Entries of a page above which it is split.
    pub(super) most: usize,
    /// Entries below which it is merged with a neighbour.
    pub(super) least: usize,
    /// Slots of a leaf.
    pub(super) slots: usize,
    /// Entries of the mapping table's first segment, as a power of two.
    pub(super) first_log2: u32,
    /// Blocks that are set aside.
    pub(super) spares: usize,
    /// Whether every second epoch counts as one without memory.
    pub(super) is_scarce: bool,
}

/// Entries of a page at most above which it is split.
pub(super) const MOST_MAX: usize = 144;

impl Shape {
    /// Of a tree that is no test's.
    pub(super) const USUAL: Self =
        Self { most: 128, least: 32, slots: 12, first_log2: 6, spares: 8, is_scarce: false };

    /// Entries above which a leaf is not written anew as one page, even if there is no memory to
    /// split it: marks and spares have their size.
    pub(super) fn most_unsplit(self) -> usize {
        self.most + self.most / 2
    }

    pub(super) fn word(self) -> u64 {
        let Self { most, least, slots, first_log2, spares, is_scarce } = self;
        (most as u64) << 48
            | (least as u64) << 32
            | u64::from(is_scarce) << 24
            | (slots as u64) << 16
            | u64::from(first_log2) << 8
            | spares as u64
    }

    pub(super) fn of(word: u64) -> Self {
        let part = |shift: u32, mask: u64| (word >> shift & mask) as usize;
        let first_log2 = part(8, 0xff) as u32;
        Self {
            most: part(48, 0xffff),
            least: part(32, 0xffff),
            slots: part(16, 0xff),
            first_log2,
            spares: part(0, 0xff),
            is_scarce: part(24, 1) == 1,
        }
    }
}

/// The last four words of the root block: the shape, the offset of the directory, a check of both.
pub(super) fn own_words(shape: Shape, directory: u64) -> [u64; 4] {
    [shape.word(), directory, own_check(shape.word(), directory), 0]
}

fn own_check(shape: u64, directory: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (shape ^ ODD).wrapping_mul(ODD).rotate_left(27) ^ directory.wrapping_mul(ODD | 2)
}

/// The pages, their entries and the mapping table. It owns the handles that every tree has. It
/// knows no change of a key; `BwTree` above it does.
pub(super) struct Tree<M: MappedMedium, K> {
    pub(super) base: Base<M, K>,
    pub(super) directory: Fixed<M, Directory>,
    pub(super) shape: Shape,
    /// The epoch in which there was no memory for a spare.
    pub(super) refused: AtomicU64,
}

impl<M: MappedMedium, K> Deref for Tree<M, K> {
    type Target = Base<M, K>;
    #[inline(always)]
    fn deref(&self) -> &Base<M, K> {
        &self.base
    }
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// The tree over a root block that was opened.
    pub(super) fn over(base: Base<M, K>) -> Result<Self, StoreError> {
        let own = |nth: usize| base.root[1].0[ROOT_OWN + nth].load(base.pool.medium(), Acquire);
        let wrong = |what| StoreError::Damaged(Damage { offset: base.root.offset().raw(), what });
        if own(2) != own_check(own(0), own(1)) {
            return Err(wrong("the shape of the tree does not fit its check"));
        }
        let directory = base.pool.fix(Offset::new(own(1)));
        let directory = directory.ok_or(wrong("the directory lies outside the pool"))?;
        let shape = Shape::of(own(0));
        Ok(Self { base, directory, shape, refused: AtomicU64::new(0) })
    }

    /// The entry in `word`, durable: a thread returns nothing and builds upon nothing that a crash
    /// can take back.
    #[inline(always)]
    pub(super) fn follow_entry(&self, word: &Word) -> Entry {
        // ORDER: Acquire: pairs with the AcqRel in `swap_entry`. The page that it leads to is
        // visible, and the slots that it counts.
        let entry = Entry(word.load(self.pool.medium(), Acquire));
        if M::VOLATILE_CACHE && entry.is_dirty() { self.persist_entry(word, entry) } else { entry.clean() }
    }

    #[cold]
    fn persist_entry(&self, word: &Word, entry: Entry) -> Entry {
        let region = self.pool.region();
        region.write_back(word);
        // PERSIST: what another thread stored and has not fenced, before this one relies on it.
        // What it leads to was durable before it was stored.
        region.fence();
        if !self.pool.refuses_stores() {
            self.clean_entry(word, entry);
        }
        entry.clean()
    }

    /// Clears the dirty bit of an entry where none is ever set: only damage has done that. Writers
    /// would wait for it for ever.
    #[cold]
    pub(super) fn heal(&self, word: &Word, entry: Entry) {
        if !M::VOLATILE_CACHE {
            self.clean_entry(word, entry);
        }
    }

    /// Clears the dirty bit of an entry that is durable.
    fn clean_entry(&self, word: &Word, entry: Entry) {
        // ORDER: AcqRel: a thread that finds the entry clean finds it durable. After a failure it
        // has changed, or another thread has cleared the bit.
        let medium = self.pool.medium().point("bw.clean");
        let _ = word.compare_exchange(medium, entry.dirty().0, entry.clean().0, AcqRel, Relaxed);
    }

    /// Puts another entry in the place of `old`, which was followed, and makes that durable, now or
    /// later. Returns whether it was still there. What the new one leads to is durable.
    #[inline(always)]
    pub(super) fn swap_entry(&self, word: &Word, old: Entry, new: Entry, fencing: &mut Fencing<'_>) -> bool {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        let new = if M::VOLATILE_CACHE { new.dirty() } else { new.clean() };
        // ORDER: AcqRel: Release publishes what the entry leads to; Acquire sees what others have
        // published of it.
        let swapped = word.compare_exchange(medium.point("bw.swap"), old.clean().0, new.0, AcqRel, Relaxed);
        if swapped.is_err() {
            self.heal(word, old);
            return false;
        }
        if M::VOLATILE_CACHE {
            // PERSIST: the one write-back and fence that make a change of an entry durable. A crash
            // without it leaves the page as it was.
            region.write_back(word);
            match fencing {
                Fencing::Deferred(deferred) => deferred.0.extend([region.offset_of(word).raw(), new.0]),
                Fencing::Now => {
                    region.fence();
                    self.clean_entry(word, new);
                }
            }
        }
        true
    }

    /// Clears the dirty bits of entries that [`Tree::swap_entry`] left to a later fence.
    pub(super) fn confirm_entries(&self, entries: &[u64]) {
        let region = self.pool.region();
        // PERSIST: all deferred changes at once.
        region.fence();
        for pair in entries.chunks_exact(2) {
            self.clean_entry(region.at(Offset::new(pair[0])), Entry(pair[1]));
        }
    }

    /// The page of an entry that was followed; damage if none lies there.
    #[inline(always)]
    pub(super) fn open_page<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        pid: Pid,
        entry: Entry,
    ) -> Result<Page<'g, K>, Damage> {
        match Page::open(guard, pid, entry) {
            Some(page) => Ok(page),
            None => Err(self.damaged_page(pid, entry)),
        }
    }

    #[cold]
    fn damaged_page(&self, pid: Pid, entry: Entry) -> Damage {
        match self.entry_word(pid).filter(|_| !entry.is_sound()) {
            Some(word) => {
                let at = self.pool.region().offset_of(word).raw();
                self.record_damage(at, "an entry of the mapping table does not fit its check")
            }
            None => self.record_damage(entry.offset(), "a page is not the one that its entry names"),
        }
    }

    /// Damage unless the page's sum is that of its content. Words that may be changed in place are
    /// left out.
    pub(super) fn check_content(&self, guard: &Guard<'_, M>, spot: &Spot<'_, K>) -> Result<(), Damage> {
        let is_whole = |spot: &Spot<'_, K>| match spot.entry.is_in_place() {
            true => spot.page.is_whole_but_words(),
            false => spot.page.is_whole(guard),
        };
        if is_whole(spot) || self.has_changed(spot) && spot.page.is_whole_but_words() {
            return Ok(());
        }
        Err(self.record_damage(spot.page.offset, "the content of a page does not fit its sum"))
    }

    /// What the slots of a page say; damage if one does not fit its check.
    #[inline(always)]
    pub(super) fn overlay_of<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        spot: &Spot<'g, K>,
    ) -> Result<Overlay, Damage> {
        match spot.page.overlay(guard, spot.entry, true) {
            Err(damage) => self.overlay_again(guard, spot, damage),
            overlay => overlay,
        }
    }

    #[cold]
    fn overlay_again<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        spot: &Spot<'g, K>,
        damage: Damage,
    ) -> Result<Overlay, Damage> {
        let again =
            if self.has_changed(spot) { spot.page.overlay(guard, spot.entry, false) } else { Err(damage) };
        again.map_err(|damage| self.record_damage(damage.offset, damage.what))
    }

    /// Whether the entry of a page is another now. Then its words may have been changed in place
    /// since it was read, and do not fit its checks.
    pub(super) fn has_changed(&self, spot: &Spot<'_, K>) -> bool {
        // ORDER: Acquire: a thread that has read a word which was changed in place finds the entry
        // that says so, or a later one.
        let now = Entry(spot.word.load(self.pool.medium(), Acquire)).clean();
        now.with_column(0) != spot.entry.with_column(0)
    }
}
