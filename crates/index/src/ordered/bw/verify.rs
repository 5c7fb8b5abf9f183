//! Checks every invariant that is visible while no thread writes.

use super::super::base::{FINDINGS_MAX, finding};
use super::super::keys::{OrderedKind, key_of_entry};
use super::find::Spot;
use super::ops::BwTree;
use super::page::{Pid, Probe, ROOT_PAGE};
use crate::Damage;
use std::borrow::Borrow;
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard};

/// A check in progress.
struct Check<'g, M: MappedMedium, K: OrderedKind> {
    index: &'g BwTree<M, K>,
    guard: &'g Guard<'g, M>,
    findings: Vec<Finding>,
    keys: u64,
}

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    pub(super) fn findings<'g>(&'g self, guard: &'g Guard<'g, M>) -> Vec<Finding> {
        let mut check = Check { index: self, guard, findings: Vec::new(), keys: 0 };
        // What is wrong on the way is noted as damage.
        let _ = check.look_at_levels();
        self.tree.conclude(check.findings, check.keys)
    }
}

impl<'g, M: MappedMedium, K: OrderedKind> Check<'g, M, K> {
    fn find(&mut self, offset: u64, expected: impl Into<String>, found: impl Into<String>) {
        self.findings.push(finding(offset, expected, found));
    }

    fn look_at_levels(&mut self) -> Result<(), Damage> {
        let tree = &self.index.tree;
        let Some(root) = tree.page(self.guard, ROOT_PAGE)? else {
            self.find(tree.directory.offset().raw(), "a root", "none");
            return Ok(());
        };
        let mut first = Some(ROOT_PAGE);
        let mut level = root.page.level;
        while let Some(pid) = first {
            first = self.look_at_level(pid, level)?;
            level = level.saturating_sub(1);
        }
        Ok(())
    }

    /// Looks at all pages of a level. Returns the first child of the first.
    fn look_at_level(&mut self, first: Pid, level: usize) -> Result<Option<Pid>, Damage> {
        let (mut pid, mut low, mut below) = (first, Vec::new(), None);
        loop {
            let Some(spot) = self.index.tree.page(self.guard, pid)? else {
                self.find(
                    u64::from(pid),
                    "a page in the chain of its level",
                    "a page that has left the tree",
                );
                return Ok(below);
            };
            let page = spot.page;
            self.index.tree.check_content(self.guard, &spot)?;
            if page.level != level || page.low() != low {
                self.find(page.offset, "a page of this level from the high key before it on", "another");
                return Ok(below);
            }
            if page.is_leaf() {
                self.look_at_leaf(&spot)?
            } else {
                self.look_at_inner(&spot)?
            }
            if below.is_none() && !page.is_leaf() {
                below = Some(page.child(0));
            }
            let Some(high) = page.high().filter(|_| self.findings.len() < FINDINGS_MAX) else {
                return Ok(below);
            };
            if high <= &low[..] {
                self.find(page.offset, "a high key above the low one", "another");
                return Ok(below);
            }
            (pid, low) = (page.sibling, high.to_vec());
        }
    }

    fn look_at_leaf(&mut self, spot: &Spot<'g, K>) -> Result<(), Damage> {
        let mut last: Option<Vec<u8>> = None;
        for live in self.index.tree.live(self.guard, spot)? {
            self.keys += 1;
            let Some(key) = key_of_entry::<M, K>(self.guard, live).map(|key| key.to_vec()) else {
                self.find(live.1, "a record with a key", "none");
                continue;
            };
            if last.as_ref().is_some_and(|last| *last >= key) {
                self.find(
                    spot.page.offset,
                    "keys in their order",
                    "a key that is not above the one before it",
                );
            }
            let owned = K::owned(&key);
            let found = owned.as_ref().map(|key| self.index.tree.search(self.guard, key.borrow()));
            if found != Some(Some(live.1)) {
                self.find(spot.page.offset, "a key that a search finds", "one that it does not find");
            }
            if self.findings.len() >= FINDINGS_MAX {
                return Ok(());
            }
            last = Some(key);
        }
        Ok(())
    }

    fn look_at_inner(&mut self, spot: &Spot<'g, K>) -> Result<(), Damage> {
        let page = spot.page;
        let keys: Vec<Vec<u8>> = (0..page.len).map(|nth| page.key(nth)).collect();
        if keys.is_empty() || !keys.is_sorted_by(|one, next| one < next) {
            self.find(page.offset, "keys in their order, one at least", "others");
        }
        for (nth, key) in keys.iter().enumerate() {
            let child = self.index.tree.page(self.guard, page.child(nth))?;
            let is_right =
                child.is_some_and(|child| child.page.low() == key && child.page.level + 1 == page.level);
            let is_inside = !page.is_left_of(Probe::at(key)) && !page.is_right_of(Probe::at(key));
            if !is_right || !is_inside {
                self.find(page.offset, "a child from its key on, of the level below", "another, or none");
            }
        }
        Ok(())
    }
}
