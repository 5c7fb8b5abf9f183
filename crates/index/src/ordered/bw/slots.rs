//! The slots of a leaf: the changes since its block was written.
//!
//! ```text
//!   | meta | head | word | check |
//!   meta   | 63:32 0 | 31:16 place that it replaces, + 1; 0 if none | 15:0 kind |
//! ```
//! A slot with a word adds a key, or gives one another word; the other kind removes a key. In both
//! cases it names the place that has held the key until then: an entry of the page, or another
//! slot. A writer claims a free slot, fills it, makes it durable, and then adds it to the page's
//! entry. What the entry does not count means nothing. A writer that has failed gives its slot
//! back. One that has died leaves it claimed, until the page is written anew.
//!
//! The order of the slots says nothing: a place is replaced at most once, as each writer adds its
//! slot to the very entry that it has read.

use super::super::keys::{Found, OrderedKind};
use super::entry::{Entry, SLOTS_MAX};
use super::page::{Page, head_of, sealed};
use super::tree::MOST_MAX;
use crate::Damage;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{LINE, Line, MappedMedium, Offset, Word};
use terrace_pool::Guard;

pub(super) const SLOT_BYTES: usize = 32;

type Slot = [Word; 4];

/// Bytes of a page before its keys.
#[inline(always)]
pub(super) const fn before_body(slots: usize) -> usize {
    LINE + if slots > 0 { LINE + slots * SLOT_BYTES } else { 0 }
}

/// The marks of the places of a leaf whose keys were removed in place. Each word has a bit for each
/// of 32 places below, and their complements above once one is set.
pub(super) type Marks = [u64; LINE / 8];

/// Places of a word of marks.
const MARKS: usize = 32;
/// Entries of a leaf that have a mark; the slots' marks are behind them.
pub(super) const MARKED_ENTRIES: usize = MARKS * (LINE / 8) - 16;

const _: () = assert!(MOST_MAX + MOST_MAX / 2 + SLOTS_MAX <= MARKED_ENTRIES && SLOTS_MAX <= 16);

/// The words of a slot.
const META: usize = 0;
const HEAD: usize = 1;
const WORD: usize = 2;
const CHECK: usize = 3;

/// The kinds of slots.
const CLAIMED: u64 = 1;
const PUT: u64 = 2;
const REMOVED: u64 = 3;

/// Where a leaf holds a key: the number of an entry, or of a slot with this bit.
pub(super) type Place = u16;
const IN_SLOT: Place = 0x4000;

/// Where the mark of a place is: the number of a word, and a bit in it.
fn mark_of(place: Place) -> (usize, u64) {
    let nth =
        if place & IN_SLOT != 0 { MARKED_ENTRIES + usize::from(place & 15) } else { usize::from(place) };
    (nth / MARKS % (LINE / 8), 1 << (nth % MARKS))
}

/// A word of marks with these bits.
fn sealed_marks(bits: u64) -> u64 {
    let bits = bits & ((1 << MARKS) - 1);
    if bits == 0 { 0 } else { (!bits << MARKS) | bits }
}

/// What a writer puts into a slot.
#[derive(Clone, Copy)]
pub(super) struct Change {
    /// The place that has held the key.
    pub(super) replaces: Option<Place>,
    pub(super) head: u64,
    /// `None` removes the key.
    pub(super) word: Option<u64>,
}

/// A key that a leaf holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub(super) place: Place,
    pub(super) head: u64,
    pub(super) word: u64,
}

/// What the slots of a leaf say that its entry counts.
#[derive(Clone, Copy)]
pub(super) struct Overlay {
    /// The entries of the page that are replaced, `replaced_len` of them.
    replaced: [Place; SLOTS_MAX],
    replaced_len: usize,
    /// A bit for each slot that holds a key.
    holding: u32,
    heads: [u64; SLOTS_MAX],
    words: [u64; SLOTS_MAX],
    /// The entries that were removed in place, of a page in that state.
    marks: Option<Marks>,
}

/// The check of a slot: above, that of all but the word, which may be changed in place.
fn check_of(words: [u64; 3], at: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let [meta, head, word] = words;
    let low = (meta ^ at.rotate_left(32)).wrapping_mul(ODD) ^ head.wrapping_mul(ODD.rotate_left(17) | 1);
    let front = low.rotate_left(31) ^ 0x5b;
    let all = front ^ word.wrapping_mul(ODD.rotate_left(37) | 1);
    (front ^ front << 32) & !LOW | (all ^ all >> 32) & LOW
}

/// The part of a slot's check that covers its word.
const LOW: u64 = 0xffff_ffff;

fn is_marked(marks: &Marks, place: Place) -> bool {
    let (nth, bit) = mark_of(place);
    marks[nth] & bit != 0
}

impl Overlay {
    /// That of a page of which no slot counts.
    const EMPTY: Self = Self {
        replaced: [0; SLOTS_MAX],
        replaced_len: 0,
        holding: 0,
        heads: [0; SLOTS_MAX],
        words: [0; SLOTS_MAX],
        marks: None,
    };

    /// Whether an entry of the page is replaced.
    #[inline(always)]
    pub(super) fn replaces(&self, nth: usize) -> bool {
        self.replaced[..self.replaced_len].contains(&(nth as Place))
            || self.marks.is_some_and(|marks| is_marked(&marks, nth as Place))
    }

    /// How many keys the page holds.
    pub(super) fn count(&self, len: usize) -> usize {
        let marked = |marks: Marks| (0..len).filter(|&nth| is_marked(&marks, nth as Place)).count();
        let gone = self.replaced_len + self.marks.map_or(0, marked);
        (len + self.holding.count_ones() as usize).saturating_sub(gone)
    }

    /// The keys in slots, in no order.
    #[inline(always)]
    pub(super) fn held(&self) -> impl Iterator<Item = Held> + '_ {
        let slots = (0..SLOTS_MAX).filter(|slot| self.holding >> slot & 1 == 1);
        slots.map(|slot| Held {
            place: IN_SLOT | slot as Place,
            head: self.heads[slot],
            word: self.words[slot],
        })
    }
}

impl<'g, K: OrderedKind> Page<'g, K> {
    #[inline(always)]
    fn slot<M: MappedMedium>(&self, guard: &'g Guard<'_, M>, nth: usize) -> Option<&'g Slot> {
        guard.pool().region().get(Offset::new(self.slot_at(nth)))
    }

    fn slot_at(&self, nth: usize) -> u64 {
        self.offset + (2 * LINE + nth * SLOT_BYTES) as u64
    }

    /// A word as it is stored at a place.
    pub(super) fn stored_at(&self, place: Place, word: u64) -> u64 {
        if place & IN_SLOT == 0 { sealed::<K>(word) } else { word }
    }

    /// The place of a key's word.
    pub(super) fn place_of<M: MappedMedium>(
        &self,
        guard: &'g Guard<'_, M>,
        place: Place,
    ) -> Option<&'g Word> {
        match place & IN_SLOT {
            0 => self.word_place(guard, usize::from(place)),
            _ => self.slot(guard, usize::from(place & 15)).map(|slot| &slot[WORD]),
        }
    }

    fn marks<M: MappedMedium>(&self, guard: &'g Guard<'_, M>) -> Option<&'g Line> {
        guard.pool().region().get(Offset::new(self.offset + LINE as u64))
    }

    /// Whether no place has a mark.
    pub(super) fn is_unmarked<M: MappedMedium>(&self, guard: &'g Guard<'_, M>) -> bool {
        let medium = guard.pool().medium();
        // ORDER: Acquire: pairs with the Release in `mark`. A thread that finds a mark finds the
        // entry that says that there may be some.
        self.marks(guard).is_some_and(|line| line.0.iter().all(|word| word.load(medium, Acquire) == 0))
    }

    /// Marks a place whose key is removed. Called under the lock of changes in place.
    pub(super) fn mark<M: MappedMedium>(&self, guard: &'g Guard<'_, M>, place: Place) {
        let (Some(marks), (nth, bit)) = (self.marks(guard), mark_of(place)) else { return };
        let medium = guard.pool().medium();
        // ORDER: Release: pairs with the Acquire in `overlay`.
        let marked = sealed_marks(marks.0[nth].load(medium, Relaxed) | bit);
        marks.0[nth].store(medium.point("bw.mark"), marked, Release);
    }

    /// Reads the slots that `entry` counts; an error if one does not fit its check. Without
    /// `is_checked`, checks are not compared; nor are those of words that are changed in place.
    #[inline(always)]
    pub(super) fn overlay<M: MappedMedium>(
        &self,
        guard: &'g Guard<'_, M>,
        entry: Entry,
        is_checked: bool,
    ) -> Result<Overlay, Damage> {
        let mut overlay = Overlay::EMPTY;
        let is_in_place = entry.is_in_place();
        let (mut left, mut replaced_slots) = (entry.slots(), 0u32);
        while left != 0 {
            let nth = left.trailing_zeros() as usize;
            left &= left - 1;
            let words = self.slot_words(guard, nth, is_checked && !is_in_place)?;
            if is_in_place && is_checked {
                self.check_front(guard, nth, words)?;
            }
            let [meta, head, word] = words;
            if meta & 0xffff == PUT {
                overlay.holding |= 1 << nth;
                (overlay.heads[nth], overlay.words[nth]) = (head, word);
            }
            match ((meta >> 16) as Place).checked_sub(1) {
                None => {}
                Some(place) if place & IN_SLOT != 0 => replaced_slots |= 1 << (place & 31),
                Some(place) => {
                    overlay.replaced[overlay.replaced_len] = place;
                    overlay.replaced_len += 1;
                }
            }
        }
        overlay.holding &= !replaced_slots;
        if is_in_place {
            self.add_marks(guard, &mut overlay)?;
        }
        Ok(overlay)
    }

    /// What a slot says that the entry counts; an error if it does not fit its check.
    #[inline(always)]
    fn slot_words<M: MappedMedium>(
        &self,
        guard: &'g Guard<'_, M>,
        nth: usize,
        is_checked: bool,
    ) -> Result<[u64; 3], Damage> {
        let medium = guard.pool().medium();
        let wrong = Damage { offset: self.slot_at(nth), what: "a slot does not fit its check" };
        let slot = self.slot(guard, nth).filter(|_| nth < self.slots).ok_or(wrong)?;
        // ORDER: Relaxed: the entry, loaded with Acquire, counts the slot, so it is filled. The
        // word may be changed in place: Acquire pairs with the Release of that.
        let [meta, head] = [META, HEAD].map(|part| slot[part].load(medium, Relaxed));
        let words = [meta, head, slot[WORD].load(medium, Acquire)];
        if is_checked && slot[CHECK].load(medium, Relaxed) != check_of(words, self.slot_at(nth)) {
            return Err(wrong);
        }
        Ok(words)
    }

    /// As the check in [`Page::slot_words`], of a slot whose word may have been changed in place.
    #[cold]
    fn check_front<M: MappedMedium>(
        &self,
        guard: &'g Guard<'_, M>,
        nth: usize,
        words: [u64; 3],
    ) -> Result<(), Damage> {
        let at = self.slot_at(nth);
        // ORDER: Relaxed: as in `slot_words`.
        let check = self.slot(guard, nth).map(|slot| slot[CHECK].load(guard.pool().medium(), Relaxed));
        match check.is_some_and(|check| (check ^ check_of(words, at)) & !LOW == 0) {
            true => Ok(()),
            false => Err(Damage { offset: at, what: "a slot does not fit its check" }),
        }
    }

    /// Adds the marks of places whose keys were removed in place.
    #[cold]
    fn add_marks<M: MappedMedium>(
        &self,
        guard: &'g Guard<'_, M>,
        overlay: &mut Overlay,
    ) -> Result<(), Damage> {
        let at = self.offset + LINE as u64;
        let wrong = Damage { offset: at, what: "the marks of a page are not those that were set" };
        let line = self.marks(guard).ok_or(wrong)?;
        // ORDER: Acquire: pairs with the Release in `mark`.
        let marks: Marks = std::array::from_fn(|nth| line.0[nth].load(guard.pool().medium(), Acquire));
        if marks.iter().any(|&word| word != sealed_marks(word)) {
            return Err(wrong);
        }
        let is_gone = |slot: &usize| is_marked(&marks, IN_SLOT | *slot as Place);
        (0..self.slots).filter(is_gone).for_each(|slot| overlay.holding &= !(1 << slot));
        overlay.marks = Some(marks);
        Ok(())
    }

    /// The place and the word of a key in a leaf.
    #[inline(always)]
    pub(super) fn find<M: MappedMedium>(
        &self,
        guard: &'g Guard<'_, M>,
        overlay: &Overlay,
        (key, bytes): (&K::Key, &[u8]),
    ) -> Option<Held> {
        let head = head_of(bytes, self.skip);
        let is_it = |held: &Held| held.head == head && is_key::<M, K>(guard, held.word, key);
        if let Some(held) = overlay.held().find(is_it) {
            return Some(held);
        }
        let alike = self.equal_heads(head);
        if alike.len() > 2 {
            return self.find_among(guard, overlay, (key, bytes), alike);
        }
        let held = |nth| Held { place: nth as Place, head, word: self.word(guard, nth) };
        alike.filter(|&nth| !overlay.replaces(nth)).map(held).find(is_it)
    }

    /// As [`Page::find`], among many entries with the key's head.
    fn find_among<M: MappedMedium>(
        &self,
        guard: &'g Guard<'_, M>,
        overlay: &Overlay,
        (key, bytes): (&K::Key, &[u8]),
        alike: Range<usize>,
    ) -> Option<Held> {
        let held =
            |nth: usize| Held { place: nth as Place, head: self.head(nth), word: self.word(guard, nth) };
        let (mut low, mut high) = (alike.start, alike.end);
        while low < high {
            let middle = low.midpoint(high);
            let Some(nth) = (middle..high).find(|&nth| !overlay.replaces(nth)) else {
                high = middle;
                continue;
            };
            let Some(there) = K::key_of(guard, self.word(guard, nth)) else {
                // Its record is unsound. The key may be on either side.
                let mut others = alike.filter(|&nth| !overlay.replaces(nth)).map(held);
                return others.find(|held| is_key::<M, K>(guard, held.word, key));
            };
            match (*there).cmp(bytes) {
                std::cmp::Ordering::Less => low = nth + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(held(nth)),
            }
        }
        None
    }

    /// A record that may be that of a key which was not found, or that has hidden it, and is
    /// unsound. Of many entries with the key's head, those that a search for it reads.
    pub(super) fn unsound<M: MappedMedium>(
        &self,
        guard: &'g Guard<'_, M>,
        overlay: &Overlay,
        bytes: &[u8],
    ) -> Option<Damage> {
        if K::LEAF_BYTES > 0 {
            return None;
        }
        let head = head_of(bytes, self.skip);
        let is_unsound = |&word: &u64| !K::is_sound(guard, word);
        let is_alike = |held: &Held| held.head == head;
        let in_slots = overlay.held().filter(is_alike).map(|held| held.word).find(is_unsound);
        let record = in_slots.or_else(|| {
            let Range { start: mut low, end: mut high } = self.equal_heads(head);
            while low < high {
                let middle = low.midpoint(high);
                let Some(nth) = (middle..high).find(|&nth| !overlay.replaces(nth)) else {
                    high = middle;
                    continue;
                };
                let word = self.word(guard, nth);
                let there = K::key_of(guard, word);
                if is_unsound(&word) || there.is_none() {
                    return Some(word);
                }
                if there.is_some_and(|there| *there < *bytes) { low = nth + 1 } else { high = middle }
            }
            None
        })?;
        Some(Damage { offset: record, what: "a record that may be the key's is unsound" })
    }

    /// Claims a slot that `entry` does not count; `None` if there is none.
    pub(super) fn claim<M: MappedMedium>(&self, guard: &'g Guard<'_, M>, entry: Entry) -> Option<usize> {
        let medium = guard.pool().medium();
        (0..self.slots).filter(|nth| entry.slots() >> nth & 1 == 0).find(|&nth| {
            let Some(slot) = self.slot(guard, nth) else { return false };
            // ORDER: Acquire: pairs with `give_back`. What the slot's last claimant stored comes
            // before what this one stores.
            slot[META].load(medium, Relaxed) == 0
                && slot[META].compare_exchange(medium.point("bw.claim"), 0, CLAIMED, Acquire, Relaxed).is_ok()
        })
    }

    /// Fills a slot that this thread has claimed, and writes it back.
    pub(super) fn fill<M: MappedMedium>(&self, guard: &'g Guard<'_, M>, nth: usize, change: Change) {
        let (region, medium) = (guard.pool().region(), guard.pool().medium());
        let Some(slot) = self.slot(guard, nth) else { return };
        let kind = if change.word.is_some() { PUT } else { REMOVED };
        let meta = kind | u64::from(change.replaces.map_or(0, |place| place + 1)) << 16;
        let words = [meta, change.head, change.word.unwrap_or(0)];
        // ORDER: Relaxed: the compare-and-swap of the entry publishes all four.
        [HEAD, WORD].into_iter().for_each(|part| slot[part].store(medium, words[part], Relaxed));
        slot[CHECK].store(medium, check_of(words, self.slot_at(nth)), Relaxed);
        slot[META].store(medium, meta, Relaxed);
        // PERSIST: the slot, before an entry counts it. The caller fences. A crash before leaves a
        // slot that means nothing.
        region.write_back(slot);
    }

    /// Gives a slot back that no entry has counted.
    pub(super) fn give_back<M: MappedMedium>(&self, guard: &'g Guard<'_, M>, nth: usize) {
        // ORDER: Release: see `claim`.
        self.slot(guard, nth).inspect(|slot| slot[META].store(guard.pool().medium(), 0, Release));
    }
}

/// Whether a word is that of a key with an equal head.
#[inline(always)]
pub(super) fn is_key<M: MappedMedium, K: OrderedKind>(guard: &Guard<'_, M>, word: u64, key: &K::Key) -> bool {
    K::LEAF_BYTES > 0 || matches!(K::find(guard, word, key), Found::Word(_))
}
