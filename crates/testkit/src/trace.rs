//! The trace of a recording medium.

use std::ops::Range;
use std::panic::Location;

/// A change of a medium, or a step towards its durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The thread: 0 for the first thread with an event, then 1, and so on.
    pub thread: u32,
    /// The kind of event.
    pub what: What,
    /// The place in the source. For write-backs and fences, the place that asked for durability.
    pub site: &'static Location<'static>,
    /// The product's name for the access, or for the place that asked for durability.
    pub point: Option<&'static str>,
    /// Whether an injected fault removed or added it.
    pub role: Role,
}

impl Event {
    /// Whether it stores to a lock. The product names those accesses `lock.*`.
    pub(crate) fn is_lock_store(&self) -> bool {
        self.point.is_some_and(|point| point.starts_with("lock."))
    }
}

/// The effect of an injected fault on an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// None.
    #[default]
    Done,
    /// The sound program does it here, the faulty one does not.
    LeftOut,
    /// The faulty program does it here, the sound one does not.
    Belated,
}

/// The kinds of events. `at` is in bytes from the medium's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An atomic 8-byte store.
    Store {
        /// The word.
        at: u64,
        /// The old value.
        old: u64,
        /// The new value.
        new: u64,
    },
    /// A read-modify-write that stored. It also orders earlier write-backs of its thread.
    Rmw {
        /// The word.
        at: u64,
        /// The old value.
        old: u64,
        /// The new value.
        new: u64,
    },
    /// A compare-and-swap that stored nothing. It also orders earlier write-backs of its thread.
    RmwFailed {
        /// The word.
        at: u64,
    },
    /// Bytes written through the cache: 8-byte pieces, in no order.
    Copy(Piece),
    /// Bytes written past the cache: 8-byte pieces, in no order, durable at this thread's next
    /// fence.
    StreamedCopy(Piece),
    /// The line that starts here is being written back; durable at this thread's next fence.
    WriteBack {
        /// The line.
        line: u64,
    },
    /// A wait for this thread's write-backs and streamed copies.
    Fence,
    /// Not an access: a mark of the test, such as "operation 7 has returned".
    Mark(u64),
}

/// Bytes that were copied in. The trace holds the words that contain them, as they were after the
/// copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first byte.
    pub at: u64,
    /// Number of bytes.
    pub len: u64,
    /// The index of the first word in the trace's copied words.
    first: usize,
}

impl Piece {
    /// The number of the first word, counted from the medium's base.
    fn first_word(self) -> u64 {
        self.at / 8
    }
    /// The number of words that contain the bytes.
    fn words(self) -> usize {
        if self.len == 0 { 0 } else { ((self.at + self.len).div_ceil(8) - self.first_word()) as usize }
    }
}

/// Events in the order in which they happened, with the copied bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    events: Vec<Event>,
    copied: Vec<u64>,
}

/// The content of the caches after some events of a trace; each event is replayed once.
pub(crate) struct Replay {
    image: Vec<u64>,
    done: usize,
}

impl Replay {
    /// The content before the first event: `base`, then zeros, up to this number of words.
    pub(crate) fn from(base: &[u64], words: usize) -> Self {
        let mut image = vec![0; words];
        image[..base.len()].copy_from_slice(base);
        Self { image, done: 0 }
    }

    /// The content after the first `events` events of `trace`: always the same trace, and never
    /// fewer events than before.
    pub(crate) fn go_on(&mut self, trace: &Trace, events: usize) -> &[u64] {
        trace.replay_some(&mut self.image, self.done..events);
        self.done = events;
        &self.image
    }
}

impl Trace {
    /// The events in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Revokes the last store to the word at `at`, in bytes: the word kept `value`.
    pub(crate) fn unmake(&mut self, at: u64, value: u64) {
        let stores = |event: &Event| self.stored(event).any(|(word, _)| word == at / 8);
        let Some(last) = self.events.iter().rposition(stores) else { return };
        match &mut self.events[last].what {
            What::Store { new, .. } | What::Rmw { new, .. } => *new = value,
            What::Copy(piece) | What::StreamedCopy(piece) => {
                self.copied[piece.first + (at / 8 - piece.first_word()) as usize] = value;
            }
            What::RmwFailed { .. } | What::WriteBack { .. } | What::Fence | What::Mark(_) => {}
        }
    }

    /// The first `events` events, or all if there are fewer.
    #[must_use]
    pub fn begin(&self, events: usize) -> Self {
        let events = self.events.iter().take(events).copied().collect();
        Self { events, copied: self.copied.clone() }
    }

    /// Whether it has no injected fault.
    pub(crate) fn is_sound(&self) -> bool {
        self.events.iter().all(|event| event.role == Role::Done)
    }

    /// The words of a copy: their numbers (from the medium's base) and the values copied there.
    pub fn words(&self, piece: Piece) -> impl Iterator<Item = (u64, u64)> + '_ {
        let words = &self.copied[piece.first..piece.first + piece.words()];
        (piece.first_word()..).zip(words.iter().copied())
    }

    /// Every word that `event` stores, with its number.
    pub fn stored(&self, event: &Event) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (word, piece) = match event.what {
            What::Store { at, new, .. } | What::Rmw { at, new, .. } => (Some((at / 8, new)), None),
            What::Copy(piece) | What::StreamedCopy(piece) => (None, Some(piece)),
            What::RmwFailed { .. } | What::WriteBack { .. } | What::Fence | What::Mark(_) => (None, None),
        };
        word.into_iter().chain(piece.into_iter().flat_map(|piece| self.words(piece)))
    }

    /// The durable content of the first `words` words of an initially zeroed medium after all
    /// events: written back or streamed, and then fenced by the same thread.
    pub fn durable(&self, words: usize) -> Vec<u64> {
        let (mut seen, mut durable) = (vec![0; words], vec![0; words]);
        let mut pending = Vec::new();
        for event in &self.events {
            self.stored(event).for_each(|(word, value)| seen[word as usize] = value);
            match event.what {
                What::WriteBack { line } => {
                    let words = line / 8..line / 8 + 8;
                    pending.extend(words.map(|word| (event.thread, word, seen[word as usize])));
                }
                What::StreamedCopy(_) => {
                    pending.extend(self.stored(event).map(|(word, value)| (event.thread, word, value)));
                }
                What::Fence => {
                    let its = pending.extract_if(.., |(thread, ..)| *thread == event.thread);
                    its.for_each(|(_, word, value)| durable[word as usize] = value);
                }
                _ => {}
            }
        }
        durable
    }

    /// Applies the first `events` events to `image`, the medium's initial words.
    ///
    /// The result is what another process sees then, and what a killed process leaves.
    ///
    /// # Panics
    /// If there are fewer events, or the image is too small for their stores.
    pub fn replay(&self, image: &mut [u64], events: usize) {
        self.replay_some(image, 0..events);
    }

    fn replay_some(&self, image: &mut [u64], events: Range<usize>) {
        for event in &self.events[events] {
            for (word, value) in self.stored(event) {
                image[word as usize] = value;
            }
        }
    }

    /// The first `events` events, then those of `next`, with other thread numbers.
    pub(crate) fn followed_by(&self, events: usize, next: &Self) -> Self {
        let mut whole = Self { events: self.events[..events].to_vec(), copied: self.copied.clone() };
        let threads = 1 + whole.events.iter().map(|event| event.thread).max().unwrap_or(0);
        let shift = whole.copied.len();
        let moved = |piece: Piece| Piece { first: piece.first + shift, ..piece };
        whole.events.extend(next.events.iter().map(|event| {
            let what = match event.what {
                What::Copy(piece) => What::Copy(moved(piece)),
                What::StreamedCopy(piece) => What::StreamedCopy(moved(piece)),
                what => what,
            };
            Event { thread: event.thread + threads, what, ..*event }
        }));
        whole.copied.extend_from_slice(&next.copied);
        whole
    }

    /// The copied bytes without any events, for a variant of this trace.
    pub(crate) fn without_events(&self) -> Self {
        Self { events: Vec::with_capacity(self.events.len()), copied: self.copied.clone() }
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Stores the words that contain `len` bytes at `at`.
    pub(crate) fn keep(&mut self, at: u64, len: u64, words: impl Iterator<Item = u64>) -> Piece {
        let piece = Piece { at, len, first: self.copied.len() };
        self.copied.extend(words.take(piece.words()));
        debug_assert_eq!(self.copied.len(), piece.first + piece.words());
        piece
    }
}

/// A place in the source as the end of its path and the line: `sync/lock.rs:177`.
pub fn place(site: &Location<'_>) -> String {
    let parts: Vec<&str> = site.file().rsplit('/').take(3).collect();
    let file: Vec<&str> = parts.into_iter().rev().filter(|&part| part != "src").collect();
    format!("{}:{}", file.join("/"), site.line())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revoked_store_leaves_nothing() {
        let (mut trace, site) = (Trace::default(), Location::caller());
        let piece = trace.keep(128, 16, [1, 2].into_iter());
        for what in [
            What::Store { at: 64, old: 0, new: 5 },
            What::Store { at: 64, old: 5, new: 6 },
            What::Copy(piece),
            What::WriteBack { line: 64 },
        ] {
            trace.push(Event { thread: 0, what, site, point: None, role: Role::Done });
        }
        trace.unmake(64, 5);
        trace.unmake(136, 9);
        let mut image = vec![0; 32];
        trace.replay(&mut image, 4);
        assert_eq!((image[8], image[16], image[17]), (5, 1, 9));
    }
}
