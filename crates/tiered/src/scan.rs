//! Scans over all keys, in the order of the index.

use crate::read::Reads;
use crate::records::relax;
use crate::space::key::Probe;
use crate::space::memory::Here;
use crate::space::record::{Copied, Record, hash_in};
use std::sync::atomic::Ordering::Relaxed;
use terrace_disk::{DiskError, cold};
use terrace_engine::Live;
use terrace_engine::{Cursor, Entry, ReadError};
use terrace_index::Place;

/// A record's probe, and what it has unless it is being written.
type Found = (Box<[u8]>, Option<Copied>);
/// A record, or why it cannot be read.
type Read = Result<Found, ReadError>;

/// Words that are taken from the index at once.
const PIECE: usize = 64;
/// Times that a piece is read whose records move meanwhile, before they are kept from moving.
const TRIES_MAX: u32 = 16;

impl Reads {
    pub(crate) fn scan_from(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        self.tier().standing.check_process()?;
        self.check_may_scan()?;
        let (mut place, mut left) = (cursor.place().clone(), at_least.max(1));
        if matches!(place, Place::After(_)) {
            return Err(ReadError::InvalidCursor);
        }
        let (mut skipped, mut first) = (0, None);
        while !place.is_end() && left > 0 {
            let (next, records) = self.records_from(&place, left.min(PIECE))?;
            left = left.saturating_sub(records.len());
            for record in records {
                match record.and_then(|record| self.entry_of(record)) {
                    Ok(None) => {}
                    Ok(Some((key, live))) => each(&key, live.entry()),
                    Err(error @ (ReadError::Corrupt { .. } | ReadError::Io { .. })) => {
                        skipped += 1;
                        first.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            place = next;
        }
        self.records.counters.skipped.fetch_add(skipped, Relaxed);
        match first {
            None => Ok(place.into()),
            Some(ReadError::Corrupt { place: at, what }) => {
                Err(ReadError::Skipped { records: skipped, place: at, what, next: place.into() })
            }
            Some(error) => Err(error),
        }
    }

    /// A scan reads cold records one by one, so that it is for a thread that may wait.
    fn check_may_scan(&self) -> Result<(), DiskError> {
        match self.records.all_blocks().next() {
            None => Ok(()),
            Some(_) => cold::may_wait().map_err(DiskError::room("read", self.tier().path())),
        }
    }

    /// The records that the index names from a place on, and where they end. A record that moves
    /// after the index was asked is not passed over.
    fn records_from(&self, place: &Place, count: usize) -> Result<(Place, Vec<Read>), ReadError> {
        for _ in 0..TRIES_MAX {
            let (next, records) = self.try_records_from(place, count)?;
            if let Ok(records) = records.into_iter().collect() {
                return Ok((next, records));
            }
        }
        // All moves are made under the lock of a stripe. So what is not there now is lost.
        let _locked = self.records.stripes.lock_each();
        let map = self.records.memory().pages.map;
        let (next, records) = self.try_records_from(place, count)?;
        let found =
            |record: Result<Read, u64>| record.unwrap_or_else(|at| Err(self.tier().missing(map, at).into()));
        Ok((next, records.into_iter().map(found).collect()))
    }

    /// The same, with the address of a record that is not where the index has named it.
    fn try_records_from(
        &self,
        place: &Place,
        count: usize,
    ) -> Result<(Place, Vec<Result<Read, u64>>), ReadError> {
        let memory = self.records.memory();
        let here = Here::enter(&memory)?;
        let mut words = Vec::with_capacity(count);
        let next = here.index().scan(&here.guard, place, count, &mut |word| words.push(word));
        let record = |word| self.record_at(&here, word).transpose().ok_or(word);
        Ok((next, words.into_iter().map(record).collect()))
    }

    /// The key and the entry of a record that the index named a moment ago.
    fn entry_of(&self, (probe, copied): Found) -> Result<Option<(Vec<u8>, Live)>, ReadError> {
        // As it is: the key may have another version by now, but had this one.
        let live = copied.map_or(Ok(None), |copied| self.records.live(copied))?.flatten();
        let live = match live {
            Some(live) => Some(live),
            None => self.find_live(&probe)?,
        };
        Ok(live.map(|live| (probe[8..].to_vec(), live)))
    }

    /// The probe of the record at an address, and what it has unless it is being written. `None` if
    /// there is none any more.
    fn record_at(&self, here: &Here<'_>, address: u64) -> Result<Option<Found>, ReadError> {
        if let Some(record) = here.record(address) {
            let probe = record.probe(&here.guard).expect("a record in DRAM");
            let copied = record.read(&here.guard);
            // A batch may not be done yet.
            let is_open = self.records.stripes.of(hash_in(probe)).before(probe).is_some();
            return Ok(Some((probe.into(), copied.filter(|_| !is_open))));
        }
        let Some(bytes) = self.records.read_cold(here.map(), address)? else { return Ok(None) };
        let record = Record::read(&bytes).expect("read just now");
        Ok(Some((record.probe.into(), Some(Copied::of(&record)))))
    }

    pub(crate) fn draw_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.check_may_scan()?;
        for _ in 0..64 {
            let draw = self.draw();
            let start = {
                let memory = self.records.memory();
                let here = Here::enter(&memory)?;
                here.index().random_place(&here.guard, draw)
            };
            for start in [start, Place::Start] {
                let (_, mut records) = self.records_from(&start, 8)?;
                if records.is_empty() {
                    continue;
                }
                let record = records.swap_remove((draw % records.len() as u64) as usize)?;
                if let Some((key, _)) = self.entry_of(record)? {
                    return Ok(Some(key));
                }
            }
        }
        Ok(None)
    }

    /// Entries of several keys at one instant.
    pub(crate) fn get_at_once(&self, keys: &[&[u8]], each: &mut terrace_engine::EntryCallback<'_>) {
        let probes: Vec<Probe> = keys.iter().map(|key| self.records.probe(key)).collect();
        let read = || -> Vec<Result<Option<Live>, ReadError>> {
            let find = |probe: &Probe| match probe.key().len() {
                0..=terrace_engine::KEY_MAX => self.find_live(probe),
                _ => Ok(None),
            };
            probes.iter().map(find).collect()
        };
        let changes = || -> Option<Vec<u64>> {
            probes.iter().map(|probe| self.records.stripes.of(probe.hash()).changes()).collect()
        };
        let mut found = None;
        for looks in 0..100 {
            let before = changes();
            if before.is_some() {
                let entries = read();
                if before == changes() {
                    found = Some(entries);
                    break;
                }
            }
            relax(looks);
        }
        // Writers that never rest: they wait for this once.
        let found = found.unwrap_or_else(|| {
            let _locked = self.records.stripes.lock_all(probes.iter().map(Probe::hash));
            read()
        });
        for (nth, entry) in found.into_iter().enumerate() {
            each(nth, entry.as_ref().map(|live| live.as_ref().map(Live::entry)).map_err(Clone::clone));
        }
    }
}
