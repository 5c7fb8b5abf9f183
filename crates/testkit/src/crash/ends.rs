//! The ends that recoveries come to. A crash leaves very many states, and recovery makes few of them: what follows is then judged once. It follows from what was found and from what the memory holds, or from as
//! much of that as is read; and from what is not in the pool, so some states are judged to their own end all the same.

use super::memory::{Memory, Reads, hash};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Ends in which nothing was wrong, and what was read on the way there.
#[derive(Debug)]
pub(super) struct Ends {
    /// Of the states that come to one of them, one in so many is judged to its own end.
    again_one_in: u64,
    /// By what the memory held.
    whole: RefCell<HashMap<u64, Rc<Reads>>>,
    /// The last one that was judged, by what was found and how it is judged.
    last: RefCell<HashMap<u64, Rc<Reads>>>,
}

/// The end that a state comes to.
pub(super) struct End {
    whole: u64,
    found: u64,
}

impl Ends {
    pub(super) fn new(again_one_in: u64) -> Self {
        Self { again_one_in, whole: RefCell::default(), last: RefCell::default() }
    }

    /// Begins the end of a state in which this was found. None if it was judged before: then what would be read is taken for read.
    pub(super) fn begin<const VOLATILE: bool>(&self, memory: &Memory<VOLATILE>, found: u64) -> Option<End> {
        let end = End { whole: hash(memory.holds(), found), found };
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

    /// Nothing was wrong.
    pub(super) fn note<const VOLATILE: bool>(&self, memory: &Memory<VOLATILE>, end: &End) {
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
    /// A word that the end of each run reads, and one that none reads.
    const READ: usize = 3;
    const UNREAD: usize = 4;

    /// A run in which this was found, and a word holds this when its end begins. Whether it is judged to its end.
    fn is_judged(ends: &Ends, memory: &Memory<true>, found: u64, (index, value): (usize, u64)) -> bool {
        memory.begin();
        memory.at(index).store(memory, value, Relaxed);
        let end = ends.begin(memory, found);
        if let Some(end) = &end {
            let _ = memory.at(READ).load(memory, Relaxed);
            ends.note(memory, end);
        }
        memory.end();
        end.is_some()
    }

    #[test]
    fn a_state_is_judged_to_its_end_unless_one_before_held_the_same_or_all_that_was_read_there() {
        let (ends, memory) = (Ends::new(u64::MAX), Memory::<true>::zeroed(BYTES, BYTES).unwrap());
        let is_judged = |found, holds| is_judged(&ends, &memory, found, holds);
        assert!(is_judged(1, (READ, 7)));
        assert!(!is_judged(1, (READ, 7)));
        assert!(is_judged(1, (READ, 8)), "it would read something else");
        assert!(!is_judged(1, (READ, 7)) && !is_judged(1, (READ, 8)), "both are known");
        assert!(is_judged(2, (READ, 7)), "something else was found");
        assert!(is_judged(1, (UNREAD, 7)), "word 3 is 0");
        assert!(!is_judged(1, (UNREAD, 8)), "nobody reads word 4");
    }

    #[test]
    fn if_each_state_is_to_be_judged_again_each_is() {
        let (ends, memory) = (Ends::new(1), Memory::<true>::zeroed(BYTES, BYTES).unwrap());
        assert!([7, 7, 7].into_iter().all(|value| is_judged(&ends, &memory, 1, (READ, value))));
    }
}
