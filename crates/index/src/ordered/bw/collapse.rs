//! The root gives a level up when it has one child only: it takes that one's content.
//!
//! ```text
//!   1  the child is frozen: it takes no change from here on
//!   2  the root is frozen: it gets no other child
//!   3  the child is doomed: there is no way back
//!   4  the root takes the child's content, in one step
//!   5  the child's entry becomes a tombstone, and its block is retired
//! ```
//! It is a merge (see `merge`) in which the root takes the place of the left page. Only the thread
//! that has done step 2 does step 3. A thread that finds the root frozen completes steps 4 and 5 if
//! the child is doomed. Otherwise it thaws the child first, if it must, and the root then: so step
//! 3 fails from there on.

use super::super::keys::OrderedKind;
use super::build::{Block, Content, RESHAPED};
use super::entry::{Entry, State};
use super::find::Spot;
use super::merge::RETIRED;
use super::ops::BwTree;
use super::page::{Pid, ROOT_PAGE};
use crate::{ChangeError, Damage};
use terrace_medium::{LINE, MappedMedium};
use terrace_pool::Guard;

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// Has the root take the content of its only child, level by level. Returns whether it did.
    pub(super) fn collapse(&self, guard: &Guard<'_, M>) -> Result<bool, ChangeError> {
        let mut has_merged = false;
        self.settle_merge(guard, ROOT_PAGE)?;
        while let Some(child) = self.only_child(guard)? {
            if !self.collapse_to(guard, child)? {
                break;
            }
            has_merged = true;
        }
        Ok(has_merged)
    }

    /// The only child of the root, if it has no other.
    fn only_child(&self, guard: &Guard<'_, M>) -> Result<Option<Pid>, Damage> {
        let root = self.tree.page(guard, ROOT_PAGE)?;
        let root = root.filter(|root| !root.page.is_leaf() && root.page.len == 1 && root.entry.is_open());
        Ok(root.map(|root| root.page.child(0)))
    }

    fn collapse_to(&self, guard: &Guard<'_, M>, child: Pid) -> Result<bool, ChangeError> {
        self.open_again(guard, ROOT_PAGE)?;
        self.open_again(guard, child)?;
        let Some(spot) = self.tree.page(guard, child)? else { return Ok(false) };
        // A right neighbour is a child of the root, too, that it has not been told of.
        if spot.entry.state() != State::Open || spot.page.high().is_some() {
            return Ok(false);
        }
        let Some(root) = self.tree.page(guard, ROOT_PAGE)? else { return Ok(false) };
        if root.entry.state() != State::Open || root.page.len != 1 || root.page.child(0) != child {
            return Ok(false);
        }
        self.tree.check_content(guard, &root)?;
        guard.reserve_retirements(RETIRED)?;
        let bytes = (spot.page.bytes + 16 * spot.page.slots).next_multiple_of(LINE);
        let mut reserve = Some(self.tree.take_block(guard, bytes, self.tree.need_of_reserve())?);
        let is_doomed = self.doom_child(&root, &spot);
        let settled = if is_doomed { self.settle_with(guard, child, &mut reserve) } else { Ok(()) };
        reserve.inspect(|&block| self.tree.drop_block(guard, block));
        settled.map(|()| is_doomed)
    }

    /// Takes steps 1 to 3. Returns whether no other thread came in between.
    fn doom_child(&self, root: &Spot<'_, K>, child: &Spot<'_, K>) -> bool {
        if !self.enter(child, State::Frozen) {
            return false;
        }
        let frozen = |spot: &Spot<'_, K>| spot.entry.with_state(State::Frozen).clean();
        let child = Spot { entry: frozen(child), ..*child };
        if !self.enter(root, State::Frozen) {
            self.enter(&child, State::Thawed);
            return false;
        }
        let is_doomed = self.enter(&child, State::Doomed);
        if !is_doomed {
            self.enter(&Spot { entry: frozen(root), ..*root }, State::Thawed);
        }
        is_doomed
    }

    /// The root, if it is about to take the content of this child.
    pub(super) fn collapsing_root<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        child: Pid,
    ) -> Result<Option<Spot<'g, K>>, Damage> {
        let root = self.tree.page(guard, ROOT_PAGE)?;
        Ok(root.filter(|root| !root.page.is_leaf() && root.page.len == 1 && root.page.child(0) == child))
    }

    /// Completes what has frozen the root, or gives it up.
    pub(super) fn decide_collapse(
        &self,
        guard: &Guard<'_, M>,
        root: &Spot<'_, K>,
    ) -> Result<(), ChangeError> {
        let child = if root.page.is_leaf() { ROOT_PAGE } else { root.page.child(0) };
        let spot = if child == ROOT_PAGE { None } else { self.tree.page(guard, child)? };
        match spot {
            None if self.tree.has_changed(root) => {}
            None => {
                let at = root.page.offset;
                return Err(self.tree.record_damage(at, "a root that is to be replaced has no child").into());
            }
            Some(spot) if spot.entry.is_doomed() => self.absorb(guard, child, &mut None)?,
            Some(spot) if spot.entry.state() == State::Frozen => _ = self.enter(&spot, State::Thawed),
            Some(_) if root.entry.state() == State::Frozen => _ = self.enter(root, State::Thawed),
            Some(_) => {
                let at = root.page.offset;
                return Err(self
                    .tree
                    .record_damage(at, "a root that is to be replaced has no doomed child")
                    .into());
            }
        }
        Ok(())
    }

    /// Puts the content of its doomed child in the place of the root.
    pub(super) fn replace_root(
        &self,
        guard: &Guard<'_, M>,
        root: &Spot<'_, K>,
        child: &Spot<'_, K>,
        reserve: &mut Option<Block>,
    ) -> Result<(), ChangeError> {
        let content = Content { pid: ROOT_PAGE, ..self.content_of(guard, child)? };
        let block = self.write_merged(guard, &content, reserve)?;
        let entry = Entry::of_page(block.offset, child.entry.column());
        if self.replace_by(guard, root, (block, content.level), entry) {
            self.tree.count().add_figure(guard.slot_index(), RESHAPED, 1);
        }
        Ok(())
    }
}
