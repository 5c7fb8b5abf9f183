//! The second step of a split: the page above is told of the right half.
//!
//! Any thread may take it. It reads the page above first and the right half then, and swaps the
//! entry of the page above that it has read. So it never links a page that is merged away: such a
//! page is frozen before its key leaves the page above (see `merge`).

use super::super::keys::OrderedKind;
use super::build::{Content, Need};
use super::find::Spot;
use super::ops::BwTree;
use super::page::{Page, Pid, Probe};
use crate::{ChangeError, Damage};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, PoolFull};

/// What came of a try.
enum Posted {
    /// The page above knows the page, or need not.
    Done,
    /// The page above has changed.
    Again,
    /// The page above was split; the one above that must be told, too.
    Above(Pid),
}

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// Tells the page above a page of its right neighbour. If there is no memory, leaves that to
    /// the next thread that comes this way.
    pub(super) fn post(&self, guard: &Guard<'_, M>, left: Pid) -> Result<(), Damage> {
        let mut left = left;
        loop {
            match self.try_post(guard, left) {
                Ok(Posted::Done) | Err(ChangeError::Full(_)) => return Ok(()),
                Ok(Posted::Again) => {}
                Ok(Posted::Above(above)) => left = above,
                Err(ChangeError::Damaged(damage)) => return Err(damage),
            }
        }
    }

    fn try_post(&self, guard: &Guard<'_, M>, left: Pid) -> Result<Posted, ChangeError> {
        let Some(left) = self.tree.page(guard, left)? else { return Ok(Posted::Done) };
        let Some(separator) = left.page.high() else { return Ok(Posted::Done) };
        let above = self.tree.descend_soundly(guard, Probe::at(separator), left.page.level + 1)?;
        if above.page.level != left.page.level + 1 {
            return Ok(Posted::Done);
        }
        if !above.entry.is_open() {
            self.settle_merge(guard, above.page.pid)?;
            return Ok(Posted::Again);
        }
        let nth = above.page.entry_for(Probe::at(separator));
        if above.page.key(nth) == separator {
            return Ok(Posted::Done);
        }
        // After the page above: see the module's head.
        let Some(right) = self.tree.page(guard, left.page.sibling)? else { return Ok(Posted::Done) };
        if !right.entry.is_open() || right.page.low() != separator {
            return Ok(Posted::Done);
        }
        self.tree.check_content(guard, &above)?;
        let content = with_child(&above.page, nth + 1, (separator.to_vec(), right.page.pid));
        self.post_into(guard, &above, &content)
    }

    fn post_into(
        &self,
        guard: &Guard<'_, M>,
        above: &Spot<'_, K>,
        content: &Content,
    ) -> Result<Posted, ChangeError> {
        if content.entries.len() > self.tree.shape.most {
            // Where the new child is the last one, more are about to follow it.
            let (len, last) = (content.entries.len(), above.page.len);
            let is_last = content.keys[len - 1] != above.page.key(last - 1);
            return Ok(match self.split(guard, above, content, if is_last { last } else { len / 2 })? {
                true => Posted::Above(above.page.pid),
                false => Posted::Again,
            });
        }
        let is_done = self.rewrite(guard, above, content, Need::Room)?;
        Ok(if is_done { Posted::Done } else { Posted::Again })
    }

    /// Takes the key of a page's child out of the page. Returns whether the page was still the
    /// same.
    pub(super) fn unpost(
        &self,
        guard: &Guard<'_, M>,
        above: &Spot<'_, K>,
        nth: usize,
    ) -> Result<bool, PoolFull> {
        let (mut keys, mut children) = children_of(&above.page);
        keys.remove(nth);
        children.remove(nth);
        let content = inner_like(&above.page, keys, children);
        self.rewrite(guard, above, &content, self.tree.need_of_reserve())
    }
}

/// The keys and the children of an inner page.
pub(super) fn children_of<K: OrderedKind>(page: &Page<'_, K>) -> (Vec<Vec<u8>>, Vec<Pid>) {
    ((0..page.len).map(|nth| page.key(nth)).collect(), (0..page.len).map(|nth| page.child(nth)).collect())
}

/// The content of an inner page with these children in the place of its own.
pub(super) fn inner_like<K: OrderedKind>(
    page: &Page<'_, K>,
    keys: Vec<Vec<u8>>,
    children: Vec<Pid>,
) -> Content {
    let ends = (page.low().to_vec(), page.high().map(<[u8]>::to_vec));
    Content::inner::<K>((page.pid, page.level, page.sibling), ends, (keys, children))
}

/// As [`inner_like`], with one child more.
fn with_child<K: OrderedKind>(page: &Page<'_, K>, nth: usize, (key, child): (Vec<u8>, Pid)) -> Content {
    let (mut keys, mut children) = children_of(page);
    keys.insert(nth, key);
    children.insert(nth, child);
    inner_like(page, keys, children)
}
