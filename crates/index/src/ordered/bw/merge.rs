//! A page with few entries is absorbed by its left neighbour.
//!
//! ```text
//!   1  the right page is frozen: it takes no change from here on
//!   2  its key leaves the page above; the left page's high key still leads to it, as after the
//!      first step of a split
//!   3  the right page is doomed: the merge can no longer be given up
//!   4  the left page absorbs its content, in one step
//!   5  its entry becomes a tombstone, and its block is retired
//! ```
//! A thread that finds a frozen or doomed page on the way of a change takes the next step, so
//! nobody waits, and nobody's death blocks anyone. There is one exception: only the thread that has
//! itself done step 2 does step 3. A thread that finds a frozen page whose key is not in the page
//! above, or is that page's first, *thaws* the page: then the merge is given up, and the page is
//! one of which the page above must be told. A thawed page is frozen again only after it was
//! written anew. Steps 1, 3, 4, 5 and thawing are each a compare-and-swap of one entry.
//!
//! # Why no page links a page that is gone
//! A thread that tells a page above of a page swaps the very entry that it has read, which did not
//! have the key; and it has found the page not frozen after that. At step 2, after the page was
//! frozen, the page above had the key. So the swap of a thread that read it earlier fails, and a
//! thread that reads it later finds the page frozen. (In published Bw-trees an abort delta keeps
//! the page above from being changed meanwhile. If its thread dies, it blocks that page for ever.)
//!
//! # Why a reader may read a doomed page
//! It came there by a link that it read before step 2, or by a left page that it read before step
//! 4. So step 4 had not been done when it began, and what it finds was right until then.

use super::super::keys::OrderedKind;
use super::build::{Block, Content, Need, RESHAPED, no_memory, skip_of};
use super::entry::{Entry, State};
use super::find::Spot;
use super::live::{Live, widened};
use super::ops::BwTree;
use super::page::{NO_PAGE, Pid, Probe, ROOT_PAGE};
use super::post::{children_of, inner_like};
use super::room::leaf_like;
use super::slots::before_body;
use crate::{ChangeError, Damage};
use terrace_medium::{LINE, MappedMedium};
use terrace_pool::{Guard, PoolFull};

/// Pages that a merge retires: the one above, both, and one that was written anew for it.
pub(super) const RETIRED: usize = 4;

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// Merges a page that has few entries with a neighbour, and those above that then have few.
    /// Returns whether any was merged.
    pub(super) fn merge(&self, guard: &Guard<'_, M>, pid: Pid) -> Result<bool, ChangeError> {
        let (mut pid, mut has_merged) = (pid, false);
        loop {
            if pid == ROOT_PAGE {
                return Ok(self.collapse(guard)? || has_merged);
            }
            let Some(spot) = self.tree.page(guard, pid)? else { return Ok(has_merged) };
            if self.tree.count_in(guard, &spot)? >= self.tree.shape.least {
                return Ok(has_merged);
            }
            let above = match self.absorb_into_left(guard, pid)? {
                Some(above) => above,
                None => match self.absorb_into_left(guard, spot.page.sibling)? {
                    Some(above) => above,
                    None => return Ok(has_merged),
                },
            };
            (pid, has_merged) = (above, true);
        }
    }

    /// Has a page absorbed by its left neighbour, if both have the same page above and few entries.
    /// Returns that page.
    fn absorb_into_left(&self, guard: &Guard<'_, M>, pid: Pid) -> Result<Option<Pid>, ChangeError> {
        if pid == NO_PAGE {
            return Ok(None);
        }
        let Some(spot) = self.tree.page(guard, pid)? else { return Ok(None) };
        if self.left_and_above(guard, &spot)?.is_none() {
            return Ok(None);
        }
        self.open_again(guard, pid)?;
        let Some(spot) = self.tree.page(guard, pid)? else { return Ok(None) };
        let Some((above, bytes)) = self.left_and_above(guard, &spot)? else { return Ok(None) };
        if spot.entry.state() != State::Open {
            return Ok(None);
        }
        guard.reserve_retirements(RETIRED)?;
        // Memory for the last step, before there is no way back.
        let mut reserve = Some(self.tree.take_block(guard, bytes, self.tree.need_of_reserve())?);
        let is_frozen = self.enter(&spot, State::Frozen);
        let settled = if is_frozen { self.settle_with(guard, pid, &mut reserve) } else { Ok(()) };
        reserve.inspect(|&block| self.tree.drop_block(guard, block));
        settled?;
        let is_gone = is_frozen && self.tree.page(guard, pid)?.is_none();
        Ok(is_gone.then_some(above))
    }

    /// Writes a page anew that a merge has thawed, or that is changed in place, so that it can be
    /// merged.
    pub(super) fn open_again(&self, guard: &Guard<'_, M>, pid: Pid) -> Result<(), ChangeError> {
        let Some(spot) = self.tree.page(guard, pid)? else { return Ok(()) };
        match spot.entry.state() {
            State::Thawed => {
                let content = self.content_of(guard, &spot)?;
                self.rewrite(guard, &spot, &content, Need::Less)?;
                Ok(())
            }
            State::InPlace => self.reopen_in_place(guard, pid),
            _ => Ok(()),
        }
    }

    /// The page above a page, if that has its key and its left neighbour, which can absorb it; and
    /// bytes that suffice for both.
    fn left_and_above(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
    ) -> Result<Option<(Pid, usize)>, Damage> {
        let (page, most) = (&spot.page, self.tree.shape.most);
        let above = self.tree.descend_soundly(guard, Probe::at(page.low()), page.level + 1)?;
        let nth = above.page.entry_for(Probe::at(page.low()));
        let is_its = above.page.level == page.level + 1 && above.page.child(nth) == page.pid;
        if !is_its || nth == 0 || !above.entry.is_open() {
            return Ok(None);
        }
        let Some(left) = self.tree.page(guard, above.page.child(nth - 1))? else { return Ok(None) };
        let can_absorb = left.entry.is_open() || left.entry.state() == State::InPlace;
        if left.page.sibling != page.pid || !can_absorb {
            return Ok(None);
        }
        let (own, others) = (self.tree.count_in(guard, spot)?, self.tree.count_in(guard, &left)?);
        // Less than a full page, or it would soon be split again.
        let fits = own == 0 || own + others <= most - most / 4;
        let bytes = if page.is_leaf() {
            // The left one may have got more keys in its slots until then.
            let fences = left.page.low().len() + page.high().map_or(0, <[u8]>::len);
            let more = if left.entry.is_open() { left.page.slots } else { 0 };
            before_body(page.slots) + fences.next_multiple_of(8) + 16 * (own + others + more)
        } else {
            // Each key may become longer by what its page has left out.
            left.page.bytes + page.bytes + page.skip.max(left.page.skip) * (own + others)
        };
        Ok((fits && own + others <= most).then_some((above.page.pid, bytes.next_multiple_of(LINE))))
    }

    /// Completes the merge of a page, or gives it up.
    pub(super) fn settle_merge(&self, guard: &Guard<'_, M>, pid: Pid) -> Result<(), ChangeError> {
        self.settle_with(guard, pid, &mut None)
    }

    /// As [`BwTree::settle_merge`], with a block that is used if there is no other.
    pub(super) fn settle_with(
        &self,
        guard: &Guard<'_, M>,
        pid: Pid,
        reserve: &mut Option<Block>,
    ) -> Result<(), ChangeError> {
        loop {
            let Some(spot) = self.tree.page(guard, pid)? else { return Ok(()) };
            match spot.entry.state() {
                State::Open | State::Thawed | State::InPlace => return Ok(()),
                _ if pid == ROOT_PAGE => self.decide_collapse(guard, &spot)?,
                State::Frozen => self.decide_merge(guard, &spot)?,
                State::Doomed | State::DoomedInPlace => return self.absorb(guard, pid, reserve),
            }
        }
    }

    /// Dooms a frozen page, or thaws it.
    fn decide_merge(&self, guard: &Guard<'_, M>, spot: &Spot<'_, K>) -> Result<(), Damage> {
        let low = Probe::at(spot.page.low());
        let above = self.tree.descend_soundly(guard, low, spot.page.level + 1)?;
        let nth = above.page.entry_for(low);
        let has_its_key = above.page.level == spot.page.level + 1
            && above.page.child(nth) == spot.page.pid
            && nth > 0
            && above.entry.is_open();
        let next = if !has_its_key {
            State::Thawed
        } else {
            self.tree.check_content(guard, &above)?;
            match self.unpost(guard, &above, nth) {
                Ok(true) => State::Doomed,
                // The page above has changed.
                Ok(false) => return Ok(()),
                Err(_) => State::Thawed,
            }
        };
        // Otherwise another thread has thawed it.
        self.enter(spot, next);
        Ok(())
    }

    /// The page that is to absorb a doomed one: its left neighbour, or the root; `None` if that has
    /// been done. The tree may have become lower since.
    pub(super) fn absorber_of<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        right: &Spot<'_, K>,
    ) -> Result<Option<Spot<'g, K>>, Damage> {
        let (low, pid) = (right.page.low(), right.page.pid);
        if low.is_empty() {
            return self.collapsing_root(guard, pid);
        }
        let left = self.tree.descend_soundly(guard, Probe::before(low), right.page.level)?;
        if left.page.pid == ROOT_PAGE && left.page.level < right.page.level {
            // A page that was not absorbed keeps its level in the tree.
            return Ok(None);
        }
        if left.page.level != right.page.level || left.page.pid == pid {
            return Err(self.tree.record_damage(right.page.offset, "a page that is merged has no left one"));
        }
        Ok((left.page.high() == Some(low) && left.page.sibling == pid).then_some(left))
    }

    /// Has a doomed page absorbed by its left neighbour, and before that those on its left that are
    /// doomed.
    pub(super) fn absorb(
        &self,
        guard: &Guard<'_, M>,
        pid: Pid,
        reserve: &mut Option<Block>,
    ) -> Result<(), ChangeError> {
        let mut doomed = pid;
        while let Some(right) = self.tree.page(guard, doomed)? {
            let Some(left) = self.absorber_of(guard, &right)? else {
                self.bury(guard, &right);
                // If it was one on the left: now the page itself.
                doomed = pid;
                continue;
            };
            if left.page.level == right.page.level && left.entry.is_doomed() {
                doomed = left.page.pid;
            } else if left.entry.state() == State::Frozen && left.page.pid != ROOT_PAGE {
                self.enter(&left, State::Thawed);
            } else {
                self.absorb_into(guard, &left, doomed, reserve)?;
            }
        }
        Ok(())
    }

    /// Has a doomed page absorbed by its left neighbour, or by the root, which is in a state for
    /// it.
    fn absorb_into(
        &self,
        guard: &Guard<'_, M>,
        left: &Spot<'_, K>,
        right: Pid,
        reserve: &mut Option<Block>,
    ) -> Result<(), ChangeError> {
        // After the left one: see `in_place`. What either holds stays as it is under the lock.
        let read = |pid| self.tree.page(guard, pid).map(|spot| spot.filter(|spot| spot.entry.is_doomed()));
        let Some(spot) = read(right)? else { return Ok(()) };
        let is_in_place = left.entry.is_in_place() || spot.entry.is_in_place();
        let _lock = is_in_place.then(|| self.lock_in_place(guard));
        let Some(spot) = read(right)? else { return Ok(()) };
        if spot.entry.is_in_place() && !is_in_place {
            return Ok(());
        }
        match left.page.level == spot.page.level {
            true => self.unite(guard, left, &spot, reserve),
            false => self.replace_root(guard, left, &spot, reserve),
        }
    }

    /// Ends a page that its left neighbour has absorbed.
    fn bury(&self, guard: &Guard<'_, M>, right: &Spot<'_, K>) {
        if self.tree.bury(right.page.pid, right.entry) {
            self.tree.retire_page(guard, &right.page);
        }
    }

    /// Puts the content of both pages in the place of the left one.
    fn unite(
        &self,
        guard: &Guard<'_, M>,
        left: &Spot<'_, K>,
        right: &Spot<'_, K>,
        reserve: &mut Option<Block>,
    ) -> Result<(), ChangeError> {
        let (one, other) = (self.content_of(guard, left)?, self.content_of(guard, right)?);
        let (keys, others) = (one.entries.len(), other.entries.len());
        let content = united::<K>(one, other);
        if content.level == 0 && keys + others > self.tree.shape.most_unsplit() {
            return self.unite_as_two(guard, left, right.entry, &content);
        }
        let block = self.write_merged(guard, &content, reserve)?;
        let (column, passed) = self.column_of_united((left.entry, keys), (right.entry, others));
        let entry = Entry::of_page(block.offset, column);
        if self.replace_by(guard, left, (block, content.level), entry) {
            self.tree.count().add_figure(guard.slot_index(), RESHAPED, 1);
            if content.level == 0 {
                self.count_passed(guard, column, passed);
            }
        }
        Ok(())
    }

    /// As [`BwTree::unite`], of leaves that have far too many keys by now: puts two pages in the
    /// place of the left one. That may find no memory.
    #[cold]
    fn unite_as_two(
        &self,
        guard: &Guard<'_, M>,
        left: &Spot<'_, K>,
        right: Entry,
        content: &Content,
    ) -> Result<(), ChangeError> {
        if left.entry.column() != right.column() || self.tree.is_scarce(Need::Less) {
            // The walk that recounts is at these pages: not now.
            return Err(no_memory(guard).into());
        }
        self.split(guard, left, content, content.entries.len() / 2).map(drop)
    }

    /// Writes the page of a merge, durably.
    pub(super) fn write_merged(
        &self,
        guard: &Guard<'_, M>,
        content: &Content,
        reserve: &mut Option<Block>,
    ) -> Result<Block, PoolFull> {
        let bytes = content.bytes::<K>(self.tree.shape.slots);
        let block = match self.tree.take_block(guard, bytes, Need::Less) {
            Ok(block) => block,
            Err(full) => reserve.take_if(|block| block.bytes >= bytes).ok_or(full)?,
        };
        self.tree.write_into(block, content);
        // PERSIST: the page, before its entry. A crash in between leaves a block that the collector
        // reclaims.
        self.tree.pool.region().fence();
        Ok(block)
    }

    /// The content of a page as it is now.
    pub(super) fn content_of(&self, guard: &Guard<'_, M>, spot: &Spot<'_, K>) -> Result<Content, Damage> {
        if spot.page.is_leaf() {
            return Ok(leaf_like(&spot.page, self.tree.live(guard, spot)?));
        }
        self.tree.check_content(guard, spot)?;
        let (keys, children) = children_of(&spot.page);
        Ok(inner_like(&spot.page, keys, children))
    }
}

/// The content of two neighbours.
fn united<K: OrderedKind>(left: Content, right: Content) -> Content {
    let (pid, level, sibling) = (left.pid, left.level, right.sibling);
    if level > 0 {
        let children =
            |content: &Content| content.entries.iter().map(|&(_, child)| child as Pid).collect::<Vec<Pid>>();
        let all = [children(&left), children(&right)].concat();
        let keys = [left.keys, right.keys].concat();
        return Content::inner::<K>((pid, level, sibling), (left.low, right.high), (keys, all));
    }
    // Never more than either leaves out: no record is read.
    let skip = skip_of(&left.low, right.high.as_deref()).min(left.skip).min(right.skip);
    let heads = |content: &Content| -> Vec<Live> {
        let widen = |&(head, word): &Live| (widened(&content.low, skip, (head, content.skip)), word);
        content.entries.iter().map(widen).collect()
    };
    let entries = [heads(&left), heads(&right)].concat();
    Content { pid, level, sibling, low: left.low, high: right.high, skip, entries, keys: Vec::new() }
}

#[cfg(test)]
#[path = "tests/merge.rs"]
mod tests;
