//! Borders: where the range of one node ends and that of the next begins.
//!
//! That of integers is the lowest integer of the right node. That of byte strings is the shortest
//! string between both nodes, in a block of its own, which the right node owns and the left one
//! refers to. No record decides where a node begins, so no removal does.
//!
//! ```text
//!   | 63:32 check | 31:0 length in bytes | the bytes, padded with zeros to 8 |
//! ```

use super::super::keys::{KeyBytes, OrderedKind};
use super::word::Entry;
use crate::RecordKeys;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Line, MappedMedium, Offset, Word};
use terrace_pool::{Guard, PoolFull};

/// The bytes before those of the string.
const PREFACE: usize = 8;
/// The word of a node's first line that has its low border.
pub(super) const LOW: usize = 6;

/// What a search looks for: a key, or a place between keys.
pub(super) struct Sought<'k> {
    pub(super) bytes: KeyBytes<'k>,
    /// The first eight bytes, padded with zeros: an integer itself.
    pub(super) integer: u64,
}

impl<'k> Sought<'k> {
    #[inline(always)]
    pub(super) fn new(bytes: KeyBytes<'k>) -> Self {
        let integer = match &bytes {
            KeyBytes::Integer(bytes) => u64::from_be_bytes(*bytes),
            KeyBytes::String(bytes) => {
                let mut first = [0; 8];
                let len = bytes.len().min(8);
                first[..len].copy_from_slice(&bytes[..len]);
                u64::from_be_bytes(first)
            }
        };
        Self { bytes, integer }
    }

    /// How it compares with a border; `None` if that is damaged.
    #[inline(always)]
    pub(super) fn compare<M: MappedMedium, K: OrderedKind>(
        &self,
        guard: &Guard<'_, M>,
        border: u64,
    ) -> Option<std::cmp::Ordering> {
        if K::LEAF_BYTES > 0 {
            return Some(self.integer.cmp(&border));
        }
        border_bytes(guard, border).map(|border| (*self.bytes).cmp(border))
    }
}

/// The bytes of a border of byte strings; `None` if it is damaged. None at all is the lowest.
pub(super) fn border_bytes<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, border: u64) -> Option<&'g [u8]> {
    let link = Entry(border);
    if link.is_none() {
        return Some(&[]);
    }
    let region = guard.pool().region();
    let preface: &Word = region.get(Offset::new(link.offset())).filter(|_| link.is_sound())?;
    // ORDER: Relaxed: the link was loaded with Acquire, or its node was, and the block never
    // changes.
    let preface = preface.load(region.medium(), Relaxed);
    let bytes = guard.bytes(link.offset() + PREFACE as u64, preface as u32 as usize)?;
    (preface >> 32 == u64::from(check_of(bytes))).then_some(bytes)
}

/// The key of a border, as its bytes.
pub(super) fn key_of_border<'g, M: MappedMedium, K: OrderedKind>(
    guard: &'g Guard<'_, M>,
    border: u64,
) -> Option<KeyBytes<'g>> {
    match K::LEAF_BYTES > 0 {
        true => Some(KeyBytes::Integer(border.to_be_bytes())),
        false => border_bytes(guard, border).map(KeyBytes::String),
    }
}

fn check_of(bytes: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64(bytes) as u32
}

/// The bytes of the block of a border.
fn block_bytes(len: usize) -> usize {
    PREFACE + len.next_multiple_of(8)
}

/// A border of byte strings, written back and not fenced. The caller links it, or frees it.
pub(super) fn make<M: MappedMedium>(guard: &Guard<'_, M>, bytes: &[u8]) -> Result<Entry, PoolFull> {
    let fresh = guard.alloc(block_bytes(bytes.len()))?;
    let preface = u64::from(check_of(bytes)) << 32 | bytes.len() as u64;
    // ORDER: Relaxed: the link to the node publishes it.
    fresh.word(0).store(guard.pool().medium(), preface, Relaxed);
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(8), 0);
    fresh.write(PREFACE, &padded);
    // PERSIST: the border before the node that begins there. The caller fences.
    fresh.write_back();
    Ok(Entry::link(fresh.fenced_later().into_offset()))
}

/// The shortest string above `left` and not above `right`.
pub(super) fn between<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    assert!(left < right, "a border lies between two keys in their order");
    let common = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    &right[..=common]
}

/// The low borders of nodes, as keys of the tree above them: its words are the nodes' offsets.
pub struct Borders;

impl RecordKeys for Borders {
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]> {
        let region = guard.pool().region();
        let head: &Line = region.get(Offset::new(offset))?;
        // ORDER: Relaxed: the link to the node was loaded with Acquire, and the border never
        // changes.
        border_bytes(guard, head.0[LOW].load(region.medium(), Relaxed))
    }
}

/// The low borders of what DRAM has of nodes with integers: they lie there with the highest byte
/// first, as keys do.
pub struct IntegerLows;

impl RecordKeys for IntegerLows {
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]> {
        // The border never changes.
        guard.bytes(offset + 8 * LOW as u64, 8)
    }
}

/// The place and the size of the block of a border; `None` if it has none.
pub(super) fn block_of<M: MappedMedium, K: OrderedKind>(
    guard: &Guard<'_, M>,
    border: u64,
) -> Option<(u64, usize)> {
    let link = Entry(border);
    if K::LEAF_BYTES > 0 || link.is_none() {
        return None;
    }
    border_bytes(guard, border).map(|bytes| (link.offset(), block_bytes(bytes.len())))
}

#[cfg(test)]
#[path = "tests/border.rs"]
mod tests;
