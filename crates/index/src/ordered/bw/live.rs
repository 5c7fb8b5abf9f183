//! What a leaf holds, in the order of its keys.

use super::super::keys::OrderedKind;
use super::find::Spot;
use super::page::{Page, head_of};
use super::slots::Overlay;
use super::tree::Tree;
use crate::Damage;
use std::cmp::Ordering;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// The head and the word of a key.
pub(super) type Live = (u64, u64);

/// The order of two keys of a page. A record without a readable key is equal to all with its head.
fn compare<M: MappedMedium, K: OrderedKind>(guard: &Guard<'_, M>, one: Live, other: Live) -> Ordering {
    one.0.cmp(&other.0).then_with(|| {
        if K::LEAF_BYTES > 0 {
            return Ordering::Equal;
        }
        match (K::key_of(guard, one.1), K::key_of(guard, other.1)) {
            (Some(one), Some(other)) => (*one).cmp(&*other),
            _ => Ordering::Equal,
        }
    })
}

/// The head of a key behind fewer front bytes. `front` begins with those that the other head left
/// out.
pub(super) fn widened(front: &[u8], skip: usize, (head, old): (u64, usize)) -> u64 {
    let mut bytes = front.get(skip..old).unwrap_or_default().to_vec();
    bytes.truncate(8);
    bytes.extend(head.to_be_bytes());
    head_of(&bytes, 0)
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// The keys of a leaf, of which nothing is damaged but records.
    pub(super) fn live(&self, guard: &Guard<'_, M>, spot: &Spot<'_, K>) -> Result<Vec<Live>, Damage> {
        self.check_content(guard, spot)?;
        let overlay = self.overlay_of(guard, spot)?;
        let live = merged(guard, &spot.page, &overlay);
        self.persist_in_place(spot);
        if K::LEAF_BYTES == 0 && spot.entry.is_in_place() {
            self.check_words(guard, spot, &live)?;
        }
        Ok(live)
    }

    /// Checks that words which may have been changed in place, and so have no sum, are those of the
    /// page's keys. A record that is unsound is left to its readers.
    #[cold]
    fn check_words(&self, guard: &Guard<'_, M>, spot: &Spot<'_, K>, live: &[Live]) -> Result<(), Damage> {
        let mut last: Option<(u64, Vec<u8>)> = None;
        for &(head, word) in live {
            let Some(key) = K::key_of(guard, word) else { continue };
            let is_its = head_of(&key, spot.page.skip) == head;
            let before = last.filter(|(_, last)| is_its && **last >= *key);
            let is_first = before.is_none_or(|(word, _)| !K::is_sound(guard, word));
            if !(is_its && is_first) && K::is_sound(guard, word) {
                return Err(self.record_damage(spot.page.offset, "a word of a page is another key's"));
            }
            last = Some((word, key.to_vec()));
        }
        Ok(())
    }

    /// How many keys a page holds, or children.
    pub(super) fn count_in(&self, guard: &Guard<'_, M>, spot: &Spot<'_, K>) -> Result<usize, Damage> {
        let overlay = self.overlay_of(guard, spot)?;
        Ok(overlay.count(spot.page.len))
    }
}

/// The entries of a page that hold a key, and the slots among them.
fn merged<M: MappedMedium, K: OrderedKind>(
    guard: &Guard<'_, M>,
    page: &Page<'_, K>,
    overlay: &Overlay,
) -> Vec<Live> {
    let mut slots: Vec<Live> = overlay.held().map(|held| (held.head, held.word)).collect();
    slots.sort_by(|&one, &other| compare::<M, K>(guard, one, other));
    let mut all = Vec::with_capacity(page.len + slots.len());
    let mut slots = slots.into_iter().peekable();
    for nth in (0..page.len).filter(|&nth| !overlay.replaces(nth)) {
        let entry = (page.head(nth), page.word(guard, nth));
        while let Some(slot) = slots.next_if(|&slot| compare::<M, K>(guard, slot, entry).is_lt()) {
            all.push(slot);
        }
        all.push(entry);
    }
    all.extend(slots);
    all
}
