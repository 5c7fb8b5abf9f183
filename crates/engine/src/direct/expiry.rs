//! Removing what has expired.
//!
//! Readers never see an expired entry, so removing it only gives its memory back. A sweep looks at the records of a piece of the index, in the order
//! of the scan, and removes those that are due. How many it looks at follows what it finds: all that it may where a tenth is due, down to
//! a sixteenth of that where next to nothing is, and a handful where no entry has an expiry at all.

use super::scan::REMOVALS;
use super::store::{Direct, Kind};
use super::view::Record;
use crate::planted::{self, Bug};
use std::sync::atomic::Ordering::Relaxed;
use terrace_index::PointIndex;
use terrace_pool::Guard;

/// Records looked at where nothing is known to expire. Not none: the count may be off after a crash.
const IDLE: usize = 16;
/// The pace is halved this often at most.
const SLOWEST: u64 = 4;

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    pub(super) fn sweep(&self, budget: usize) -> u64 {
        if self.is_running().is_err() || budget == 0 {
            return 0;
        }
        let (medium, slowness) = (self.pool().medium(), self.root.sweep_slowness());
        let pace = slowness.load(medium, Relaxed).min(SLOWEST);
        let looks = match self.root.tally(&self.pool().pin()).expiring {
            0 => budget.min(IDLE),
            _ => (budget >> pace).max(1),
        };
        let (mut seen, mut removed) = (0, 0);
        while seen < looks {
            let (more, gone, at_end) = self.sweep_piece(looks - seen);
            (seen, removed) = (seen + more, removed + gone);
            if at_end {
                break;
            }
        }
        slowness.store(medium, next_pace(pace, seen, removed), Relaxed);
        removed as u64
    }

    /// Looks at the next records, as many as are removed under one pin. Returns how many it looked at and removed, and whether this was the end of
    /// the index.
    fn sweep_piece(&self, at_most: usize) -> (usize, usize, bool) {
        let guard = self.pool().pin();
        let (medium, position) = (guard.pool().medium(), self.root.sweep_position());
        let (mut due, mut seen) = (Vec::new(), 0);
        let next = self.index.scan(&guard, position.load(medium, Relaxed), at_most.min(REMOVALS), |word| {
            seen += 1;
            if self.is_due(&guard, word) {
                due.push(word);
            }
        });
        position.store(medium, next, Relaxed);
        let mut removed = 0;
        for word in due {
            removed += usize::from(self.remove_due(&guard, word));
            if guard.is_short_of_notes() {
                // The rest the next time round.
                break;
            }
        }
        if removed > 0 {
            self.root.count_expired(&guard, removed as u64);
        }
        (seen, removed, next == 0)
    }

    fn is_due(&self, guard: &Guard<'_, I::Medium>, word: u64) -> bool {
        // What a batch is at is left for the next time round.
        let has_expired = |record: &Record<'_>| match planted::has(Bug::SweptUntimely) {
            true => record.body.expires_at.is_some(),
            false => self.has_expired(record),
        };
        Record::at(guard, word).is_ok_and(|record| has_expired(&record)) && !self.is_claimed(guard, word)
    }

    /// A damaged record's expiry is not believed.
    fn remove_due(&self, guard: &Guard<'_, I::Medium>, word: u64) -> bool {
        match Record::at(guard, word) {
            Ok(record) if record.verify().is_ok() => {
                matches!(self.unlink(guard, record.body.key, word), Ok(true))
            }
            _ => false,
        }
    }
}

/// Faster where a tenth was due, slower where less than a hundredth was.
fn next_pace(pace: u64, seen: usize, due: usize) -> u64 {
    match due {
        due if due * 10 >= seen => pace.saturating_sub(2),
        due if due * 100 < seen => (pace + 1).min(SLOWEST),
        _ => pace,
    }
}

#[cfg(test)]
mod tests {
    use super::next_pace;

    #[test]
    fn the_pace_follows_what_is_due() {
        assert_eq!(next_pace(4, 1000, 100), 2);
        assert_eq!(next_pace(0, 1000, 1000), 0);
        assert_eq!(next_pace(2, 1000, 50), 2);
        assert_eq!(next_pace(2, 1000, 1), 3);
        assert_eq!(next_pace(4, 1000, 0), 4);
    }
}
