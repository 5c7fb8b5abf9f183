//! The effect of an event on durable memory, on pending stores and on the set of crash states.

use super::{At, Explorer, Judge, ViolatingState};
use crate::crash::line::{Content, Item, Order, Pending};
use crate::crash::memory::WORDS;
use crate::trace::{Event, Role, Trace, What};

/// A thread's write-backs and streamed stores since its last fence.
#[derive(Default)]
pub(super) struct Thread {
    pub(super) written_back: Vec<(u32, u32)>,
    pub(super) streamed: Vec<u32>,
}

impl<const VOLATILE: bool> Explorer<'_, VOLATILE> {
    pub(super) fn thread(&mut self, thread: u32) -> &mut Thread {
        let index = thread as usize;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, Thread::default);
        }
        &mut self.threads[index]
    }

    pub(super) fn step(
        &mut self,
        trace: &Trace,
        event: &Event,
        at: At,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        let number = at.event as u32;
        if event.role == Role::LeftOut {
            return None;
        }
        match event.what {
            What::Rmw { .. } | What::RmwFailed { .. } if self.rules.locked_orders => {
                self.keep_written_back(event.thread)
            }
            _ => {}
        }
        match event.what {
            What::Store { .. } | What::Rmw { .. } => {
                let (word, value) = trace.stored(event).next()?;
                self.store(at, &[(word, value)], Order::Ordinary, judge)
            }
            What::Copy(piece) => self.store_pieces(trace.words(piece), at, Order::Copied(number), judge),
            What::StreamedCopy(piece) => {
                self.store_pieces(trace.words(piece), at, Order::Streamed(event.thread), judge)
            }
            What::WriteBack { line } => {
                let line = (line as usize / (8 * WORDS)) as u32;
                self.thread(event.thread).written_back.push((line, number));
                None
            }
            What::Fence => {
                if self.rules.fences_keep {
                    self.keep_written_back(event.thread);
                    self.keep_streamed(event.thread);
                }
                None
            }
            What::Mark(mark) => {
                let narrower = judge.pass(mark);
                let found = if narrower && at.explore { self.point(at, None, judge) } else { None };
                self.age(number);
                found
            }
            What::RmwFailed { .. } => None,
        }
    }

    /// Applies a copy, line by line.
    pub(super) fn store_pieces(
        &mut self,
        words: impl Iterator<Item = (u64, u64)>,
        at: At,
        order: Order,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        let words: Vec<(u64, u64)> = words.collect();
        words
            .chunk_by(|a, b| a.0 / WORDS as u64 == b.0 / WORDS as u64)
            .find_map(|line| self.store(at, line, order, judge))
    }

    /// Applies stores to words of one line.
    pub(super) fn store(
        &mut self,
        at: At,
        words: &[(u64, u64)],
        order: Order,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        let line = (words.first()?.0 / WORDS as u64) as u32;
        self.revival = None;
        let mask = words.iter().fold(0u8, |mask, &(word, _)| mask | 1 << (word % WORDS as u64));
        if self.depth == 0 && !self.memory.is_scratch(line as usize) {
            self.explored.stores += words.len() as u64;
        }
        let matters = at.explore && self.matters(line, mask);
        let before = if matters { self.contents(line).to_vec() } else { Vec::new() };
        let pending = self.pending(line);
        if at.is_lock {
            pending.locks |= mask;
        }
        for &(word, value) in words {
            let word = (word % WORDS as u64) as u8;
            pending.push(Item { event: at.event as u32, word, value, order });
        }
        if let Order::Streamed(thread) = order {
            self.thread(thread).streamed.push(line);
        }
        self.refresh(line);
        let found = if matters { self.point_after_store(at, line, &before, judge) } else { None };
        if self.rules.keeps_stores {
            self.pending(line).absorb_all();
            self.refresh(line);
        }
        found
    }

    /// Whether other values of these words can make a state that no run has seen.
    pub(super) fn matters(&self, line: u32, words: u8) -> bool {
        let line = line as usize;
        !self.memory.is_scratch(line) && (!self.knows_reads || self.memory.was_read(line, words))
    }

    /// Checks the states in which the line has a content that it could not have before.
    pub(super) fn point_after_store(
        &mut self,
        at: At,
        line: u32,
        before: &[Content],
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        let is_new = |content: &Content| !before.iter().any(|old| old.words == content.words);
        let contents = self.contents(line);
        let new: Vec<usize> = (0..contents.len()).filter(|&i| is_new(&contents[i])).collect();
        if new.is_empty() {
            // The contents that a selection leaves out may include new ones.
            let is_cut = self.depth == 0 && self.is_selection(line);
            self.explored.points += u64::from(is_cut);
            self.explored.sampled += u64::from(is_cut);
            return None;
        }
        self.point(at, Some((line, new)), judge)
    }

    /// Applies a locked instruction or fence of `thread`: its write-backs become durable.
    pub(super) fn keep_written_back(&mut self, thread: u32) {
        for (line, event) in std::mem::take(&mut self.thread(thread).written_back) {
            if let Some(pending) = &mut self.lines[line as usize] {
                pending.absorb_until(event);
                self.refresh(line);
            }
        }
    }

    pub(super) fn keep_streamed(&mut self, thread: u32) {
        for line in std::mem::take(&mut self.thread(thread).streamed) {
            if let Some(pending) = &mut self.lines[line as usize] {
                pending.absorb_streamed(thread);
                self.refresh(line);
            }
        }
    }

    /// Processes a mark. Stores older than the last two marks may have left the cache on their own:
    /// some of each line become durable at random. Without this, lines that are never written back
    /// would add ever more choices of the same kind.
    pub(super) fn age(&mut self, mark: u32) {
        let [_, old, last] = self.marks;
        self.marks = [old, last, mark];
        for line in self.open.clone() {
            if self.focus.as_ref().is_some_and(|focus| focus.has_line(line)) {
                continue;
            }
            let Some(pending) = &mut self.lines[line as usize] else { continue };
            let aged = pending.items.partition_point(|item| item.event < old);
            if aged > 0 && self.dice.roll(2) == 0 {
                let last = pending.items[self.dice.roll(aged as u64) as usize].event;
                let before = pending.items.len();
                pending.absorb_until(last);
                if self.depth == 0 {
                    self.explored.settled += (before - pending.items.len()) as u64;
                }
                self.refresh(line);
            }
        }
    }

    pub(super) fn pending(&mut self, line: u32) -> &mut Pending {
        let memory = &self.memory;
        self.lines[line as usize].get_or_insert_with(|| Box::new(Pending::new(memory.line(line as usize))))
    }

    pub(super) fn contents(&mut self, line: u32) -> &[Content] {
        let rules = self.rules;
        self.pending(line).contents(&rules)
    }

    /// Whether a line has more contents than are tried.
    pub(super) fn is_selection(&mut self, line: u32) -> bool {
        let rules = self.rules;
        self.lines[line as usize].as_mut().is_some_and(|pending| pending.is_selection(&rules))
    }

    /// Updates the memory to the durable content of a line. A scratch line gets a random content.
    pub(super) fn refresh(&mut self, line: u32) {
        let index = line as usize;
        let Some(pending) = &mut self.lines[index] else { return };
        while pending.begins_with_lock() && self.dice.roll(2) == 0 {
            pending.absorb_oldest();
        }
        if self.memory.is_scratch(index) {
            let kept = self.dice.roll(3 * (pending.items.len() as u64 + 1)) as usize;
            return self.memory.set_line(index, &pending.with_first(kept));
        }
        self.memory.set_line(index, &pending.base);
        let undecided = !pending.items.is_empty();
        self.memory.set_undecided(index, undecided);
        if undecided {
            self.open.insert(line)
        } else {
            self.open.remove(&line)
        };
    }
}
