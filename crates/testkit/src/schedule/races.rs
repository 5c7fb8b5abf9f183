//! Who touches bytes that another thread writes, with nothing that orders the two: a data race, which the C11 model gives no meaning.
//!
//! Of two accesses to a word that two threads do, one of them a store and one of them of bytes (a copy, or a read of what lies there), one has to happen before the other. In the order of a run one always does;
//! what counts is whether the later thread has to *see* the earlier access, by what it has acquired. (Vector clocks, as in C. Flanagan, S. Freund: "FastTrack", PLDI 2009.)

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

    /// What has to be ordered against it.
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

/// When each thread has last touched a word in each way, and where that is in the source.
#[derive(Clone, Copy, Default)]
struct Touched([[(u32, Site); THREADS_MAX]; Kind::COUNT]);

/// What was touched in calls.
#[derive(Default)]
pub(super) struct Races {
    /// By word, one more than its number below.
    words: Vec<u32>,
    touched: Vec<Touched>,
}

/// An access that another thread's has to come before.
#[derive(Clone, Copy)]
pub(super) struct Rival {
    thread: usize,
    clock: u32,
    how: &'static str,
    site: Site,
}

impl Rival {
    /// Whether it does, for who has to see this.
    pub(super) fn comes_before(&self, view: &View) -> bool {
        view.of_thread(self.thread) >= self.clock
    }

    /// A story of it.
    pub(super) fn story(&self, thread: usize, site: &'static Location<'static>) -> String {
        let Self { thread: other, how, site: there, .. } = self;
        let there = there.map_or(String::new(), place);
        format!(
            "a race: thread {thread} comes at {} to bytes that thread {other} has {how} at {there}, which nothing orders before",
            place(site)
        )
    }
}

impl Races {
    /// `me` touches a word. Those that had to come before.
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
