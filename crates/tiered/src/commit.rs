//! Writes of several keys at one instant.
//!
//! All stripes are locked, expectations compared, and all records written to new places. Then the
//! index changes, behind a note for readers (`stripes`), and one entry of the log has everything.

use crate::changes::{Old, Stuck};
use crate::space::addresses::Room;
use crate::space::key::Probe;
use crate::space::memory::Here;
use crate::space::stripes::Locked;
use crate::write::{New, Writes};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use terrace_disk::{Content, LOG_PAYLOAD_MAX, Need, cold};
use terrace_engine::Durably;
use terrace_engine::check_sizes;
use terrace_engine::{Commit, Expected, Write, WriteKind, expected_present};
use terrace_engine::{Draft, HEAD_MAX, draft, need_of};
use terrace_engine::{ReadError, Version, WriteError};

/// A write of a batch.
struct Step<'a> {
    probe: Probe,
    new: New<'a>,
    old: Option<Old>,
    room: Room,
    seq: u64,
}

impl Step<'_> {
    /// The index's word of the key before.
    fn from(&self) -> Option<u64> {
        self.old.as_ref().map(|old| old.address)
    }

    /// The index's word of the key behind the batch.
    fn to(&self) -> Option<u64> {
        matches!(self.new.draft.content, Content::Put { .. }).then_some(self.room.address)
    }
}

/// Refuses a batch that no record of the log has room for.
fn check_batch(writes: &[Write<'_>]) -> Result<(), WriteError> {
    let mut bytes = 0;
    for write in writes {
        let len = if let WriteKind::Put { value, .. } = write.what { value.len() } else { 0 };
        check_sizes(write.key, len)?;
        bytes += write.key.len() + len + HEAD_MAX;
    }
    if bytes > LOG_PAYLOAD_MAX { Err(WriteError::BatchTooLong) } else { Ok(()) }
}

/// The last write of each key, in their order.
fn last_of_each(drafts: Vec<Draft<'_>>) -> Vec<Draft<'_>> {
    let last: HashMap<&[u8], usize> =
        drafts.iter().enumerate().map(|(nth, draft)| (draft.key, nth)).collect();
    match last.len() == drafts.len() {
        true => drafts,
        false => drafts
            .iter()
            .enumerate()
            .filter(|(nth, draft)| last[draft.key] == *nth)
            .map(|(_, draft)| *draft)
            .collect(),
    }
}

impl Writes {
    pub(crate) fn commit_all(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
        how: Durably,
    ) -> Result<Commit, WriteError> {
        self.tier().standing.check_writable()?;
        let durability = self.journal().promised(how)?;
        check_batch(writes)?;
        let hashes = || {
            let keys = expected.iter().map(|(key, _)| *key).chain(writes.iter().map(|write| write.key));
            keys.map(|key| self.records().probe(key).hash())
        };
        let is_removal = writes.iter().all(|write| matches!(write.what, WriteKind::Remove));
        let need = if is_removal { Need::Reserve } else { Need::Room };
        let (end, commit) = self.upkeep.with_room(need, || {
            let locked = self.records().stripes.lock_all(hashes());
            let memory = self.records().memory();
            let here = Here::enter(&memory)?;
            self.tier().standing.check_writable()?;
            if let Some(nth) = self.unmet(&here, expected)? {
                return Ok((0, Commit::Changed(nth)));
            }
            let kept = self.values_to_keep(&here, writes, expected)?;
            let mut kept = kept.iter();
            let drafts = writes.iter().filter_map(|write| draft(write, &mut kept));
            let steps = self.stage_all(&here, last_of_each(drafts.collect()))?;
            let end = self.publish(&here, &locked, steps)?;
            Ok((end, Commit::Done))
        })?;
        self.journal().wait_for_log(end, durability)?;
        Ok(commit)
    }

    /// The place of the first expectation that is not met.
    fn unmet(&self, here: &Here<'_>, expected: &[Expected<'_>]) -> Result<Option<usize>, Stuck> {
        for (nth, (key, version)) in expected.iter().enumerate() {
            if !self.locked_version(here, key)?.meets(version) {
                return Ok(Some(nth));
            }
        }
        Ok(None)
    }

    fn locked_version(&self, here: &Here<'_>, key: &[u8]) -> Result<Version, ReadError> {
        let removals = self.records().removals.of(key);
        if key.len() > terrace_engine::KEY_MAX {
            return Ok(self.records().version_of(removals, None));
        }
        let old = self.records().old(here, &self.records().probe(key))?;
        Ok(self.records().version_of(removals, old.map(|old| old.copied)))
    }

    /// The values of the keys whose expiry changes.
    fn values_to_keep(
        &self,
        here: &Here<'_>,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
    ) -> Result<Vec<Option<Vec<u8>>>, ReadError> {
        let present = expected_present(writes, expected);
        let expiring = writes.iter().filter(|write| matches!(write.what, WriteKind::Expire(_)));
        let value = |write: &Write<'_>| {
            let mut old = self.records().old(here, &self.records().probe(write.key))?;
            if let Some(old) = old.as_mut().filter(|_| present.contains(write.key)) {
                old.copied.expires_at = None;
            }
            Ok(self.records().live_of(old.as_ref())?.map(|live| live.value))
        };
        expiring.map(value).collect()
    }

    /// Writes the records of a batch, which nobody sees yet.
    fn stage_all<'a>(&self, here: &Here<'_>, drafts: Vec<Draft<'a>>) -> Result<Vec<Step<'a>>, Stuck> {
        self.check_fits(here, &drafts)?;
        self.journal().check_room(need_of(&drafts))?;
        let mut olds = Vec::with_capacity(drafts.len());
        for draft in &drafts {
            let probe = self.records().probe(draft.key);
            olds.push(self.records().old_to_replace(here, &probe).map(|old| (probe, old)));
        }
        // All were asked, so that a thread that must not wait learns of all cold records.
        let olds = olds.into_iter().collect::<Result<Vec<_>, _>>()?;
        let first = self.journal().next_seq.fetch_add(drafts.len() as u64, Relaxed);
        let mut steps: Vec<Step<'a>> = Vec::with_capacity(drafts.len());
        for ((draft, (probe, old)), seq) in drafts.into_iter().zip(olds).zip(first..) {
            match self.stage_step(here, draft, (probe, old), seq) {
                Ok(step) => steps.push(step),
                Err(stuck) => {
                    steps.iter().for_each(|step| self.unstage(here, step));
                    return Err(stuck);
                }
            }
        }
        Ok(steps)
    }

    /// Refuses a batch whose records have no room in DRAM at once, even if nothing else was there.
    fn check_fits(&self, here: &Here<'_>, drafts: &[Draft<'_>]) -> Result<(), WriteError> {
        let size = |draft: &Draft<'_>| match draft.content {
            Content::Put { value, .. } if value.len() >= self.records().large_from() => 0,
            _ => New::small(*draft).shape(draft.key.len()).size() as u64,
        };
        // Not the pages of now: those that wait for readers are none for a moment.
        let (bytes, most) = (drafts.iter().map(size).sum::<u64>(), here.memory.pages.pool.size());
        if bytes <= most { Ok(()) } else { Err(here.memory.is_full()) }
    }

    fn stage_step<'a>(
        &self,
        here: &Here<'_>,
        draft: Draft<'a>,
        (probe, old): (Probe, Option<Old>),
        seq: u64,
    ) -> Result<Step<'a>, Stuck> {
        let new = self.prepare(draft)?;
        let room = self.stage(here, (seq, new.shape(draft.key.len())), &probe, &new);
        let room = room.inspect_err(|_| self.unprepare(&new))?;
        Ok(Step { probe, new, old, room, seq })
    }

    /// Gives up what a step has prepared: nobody has seen it.
    fn unstage(&self, here: &Here<'_>, step: &Step<'_>) {
        self.records().waste(here, &step.room);
        self.unprepare(&step.new);
    }

    /// Makes the records of a batch the keys' own, at one instant.
    fn publish(&self, here: &Here<'_>, locked: &Locked<'_>, steps: Vec<Step<'_>>) -> Result<u64, Stuck> {
        if steps.is_empty() {
            return Ok(0);
        }
        debug_assert!(steps.windows(2).all(|two| two[0].seq + 1 == two[1].seq), "numbers in a row");
        let before: BTreeMap<Box<[u8]>, Option<u64>> =
            steps.iter().map(|step| (Box::from(&*step.probe), step.from())).collect();
        assert_eq!(before.len(), steps.len(), "a batch has one write of a key");
        let published = locked.publish(before, || self.swap_and_append(here, &steps));
        match published {
            Ok(end) => {
                for step in &steps {
                    step.old.iter().for_each(|old| self.records().bury(here, old));
                    self.count(step.old.as_ref(), &step.new);
                }
                self.records().counters.appended.fetch_add(steps.len() as u64, Relaxed);
                cold::has_written();
                self.watches.report(steps.iter().map(|step| step.probe.key()));
                Ok(end)
            }
            Err(error) => {
                steps.iter().for_each(|step| self.unstage(here, step));
                Err(error.into())
            }
        }
    }

    /// Changes the index's words of a batch, and appends its record to the log: both, or nothing.
    fn swap_and_append(&self, here: &Here<'_>, steps: &[Step<'_>]) -> Result<u64, WriteError> {
        let mut done = 0;
        let swapped = steps.iter().try_for_each(|step| {
            if step.to().is_none() {
                self.records().removals.count(step.probe.key());
            }
            if step.from() != step.to() {
                self.records().swap(here, &step.probe, (step.from(), step.to()))?;
            }
            done += 1;
            Ok::<_, WriteError>(())
        });
        let drafts: Vec<Draft<'_>> = steps.iter().map(|step| step.new.logged()).collect();
        let appended = swapped.and_then(|()| self.journal().append(steps[0].seq, &drafts));
        if appended.is_err() {
            for step in steps[..done].iter().rev() {
                if step.from() != step.to() {
                    // A removed key comes back into its own place, if there is still one.
                    let _ = self.records().swap(here, &step.probe, (step.to(), step.from()));
                }
            }
        } else {
            steps.iter().for_each(|step| step.room.record.unlock(&here.guard, step.seq));
        }
        appended
    }

    /// Removes keys at one instant, and returns how many there were.
    pub(crate) fn remove_keys(&self, keys: &[&[u8]], how: Durably) -> Result<u64, WriteError> {
        self.tier().standing.check_writable()?;
        let durability = self.journal().promised(how)?;
        let mut distinct = keys.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let (end, count) = self.upkeep.with_room(Need::Reserve, || {
            let locked =
                self.records().stripes.lock_all(distinct.iter().map(|key| self.records().probe(key).hash()));
            let memory = self.records().memory();
            let here = Here::enter(&memory)?;
            self.tier().standing.check_writable()?;
            let mut present = Vec::new();
            let olds: Vec<_> = distinct
                .iter()
                .map(|key| self.records().old_to_replace(&here, &self.records().probe(key)))
                .collect();
            for (&key, old) in distinct.iter().zip(olds) {
                let old = old?;
                if old.is_some_and(|old| !self.records().has_expired(old.copied.expires_at)) {
                    present.push(Draft::removal(key));
                }
            }
            let count = present.len() as u64;
            let steps = self.stage_all(&here, present)?;
            Ok((self.publish(&here, &locked, steps)?, count))
        })?;
        self.journal().wait_for_log(end, durability)?;
        Ok(count)
    }
}
