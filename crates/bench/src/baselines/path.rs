//! Path hashing: cells in the shape of an inverted tree; a key lies somewhere on the path from its
//! leaf to the top row that is kept.
//!
//! Zuo, Hua: *A Write-friendly Hashing Scheme for Non-volatile Memory Systems*, as measured in
//! *Level Hashing* (sections 2.2.2 and 5.2): one pair a cell, two hash functions and so two paths,
//! no movement. Of all rows, log2(N) / 2 are kept (the *reserved levels*) in a table of N cells
//! (section 5.2.4 there).
//!
//! ```text
//!   leaves   | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |      cell: | value | !key |; !key = 0: empty
//!   row 1    |   0   |   1   |   2   |   3   |      the path of leaf 5: 5, 2, 1
//!   row 2    |       0       |       1       |
//! ```
//! A cell's token is its key, inverted so that empty memory is an empty cell. Both words share a
//! line, so an insert takes one write-back and one fence where the paper's takes two. The key of
//! all ones cannot be stored.

use super::{Baseline, Space, SpaceFull, hashes};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{Medium, Offset, Word};

type Cell = [Word; 2];
const CELL: u64 = 16;
const VALUE: usize = 0;
const KEY: usize = 1;

/// Path hashing.
pub struct PathHashing<M> {
    space: Arc<Space<M>>,
    /// The start of each row, the leaves first.
    rows: Vec<u64>,
    leaves_log2: u32,
    keys: u64,
}

impl<M: Medium> PathHashing<M> {
    /// The cells of a key, row by row, without duplicates.
    #[inline(always)]
    fn cells(&self, key: u64) -> impl Iterator<Item = u64> {
        let [one, other] = hashes(key).map(|hash| hash >> (64 - self.leaves_log2));
        self.rows.iter().enumerate().flat_map(move |(row, start)| {
            let [one, other] = [one >> row, other >> row];
            [Some(one), (one != other).then_some(other)]
                .into_iter()
                .flatten()
                .map(move |cell| start + CELL * cell)
        })
    }

    fn cell(&self, at: u64) -> &Cell {
        self.space.region().at(Offset::new(at))
    }

    #[inline(always)]
    fn key(&self, at: u64) -> u64 {
        self.cell(at)[KEY].load(self.space.medium(), Acquire)
    }

    #[inline(always)]
    fn find(&self, key: u64) -> Option<u64> {
        self.cells(key).find(|&at| self.key(at) == !key)
    }
}

impl<M: Medium> Baseline<M> for PathHashing<M> {
    const NAME: &'static str = "path hashing";

    fn create(space: Arc<Space<M>>, slots: u64) -> Result<Self, SpaceFull> {
        // Nearly half of the cells are leaves.
        let leaves_log2 = slots.div_ceil(2).max(4).next_power_of_two().ilog2();
        let rows = (leaves_log2 + 1).div_ceil(2);
        let rows = (0..rows).map(|row| space.alloc(CELL << (leaves_log2 - row)));
        Ok(Self { rows: rows.collect::<Result<_, _>>()?, space, leaves_log2, keys: 0 })
    }

    fn slots(&self) -> u64 {
        (0..self.rows.len() as u32).map(|row| 1 << (self.leaves_log2 - row)).sum()
    }

    fn keys(&self) -> u64 {
        self.keys
    }

    fn bytes(&self) -> u64 {
        CELL * self.slots()
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.find(key).map(|at| self.cell(at)[VALUE].load(self.space.medium(), Acquire))
    }

    fn add(&mut self, key: u64, value: u64) -> Result<(), SpaceFull> {
        assert_ne!(key, u64::MAX, "path hashing cannot hold the key of all ones");
        let at = self.cells(key).find(|&at| self.key(at) == 0).ok_or(SpaceFull)?;
        let (cell, medium) = (self.cell(at), self.space.medium());
        cell[VALUE].store(medium, value, Release);
        cell[KEY].store(medium, !key, Release);
        // PERSIST: the pair, before the caller returns; the key behind its value, in one line.
        self.space.region().persist(cell);
        self.keys += 1;
        Ok(())
    }

    fn update(&mut self, key: u64, value: u64) -> bool {
        let Some(at) = self.find(key) else { return false };
        let word = &self.cell(at)[VALUE];
        word.store(self.space.medium(), value, Release);
        // PERSIST: the new value, before the caller returns.
        self.space.region().persist(word);
        true
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        let cell = self.cell(self.find(key)?);
        let value = cell[VALUE].load(self.space.medium(), Acquire);
        cell[KEY].store(self.space.medium(), 0, Release);
        // PERSIST: the removal, before the caller returns.
        self.space.region().persist(cell);
        self.keys -= 1;
        Some(value)
    }
}
