//! Pages are written anew when their slots are used up, and split when they have too many entries.
//!
//! A split takes two steps. The first, one compare-and-swap, puts the left half in the place of the
//! page; its high key leads to the right half, which has a number of its own by then. The second
//! tells the page above. A crash, or a death, between them leaves a tree in which all keys are
//! found: a thread that goes to the right on the way of a change takes the second step (see
//! `post`).
//!
//! The root keeps its number. Its halves get new ones, and the page above them takes its place, so
//! one step does.

use super::super::keys::OrderedKind;
use super::build::{Block, Content, Need, RESHAPED, skip_of};
use super::entry::{Entry, State};
use super::find::Spot;
use super::live::Live;
use super::ops::BwTree;
use super::page::{LEVELS_MAX, NO_PAGE, Page, Pid, ROOT_PAGE, common, head_of};
use crate::{ChangeError, Damage, Fencing};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, PoolFull};

/// Front bytes more in common that are worth reading the records of a page.
const WORTH: usize = 4;

/// Keys in a row, between others, that are taken for the first of many.
const ROW: usize = 4;

/// A page that has a number and that nothing leads to.
#[derive(Clone, Copy)]
struct Numbered {
    pid: Pid,
    block: Block,
    entry: Entry,
}

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// Makes slots of a leaf free: writes it anew, or splits it.
    pub(super) fn make_room(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
        need: Need,
    ) -> Result<(), ChangeError> {
        let live = self.tree.live(guard, spot)?;
        let (keys, most) = (live.len(), self.tree.shape.most);
        let at = self.place_of_split(guard, spot, &live)?;
        let content = leaf_like(&spot.page, live);
        if keys > most {
            match self.split(guard, spot, &content, at) {
                // A change of a present key makes do with a page of too many entries, be it for
                // want of memory or for a record that cannot be read.
                Err(_) if need == Need::Present => {}
                Ok(true) => return Ok(self.post(guard, spot.page.pid)?),
                other => return other.map(drop),
            }
        }
        if keys > self.tree.shape.most_unsplit() {
            // There is an end to that.
            return Ok(self.begin_in_place(guard, spot, State::InPlace).map(drop)?);
        }
        // What takes no more than it gives back may take any block.
        let is_larger = content.bytes::<K>(self.tree.shape.slots) > spot.page.bytes;
        let is_growth = is_larger || keys > most || self.tree.shape.is_scarce;
        let found = if is_growth { need } else { Need::Present };
        let is_new = match self.rewrite(guard, spot, &content, found) {
            Err(_) if need == Need::Present => {
                return Ok(self.begin_in_place(guard, spot, State::InPlace).map(drop)?);
            }
            other => other?,
        };
        if is_new && keys < self.tree.shape.least {
            // The page is right as it is, whatever comes of this.
            let _ = self.merge(guard, spot.page.pid);
        }
        Ok(())
    }

    /// Where a leaf with these keys is split: in the middle; but behind those that came last if
    /// they are a row, as others are about to follow them, and the left half can stay full.
    fn place_of_split(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
        live: &[Live],
    ) -> Result<usize, Damage> {
        let most = self.tree.shape.most;
        if live.len() <= most {
            return Ok(0);
        }
        let overlay = self.tree.overlay_of(guard, spot)?;
        let has_come = |&live: &Live| overlay.held().any(|held| (held.head, held.word) == live);
        let first = live.iter().position(has_come).unwrap_or(0);
        let row = live[first..].iter().take_while(|&live| has_come(live)).count();
        let end = first + row;
        let at = match row == overlay.held().count() {
            true if row > 0 && end == live.len() => most,
            true if row >= ROW => end,
            _ => live.len() / 2,
        };
        Ok(at.min(most))
    }

    /// Puts another content in the place of a page's. Returns whether the page was still the same.
    pub(super) fn rewrite(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
        content: &Content,
        need: Need,
    ) -> Result<bool, PoolFull> {
        let block = self.tree.write_page(guard, content, need)?;
        // PERSIST: the page, before its entry. A crash in between leaves a block that the collector
        // reclaims.
        self.tree.pool.region().fence();
        Ok(self.replace(guard, spot, (block, content.level)))
    }

    /// Puts a page whose block is durable in the place of one, and retires that. If it has changed,
    /// frees the block.
    pub(super) fn replace(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
        (block, level): (Block, usize),
    ) -> bool {
        let entry = Entry::of_page(block.offset, spot.entry.column());
        self.replace_by(guard, spot, (block, level), entry)
    }

    /// As [`BwTree::replace`], with this entry.
    pub(super) fn replace_by(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
        (block, level): (Block, usize),
        entry: Entry,
    ) -> bool {
        // Durable before the old page is retired, whose memory others will use.
        if !self.tree.swap_entry(spot.word, spot.entry, entry, &mut Fencing::Now) {
            self.tree.drop_block(guard, block);
            return false;
        }
        self.tree.forget_spare(block);
        self.tree.count_page(guard, level, block.bytes, 1);
        self.tree.retire_page(guard, &spot.page);
        true
    }

    /// Splits a page, whose content is to be this, at one of its entries. Returns whether it was
    /// still the same; then the page above must be told.
    pub(super) fn split(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
        content: &Content,
        at: usize,
    ) -> Result<bool, ChangeError> {
        let (left, right) = self.halves(guard, content, at)?;
        let right = self.number(guard, right, spot.entry)?;
        let left = Content { sibling: right.pid, ..left };
        let done = if spot.page.pid == ROOT_PAGE {
            self.split_root(guard, spot, left, right)
        } else {
            self.rewrite(guard, spot, &left, Need::Room).map_err(ChangeError::from)
        };
        if !matches!(done, Ok(true)) {
            self.forget(guard, right);
            return done;
        }
        self.tree.count_page(guard, content.level, right.block.bytes, 1);
        self.tree.count().add_figure(guard.slot_index(), RESHAPED, 1);
        Ok(true)
    }

    /// Puts a page above both halves of the root in its place.
    fn split_root(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
        left: Content,
        right: Numbered,
    ) -> Result<bool, ChangeError> {
        let (level, separator) = (left.level + 1, left.high.clone().unwrap_or_default());
        assert!(level < LEVELS_MAX, "a tree of {level} levels");
        let left_level = left.level;
        let left = self.number(guard, left, spot.entry)?;
        let keys = vec![Vec::new(), separator];
        let children = vec![left.pid, right.pid];
        let root = Content::inner::<K>((ROOT_PAGE, level, NO_PAGE), (Vec::new(), None), (keys, children));
        let done = self.rewrite(guard, spot, &root, Need::Room);
        if !matches!(done, Ok(true)) {
            self.forget(guard, left);
            return Ok(done?);
        }
        self.tree.count_page(guard, left_level, left.block.bytes, 1);
        Ok(true)
    }

    /// Gives a page a number. The entry is durable at the next fence, before anything leads to it.
    fn number(&self, guard: &Guard<'_, M>, content: Content, like: Entry) -> Result<Numbered, ChangeError> {
        let mut content = content;
        loop {
            content.pid = self.tree.find_number(guard)?;
            let block = self.tree.write_page(guard, &content, Need::Room)?;
            // PERSIST: the page, before its entry, so that the collector's walk finds what an entry
            // says. A crash in between leaves a block that the collector reclaims.
            self.tree.pool.region().fence();
            let entry = Entry::of_page(block.offset, like.column());
            if self.tree.take_number(content.pid, entry) {
                return Ok(Numbered { pid: content.pid, block, entry });
            }
            self.tree.drop_block(guard, block);
        }
    }

    /// Ends a page that nothing leads to. A thread that goes through all numbers may have read it.
    fn forget(&self, guard: &Guard<'_, M>, page: Numbered) {
        if self.tree.return_number(page.pid, page.entry) {
            guard.retire(page.block.offset, page.block.bytes);
        }
    }

    /// Both halves of a content; the number of the right one and that of its place are yet to come.
    fn halves(
        &self,
        guard: &Guard<'_, M>,
        content: &Content,
        at: usize,
    ) -> Result<(Content, Content), Damage> {
        let separator = self.separator(guard, content, at)?;
        let (mut left, mut right) = (content.clone(), content.clone());
        right.entries = left.entries.split_off(at);
        if content.level > 0 {
            right.keys = left.keys.split_off(at);
        }
        left.high = Some(separator.clone());
        right.low = separator;
        self.shorten(guard, &mut left)?;
        self.shorten(guard, &mut right)?;
        Ok((left, right))
    }

    /// The shortest key that is above the entries before `at`, and not above the others.
    fn separator(&self, guard: &Guard<'_, M>, content: &Content, at: usize) -> Result<Vec<u8>, Damage> {
        if content.level > 0 {
            return Ok(content.keys[at].clone());
        }
        let (head, word) = content.entries[at];
        if K::LEAF_BYTES > 0 {
            return Ok(head.to_be_bytes().to_vec());
        }
        let (before, after) = (self.key_at(guard, content.entries[at - 1].1)?, self.key_at(guard, word)?);
        if before >= after {
            return Err(self.tree.record_damage(word, "the keys of a page are not in order"));
        }
        Ok(after[..common(&before, &after) + 1].to_vec())
    }

    fn key_at(&self, guard: &Guard<'_, M>, word: u64) -> Result<Vec<u8>, Damage> {
        let key = K::key_of(guard, word).map(|key| key.to_vec());
        key.ok_or(Damage { offset: word, what: "a record in a page that is split is unsound" })
    }

    /// Makes the heads of a content leave out the front bytes that all keys have in common now.
    fn shorten(&self, guard: &Guard<'_, M>, content: &mut Content) -> Result<(), Damage> {
        if K::LEAF_BYTES > 0 {
            return Ok(());
        }
        let skip = skip_of(&content.low, content.high.as_deref());
        if content.level > 0 {
            content.skip = skip;
            let heads = content.keys.iter().map(|key| head_of(key, skip));
            content.entries.iter_mut().zip(heads).for_each(|(entry, head)| entry.0 = head);
        } else if skip >= content.skip + WORTH {
            let words = content.entries.iter().map(|&(_, word)| word);
            words.clone().for_each(|word| K::prefetch(guard, word));
            let heads: Result<Vec<Live>, Damage> =
                words.map(|word| Ok((head_of(&self.key_at(guard, word)?, skip), word))).collect();
            (content.entries, content.skip) = (heads?, skip);
        }
        Ok(())
    }
}

/// The content of a leaf with these keys in the place of its own.
pub(super) fn leaf_like<K: OrderedKind>(page: &Page<'_, K>, live: Vec<Live>) -> Content {
    Content {
        pid: page.pid,
        level: 0,
        sibling: page.sibling,
        low: page.low().to_vec(),
        high: page.high().map(<[u8]>::to_vec),
        skip: page.skip,
        entries: live,
        keys: Vec::new(),
    }
}

#[cfg(test)]
#[path = "tests/room.rs"]
mod tests;
