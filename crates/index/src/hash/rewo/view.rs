//! The root, and the directory: the data table of a key, and the table that it moves to.

use super::place::{BUCKETS_LOG2_MAX, Place};
use super::shape::cell_of;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_medium::{Line, Medium, Offset, Word};

/// The root block: four lines. Line 0 never changes. In line 1 the word `view` is persistent; lines
/// 2 and 3 are volatile.
///
/// ```text
///   line 0 | kind | seed | stripes (log2) | stripes | check of these words | 0 | 0 | 0 |
///   line 1 | lock of resizes | view | 0 ... |
///   line 2 | durable view: the view if it is known to be durable | resizes | 0 ... |
///   line 3 | evictions begun | 0 ... |
/// ```
pub(super) type Root = [Line; 4];

pub(super) const ROOT_KIND: usize = 0;
pub(super) const ROOT_SEED: usize = 1;
pub(super) const ROOT_STRIPES_LOG2: usize = 2;
pub(super) const ROOT_STRIPES: usize = 3;
pub(super) const ROOT_CHECK: usize = 4;
/// In line 1.
pub(super) const RESIZE_LOCK: usize = 0;
/// In line 1.
pub(super) const VIEW: usize = 1;
/// In line 2.
pub(super) const DURABLE_VIEW: usize = 0;
/// In line 2.
pub(super) const RESIZES: usize = 1;
/// In line 3.
pub(super) const EVICTIONS: usize = 0;

/// Cells of the directory: the top four bits of a hash choose one. So there are at most 16 data
/// tables.
pub(super) const CELLS: usize = 16;

/// A bit for each cell.
pub(super) const ALL_CELLS: u64 = (1 << CELLS) - 1;

/// A checksum of words that differs if any one of them differs.
pub(super) fn check_of(words: &[u64]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    words.iter().fold(ODD, |check, word| (check ^ word).wrapping_mul(ODD).rotate_left(29))
}

/// A directory, written once: a resize begins and ends by publishing another one in the root. Only
/// `count` changes.
///
/// A directory in which no cell moves may have a *spare*: the empty table for the next resize
/// (`spare.rs`). It has a word of its own, which is 0 in views of older versions: they have none.
/// In a version without spares, the check of a view with a spare does not match. So it never takes
/// the spare for a table with keys.
///
/// ```text
///   line 0     | check | moving: a bit a cell | T0: the target table | the view after the resize |
///              | spare | 0 ... |
///   lines 1, 2 | the place of each cell's table |
///   line 3     | count: in 32 bits the buckets whose keys have moved (of the spare: that are
///                cleared), in 32 bits the complement | 0 ... |
/// ```
pub(super) type ViewBlock = [Line; 4];

const CHECK: usize = 0;
const MOVING: usize = 1;
const TO: usize = 2;
const AFTER: usize = 3;
const SPARE: usize = 4;
const FIRST_CELL: usize = 8;
/// In line 3.
const COUNT: usize = 0;

/// A view as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Directory {
    pub(super) cells: [Place; CELLS],
    pub(super) moving: u64,
    /// The target table of those cells' keys; the spare if no cell moves.
    pub(super) to: Option<Place>,
    /// The offset of the view that follows.
    pub(super) after: u64,
}

impl Directory {
    /// A directory in which nothing moves.
    pub(super) fn resting(cells: [Place; CELLS]) -> Self {
        Self { cells, moving: 0, to: None, after: 0 }
    }

    pub(super) fn lines(&self) -> [[u64; 8]; 4] {
        let mut lines = [[0; 8]; 4];
        let words = lines.as_flattened_mut();
        words[MOVING] = self.moving;
        words[if self.moving == 0 { SPARE } else { TO }] = self.to.map_or(0, Place::word);
        words[AFTER] = self.after;
        for (word, cell) in words[FIRST_CELL..].iter_mut().zip(self.cells) {
            *word = cell.word();
        }
        words[CHECK] = check_of(&words[MOVING..FIRST_CELL + CELLS]);
        lines
    }

    /// The tables of the cells in `mask`, each once, with their cells.
    pub(super) fn tables(&self, mask: u64) -> impl Iterator<Item = (Place, u64)> {
        let first = move |cell: usize| !self.cells[..cell].contains(&self.cells[cell]);
        let mask_of = |place| (0..CELLS).filter(|&c| self.cells[c] == place).fold(0, |bits, c| bits | 1 << c);
        let each =
            (0..CELLS).filter(move |&cell| first(cell)).map(move |c| (self.cells[c], mask_of(self.cells[c])));
        each.filter(move |&(_, cells)| cells & mask != 0)
    }

    /// The target table.
    fn target(&self) -> Option<Place> {
        self.to.filter(|_| self.moving != 0)
    }

    /// The table for the next resize.
    pub(super) fn spare(&self) -> Option<Place> {
        self.to.filter(|_| self.moving == 0)
    }

    /// Buckets of all tables, including the target.
    pub(super) fn buckets(&self) -> u64 {
        self.all().map(Place::buckets).sum()
    }

    /// Every table that may have keys, in the order in which keys move.
    pub(super) fn all(&self) -> impl Iterator<Item = Place> {
        self.tables(u64::MAX).map(|(place, _)| place).chain(self.target())
    }

    /// The resize that makes room in a table; `None` if there can be no larger one.
    pub(super) fn growth(&self, place: Place) -> Option<Growth> {
        let (_, cells) = self.tables(u64::MAX).find(|&(table, _)| table == place)?;
        match cells.count_ones() {
            1 => {
                let log2 = (self.buckets() * 2).next_power_of_two().ilog2();
                (log2 <= BUCKETS_LOG2_MAX).then_some(Growth { moving: ALL_CELLS, log2 })
            }
            // The upper half of its cells, which are adjacent.
            count => Some(Growth { moving: cells << (count / 2) & cells, log2: place.log2() }),
        }
    }

    /// Whether this spare suits a resize: it has the wanted size, or has room for everything.
    pub(super) fn serves(&self, spare: Place, growth: Growth) -> bool {
        spare.log2() == growth.log2 || self.is_for_all(spare)
    }

    /// Whether it is a table for all keys, twice as large as all others.
    pub(super) fn is_for_all(&self, spare: Place) -> bool {
        spare.buckets() >= 2 * self.buckets()
    }
}

/// The typed offset of a view.
pub(super) fn view_at(offset: u64) -> Offset<ViewBlock> {
    Offset::new(offset)
}

/// A resize that makes room: the cells whose keys move, and the size of the target table as a
/// binary logarithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Growth {
    pub(super) moving: u64,
    pub(super) log2: u32,
}

/// The directory that the root named a moment ago. Its block is not reused while the caller is
/// pinned.
pub(super) struct View<'t, M> {
    pub(super) offset: Offset<ViewBlock>,
    pub(super) block: &'t ViewBlock,
    pub(super) medium: &'t M,
}

impl<M> Clone for View<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for View<'_, M> {}

/// The tables that may have a key.
#[derive(Clone, Copy)]
pub(super) struct Route {
    /// The table of its cell.
    pub(super) from: Place,
    /// The target table, if the key has not moved yet.
    pub(super) to: Option<Place>,
}

impl Route {
    /// The table that it is added to.
    #[inline(always)]
    pub(super) fn target(self) -> Place {
        self.to.unwrap_or(self.from)
    }
}

impl<'t, M: Medium> View<'t, M> {
    #[inline(always)]
    fn word(self, index: usize) -> u64 {
        // The block was written before the Release of the root's word, which was loaded with
        // Acquire.
        self.block[index / 8].0[index % 8].load(self.medium, Relaxed)
    }

    /// Whether a resize is in progress.
    #[inline(always)]
    pub(super) fn is_moving(self) -> bool {
        self.word(MOVING) != 0
    }

    /// Whether writers have to help: move keys, or clear the spare.
    #[inline(always)]
    pub(super) fn wants_help(self) -> bool {
        let spare = self.word(SPARE);
        self.is_moving() || (spare != 0 && self.count() < Place::of(spare).buckets())
    }

    #[inline(always)]
    pub(super) fn route(self, hash: u64) -> Route {
        let cell = cell_of(hash);
        let from = Place::of(self.word(FIRST_CELL + cell));
        let moves = self.word(MOVING) >> cell & 1 == 1;
        Route { from, to: moves.then(|| Place::of(self.word(TO))) }
    }

    /// The whole directory.
    pub(super) fn directory(self) -> Directory {
        let to = self.word(if self.is_moving() { TO } else { SPARE });
        Directory {
            cells: std::array::from_fn(|cell| Place::of(self.word(FIRST_CELL + cell))),
            moving: self.word(MOVING),
            to: (to != 0).then_some(Place::of(to)),
            after: self.word(AFTER),
        }
    }

    /// Number of finished buckets of the tables that keys leave: buckets before this one hold no
    /// key that moves. For a spare, the number of cleared buckets. A damaged count is 0: then all
    /// buckets are checked or cleared again.
    pub(super) fn count(self) -> u64 {
        let word = self.count_word().load(self.medium, Relaxed);
        let (count, check) = (word as u32, (word >> 32) as u32);
        if check == !count { u64::from(count) } else { 0 }
    }

    pub(super) fn set_count(self, count: u64) {
        let check = u64::from(!(count as u32));
        self.count_word().store(self.medium, check << 32 | count, Release);
    }

    fn count_word(self) -> &'t Word {
        &self.block[3].0[COUNT]
    }

    /// Whether it is as it was written, and possible in a region of `len` bytes.
    pub(super) fn is_sound(self, len: usize) -> bool {
        let directory = self.directory();
        let lines = directory.lines();
        let mut words = lines.as_flattened()[..FIRST_CELL + CELLS].iter().enumerate();
        words.all(|(index, &word)| self.word(index) == word)
            && directory.all().all(|place| place.is_sound(len))
            && (directory.moving == 0 || directory.to.is_some())
            && directory.spare().is_none_or(|spare| spare.is_sound(len))
    }
}

#[cfg(test)]
#[path = "tests/view.rs"]
mod tests;
