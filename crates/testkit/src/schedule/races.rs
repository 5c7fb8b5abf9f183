//! Data races: accesses to the same bytes by two threads, one of them a write, without an ordering.
//! The C11 model gives them no meaning.
//!
//! This concerns two accesses to a word by two threads, one of them a store and one of them an
//! access to bytes (a copy, or a read of the content). One of them must happen before the other. In
//! the order of a run one always does; the question is whether the later thread is guaranteed to
//! *see* the earlier access by what it acquired. (Vector clocks, as in C. Flanagan, S. Freund:
//! "FastTrack", PLDI 2009.)

use super::seen::View;
use super::stage::THREADS_MAX;
use crate::crash::place;
use std::panic::Location;
use terrace_medium::Access;

type Site = Option<&'static Location<'static>>;

/// Kinds of accesses to a word.
#[derive(Clone, Copy)]
enum Kind {
    CopiedTo,
    Read,
    Stored,
    Loaded,
}

impl Kind {
    const COUNT: usize = 4;

    fn of(access: Access) -> Self {
        match access {
            Access::Copy(_) | Access::StreamedCopy(_) => Self::CopiedTo,
            Access::Read(_) => Self::Read,
            Access::Store | Access::Rmw => Self::Stored,
            Access::Load | Access::RmwFailed => Self::Loaded,
        }
    }

    /// The kinds of accesses that must be ordered with it.
    fn against(self) -> &'static [(Self, &'static str)] {
        const COPIED: (Kind, &str) = (Kind::CopiedTo, "written");
        const READ: (Kind, &str) = (Kind::Read, "read");
        const STORED: (Kind, &str) = (Kind::Stored, "stored to");
        const LOADED: (Kind, &str) = (Kind::Loaded, "loaded");
        match self {
            Self::CopiedTo => &[COPIED, READ, STORED, LOADED],
            Self::Read => &[COPIED, STORED],
            Self::Stored => &[COPIED, READ],
            Self::Loaded => &[COPIED],
        }
    }
}

/// The last access of each thread to a word, by kind, and its place in the source.
#[derive(Clone, Copy, Default)]
struct Touched([[(u32, Site); THREADS_MAX]; Kind::COUNT]);

/// The accesses in calls.
#[derive(Default)]
pub(super) struct Races {
    /// By word: its index in `touched` plus one.
    words: Vec<u32>,
    touched: Vec<Touched>,
}

/// An access of another thread that must be ordered before the current one.
#[derive(Clone, Copy)]
pub(super) struct Rival {
    thread: usize,
    clock: u32,
    how: &'static str,
    site: Site,
}

impl Rival {
    /// Whether it is, for a thread with this view.
    pub(super) fn comes_before(&self, view: &View) -> bool {
        view.of_thread(self.thread) >= self.clock
    }

    /// Describes the race.
    pub(super) fn describe(&self, thread: usize, site: &'static Location<'static>) -> String {
        let Self { thread: other, how, site: there, .. } = self;
        let there = there.map_or(String::new(), place);
        format!(
            "a race: thread {thread} accesses at {} bytes that thread {other} has {how} at {there}, and nothing orders the two",
            place(site)
        )
    }
}

impl Races {
    /// Records an access of `me` to a word, and returns those that must be ordered before it.
    pub(super) fn touch(
        &mut self,
        me: usize,
        clock: u32,
        access: Access,
        word: u64,
        site: &'static Location<'static>,
        rivals: &mut Vec<Rival>,
    ) {
        let (kind, word) = (Kind::of(access), word as usize);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if self.words[word] == 0 {
            self.touched.push(Touched::default());
            self.words[word] = self.touched.len() as u32;
        }
        let touched = &mut self.touched[self.words[word] as usize - 1].0;
        for &(against, how) in kind.against() {
            let all = touched[against as usize].iter().enumerate();
            let others = all.filter(|&(thread, &(clock, _))| thread != me && clock != 0);
            rivals.extend(others.map(|(thread, &(clock, site))| Rival { thread, clock, how, site }));
        }
        touched[kind as usize][me] = (clock, Some(site));
    }
}
