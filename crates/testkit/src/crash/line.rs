//! One line between what is certainly durable and what was last stored to it.
//!
//! A line has a base, the bytes that no crash takes any more, and the stores since, in order. A crash keeps a prefix of the ordinary stores. The
//! pieces of a bulk copy are one step of that order, taken in any part; streamed pieces belong to no order until their fence. Each way of
//! choosing gives a content; equal ones are one, and so are those that differ only in locks: a crash frees every lock, and which of its values
//! goes with a content is drawn.

use super::memory::{WORDS, Words, hash};
use super::rules::Rules;

/// Contents of one line that are told apart; of more, a selection is.
const CONTENTS_MAX: usize = 256;
/// Stores that a line can have pending; of more, the oldest are taken for durable.
const ITEMS_MAX: usize = 48;
/// Pieces in no order of which every part is tried; of more, a selection.
const PIECES_MAX: usize = 6;

/// How a store is ordered among those of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// After all ordinary ones before it.
    Ordinary,
    /// Together with the others of this copy.
    Copied(u32),
    /// In none, until a fence of this thread.
    Streamed(u32),
}

/// A store that may be lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// Its event, by number.
    pub(crate) event: u32,
    /// The word of the line.
    pub(crate) word: u8,
    pub(crate) value: u64,
    pub(crate) order: Order,
}

impl Item {
    pub(crate) fn is_streamed(&self) -> bool {
        matches!(self.order, Order::Streamed(_))
    }
}

/// One of the contents that a crash may leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) words: Words,
    /// Which of the line's items were kept, a bit each.
    pub(crate) kept: u64,
}

/// A line with stores that may be lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) base: Words,
    pub(crate) items: Vec<Item>,
    /// All that a crash may leave, the base first; empty if the items have changed since.
    contents: Vec<Content>,
    /// Whether `contents` is a selection.
    pub(crate) is_selection: bool,
    /// Whether old items were taken for durable.
    is_cut: bool,
    /// Words that are locks, a bit each.
    pub(crate) locks: u8,
}

impl Pending {
    pub(crate) fn new(base: Words) -> Self {
        Self { base, ..Self::default() }
    }

    /// Everything stored so far.
    pub(crate) fn latest(&self) -> Words {
        apply(self.base, self.items.iter())
    }

    /// With only the first `count` stores, in the order in which they were done.
    pub(crate) fn with_first(&self, count: usize) -> Words {
        apply(self.base, self.items.iter().take(count))
    }

    /// A store.
    pub(crate) fn push(&mut self, item: Item) {
        self.contents.clear();
        self.items.push(item);
        if self.items.len() > ITEMS_MAX {
            self.is_cut = true;
            self.absorb_first(ITEMS_MAX / 3);
        }
    }

    /// Makes durable, for good, every ordinary and copied store up to this event.
    pub(crate) fn absorb_until(&mut self, event: u32) {
        self.absorb_first(self.items.partition_point(|item| item.event <= event));
    }

    /// Makes all of it durable.
    pub(crate) fn absorb_all(&mut self) {
        self.base = self.latest();
        self.items.clear();
        self.contents.clear();
    }

    fn absorb_first(&mut self, count: usize) {
        self.contents.clear();
        let (before, after) = self.items.split_at(count);
        self.base = apply(self.base, before.iter().filter(|item| !item.is_streamed()));
        // A streamed piece that an ordinary store has since written over is nothing any more.
        let outdated = |at: usize| {
            before[at + 1..].iter().any(|item| item.word == before[at].word && !item.is_streamed())
        };
        let streamed = (0..before.len()).filter(|&at| before[at].is_streamed() && !outdated(at));
        self.items = streamed.map(|at| before[at]).chain(after.iter().copied()).collect();
    }

    /// Makes durable what `thread` has streamed.
    pub(crate) fn absorb_streamed(&mut self, thread: u32) {
        self.contents.clear();
        while let Some(at) = self.items.iter().position(|item| item.order == Order::Streamed(thread)) {
            let item = self.items.remove(at);
            self.base[usize::from(item.word)] = item.value;
            // What was stored to the same word before it is written over.
            let mut place = 0;
            self.items.retain(|other| {
                place += 1;
                place > at || other.word != item.word
            });
        }
    }

    /// All that a crash may leave, the base first, each content once.
    pub(crate) fn contents(&mut self, rules: &Rules) -> &[Content] {
        if self.contents.is_empty() {
            self.is_selection = self.is_cut;
            self.note(0);
            if rules.keeps_line_order {
                self.note_prefixes();
            } else {
                let all: Vec<usize> = (0..self.items.len()).collect();
                self.note_subsets(0, &all);
            }
        }
        &self.contents
    }

    fn note_prefixes(&mut self) {
        let streamed: Vec<usize> = (0..self.items.len()).filter(|&at| self.items[at].is_streamed()).collect();
        let ordered: Vec<usize> = (0..self.items.len()).filter(|&at| !self.items[at].is_streamed()).collect();
        self.note_subsets(0, &streamed);
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
                self.note_subsets(before, &group);
            }
            done += together;
            let kept = mask(&ordered[..done]);
            self.note_subsets(kept, &streamed);
        }
    }

    /// Notes what `kept` and each part of `others` give; of many, a selection of parts.
    fn note_subsets(&mut self, kept: u64, others: &[usize]) {
        if others.len() <= PIECES_MAX {
            for part in 0..1u64 << others.len() {
                let chosen: Vec<usize> = others
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| part >> i & 1 == 1)
                    .map(|(_, &at)| at)
                    .collect();
                self.note(kept | mask(&chosen));
            }
            return;
        }
        self.is_selection = true;
        for (i, &at) in others.iter().enumerate() {
            self.note(kept | mask(&[at]));
            self.note(kept | mask(&others[..i]));
            let all_but: Vec<usize> = others.iter().copied().filter(|&other| other != at).collect();
            self.note(kept | mask(&all_but));
        }
    }

    fn note(&mut self, kept: u64) {
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
            // Which lock goes with a content is left to chance; the base is what the memory holds.
            Some(at) if at > 0 && self.coin() => self.contents[at] = Content { words, kept },
            Some(_) => {}
        }
    }

    /// A coin that falls the same way whenever the line has these items.
    fn coin(&self) -> bool {
        self.items.last().is_some_and(|item| hash(u64::from(item.event), self.base[0]) & 1 == 1)
    }

    /// Whether the oldest item is a store to a lock.
    pub(crate) fn begins_with_lock(&self) -> bool {
        self.items.first().is_some_and(|item| self.locks >> item.word & 1 == 1)
    }

    /// Makes the oldest item durable.
    pub(crate) fn absorb_oldest(&mut self) {
        self.absorb_first(1);
    }

    /// The items that `kept` names.
    fn chosen(&self, kept: u64) -> impl Iterator<Item = &Item> {
        self.items.iter().enumerate().filter(move |&(at, _)| is_kept(kept, at)).map(|(_, item)| item)
    }

    /// The items that a content has lost, or kept.
    pub(crate) fn parted(&self, content: &Content) -> [Vec<Item>; 2] {
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
