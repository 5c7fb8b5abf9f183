//! Reading everything and comparing it with what it should be.

use super::descriptor::pending;
use super::record::Role;
use super::store::Direct;
use super::view::Record;
use crate::engine::Salvage;
use crate::{ReadError, Report};
use std::ops::Range;
use terrace_medium::MappedMedium;
use terrace_pool::{Backoff, Finding, Guard, Remedy};

/// Findings after which a check says no more: the rest would tell nothing new.
const FINDINGS_MAX: usize = 1000;
/// What is said of a [`Role::Stray`] record.
const STRAY: &str = "left by an earlier release under a key that is too long; it holds nothing, and goes once the store is in use";
/// Records between two words about the progress.
const STEP: u64 = 1 << 14;

impl<M: MappedMedium> Direct<M> {
    pub(super) fn check_all(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        if !self.pool().other_participants().is_empty() {
            return self.check_beside(progress);
        }
        let guard = self.pool().pin();
        let mut findings = self.pool().verify_head();
        findings.extend(self.pool().verify_memory());
        findings.extend(self.index.verify(&guard));
        let (total, mut records) = (self.index.len(), 0);
        let mut touched = Touched::new(&findings);
        self.index.for_each(&guard, &mut |word| {
            if let Ok(record) = Record::at(&guard, word) {
                touched.note(&record);
            }
            if let Err(ReadError::Corrupt { place, what }) = self.check_record(&guard, word)
                && findings.len() < FINDINGS_MAX
            {
                findings.push(finding(&guard, word, place.offset(), what));
            }
            records += 1;
            if records % STEP == 0 {
                progress(records, total.max(records));
            }
        });
        touched.tell(&mut findings);
        progress(records, records);
        let buckets = self.index.stats(&guard).buckets;
        let (roots, findings) =
            (self.pool().roots().len() as u64, findings.into_iter().map(Into::into).collect());
        Report { records, buckets, roots, findings, beside_others: false }
    }
}

impl<M: MappedMedium> Direct<M> {
    /// What can be checked while other processes write: every record. That the index and the allocator agree with themselves and each other can be seen only when nothing changes.
    pub(super) fn check_beside(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        let (total, mut records, mut position) = (self.index.len(), 0, 0);
        let mut findings = Vec::new();
        loop {
            // A new guard for each piece, so that memory that is given back meanwhile does not wait for all of it.
            let guard = self.pool().pin();
            position = self.index.scan(&guard, position, STEP as usize, &mut |word| {
                records += 1;
                if let Some(found) =
                    self.stays_unsound(&guard, word).filter(|_| findings.len() < FINDINGS_MAX)
                {
                    findings.push(found);
                }
            });
            progress(records, total.max(records));
            if position == 0 {
                let (buckets, roots) = (self.index.stats(&guard).buckets, self.pool().roots().len() as u64);
                let findings = findings.into_iter().map(Into::into).collect();
                return Report { records, buckets, roots, findings, beside_others: true };
            }
        }
    }

    /// What is wrong with a record, unless it is only on its way: one that a batch has published is settled a moment after that has ended.
    fn stays_unsound(&self, guard: &Guard<'_, M>, word: u64) -> Option<Finding> {
        const LOOKS: u32 = 1000;
        let (mut looks, mut backoff) = (0, Backoff::new());
        while let Err(ReadError::Corrupt { place, what }) = self.check_record(guard, word) {
            looks += 1;
            match self.check_bytes(guard, word) {
                Ok(record) if self.index.get(guard, record.body.key) != Some(word) => return None,
                Ok(_) if looks < LOOKS => _ = backoff.rest(),
                // They never change: nothing comes of waiting, and nothing that they say is believed.
                _ => return Some(finding(guard, word, place.offset(), what)),
            }
        }
        None
    }

    fn check_record(&self, guard: &Guard<'_, M>, word: u64) -> Result<(), ReadError> {
        let record = self.check_bytes(guard, word)?;
        if record.shape.role == Role::Stray {
            return Err(super::view::corrupt(word, STRAY));
        }
        match pending(guard, &record)? {
            Some(pending) if pending.descriptor != self.root.active() => {
                Err(super::view::corrupt(word, "a record of a batch that has ended was not settled"))
            }
            _ => Ok(()),
        }
    }

    /// The record at `word`, if what has a checksum of it matches that.
    fn check_bytes<'g>(&self, guard: &'g Guard<'_, M>, word: u64) -> Result<Record<'g>, ReadError> {
        let record = Record::at(guard, word)?;
        record.verify()?;
        record.value(guard, true)?;
        Ok(record)
    }
}

impl<M: MappedMedium> Direct<M> {
    pub(super) fn salvage_all(&self, each: &mut Salvage<'_>) {
        let guard = self.pool().pin();
        self.index.for_each(&guard, &mut |word| {
            // Also where reads are not verified.
            let proved = self.check_record(&guard, word).and_then(|()| self.live(&guard, word));
            let entry = proved
                .and_then(|live| live.map(|record| Ok((record, self.entry(&guard, &record)?))).transpose());
            match entry {
                Ok(None) => {}
                Ok(Some((record, entry))) => each(Ok((record.body.key, entry))),
                Err(ReadError::Corrupt { place, what }) => {
                    each(Err(finding(&guard, word, place.offset(), what).into()));
                }
                Err(_) => {}
            }
        });
        if let Some(damage) = self.index.damage() {
            let found = "damage; keys that hang on it could not be reached";
            each(Err(Finding::new(damage.offset, damage.what, "a sound index", found).into()));
        }
    }
}

fn finding<M: terrace_medium::MappedMedium>(
    guard: &Guard<'_, M>,
    word: u64,
    offset: u64,
    what: &'static str,
) -> Finding {
    let record = Record::at(guard, word).ok();
    let found = match record {
        Some(_) => what.to_string(),
        None => format!("{what}; its key cannot be told"),
    };
    let mut finding = Finding::new(offset, "a record", "one that matches its checksum", found);
    finding.touches = record.map(|record| shown(record.body.key));
    finding.remedy = Remedy::Dropped;
    finding
}

/// Keys that are named of those that a finding touches.
const NAMED_MAX: u64 = 3;

/// Which records lie in the pieces of memory that findings are about.
struct Touched {
    pieces: Vec<Piece>,
}

impl Piece {
    fn note(&mut self, key: &[u8]) {
        self.count += 1;
        if self.count <= NAMED_MAX {
            self.names.push(shown(key));
        }
    }
}

struct Piece {
    place: Range<u64>,
    finding: usize,
    names: Vec<String>,
    count: u64,
}

impl Touched {
    fn new(findings: &[Finding]) -> Self {
        let pieces = findings.iter().enumerate().filter(|(_, found)| found.bytes > 0);
        let piece = |(finding, found): (usize, &Finding)| Piece {
            place: found.offset..found.offset + found.bytes,
            finding,
            names: Vec::new(),
            count: 0,
        };
        let mut pieces: Vec<Piece> = pieces.map(piece).collect();
        pieces.sort_by_key(|piece| piece.place.start);
        Self { pieces }
    }

    fn note(&mut self, record: &Record<'_>) {
        let head = record.offset..record.offset + record.shape.size() as u64;
        let value = record
            .body
            .outline
            .map_or(0..0, |value| value.extent..value.extent.saturating_add(record.shape.value_len as u64));
        let meets = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        for place in [&head, &value] {
            // They lie one behind the other.
            let first = self.pieces.partition_point(|piece| piece.place.end <= place.start);
            for piece in self.pieces[first..].iter_mut().take_while(|piece| piece.place.start < place.end) {
                if place == &head || !meets(&piece.place, &head) {
                    piece.note(record.body.key);
                }
            }
        }
    }

    fn tell(self, findings: &mut [Finding]) {
        for piece in self.pieces {
            let names = piece.names.join(", ");
            findings[piece.finding].touches = Some(match piece.count {
                0 => "no record".into(),
                1..=NAMED_MAX => names,
                count => format!("{names} and {} more", count - NAMED_MAX),
            });
        }
    }
}

/// A key as people can read it, cut after 60 bytes.
fn shown(key: &[u8]) -> String {
    let cut = &key[..key.len().min(60)];
    let dots = if cut.len() < key.len() { "..." } else { "" };
    format!("\"{}\"{dots}", cut.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::descriptor::{Descriptor, Status};
    use crate::direct::small::{Store, settings, store};
    use crate::{Commit, Durably, Engine, What, Write};
    use std::sync::atomic::Ordering::Relaxed;
    use terrace_medium::{Dram, Shm};
    use terrace_pool::PoolOptions;

    type Check = fn(&Store, &mut dyn FnMut(u64, u64)) -> Report;
    /// While nobody writes, and beside others.
    const BOTH: [Check; 2] =
        [|store, progress| store.check(progress), |store, progress| store.check_records(progress)];

    #[test]
    fn a_check_tells_how_far_it_is_and_what_it_has_read() {
        let (store, _) = store();
        (0..40_000u32).for_each(|n| store.give(&n.to_le_bytes(), b"", None));
        for check in BOTH {
            let mut told = Vec::new();
            let report = check(&store, &mut |done, all| told.push((done, all)));
            assert!(report.is_sound(), "{:?}", report.findings);
            assert_eq!((report.records, report.roots), (40_000, 2));
            assert_eq!(report.buckets, store.index.stats(&store.pool().pin()).buckets);
            assert_eq!(told.last(), Some(&(40_000, 40_000)));
            assert!((3..5).contains(&told.len()), "{told:?}");
            // Beside others whole chains, so some more each time.
            let near = |&(done, all): &(u64, u64)| done % STEP < 64 && all == 40_000;
            assert!(told.iter().take(2).all(near) && told.is_sorted(), "{told:?}");
        }
    }

    /// What is said of records; what the index says of them besides is left out.
    fn of_records(report: &Report) -> Vec<&crate::Finding> {
        report.findings.iter().filter(|finding| finding.what == "a record").collect()
    }

    #[test]
    fn a_check_names_each_record_that_is_damaged_up_to_a_thousand() {
        let (store, _) = store();
        (0..1100u32).for_each(|n| store.give(&n.to_le_bytes(), b"value", None));
        let places: Vec<u64> = (0..1100u32).map(|n| store.place(&n.to_le_bytes())).collect();
        // Its stamp.
        store.damage(places[7] + 8);
        for check in BOTH {
            let report = check(&store, &mut |_, _| {});
            let [finding] = of_records(&report)[..] else { panic!("{:?}", report.findings) };
            assert_eq!((finding.place.offset(), finding.remedy), (places[7], crate::Remedy::Dropped));
            assert_eq!(finding.touches.as_deref(), Some(r#""\x07\x00\x00\x00""#));
        }
        // Its shape: its key cannot be told.
        store.damage(places[8]);
        for check in BOTH {
            let report = check(&store, &mut |_, _| {});
            assert_eq!((report.records, of_records(&report).len()), (1100, 2));
            let unread =
                of_records(&report).into_iter().find(|finding| finding.place.offset() == places[8]).unwrap();
            assert!(
                unread.found.ends_with("its key cannot be told") && unread.touches.is_none(),
                "{unread:?}"
            );
        }
        places[9..].iter().for_each(|place| store.damage(place + 8));
        for check in BOTH {
            let report = check(&store, &mut |_, _| {});
            assert_eq!(report.records, 1100);
            assert_eq!(report.findings.len(), 1000);
        }
    }

    #[test]
    fn a_record_whose_key_is_damaged_is_told_though_nobody_finds_it_by_that() {
        let (store, _) = store();
        store.give(b"key", b"value", None);
        store.damage(store.place(b"key") + 16);
        for check in BOTH {
            let report = check(&store, &mut |_, _| {});
            assert!(of_records(&report).len() == 1 && !report.is_sound());
        }
    }

    #[test]
    fn a_record_that_a_batch_has_left_as_it_was_under_way_is_told_once_the_batch_has_ended() {
        let (store, _) = store();
        let write = |key| Write { key, what: What::Put { value: b"value", expires_at: None } };
        assert_eq!(store.commit(&[write(b"a"), write(b"b")], &[], Durably::Store), Ok(Commit::Done));
        let (guard, medium, place) = (store.pool().pin(), store.pool().medium(), store.place(b"a"));
        let block = Descriptor::alloc(&guard, 1).unwrap();
        let descriptor = Descriptor::draw(&guard, block, 1);
        descriptor.set_new(0, place);
        descriptor.decide(Status::Committed);
        let word = Descriptor::<Dram>::batch_word(descriptor.offset(), 0);
        store.raw(place + 16).store(medium, word, Relaxed);
        store.root.set_active(descriptor.offset());
        assert!(BOTH.iter().all(|check| of_records(&check(&store, &mut |_, _| {})).is_empty()));
        store.root.set_active(0);
        let report = store.check(&mut |_, _| {});
        let [finding] = of_records(&report)[..] else { panic!("{:?}", report.findings) };
        assert!(finding.place.offset() == place && finding.found.contains("was not settled"), "{finding:?}");

        // What names no entry of a batch, or another's. Behind the last entry anything may lie.
        assert!(store.get(b"a").is_ok());
        descriptor.set_new(1, place);
        for word in [word + (1 << 38), word + 1, descriptor.offset()] {
            store.raw(place + 16).store(medium, word, Relaxed);
            assert!(store.get(b"a").is_err(), "{word:#x}");
        }
        store.raw(place + 16).store(medium, word, Relaxed);
        descriptor.set_new(0, store.place(b"b"));
        assert!(store.get(b"a").is_err() && store.get(b"b").is_ok());
    }

    #[test]
    fn what_is_salvaged_is_what_is_proved_and_counts() {
        let (store, clock) = store();
        [(&b"whole"[..], None), (b"past", Some(1500)), (b"damaged", None), (b"to come", Some(5000))]
            .iter()
            .for_each(|&(key, expires_at)| store.give(key, b"value", expires_at));
        store.damage(store.place(b"damaged") + 8);
        clock.advance(1000);
        let (mut kept, mut dropped) = (Vec::new(), Vec::new());
        store.salvage(&mut |found| match found {
            Ok((key, entry)) => kept.push((key.to_vec(), entry.value.to_vec(), entry.expires_at)),
            Err(finding) => dropped.push(finding.touches),
        });
        kept.sort();
        let value = || b"value".to_vec();
        assert_eq!(kept, [(b"to come".to_vec(), value(), Some(5000)), (b"whole".to_vec(), value(), None)]);
        assert_eq!(dropped, [Some("\"damaged\"".to_string())]);
    }

    /// What is told of the records that these pieces of memory touch, each so many bytes from a place on.
    fn told(store: &Store, pieces: &[(u64, u64)], keys: &[&[u8]]) -> Vec<String> {
        let guard = store.pool().pin();
        let finding = |&(at, bytes): &(u64, u64)| Finding::new(at, "memory", "", "").about(bytes);
        // One that is about a place touches nothing.
        let mut findings = vec![Finding::new(0, "a place", "", "")];
        findings.extend(pieces.iter().map(finding));
        let mut touched = Touched::new(&findings);
        keys.iter().for_each(|key| touched.note(&Record::at(&guard, store.place(key)).unwrap()));
        touched.tell(&mut findings);
        assert_eq!(findings[0].touches, None);
        findings.into_iter().skip(1).map(|finding| finding.touches.unwrap()).collect()
    }

    #[test]
    fn of_the_records_that_damaged_memory_touches_three_are_named() {
        let (store, _) = store();
        let keys: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"long"];
        keys[..5].iter().for_each(|key| store.give(key, b"value", None));
        store.give(b"long", &[7; 9000], None);
        let guard = store.pool().pin();
        let record = |key| Record::at(&guard, store.place(key)).unwrap();
        let (a, long) = (record(b"a"), record(b"long"));
        let (at, size) = (a.offset, a.shape.size() as u64);
        let (value, value_len) = (long.body.outline.unwrap().extent, 9000);

        // Its first byte and its last; up to it and behind it.
        let around_one = [(at, 1), (at + size - 1, 1), (at - 8, 8), (at + size, 8), (at - 8, 100_000)];
        let nobody = "no record".to_string();
        assert_eq!(
            told(&store, &around_one[..4], &[b"a"]),
            ["\"a\"".to_string(), "\"a\"".to_string(), nobody.clone(), nobody.clone()]
        );
        // Its head here, its value there; both in one piece.
        let around_long = [(value - 8, 8), (value, 1), (value + value_len - 1, 1), (value + value_len, 8)];
        let only_value = "\"long\"".to_string();
        assert_eq!(
            told(&store, &around_long, &keys),
            [nobody.clone(), only_value.clone(), only_value.clone(), nobody]
        );
        let all = (0, store.pool().size());
        assert_eq!(told(&store, &[all], &[b"long"]), [only_value]);
        assert_eq!(told(&store, &[all], &keys[..3]), [r#""a", "b", "c""#]);
        assert_eq!(told(&store, &[all], &keys[..4]), [r#""a", "b", "c" and 1 more"#]);
        assert_eq!(told(&store, &[all], &keys), [r#""a", "b", "c" and 3 more"#]);
    }

    #[test]
    fn a_record_whose_head_lies_next_to_damaged_memory_that_has_its_value_is_named_once() {
        let (store, _) = store();
        // A value lies before the head of its record or behind it, as it comes.
        let keys: Vec<[u8; 1]> = (0..20).map(|n| [n]).collect();
        keys.iter().for_each(|key| store.give(key, &[7; 9000], None));
        let guard = store.pool().pin();
        let mut is_before = [false; 2];
        for key in &keys {
            let record = Record::at(&guard, store.place(key)).unwrap();
            let (head, end) = (record.offset, record.offset + record.shape.size() as u64);
            let value = record.body.outline.unwrap().extent;
            let piece = if value < head { (value, head - value) } else { (end, value + 9000 - end) };
            is_before[usize::from(value < head)] = true;
            assert_eq!(told(&store, &[piece], &[key]), [shown(key)]);
            // And where it has both.
            let (from, to) = (head.min(value), end.max(value + 9000));
            assert_eq!(told(&store, &[(from, to - from)], &[key]), [shown(key)]);
        }
        assert_eq!(is_before, [true; 2], "there is one of each");
    }

    #[test]
    fn a_check_beside_others_says_so() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = PoolOptions::at(directory.path().join("pool")).size(4 << 20).shared(true);
        let open =
            || crate::direct::small::open::<Shm>(options.open_or_create().unwrap(), settings()).unwrap();
        let store = open();
        store.put(crate::Put { key: b"key", value: b"value", expires_at: None }, Durably::Store).unwrap();
        let other = open();
        let check = || store.check(&mut |_, _| {});
        let is_beside = [check(), check(), store.check_records(&mut |_, _| {})].map(|report| {
            assert!(report.is_sound() && report.records == 1);
            report.beside_others
        });
        assert_eq!(is_beside, [true; 3]);
        drop(other);
        assert!(!check().beside_others);
    }

    #[test]
    fn a_long_key_is_cut_where_it_is_shown() {
        assert_eq!(shown(b"key\n"), r#""key\n""#);
        assert_eq!(shown(&[b'k'; 60]), format!("\"{}\"", "k".repeat(60)));
        assert_eq!(shown(&[b'k'; 61]), format!("\"{}\"...", "k".repeat(60)));
    }
}
