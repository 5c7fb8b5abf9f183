//! The collector's walk, which also recounts the keys while writers continue.
//!
//! A page's entry has a *column*: that of the counters to which changes of the page belong. While
//! no recount goes on, it is the active one in all pages. The walk goes from leaf to leaf in the
//! order of keys. It swaps the entry of each for the same one with the other column, and what the
//! page holds at that moment is what it counts. A writer knows by the entry that it has swapped
//! whether the walk has passed the page (see `Count::add_in_column`). A page that comes from
//! another one gets that one's column. If one of two pages that are united was passed, the other's
//! keys are added to the column by the thread that unites them. So the walk never counts keys of a
//! page whose low key is below the place that it has come to, but names them.
//!
//! A crash leaves columns of a recount that did not end. So the walk first makes them all alike.
//!
//! A doomed page gets no other column but under the lock of changes in place: a thread that is
//! about to unite it may have read the one that it has. So the walk has it absorbed, or changed in
//! place.
//!
//! Pages that no page leads to are found by their numbers. A thread that is about to link one is
//! pinned since it has written it. So the walk ends those of an earlier generation of the pool, or
//! of an epoch in which no thread is pinned any more; it names the others.

use super::super::keys::{OrderedKind, key_of_entry};
use super::build::{BYTES, Block, INNER, LEAVES};
use super::entry::{Entry, State};
use super::find::Spot;
use super::ops::BwTree;
use super::page::{Page, Pid, Probe, ROOT_PAGE};
use super::spare::Spare;
use super::table::{Directory, SEGMENTS};
use crate::{ChangeError, Damage};
use std::collections::HashSet;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker};

/// A walk in progress.
struct Walk<'g, 'w, 'm, M: MappedMedium, K: OrderedKind, F> {
    index: &'g BwTree<M, K>,
    guard: &'g Guard<'g, M>,
    marker: &'w mut Marker<'m>,
    each: F,
    /// The column that is active.
    column: u64,
    keys: u64,
    figures: [u64; 3],
    /// Pages that were named, and their blocks.
    pages: HashSet<Pid>,
    blocks: HashSet<u64>,
}

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// See [`PointIndex::trace`](crate::PointIndex::trace).
    pub(super) fn trace_all(
        &self,
        guard: &Guard<'_, M>,
        marker: &mut Marker<'_>,
        each: impl FnMut(&mut Marker<'_>, u64),
    ) {
        let count = self.tree.count();
        let column = count.columns().0;
        while self.make_columns_alike(column) {}
        count.start_recount();
        let (keys, figures) = (0, [0; 3]);
        let (pages, blocks) = (HashSet::new(), HashSet::new());
        let mut walk = Walk { index: self, guard, marker, each, column, keys, figures, pages, blocks };
        let used = walk.name_own();
        let walked = walk.visit_leaves().and_then(|()| walk.visit_inner_pages());
        if walked.is_ok() && self.tree.damage.get().is_none() {
            walk.visit_others();
        }
        walk.name_used(&used);
        let (keys, figures) = (walk.keys, walk.figures);
        if self.tree.damage.get().is_some() {
            // What lies behind a damaged page is not free: it can be salvaged.
            marker.give_up();
        }
        count.finish_recount(keys);
        [LEAVES, INNER, BYTES].iter().for_each(|&figure| count.correct_figure(figure, figures[figure]));
    }

    /// Gives all pages this column. Returns whether any had the other one.
    fn make_columns_alike(&self, column: u64) -> bool {
        let mut had_other = false;
        for pid in 0..self.tree.numbers() {
            let Some(word) = self.tree.entry_word(pid as Pid) else { continue };
            loop {
                let entry = Entry(word.load(self.tree.pool.medium(), Relaxed));
                if !entry.is_page() || !entry.is_sound() || entry.column() == column {
                    break;
                }
                had_other = true;
                let entry = self.tree.follow_entry(word);
                self.set_column(word, entry, column);
            }
        }
        had_other
    }

    /// Gives a page a column, if its entry is still this.
    fn set_column(&self, word: &terrace_medium::Word, entry: Entry, column: u64) -> bool {
        let new = entry.with_column(column);
        // ORDER: AcqRel: the thread that swaps the entry next has seen what was done before.
        // Nothing must be durable: after a crash the columns are made alike.
        let medium = self.tree.pool.medium().point("bw.column");
        let is_set = word.compare_exchange(medium, entry.0, new.0, AcqRel, Relaxed).is_ok();
        if !is_set {
            self.tree.heal(word, entry);
        }
        is_set
    }

    /// The column of a page that two others are united to, which have these entries and numbers of
    /// keys; and the keys that must be added to it, as the walk will not count them.
    pub(super) fn column_of_united(&self, left: (Entry, usize), right: (Entry, usize)) -> (u64, usize) {
        let (active, is_recounting) = self.tree.count().columns();
        if left.0.column() == right.0.column() {
            return (left.0.column(), 0);
        }
        let not_passed = if left.0.column() == active { left.1 } else { right.1 };
        if is_recounting { (1 - active, not_passed) } else { (active, 0) }
    }

    /// Adds keys to a column that the walk will not count.
    pub(super) fn count_passed(&self, guard: &Guard<'_, M>, column: u64, keys: usize) {
        if keys > 0 {
            self.tree.count().add_to_column(guard.slot_index(), keys as i64, column);
        }
    }
}

impl<'g, M: MappedMedium, K: OrderedKind, F: FnMut(&mut Marker<'_>, u64)> Walk<'g, '_, '_, M, K, F> {
    /// Names all blocks but pages. Returns the spares that threads use: they may become pages.
    fn name_own(&mut self) -> Vec<Block> {
        let tree = &self.index.tree;
        tree.mark_own(self.marker);
        self.marker.mark(tree.directory.offset().raw(), size_of::<Directory>());
        for (nth, segment) in (0..SEGMENTS).filter_map(|nth| Some((nth, tree.segment_at(nth)?))) {
            self.marker.mark(segment, tree.segment_bytes(nth));
        }
        let mut used = Vec::new();
        for word in tree.spare_words() {
            let spare = Spare(word.load(tree.pool.medium(), Acquire));
            match spare.block() {
                // ORDER: AcqRel: as in `take_spare`. Its block is a page, or the collector's.
                Some(_) if spare.is_left(tree.pool.epoch()) => {
                    _ = word.compare_exchange(tree.pool.medium(), spare.0, 0, AcqRel, Relaxed);
                }
                Some(block) if spare.is_used() => used.push(block),
                Some(block) => self.marker.mark(block.offset, block.bytes),
                None => {}
            }
        }
        used
    }

    /// Names the spares that threads use and that are not pages.
    fn name_used(&mut self, used: &[Block]) {
        for block in used.iter().filter(|block| !self.blocks.contains(&block.offset)) {
            self.marker.mark(block.offset, block.bytes);
        }
    }

    fn visit_leaves(&mut self) -> Result<(), Damage> {
        let mut from = Vec::new();
        loop {
            let spot = self.index.tree.descend_soundly(self.guard, Probe::at(&from), 0)?;
            if spot.entry.state() == State::Doomed {
                self.settle_doomed(spot.page.pid)?;
                continue;
            }
            // What it holds stays as it is under the lock, if it is still in this state.
            let is_in_place = spot.entry.is_in_place();
            let _lock = is_in_place.then(|| self.index.lock_in_place(self.guard));
            let is_rest = spot.page.low() < &from[..];
            if !is_rest && spot.entry.column() == self.column {
                let passed = 1 - self.column;
                if !self.index.set_column(spot.word, spot.entry, passed) {
                    continue;
                }
            }
            self.visit_leaf(&spot, is_rest.then_some(&from))?;
            match spot.page.high() {
                Some(high) => from = high.to_vec(),
                None => return Ok(()),
            }
        }
    }

    /// Has a doomed page absorbed, or changed in place.
    fn settle_doomed(&self, pid: Pid) -> Result<(), Damage> {
        match self.index.settle_merge(self.guard, pid) {
            Ok(()) => Ok(()),
            Err(ChangeError::Full(_)) => self.index.doom_in_place(self.guard, pid),
            Err(ChangeError::Damaged(damage)) => Err(damage),
        }
    }

    /// Names a leaf and what it holds, or what is behind `from`; that was counted already.
    fn visit_leaf(&mut self, spot: &Spot<'g, K>, from: Option<&Vec<u8>>) -> Result<(), Damage> {
        self.name_page(spot);
        for live in self.index.tree.live(self.guard, spot)? {
            if let Some(from) = from {
                if key_of_entry::<M, K>(self.guard, live).is_some_and(|key| *key < from[..]) {
                    continue;
                }
            } else {
                self.keys += 1;
            }
            (self.each)(self.marker, live.1);
        }
        Ok(())
    }

    fn name_page(&mut self, spot: &Spot<'g, K>) {
        let page = &spot.page;
        // A leaf that has absorbed others may be met twice.
        if self.pages.insert(page.pid) || !self.blocks.contains(&page.offset) {
            self.name_block(Block { offset: page.offset, bytes: page.bytes });
            self.figures[if page.is_leaf() { LEAVES } else { INNER }] += 1;
            self.figures[BYTES] += page.bytes as u64;
        }
    }

    fn name_block(&mut self, block: Block) {
        if self.blocks.insert(block.offset) {
            self.marker.mark(block.offset, block.bytes);
        }
    }

    fn visit_inner_pages(&mut self) -> Result<(), Damage> {
        let mut level = 1;
        while self.index.tree.page(self.guard, ROOT_PAGE)?.is_some_and(|root| root.page.level >= level) {
            let mut from = Vec::new();
            loop {
                let spot = self.index.tree.descend_soundly(self.guard, Probe::at(&from), level)?;
                self.index.tree.check_content(self.guard, &spot)?;
                self.name_page(&spot);
                match spot.page.high() {
                    Some(high) => from = high.to_vec(),
                    None => break,
                }
            }
            level += 1;
        }
        Ok(())
    }

    /// Ends, or names, the pages that no page leads to.
    fn visit_others(&mut self) {
        let tree = &self.index.tree;
        for pid in (0..tree.numbers()).map(|pid| pid as Pid) {
            if self.pages.contains(&pid) {
                continue;
            }
            let Some(word) = tree.entry_word(pid) else { continue };
            let entry = tree.follow_entry(word);
            if entry.is_page() && entry.is_sound() {
                self.visit_other(pid, entry);
            }
        }
    }

    fn visit_other(&mut self, pid: Pid, entry: Entry) {
        let tree = &self.index.tree;
        if matches!(entry.state(), State::Frozen | State::Doomed | State::DoomedInPlace) {
            // It was absorbed, and is about to be buried.
            let _ = self.index.settle_merge(self.guard, pid);
            return;
        }
        match Page::<K>::open(self.guard, pid, entry) {
            Some(page) if page.is_new(tree.pool.generation(), tree.pool.epoch()) => {
                self.name_block(Block { offset: page.offset, bytes: page.bytes });
            }
            Some(page) if tree.bury(pid, entry) => self.guard.retire(page.offset, page.bytes),
            // Another thread has ended it, or it is damaged, and nothing leads to it.
            _ => {}
        }
    }
}
