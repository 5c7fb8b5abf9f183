//! One line between its durable content and its latest stores.
//!
//! A line has a base, the bytes that no crash can lose, and the stores since, in order. A crash
//! keeps a prefix of the ordinary stores. The pieces of a bulk copy are one step of that order, of
//! which any part may be kept. Streamed pieces have no order until their fence.
//!
//! Each choice gives a content. Equal contents are merged, also those that differ only in locks: a
//! crash frees every lock. Which lock values go with a content is random.

use super::memory::{WORDS, Words, hash};
use super::rules::Rules;

/// Maximum number of contents per line; if there are more, a selection.
const CONTENTS_MAX: usize = 256;
/// Maximum number of pending stores per line; above that the oldest are assumed durable. (A content
/// has a bit for each in one word.)
const ITEMS_MAX: usize = 48;
/// Maximum number of unordered pieces of which every subset is tried; above that, a selection.
const PIECES_MAX: usize = 6;

/// How a store is ordered among those of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// After all earlier ordinary stores.
    Ordinary,
    /// Together with the other pieces of this copy.
    Copied(u32),
    /// Unordered until a fence of this thread.
    Streamed(u32),
}

/// A store that may be lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// The number of its event.
    pub(crate) event: u32,
    /// Its word in the line.
    pub(crate) word: u8,
    pub(crate) value: u64,
    pub(crate) order: Order,
}

impl Item {
    pub(crate) fn is_streamed(&self) -> bool {
        matches!(self.order, Order::Streamed(_))
    }
}

/// One content that a crash may leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) words: Words,
    /// Which of the line's items were kept, one bit each.
    pub(crate) kept: u64,
}

/// A line with stores that may be lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) base: Words,
    pub(crate) items: Vec<Item>,
    /// All contents that a crash may leave, the base first; empty if the items have changed since.
    contents: Vec<Content>,
    /// Whether `contents` is a selection.
    is_selection: bool,
    /// The event of the last item that was assumed durable to limit their number; `None` once it is
    /// durable.
    cut_until: Option<u32>,
    /// Words that are locks, one bit each.
    pub(crate) locks: u8,
}

impl Pending {
    pub(crate) fn new(base: Words) -> Self {
        Self { base, ..Self::default() }
    }

    /// The content with all stores.
    pub(crate) fn latest(&self) -> Words {
        apply(self.base, self.items.iter())
    }

    /// The content with only the first `count` stores, in program order.
    pub(crate) fn with_first(&self, count: usize) -> Words {
        apply(self.base, self.items.iter().take(count))
    }

    /// Adds a store.
    pub(crate) fn push(&mut self, item: Item) {
        self.contents.clear();
        self.items.push(item);
        if self.items.len() > ITEMS_MAX {
            self.cut();
        }
    }

    /// Makes the oldest items durable, streamed ones included.
    fn cut(&mut self) {
        let old: Vec<Item> = self.items.drain(..ITEMS_MAX / 3).collect();
        self.cut_until = old.last().map(|item| item.event);
        self.base = apply(self.base, old.iter());
    }

    /// Makes every ordinary and copied store up to this event durable.
    pub(crate) fn absorb_until(&mut self, event: u32) {
        self.cut_until = self.cut_until.filter(|&cut| cut > event);
        self.absorb_first(self.items.partition_point(|item| item.event <= event));
    }

    /// Makes all stores durable.
    pub(crate) fn absorb_all(&mut self) {
        self.base = self.latest();
        self.items.clear();
        self.contents.clear();
        self.cut_until = None;
    }

    fn absorb_first(&mut self, count: usize) {
        self.contents.clear();
        let (before, after) = self.items.split_at(count);
        self.base = apply(self.base, before.iter().filter(|item| !item.is_streamed()));
        // A streamed piece that a later ordinary store overwrote is gone.
        let outdated = |at: usize| {
            before[at + 1..].iter().any(|item| item.word == before[at].word && !item.is_streamed())
        };
        let streamed = (0..before.len()).filter(|&at| before[at].is_streamed() && !outdated(at));
        self.items = streamed.map(|at| before[at]).chain(after.iter().copied()).collect();
    }

    /// Makes the streamed stores of `thread` durable.
    pub(crate) fn absorb_streamed(&mut self, thread: u32) {
        self.contents.clear();
        while let Some(at) = self.items.iter().position(|item| item.order == Order::Streamed(thread)) {
            let item = self.items.remove(at);
            self.base[usize::from(item.word)] = item.value;
            // Earlier stores to the same word are overwritten.
            let mut place = 0;
            self.items.retain(|other| {
                place += 1;
                place > at || other.word != item.word
            });
        }
    }

    /// All contents that a crash may leave, the base first, without duplicates.
    pub(crate) fn contents(&mut self, rules: &Rules) -> &[Content] {
        if self.contents.is_empty() {
            self.is_selection = self.cut_until.is_some();
            self.add_content(0);
            if rules.keeps_line_order {
                self.add_prefixes();
            } else {
                let all: Vec<usize> = (0..self.items.len()).collect();
                self.add_subsets(0, &all);
            }
        }
        &self.contents
    }

    /// Whether [`Pending::contents`] is only a selection.
    pub(crate) fn is_selection(&mut self, rules: &Rules) -> bool {
        self.contents(rules);
        self.is_selection
    }

    fn add_prefixes(&mut self) {
        let streamed: Vec<usize> = (0..self.items.len()).filter(|&at| self.items[at].is_streamed()).collect();
        let ordered: Vec<usize> = (0..self.items.len()).filter(|&at| !self.items[at].is_streamed()).collect();
        self.add_subsets(0, &streamed);
        let mut done = 0;
        while done < ordered.len() {
            let order = self.items[ordered[done]].order;
            let together = match order {
                Order::Copied(_) => {
                    ordered[done..].iter().take_while(|&&at| self.items[at].order == order).count()
                }
                _ => 1,
            };
            let before = mask(&ordered[..done]);
            let group = ordered[done..done + together].to_vec();
            if together > 1 {
                self.add_subsets(before, &group);
            }
            done += together;
            let kept = mask(&ordered[..done]);
            self.add_subsets(kept, &streamed);
        }
    }

    /// Adds the contents of `kept` plus each subset of `others`; if there are many, a selection of
    /// subsets.
    fn add_subsets(&mut self, kept: u64, others: &[usize]) {
        if others.len() <= PIECES_MAX {
            for part in 0..1u64 << others.len() {
                let chosen: Vec<usize> = others
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| part >> i & 1 == 1)
                    .map(|(_, &at)| at)
                    .collect();
                self.add_content(kept | mask(&chosen));
            }
            return;
        }
        self.is_selection = true;
        for (i, &at) in others.iter().enumerate() {
            self.add_content(kept | mask(&[at]));
            self.add_content(kept | mask(&others[..i]));
            let all_but: Vec<usize> = others.iter().copied().filter(|&other| other != at).collect();
            self.add_content(kept | mask(&all_but));
        }
    }

    fn add_content(&mut self, kept: u64) {
        if self.contents.len() >= CONTENTS_MAX {
            self.is_selection = true;
            return;
        }
        let words = apply(self.base, self.chosen(kept));
        let locks = self.locks;
        let alike = |content: &Content| {
            (0..WORDS).all(|word| locks >> word & 1 == 1 || content.words[word] == words[word])
        };
        match self.contents.iter().position(alike) {
            None => self.contents.push(Content { words, kept }),
            // Which of two lock values goes with a content is random; the base must stay as it is
            // in memory.
            Some(at) if at > 0 && self.random_bit() => self.contents[at] = Content { words, kept },
            Some(_) => {}
        }
    }

    /// A random bit that is the same whenever the line has the same items.
    fn random_bit(&self) -> bool {
        self.items.last().is_some_and(|item| hash(u64::from(item.event), self.base[0]) & 1 == 1)
    }

    /// Whether the oldest item stores to a lock.
    pub(crate) fn begins_with_lock(&self) -> bool {
        self.items.first().is_some_and(|item| self.locks >> item.word & 1 == 1)
    }

    /// Makes the oldest item durable.
    pub(crate) fn absorb_oldest(&mut self) {
        self.absorb_first(1);
    }

    /// The items in the mask `kept`.
    fn chosen(&self, kept: u64) -> impl Iterator<Item = &Item> {
        self.items.iter().enumerate().filter(move |&(at, _)| is_kept(kept, at)).map(|(_, item)| item)
    }

    /// The items that a content has lost, and those it kept.
    pub(crate) fn lost_and_kept(&self, content: &Content) -> [Vec<Item>; 2] {
        let mut parts = [Vec::new(), Vec::new()];
        for (at, &item) in self.items.iter().enumerate() {
            parts[usize::from(is_kept(content.kept, at))].push(item);
        }
        parts
    }
}

fn is_kept(kept: u64, at: usize) -> bool {
    kept >> at & 1 == 1
}

fn mask(items: &[usize]) -> u64 {
    items.iter().fold(0, |mask, &at| mask | 1 << at)
}

fn apply<'i>(mut words: Words, items: impl Iterator<Item = &'i Item>) -> Words {
    for item in items {
        words[usize::from(item.word) % WORDS] = item.value;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::Profile;

    fn item(event: u32, word: u8, order: Order) -> Item {
        Item { event, word, value: u64::from(event) + 1, order }
    }

    fn with(items: impl Iterator<Item = Item>) -> Pending {
        let mut pending = Pending::new([0; WORDS]);
        items.for_each(|item| pending.push(item));
        pending
    }

    #[test]
    fn contents_are_a_selection_until_the_oldest_are_durable() {
        let rules = Profile::Pmem.rules();
        let ordinary = |count: u32| with((0..count).map(|event| item(event, 0, Order::Ordinary)));
        let most = ITEMS_MAX as u32;
        let mut full = ordinary(most);
        assert_eq!((full.contents(&rules).len(), full.is_selection(&rules)), (ITEMS_MAX + 1, false));
        let mut cut = ordinary(most + 1);
        assert_eq!((cut.contents(&rules).len(), cut.is_selection(&rules)), (2 * ITEMS_MAX / 3 + 2, true));
        assert_eq!(cut.base[0], u64::from(most / 3), "the oldest third is assumed durable");
        cut.absorb_until(most / 3 - 2);
        assert!(cut.is_selection(&rules), "one of it is not");
        cut.absorb_until(most / 3 - 1);
        assert!(!cut.is_selection(&rules), "now it is");
    }

    #[test]
    fn unfenced_streamed_stores_are_bounded() {
        let rules = Profile::Pmem.rules();
        let mut streamed = with((0..200).map(|event| item(event, (event % 8) as u8, Order::Streamed(0))));
        assert!(streamed.items.len() <= ITEMS_MAX, "a content has one bit per item");
        assert!(streamed.is_selection(&rules));
        assert_eq!(streamed.latest(), std::array::from_fn(|word| 193 + word as u64));
    }

    #[test]
    fn contents_that_differ_only_in_locks_are_merged() {
        let rules = Profile::Pmem.rules();
        let mut line = with([item(0, 0, Order::Ordinary), item(1, 1, Order::Ordinary)].into_iter());
        assert_eq!(line.contents(&rules).len(), 3);
        line.locks = 1;
        line.push(item(2, 0, Order::Ordinary));
        let kept: Vec<u64> = line.contents(&rules).iter().map(|content| content.words[1]).collect();
        assert_eq!(kept, [0, 2], "with or without the store that is not to a lock");
    }
}
