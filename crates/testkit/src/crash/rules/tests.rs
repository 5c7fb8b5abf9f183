//! What a crash may leave of small handmade traces: every such state, and no other.

use super::Profile;
use crate::crash::expectation::Expectation;
use crate::crash::explore::{Explored, Explorer, Judge, Limits};
use crate::crash::memory::{Memory, WORDS};
use crate::crash::seen::Seen;
use crate::observer::Violation;
use crate::trace::{Event, Role, Trace, What};
use Profile::{Arm, Eadr, File, Pmem, Remote, Shm};
use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Offset, Region, Word};

const BYTES: usize = 4096;
/// A word in another line than the small numbers.
const FAR: u64 = WORDS as u64;
/// The mark at the end, where the crash happens.
const END: u64 = 1;

/// The events of threads; words are named by their numbers.
#[derive(Default)]
struct Program(Trace);

impl Program {
    #[track_caller]
    fn does(mut self, thread: u32, what: What) -> Self {
        self.0.push(Event { thread, what, site: Location::caller(), point: None, role: Role::Done });
        self
    }
    fn store(self, thread: u32, word: u64, new: u64) -> Self {
        self.does(thread, What::Store { at: 8 * word, old: 0, new })
    }
    fn locked(self, thread: u32, word: u64, new: u64) -> Self {
        self.does(thread, What::Rmw { at: 8 * word, old: 0, new })
    }
    fn locked_in_vain(self, thread: u32, word: u64) -> Self {
        self.does(thread, What::RmwFailed { at: 8 * word })
    }
    fn copy(mut self, thread: u32, word: u64, values: &[u64]) -> Self {
        let piece = self.0.keep(8 * word, 8 * values.len() as u64, values.iter().copied());
        self.does(thread, What::Copy(piece))
    }
    fn stream(mut self, thread: u32, word: u64, values: &[u64]) -> Self {
        let piece = self.0.keep(8 * word, 8 * values.len() as u64, values.iter().copied());
        self.does(thread, What::StreamedCopy(piece))
    }
    fn write_back(self, thread: u32, word: u64) -> Self {
        self.does(thread, What::WriteBack { line: word / FAR * 64 })
    }
    fn fence(self, thread: u32) -> Self {
        self.does(thread, What::Fence)
    }

    /// The contents that a crash at the end may leave in these words, and the counters of the
    /// exploration.
    fn explored<const N: usize>(self, profile: Profile, words: [u64; N]) -> (BTreeSet<[u64; N]>, Explored) {
        let program = self.does(0, What::Mark(END));
        let mut look = Look { at: program.0.events().len() as u64 - 1, ..Look::at(words) };
        let limits = Limits { nested_one_in: [0; 3], revived_one_in: 0, ..Limits::default() };
        let explored = look.explore(program, profile, limits);
        (look.left, explored)
    }

    fn leaves<const N: usize>(self, profile: Profile, words: [u64; N]) -> BTreeSet<[u64; N]> {
        self.explored(profile, words).0
    }
}

/// Records the content of some words.
struct Look<const N: usize> {
    words: [u64; N],
    /// The event after which `left` is recorded.
    at: u64,
    /// The contents after that event.
    left: BTreeSet<[u64; N]>,
    /// The contents after any event.
    met: BTreeSet<[u64; N]>,
    /// The traces of recoveries, in order; the last one repeats.
    recoveries: Vec<Trace>,
}

impl<const N: usize> Look<N> {
    fn at(words: [u64; N]) -> Self {
        Self { words, at: 0, left: BTreeSet::new(), met: BTreeSet::new(), recoveries: Vec::new() }
    }

    fn explore(&mut self, program: Program, profile: Profile, limits: Limits) -> Explored {
        let (seen, memory) = (Seen::new(), Memory::<true>::zeroed(BYTES, BYTES).unwrap());
        let mut explorer = Explorer::new(memory, profile.rules(), limits, &seen, &|| false);
        assert!(explorer.explore((&[], &program.0), 0, 7, self).is_none());
        explorer.explored
    }
}

impl<const N: usize> Judge<true> for Look<N> {
    fn pass(&mut self, mark: u64) -> bool {
        mark == END
    }
    fn expectation(&self) -> u64 {
        0
    }
    fn judge(&mut self, memory: &Memory<true>, point: u64) -> Result<(), Violation> {
        let region = Region::new(memory.clone());
        let load = |word| region.at::<Word>(Offset::new(8 * word)).load(region.medium(), Relaxed);
        let found = self.words.map(load);
        self.met.insert(found);
        if point == self.at {
            self.left.insert(found);
        }
        Ok(())
    }
    fn recovery(&mut self, _: &[u64]) -> Option<Trace> {
        if self.recoveries.len() > 1 {
            Some(self.recoveries.remove(0))
        } else {
            self.recoveries.first().cloned()
        }
    }
    fn revival(&mut self, _: &[u64]) -> Option<Trace> {
        None
    }
    fn remember(&self) -> Expectation {
        Expectation::default()
    }
    fn restore(&mut self, _: Expectation) {}
}

fn begin() -> Program {
    Program::default()
}

/// Every subset of some words, which hold 1, 2 and so on if they are kept.
fn any_of<const N: usize>() -> BTreeSet<[u64; N]> {
    let part =
        |kept: u32| std::array::from_fn(|word| if kept >> word & 1 == 1 { word as u64 + 1 } else { 0 });
    (0..1 << N).map(part).collect()
}

#[test]
fn prefix_of_the_stores_to_a_line_is_kept() {
    for profile in [Pmem, Arm, File] {
        let program = begin().store(0, 0, 1).store(0, 1, 2).store(0, 0, 3);
        assert_eq!(program.leaves(profile, [0, 1]), [[0, 0], [1, 0], [1, 2], [3, 2]].into(), "{profile:?}");
    }
}

#[test]
fn lines_are_independent() {
    let program = begin().store(0, 0, 1).store(0, FAR, 2);
    assert_eq!(program.leaves(Pmem, [0, FAR]), any_of());
}

#[test]
fn write_back_needs_a_fence_of_its_own_thread() {
    let written_back = || begin().store(0, 0, 1).write_back(0, 0);
    for profile in [Pmem, Arm, Remote] {
        assert_eq!(written_back().leaves(profile, [0]), [[0], [1]].into(), "{profile:?}, no fence");
        assert_eq!(
            written_back().fence(1).leaves(profile, [0]),
            [[0], [1]].into(),
            "{profile:?}, other thread"
        );
        assert_eq!(written_back().fence(0).leaves(profile, [0]), [[1]].into(), "{profile:?}, its own");
        let fenced_first = begin().store(0, 0, 1).fence(0).write_back(0, 0);
        assert_eq!(fenced_first.leaves(profile, [0]), [[0], [1]].into(), "{profile:?}, fenced before");
    }
}

#[test]
fn write_back_covers_the_stores_of_all_threads() {
    let program = begin().store(0, 0, 1).write_back(1, 0).fence(1);
    assert_eq!(program.leaves(Pmem, [0]), [[1]].into());
    let of_another_line = begin().store(0, 0, 1).write_back(0, FAR).fence(0);
    assert_eq!(of_another_line.leaves(Pmem, [0]), [[0], [1]].into());
}

#[test]
fn write_back_does_not_cover_a_later_store() {
    let program = begin().store(0, 0, 1).write_back(0, 0).store(0, 1, 2).fence(0);
    assert_eq!(program.leaves(Pmem, [0, 1]), [[1, 0], [1, 2]].into());
}

#[test]
fn locked_instruction_is_a_fence_on_x86_only() {
    let written_back = || begin().store(0, 0, 1).write_back(0, 0);
    let locked = || written_back().locked(0, FAR, 2);
    assert_eq!(locked().leaves(Pmem, [0, FAR]), [[1, 0], [1, 2]].into());
    for profile in [Arm, Remote, File] {
        assert_eq!(locked().leaves(profile, [0, FAR]), any_of(), "{profile:?}");
    }
    assert_eq!(written_back().locked(1, FAR, 2).leaves(Pmem, [0, FAR]), any_of(), "another's");
    // Its own store comes after it.
    let itself = begin().locked(0, 0, 1).write_back(0, 0);
    assert_eq!(itself.leaves(Pmem, [0]), [[0], [1]].into());
}

#[test]
fn failed_compare_and_swap_is_a_fence_on_x86() {
    let program = || begin().store(0, 0, 1).write_back(0, 0).locked_in_vain(0, FAR);
    assert_eq!(program().leaves(Pmem, [0]), [[1]].into());
    assert_eq!(program().leaves(Arm, [0]), [[0], [1]].into());
}

#[test]
fn locked_instruction_does_not_fence_streamed_stores() {
    let streamed = || begin().stream(0, 0, &[1]);
    assert_eq!(streamed().locked(0, FAR, 2).leaves(Pmem, [0, FAR]), any_of());
    assert_eq!(streamed().locked_in_vain(0, FAR).leaves(Pmem, [0]), [[0], [1]].into());
    // Nor does a write-back help: streamed stores are not in the cache.
    let written_back = streamed().write_back(0, 0).locked_in_vain(0, FAR);
    assert_eq!(written_back.leaves(Pmem, [0]), [[0], [1]].into());
}

#[test]
fn copy_may_be_torn_into_words_in_any_order() {
    assert_eq!(begin().copy(0, 0, &[1, 2, 3]).leaves(Pmem, [0, 1, 2]), any_of());
    let over_two_lines = begin().copy(0, FAR - 1, &[1, 2]);
    assert_eq!(over_two_lines.leaves(Pmem, [FAR - 1, FAR]), any_of());
    let fenced = begin().copy(0, 0, &[1, 2]).write_back(0, 0).fence(0);
    assert_eq!(fenced.leaves(Pmem, [0, 1]), [[1, 2]].into());
}

#[test]
fn copy_is_ordered_with_stores_before_and_after_it() {
    let program = begin().store(0, 0, 1).copy(0, 1, &[2, 3]).store(0, 3, 4);
    let left = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 2, 0, 0], [1, 0, 3, 0], [1, 2, 3, 0], [1, 2, 3, 4]];
    assert_eq!(program.leaves(Pmem, [0, 1, 2, 3]), left.into());
}

#[test]
fn streamed_words_are_unordered_until_their_threads_fence() {
    let streamed = || begin().stream(0, 0, &[1, 2]).store(0, 2, 3);
    assert_eq!(streamed().leaves(Pmem, [0, 1, 2]), any_of());
    assert_eq!(streamed().write_back(1, 0).fence(1).leaves(Pmem, [0, 1, 2]).len(), 4, "another's fence");
    assert_eq!(streamed().fence(0).leaves(Pmem, [0, 1, 2]), [[1, 2, 0], [1, 2, 3]].into(), "their own");
    // They need no write-back, and overwrite earlier stores.
    let over = begin().store(0, 0, 9).stream(0, 0, &[1]).fence(0);
    assert_eq!(over.leaves(Pmem, [0]), [[1]].into());
    // Once a later store is durable, they are overwritten.
    let outdated = begin().stream(0, 0, &[1]).store(0, 0, 9).write_back(1, 0).fence(1);
    assert_eq!(outdated.leaves(Pmem, [0]), [[9]].into());
}

#[test]
fn flushed_caches_keep_every_store() {
    for profile in [Eadr, Shm] {
        let program = begin().store(0, 0, 1).copy(0, 1, &[2]).stream(0, FAR, &[3]).locked(1, FAR + 1, 4);
        assert_eq!(program.leaves(profile, [0, 1, FAR, FAR + 1]), [[1, 2, 3, 4]].into(), "{profile:?}");
    }
}

#[test]
fn fabric_keeps_no_order_within_a_line() {
    let stored = || begin().store(0, 0, 1).store(0, 1, 2).store(0, 2, 3);
    assert_eq!(stored().leaves(Remote, [0, 1, 2]), any_of());
    assert_eq!(stored().write_back(0, 0).fence(0).leaves(Remote, [0, 1, 2]), [[1, 2, 3]].into());
    // Without a write-back, the line is not requested.
    assert_eq!(stored().fence(0).leaves(Remote, [0, 1, 2]), any_of());
    let twice = begin().store(0, 0, 1).store(0, 0, 2);
    assert_eq!(twice.leaves(Remote, [0]), [[0], [1], [2]].into());
}

#[test]
fn unsynced_file_guarantees_nothing() {
    let persisted = begin().store(0, 0, 1).store(0, FAR, 2).write_back(0, 0).write_back(0, FAR).fence(0);
    assert_eq!(persisted.leaves(File, [0, FAR]), any_of());
    assert_eq!(begin().stream(0, 0, &[1]).fence(0).leaves(File, [0]), [[0], [1]].into());
}

#[test]
fn point_with_an_untried_content_that_was_read_is_sampled() {
    // Seven words in any order: 128 contents, of which only some are tried.
    let torn = || begin().copy(0, 0, &[1, 2, 3, 4, 5, 6, 7]).store(0, FAR, 1);
    let (left, explored) = torn().explored(Pmem, [0, 1, 2, 3, 4, 5, 6]);
    assert!(left.len() < 128, "{}", left.len());
    // The copy, and the end. The states of the store to the other line do not differ in the words
    // read.
    assert_eq!((explored.points, explored.sampled), (3, 2));
    let (left, explored) = torn().explored(Pmem, [FAR]);
    assert_eq!((left, explored.sampled), ([[0], [1]].into(), 0), "of the torn line nothing was read");
    let few = begin().copy(0, 0, &[1, 2, 3, 4, 5, 6]).explored(Pmem, [0, 1, 2, 3, 4, 5]);
    assert_eq!((few.0, few.1.sampled), (any_of(), 0));
}

#[test]
fn old_stores_are_assumed_durable_and_counted() {
    // Sixty-four stores, each followed by three marks, which make it old.
    let stores = 64;
    let old = |word| {
        (0..stores).fold(begin(), |program, turn| {
            let aged = program.store(0, word, turn + 1);
            (0..3).fold(aged, |program, _| program.does(0, What::Mark(END + 1)))
        })
    };
    let (left, explored) = old(0).explored(Pmem, [0]);
    assert_eq!((explored.stores, explored.sampled), (stores, 0));
    assert_eq!(explored.settled, stores + 1 - left.len() as u64, "each that is not settled leaves a value");
    assert!(explored.settled > stores / 2, "{}", explored.settled);
    assert_eq!(old(0).explored(Eadr, [0]).1.settled, 0);
}

#[test]
fn recovery_is_crashed_at_each_store_twice_nested() {
    const STORES: u64 = 100;
    let stores = |word| (1..=STORES).fold(begin(), |program, value| program.store(0, word, value)).0;
    let mut look = Look { recoveries: vec![stores(FAR), stores(2 * FAR)], ..Look::at([FAR, 2 * FAR]) };
    let limits = Limits { nested_one_in: [1, STORES / 2, 0], revived_one_in: 0, ..Limits::default() };
    look.explore(begin().store(0, 0, 1), Pmem, limits);
    let met = |place: usize| look.met.iter().map(|words| words[place]).collect::<BTreeSet<u64>>();
    assert_eq!(met(0), (0..=STORES).collect());
    assert_eq!(met(1), (0..=STORES).collect());
}
