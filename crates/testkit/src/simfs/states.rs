//! The states that a power failure may leave: one at random, or all of them.

use super::SimFs;
use super::content::{PAGE, SECTOR};

/// Random numbers from a seed (SplitMix64).
pub(super) fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |end| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % end.max(1)
    }
}

/// The choices of one crash, as (choice, number of choices). They are counted up like the digits of
/// a number, the last one first.
#[derive(Default)]
struct Choices {
    taken: Vec<(u64, u64)>,
    at: usize,
}

impl Choices {
    fn draw(&mut self, end: u64) -> u64 {
        if self.at == self.taken.len() {
            self.taken.push((0, end));
        }
        let (choice, of) = self.taken[self.at];
        assert_eq!(of, end, "equal choices lead to equal ones");
        self.at += 1;
        choice
    }

    /// Goes on to the next choices; `false` after the last ones.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, of)) = self.taken.pop() {
            if choice + 1 < of {
                self.taken.push((choice + 1, of));
                return true;
            }
        }
        false
    }
}

impl SimFs {
    /// A power failure. `seed` chooses which unsynced changes survive. All handles and locks act as
    /// closed from then on.
    pub fn crash(&self, seed: u64) {
        self.disk().crash(&[SECTOR, PAGE], &mut draws(seed));
    }

    /// Independent copies of this file system, each in another state that a power failure now may
    /// leave. If there are at most `limit` states, all of them: each unsynced page, each change of
    /// names and each change of length kept or lost, in every combination. Else `limit` random ones
    /// chosen by `seed`, in which pages may also be torn, and which may repeat.
    pub fn crash_states(&self, limit: usize, seed: u64) -> Vec<Self> {
        self.all_crash_states(limit).unwrap_or_else(|| {
            let mut draw = draws(seed);
            let crashed = |_| self.crashed(&[SECTOR, PAGE], &mut draw);
            (0..limit).map(crashed).collect()
        })
    }

    /// `None` if there are more than `limit`.
    fn all_crash_states(&self, limit: usize) -> Option<Vec<Self>> {
        let (mut states, mut choices) = (Vec::new(), Choices::default());
        while states.len() < limit {
            states.push(self.crashed(&[PAGE], &mut |end| choices.draw(end)));
            if !choices.advance() {
                return Some(states);
            }
        }
        None
    }

    fn crashed(&self, units: &[usize], draw: &mut dyn FnMut(u64) -> u64) -> Self {
        let state = self.fork();
        state.disk().crash(units, draw);
        state
    }
}
