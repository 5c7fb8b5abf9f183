//! Removing what has expired.
//!
//! Readers never see an expired entry, so removing it only gives its memory back. A sweep looks at the records of a piece of the index, in the order
//! of the scan, and removes those that are due. How many it looks at follows what it finds: all that it may where a tenth is due, down to
//! a sixteenth of that where next to nothing is, and a handful where no entry has an expiry at all.

use super::record::Role;
use super::scan::REMOVALS;
use super::store::Direct;
use super::view::Record;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Records looked at where nothing is known to expire. Not none: the count may be off after a crash.
const IDLE: usize = 16;
/// The pace is halved this often at most.
const SLOWEST: u64 = 4;

impl<M: MappedMedium> Direct<M> {
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
        let (mut left, mut seen, mut removed) = (looks, 0, 0);
        loop {
            let (more, gone, at_end) = self.sweep_piece(left);
            (left, seen, removed) = (left.saturating_sub(more), seen + more, removed + gone);
            if left == 0 || at_end {
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
        let next =
            self.index.scan(&guard, position.load(medium, Relaxed), at_most.min(REMOVALS), &mut |word| {
                seen += 1;
                if self.is_due(&guard, word) {
                    due.push(word);
                }
            });
        position.store(medium, next, Relaxed);
        let mut removed = 0;
        for word in due {
            removed += usize::from(self.remove_due(&guard, word));
            if guard.is_limbo_full() {
                // The rest the next time round.
                break;
            }
        }
        if removed > 0 {
            self.root.count_expired(&guard, removed as u64);
        }
        (seen, removed, next == 0)
    }

    /// Goes on with a pass over all records, if one may find something, until it has removed
    /// records of `bytes` bytes. Returns whether it has removed any.
    pub(super) fn sweep_for(&self, bytes: u64, pass: &mut Pass) -> bool {
        let (written, records, expiring) = {
            let guard = self.pool().pin();
            (self.root.written(&guard), self.index.len(), self.root.tally(&guard).expiring)
        };
        if pass.position == 0 {
            if expiring == 0 || !pass.is_due(self.settings.clock.now_ms(), written, records) {
                return false;
            }
            *pass = Pass { position: 0, next: u64::MAX, written };
        }
        let mut removed = 0;
        while removed < bytes {
            removed += self.sweep_some(pass);
            if pass.position == 0 {
                break;
            }
        }
        removed > 0
    }

    /// Goes on with a pass, as far as goes under one pin. Returns the bytes of what it has removed.
    fn sweep_some(&self, pass: &mut Pass) -> u64 {
        let guard = self.pool().pin();
        let (now, mut due, mut earliest) = (self.settings.clock.now_ms(), Vec::new(), u64::MAX);
        let next = self.index.scan(&guard, pass.position, REMOVALS, &mut |word| {
            let expires_at = Record::at(&guard, word).ok().and_then(|record| record.body.expires_at);
            match expires_at {
                Some(at) if at <= now => due.push(word),
                at => earliest = earliest.min(at.unwrap_or(u64::MAX)),
            }
        });
        let (mut removed, mut bytes) = (0, 0);
        for word in due {
            let size = Record::at(&guard, word).map_or(0, |it| it.shape.size() + it.shape.value_len) as u64;
            if !self.is_claimed(&guard, word) && self.remove_due(&guard, word) {
                (removed, bytes) = (removed + 1, bytes + size);
            }
            if guard.is_limbo_full() {
                // The rest is found again from the same position on.
                self.root.count_expired(&guard, removed);
                return bytes;
            }
        }
        self.root.count_expired(&guard, removed);
        (pass.position, pass.next) = (next, pass.next.min(earliest));
        bytes
    }

    fn is_due(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        // What a batch is at is left for the next time round.
        Record::at(guard, word)
            .is_ok_and(|record| record.shape.role == Role::Stray || self.has_expired(&record))
            && !self.is_claimed(guard, word)
    }

    /// A damaged record's expiry is not believed.
    fn remove_due(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        match Record::at(guard, word) {
            Ok(record) if record.verify().is_ok() => {
                matches!(self.unlink(guard, record.body.key, word), Ok(true))
            }
            _ => false,
        }
    }
}

/// A look at all records for those that have expired.
#[derive(Default)]
pub(super) struct Pass {
    /// Where it goes on; 0 if it is over.
    position: u64,
    /// The first time at which one of those expires that it has seen.
    next: u64,
    /// Records that had been written when it began.
    written: u64,
}

impl Pass {
    /// Whether another look may find something: one of those that were seen has expired by now, or
    /// many have been written since.
    fn is_due(&self, now: u64, written: u64, records: u64) -> bool {
        now >= self.next || written.wrapping_sub(self.written) > records / 16
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
    use super::*;
    use crate::direct::Settings;
    use crate::direct::counters::Tally;
    use crate::direct::small::{self, Asked, Store, asked, settings, store};
    use crate::{Engine, Pooled};
    use std::sync::Arc;
    use terrace_pool::Pool;

    #[test]
    fn the_pace_follows_what_is_due() {
        for (pace, due, next) in
            [(4, 100, 2), (0, 1000, 0), (1, 100, 0), (2, 99, 2), (2, 10, 2), (2, 9, 3), (4, 0, 4)]
        {
            assert_eq!(next_pace(pace, 1000, due), next, "{due} of 1000 at {pace}");
        }
    }

    /// More entries than one chain of the index has, which is looked at to its end.
    const CHAIN: u64 = 16;

    /// A store of a thousand entries that expire, but not yet.
    fn thousand() -> (Store, Arc<Asked>) {
        let clock = Arc::new(Asked::default());
        let settings = Settings { clock: clock.clone(), ..settings() };
        let store = small::open(Pool::anonymous(4 << 20).unwrap(), settings).unwrap();
        (0..1000u32).for_each(|n| store.give(&n.to_le_bytes(), b"value", Some(5000)));
        (store, clock)
    }

    #[test]
    fn where_nothing_is_due_a_sweep_looks_at_less_each_time() {
        let (store, clock) = thousand();
        for budget in [160, 80, 40, 20, 10, 10] {
            let looks = asked(&clock, || assert_eq!(store.sweep_expired(160), 0));
            assert!((budget..budget + CHAIN).contains(&looks), "{looks} looks for {budget}");
        }
        assert!((1..1 + CHAIN).contains(&asked(&clock, || assert_eq!(store.sweep_expired(1), 0))));
        assert_eq!(asked(&clock, || assert_eq!(store.sweep_expired(0), 0)), 0);
    }

    #[test]
    fn a_sweep_looks_at_no_more_than_it_may_but_to_the_end_of_a_chain() {
        let clock = Arc::new(Asked::default());
        // Many chains, and few entries in each.
        let settings = Settings { clock: clock.clone(), expected_keys: 100_000, ..settings() };
        let pool = terrace_pool::PoolOptions::anonymous().size(16 << 20).hash_seed(5).create().unwrap();
        let store = small::open(pool, settings).unwrap();
        (0..1000u32).for_each(|n| store.give(&n.to_le_bytes(), b"value", Some(5000)));
        for budget in [1, 7, 8, 9, 10, 17] {
            store.root.sweep_slowness().store(store.pool().medium(), 0, Relaxed);
            let looks = asked(&clock, || assert_eq!(store.sweep_expired(budget), 0));
            assert!((budget as u64..budget as u64 + 3).contains(&looks), "{looks} looks for {budget}");
        }
    }

    #[test]
    fn a_sweep_ends_with_the_store_and_where_that_is_not_written() {
        let (store, clock) = thousand();
        store.root.sweep_slowness().store(store.pool().medium(), 0, Relaxed);
        assert_eq!(asked(&clock, || assert_eq!(store.sweep_expired(1 << 20), 0)), 1000);
        store.stop("it was told to".into());
        assert_eq!(asked(&clock, || assert_eq!(store.sweep_expired(1000), 0)), 0);
    }

    #[test]
    fn where_nothing_is_said_to_expire_a_handful_is_looked_at_all_the_same() {
        let (store, clock) = thousand();
        let guard = store.pool().pin();
        // As after a loss of power.
        let counts = store.root.start_recount(&guard);
        store.root.finish_recount(&guard, counts, Tally::default());
        let looks = asked(&clock, || assert_eq!(store.sweep_expired(1000), 0));
        assert!((16..16 + CHAIN).contains(&looks), "{looks}");
        assert!((3..3 + CHAIN).contains(&asked(&clock, || assert_eq!(store.sweep_expired(3), 0))));
    }

    #[test]
    fn what_is_due_goes_and_nothing_else_and_all_is_come_by() {
        let (store, clock) = store();
        (0..1000u32).for_each(|n| {
            store.give(&n.to_le_bytes(), b"value", [None, Some(2000), Some(5000)][n as usize % 3])
        });
        clock.advance(1000);
        let mut gone = 0;
        (0..100).for_each(|_| gone += store.sweep_expired(100));
        assert_eq!((gone, store.len().get(), store.stats().expired), (333, 667, 333));
        assert!((0..1000u32).all(|n| store.get(&n.to_le_bytes()).unwrap().is_some() == (n % 3 != 1)));
    }

    #[test]
    fn what_a_damaged_record_says_of_its_time_is_not_believed() {
        let (store, clock) = store();
        [&b"whole"[..], b"damaged"].iter().for_each(|key| store.give(key, b"value", Some(2000)));
        // Its expiry, which comes first.
        store.damage(store.place(b"damaged") + 16);
        clock.advance(1 << 40);
        (0..10).for_each(|_| _ = store.sweep_expired(100));
        assert_eq!((store.len().get(), store.stats().expired), (1, 1));
        assert!(store.get(b"damaged").is_err());
    }
}
