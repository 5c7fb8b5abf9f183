//! Several sources as one, in the order of items, both ways.
//!
//! A *loser tree* (Knuth, *The Art of Computer Programming* 3, section 5.4.1): each inner node
//! keeps the source that lost the comparison there, so that the next winner is found by comparing
//! along one path. While one source stays ahead, it is compared with the runner-up alone.
//!
//! Most comparisons are of two numbers: the *heads*, eight bytes of each key behind a prefix that
//! all keys here have. A key without it shortens the prefix; many equal heads lengthen it.
//!
//! Invariants: going forward, every source but the winner stands at its first item behind the
//! winner's; going backward, at its last item before. The same version of a key in two sources
//! comes from the earlier source first.

use crate::DiskError;
use crate::codec::shared;
use crate::item::Item;
use crate::source::Source;
use std::cmp::Ordering;

/// Equal heads after which the prefix may be longer.
const TIES_MAX: u32 = 64;

/// Several sources as one.
pub struct Merge<S> {
    sources: Vec<S>,
    /// What the keys of all sources begin with.
    prefix: Vec<u8>,
    /// The head of each source's key.
    heads: Vec<u64>,
    /// Comparisons of equal heads.
    ties: u32,
    /// The losers, from place 1 on. Source `n` is the leaf at place `sources.len() + n`, and the
    /// parent of a place is its half.
    losers: Vec<usize>,
    winner: usize,
    /// The best of the others, if it is known. It stays so while the winner does.
    runner_up: Option<usize>,
    is_forward: bool,
    /// Whether it is at an end, though a source may not be.
    is_ended: bool,
}

/// The first bytes of a key as a number: keys with different heads are in the order of these.
#[inline]
fn head(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

impl<S: Source> Merge<S> {
    /// A merge of these sources, at an end. Among equals, the first comes first.
    pub fn new(sources: Vec<S>) -> Self {
        let count = sources.len();
        Self {
            sources,
            prefix: Vec::new(),
            heads: vec![0; count],
            ties: 0,
            losers: vec![0; count],
            winner: 0,
            runner_up: None,
            is_forward: true,
            is_ended: true,
        }
    }

    /// The number of sources.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Whether a source's item comes before another's in the present direction. A source at an end
    /// comes last.
    #[inline]
    fn is_ahead(&mut self, one: usize, other: usize) -> bool {
        let (head_of_one, head_of_other) = (self.heads[one], self.heads[other]);
        if head_of_one != head_of_other {
            return (head_of_one < head_of_other) == self.is_forward;
        }
        self.ties += 1;
        self.is_ahead_in_full(one, other)
    }

    fn is_ahead_in_full(&self, one: usize, other: usize) -> bool {
        let order = match (self.sources[one].item(), self.sources[other].item()) {
            (Some(item), Some(of_other)) => item.order(&of_other).then(one.cmp(&other)),
            (Some(_), None) => return true,
            (None, Some(_)) => return false,
            (None, None) => one.cmp(&other),
        };
        order == if self.is_forward { Ordering::Less } else { Ordering::Greater }
    }

    /// Takes the head of a source's item, which has changed.
    #[inline]
    fn take_head(&mut self, source: usize) {
        let Some(item) = self.sources[source].item() else {
            self.heads[source] = self.head_at_end();
            return;
        };
        match item.key.strip_prefix(&self.prefix[..]) {
            Some(rest) => self.heads[source] = head(rest),
            None => {
                self.prefix.truncate(shared(&self.prefix, item.key));
                self.take_heads();
            }
        }
    }

    fn take_heads(&mut self) {
        let at_end = self.head_at_end();
        for (source, head_here) in self.sources.iter().zip(&mut self.heads) {
            *head_here = source.item().map_or(at_end, |item| head(&item.key[self.prefix.len()..]));
        }
        self.ties = 0;
    }

    fn head_at_end(&self) -> u64 {
        if self.is_forward { u64::MAX } else { 0 }
    }

    /// Takes the longest prefix that all keys here have, and the heads behind it.
    fn take_prefix(&mut self) {
        self.prefix.clear();
        let mut keys = self.sources.iter().filter_map(|source| Some(source.item()?.key));
        self.prefix.extend_from_slice(keys.next().unwrap_or_default());
        keys.for_each(|key| self.prefix.truncate(shared(&self.prefix, key)));
        self.take_heads();
    }

    /// Finds the winner among all sources.
    fn build(&mut self) {
        let count = self.sources.len();
        (self.runner_up, self.is_ended) = (None, count == 0);
        self.take_prefix();
        // The winner of each place, from the leaves up.
        let mut winners = vec![0; 2 * count];
        (0..count).for_each(|source| winners[count + source] = source);
        for place in (1..count).rev() {
            let (one, other) = (winners[2 * place], winners[2 * place + 1]);
            let (winner, loser) = if self.is_ahead(one, other) { (one, other) } else { (other, one) };
            (winners[place], self.losers[place]) = (winner, loser);
        }
        self.winner = winners.get(1).copied().unwrap_or(0);
    }

    /// Finds the winner again, after the item of the last one has changed.
    #[inline]
    fn replay(&mut self) {
        let last = self.winner;
        self.take_head(last);
        if self.ties > TIES_MAX {
            self.take_prefix();
        }
        if let Some(runner_up) = self.runner_up
            && self.is_ahead(last, runner_up)
        {
            return;
        }
        let (mut winner, mut place) = (last, (self.sources.len() + last) / 2);
        while place > 0 {
            let loser = self.losers[place];
            if self.is_ahead(loser, winner) {
                (self.losers[place], winner) = (winner, loser);
            }
            place /= 2;
        }
        self.winner = winner;
        // A source that has won twice may go on to win.
        self.runner_up = if winner == last { self.find_runner_up() } else { None };
    }

    /// The best of the sources that lost to the winner itself.
    fn find_runner_up(&mut self) -> Option<usize> {
        let mut place = (self.sources.len() + self.winner) / 2;
        let mut best = self.losers[place];
        while place > 1 {
            place /= 2;
            let loser = self.losers[place];
            if self.is_ahead(loser, best) {
                best = loser;
            }
        }
        // A source alone has no place above it.
        (self.sources.len() > 1).then_some(best)
    }

    /// Moves all sources, and ends if one of them fails.
    fn go(
        &mut self,
        is_forward: bool,
        mut to: impl FnMut(usize, &mut S) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        (self.is_forward, self.is_ended) = (is_forward, true);
        self.sources.iter_mut().enumerate().try_for_each(|(nth, source)| to(nth, source))?;
        self.build();
        Ok(())
    }

    /// Changes the direction: every source but the winner goes to the other side of its item.
    fn turn(&mut self) -> Result<(), DiskError> {
        let Some(item) = self.item() else { return Ok(()) };
        let (key, seq, winner, is_forward) = (item.key.to_vec(), item.seq, self.winner, !self.is_forward);
        self.is_ended = true;
        for (nth, source) in self.sources.iter_mut().enumerate().filter(|(nth, _)| *nth != winner) {
            source.seek(&key, seq)?;
            let is_same = source.item().is_some_and(|item| item.key == key && item.seq == seq);
            match (is_forward, is_same && nth < winner) {
                (true, true) => source.next()?,
                (true, false) | (false, true) => {}
                (false, false) if source.item().is_some() => source.previous()?,
                (false, false) => source.seek_last()?,
            }
        }
        (self.is_forward, self.is_ended) = (is_forward, false);
        Ok(())
    }

    fn step(&mut self, is_forward: bool) -> Result<(), DiskError> {
        if self.is_ended {
            return Ok(());
        }
        let is_turn = is_forward != self.is_forward;
        if is_turn {
            self.turn()?;
        }
        let source = &mut self.sources[self.winner];
        let moved = if is_forward { source.next() } else { source.previous() };
        if let Err(error) = moved {
            self.is_ended = true;
            return Err(error);
        }
        if is_turn {
            self.build()
        } else {
            self.replay()
        }
        // At an end, the other direction begins at a seek.
        self.is_ended = self.sources[self.winner].item().is_none();
        Ok(())
    }
}

impl<S: Source> Source for Merge<S> {
    #[inline]
    fn item(&self) -> Option<Item<'_>> {
        if self.is_ended { None } else { self.sources[self.winner].item() }
    }
    fn seek_first(&mut self) -> Result<(), DiskError> {
        self.go(true, |_, source| source.seek_first())
    }
    fn seek_last(&mut self) -> Result<(), DiskError> {
        self.go(false, |_, source| source.seek_last())
    }
    fn seek(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        self.go(true, |_, source| source.seek(key, seq))
    }
    fn seek_before(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        self.go(false, |_, source| source.seek_before(key, seq))
    }
    #[inline]
    fn next(&mut self) -> Result<(), DiskError> {
        self.step(true)
    }
    #[inline]
    fn previous(&mut self) -> Result<(), DiskError> {
        self.step(false)
    }
}
