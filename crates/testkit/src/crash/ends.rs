//! Deduplicates the outcomes of recoveries. A crash leaves very many states, but they recover to
//! few distinct contents, so the checks after recovery run once for each.
//!
//! The outcome of the checks depends on what the first reads returned and on the memory, or only on
//! the words that the checks read. It also depends on state outside the pool, so one state in N is
//! checked in full anyway.

use super::memory::{Memory, Reads, hash};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Outcomes without a violation, and the words that their checks read.
#[derive(Debug)]
pub(super) struct Outcomes {
    /// One in this many states with a known outcome is checked in full anyway.
    again_one_in: u64,
    /// By content of the memory.
    whole: RefCell<HashMap<u64, Rc<Reads>>>,
    /// The last checked outcome, by what was found and how it is checked.
    last: RefCell<HashMap<u64, Rc<Reads>>>,
}

/// The identity of an outcome.
pub(super) struct OutcomeKey {
    whole: u64,
    found: u64,
}

impl Outcomes {
    pub(super) fn new(again_one_in: u64) -> Self {
        Self { again_one_in, whole: RefCell::default(), last: RefCell::default() }
    }

    /// Begins the checks of a recovered state in which this was found. Returns `None` if an equal
    /// outcome was checked before; the words its checks read then count as read.
    pub(super) fn begin<const VOLATILE: bool>(
        &self,
        memory: &Memory<VOLATILE>,
        found: u64,
    ) -> Option<OutcomeKey> {
        let end = OutcomeKey { whole: hash(memory.holds(), found), found };
        if !hash(end.whole, memory.fingerprint()).is_multiple_of(self.again_one_in) {
            let mut whole = self.whole.borrow_mut();
            if let Some(reads) = whole.get(&end.whole) {
                memory.read_as(reads);
                return None;
            }
            if let Some(reads) = self.last.borrow().get(&found).filter(|reads| memory.would_read(reads)) {
                memory.read_as(reads);
                whole.insert(end.whole, reads.clone());
                return None;
            }
        }
        memory.begin_rest();
        Some(end)
    }

    /// Records that the checks found no violation.
    pub(super) fn mark_sound<const VOLATILE: bool>(&self, memory: &Memory<VOLATILE>, end: &OutcomeKey) {
        let reads = Rc::new(memory.read_in_rest());
        self.whole.borrow_mut().insert(end.whole, reads.clone());
        self.last.borrow_mut().insert(end.found, reads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    const BYTES: usize = 4096;
    /// A word that the checks of each run read, and one that they never read.
    const READ: usize = 3;
    const UNREAD: usize = 4;

    /// Performs a run that finds `found` and stores this word before the checks. Returns whether
    /// they run.
    fn is_judged(ends: &Outcomes, memory: &Memory<true>, found: u64, (index, value): (usize, u64)) -> bool {
        memory.begin();
        memory.at(index).store(memory, value, Relaxed);
        let end = ends.begin(memory, found);
        if let Some(end) = &end {
            let _ = memory.at(READ).load(memory, Relaxed);
            ends.mark_sound(memory, end);
        }
        memory.end();
        end.is_some()
    }

    #[test]
    fn outcome_with_equal_memory_or_equal_reads_is_checked_once() {
        let (ends, memory) = (Outcomes::new(u64::MAX), Memory::<true>::zeroed(BYTES, BYTES).unwrap());
        let is_judged = |found, holds| is_judged(&ends, &memory, found, holds);
        assert!(is_judged(1, (READ, 7)));
        assert!(!is_judged(1, (READ, 7)));
        assert!(is_judged(1, (READ, 8)), "it would read something else");
        assert!(!is_judged(1, (READ, 7)) && !is_judged(1, (READ, 8)), "both are known");
        assert!(is_judged(2, (READ, 7)), "something else was found");
        assert!(is_judged(1, (UNREAD, 7)), "word 3 is 0");
        assert!(!is_judged(1, (UNREAD, 8)), "the checks do not read word 4");
    }

    #[test]
    fn recheck_of_every_state_skips_none() {
        let (ends, memory) = (Outcomes::new(1), Memory::<true>::zeroed(BYTES, BYTES).unwrap());
        assert!([7, 7, 7].into_iter().all(|value| is_judged(&ends, &memory, 1, (READ, value))));
    }
}
