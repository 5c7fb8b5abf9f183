//! Tests of remote lookups of which a read tears a word.

use super::super::super::test_pools::pool;
use super::super::bucket::{LINK, Link, store_link};
use super::super::shape::{Entry, sealed::Shape};
use super::super::tags;
use super::test_images::{Index, Strings, bytes, hash, keys_of};
use super::*;
use crate::Stored;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Dram, Line, Offset};

/// All words whose bytes are those of either.
fn mixtures(one: u64, other: u64) -> impl Iterator<Item = u64> {
    let [one, other] = [one, other].map(u64::to_le_bytes);
    (0..=255u8).map(move |mask| {
        let byte = |nth: usize| if mask >> nth & 1 == 0 { one[nth] } else { other[nth] };
        u64::from_le_bytes(std::array::from_fn(byte))
    })
}

/// A key of an index of eight buckets, and room for records and buckets anywhere in a range.
struct Scene {
    index: Index<Dram>,
    key: u64,
    table: Table,
    room: std::ops::Range<u64>,
}

impl Scene {
    fn of(key: impl FnOnce(&Index<Dram>) -> u64) -> Self {
        const ROOM: usize = 3 << 20;
        let index = Index::create(&pool(8 << 20), "index", 0).unwrap();
        let start = index.pool.pin().alloc(ROOM).unwrap().persist().into_offset();
        let (key, table) = (key(&index), index.view().current);
        Self { index, key, table, room: start..start + ROOM as u64 }
    }

    fn new() -> Self {
        Self::of(|index| keys_of(index, 5).next().unwrap())
    }

    fn hash(&self) -> u64 {
        hash(&self.index, self.key)
    }

    /// The slot of the key, if its record lies there.
    fn slot(&self, record: u64) -> u64 {
        let mut image = [0; 8];
        let entry = Entry { key: tags::tag(self.hash(), self.table), word: record };
        Strings::put_in_image(&mut image, 0, entry);
        image[1]
    }

    fn bucket(&self) -> &Line {
        self.index.pool.region().at(self.table.bucket(self.table.index(self.hash())))
    }

    fn store(&self, offset: u64, word: u64) {
        let region = self.index.pool.region();
        region.at(Offset::<terrace_medium::Word>::new(offset)).store(region.medium(), word, Relaxed);
    }

    /// Puts `word` into the first slot of the key's bucket.
    fn set(&self, word: u64) {
        self.bucket().0[1].store(self.index.pool.medium(), word, Relaxed);
    }

    /// Looks for the key. A read of word `index` of its bucket returns what `tear` returns for the
    /// number of the read and its length, if it returns something.
    fn find(&self, index: usize, tear: impl Fn(u64, usize) -> Option<u64>) -> (Answer<u64>, u64) {
        let place = self.index.pool.region().offset_of(self.bucket()).raw() + 8 * index as u64;
        let mut nth = 0;
        let mut read = |read: Read| {
            let mut bytes = bytes(&self.index.pool, read)?;
            let at = place.checked_sub(read.offset).filter(|&at| at < read.len as u64);
            if let Some(at) = at {
                nth += 1;
                if let Some(torn) = tear(nth, read.len) {
                    bytes[at as usize..][..8].copy_from_slice(&torn.to_le_bytes());
                }
            }
            Ok::<_, String>(bytes)
        };
        let mut fetch = |reads: Reads| {
            let parts: Result<Vec<_>, String> = reads.iter().map(&mut read).collect();
            Ok::<_, String>(parts?.concat())
        };
        let key = self.key.to_le_bytes();
        let check = |offset, bytes: &[u8]| (bytes == key).then_some(Answer::Found(offset));
        let mut remote = Remote::new(self.index.address());
        (remote.find(self.hash(), 8, &mut fetch, check).unwrap(), remote.rounds())
    }

    /// Places of two records, and a third one to which a mixture of their slots leads.
    fn records(&self) -> [u64; 3] {
        let places = |step| self.room.clone().step_by(step);
        let pairs = places(40_008).flat_map(|one| places(24_824).map(move |other| (one, other)));
        let found = pairs.into_iter().find_map(|(one, other)| {
            mixtures(self.slot(one), self.slot(other)).find_map(|torn| {
                let tag = tags::tag(self.hash(), self.table);
                let image = [0, torn, 0, 0, 0, 0, 0, 0];
                match tags::in_image(&image, 0, tag) {
                    tags::Seen::Tagged(third) if third != one && third != other => {
                        self.room.contains(&third).then_some([one, other, third])
                    }
                    _ => None,
                }
            })
        });
        found.expect("one in 256 mixtures passes the check")
    }
}

#[test]
fn torn_slot_leads_to_no_record() {
    let scene = Scene::new();
    let [before, after, wrong] = scene.records();
    [before, after].into_iter().for_each(|record| scene.store(record, scene.key));
    scene.set(scene.slot(after));
    let torn = |nth: u64, _: usize| (nth == 1).then(|| scene.slot(wrong));
    // Another key's record, and an old one of the key.
    for there in [!scene.key, scene.key] {
        scene.store(wrong, there);
        // The root twice, its bucket, a record, its bucket, its record.
        assert_eq!(scene.find(1, torn), (Answer::Found(after), 6));
        // If the second read is the torn one.
        assert_eq!(scene.find(1, |nth, _| (nth == 2).then(|| scene.slot(wrong))), (Answer::Found(after), 6));
        // If each bucket is torn.
        let always = |_: u64, len: usize| (len == LINE).then(|| scene.slot(wrong));
        assert_eq!(scene.find(1, always), (Answer::Ask, 2 + 4 * 2));
    }
}

#[test]
fn torn_slot_hides_no_key() {
    let scene = Scene::new();
    let places = || scene.room.clone().step_by(600_008);
    for (before, after) in places().flat_map(|one| places().map(move |other| (one, other))) {
        [before, after].into_iter().for_each(|record| scene.store(record, scene.key));
        scene.set(scene.slot(after));
        for torn in mixtures(scene.slot(before), scene.slot(after)) {
            let (answer, _) = scene.find(1, |nth, _| (nth == 1).then_some(torn));
            assert_eq!(answer, Answer::Found(after), "{torn:#x} of {before:#x}, {after:#x}");
        }
    }
}

#[test]
fn key_with_the_tag_0_is_asked_about() {
    let is_zero = |index: &Index<Dram>, key: u64| tags::tag(hash(index, key), index.view().current) == 0;
    let scene = Scene::of(|index| (1..).find(|&key| is_zero(index, key)).unwrap());
    // A mixture of these slots is 0.
    let [before, after] = [8 * 0x7f7f, 8 * 0x20000];
    assert!(mixtures(scene.slot(before), scene.slot(after)).any(|torn| torn == 0));
    let record = scene.room.end - 64;
    scene.store(record, scene.key);
    scene.set(scene.slot(record));
    assert_eq!(scene.find(1, |_, _| None).0, Answer::Found(record));
    assert_eq!(scene.find(1, |nth, _| (nth == 1).then_some(0)).0, Answer::Ask);
}

#[test]
fn torn_link_leads_to_no_bucket() {
    let scene = Scene::new();
    let (medium, line) = (scene.index.pool.medium(), |at: u64| at.next_multiple_of(64));
    let next = line(scene.room.start + (1 << 20)) + 0x55 * 64;
    // Where the key's record was once.
    let record = scene.room.end - 64;
    scene.store(record, scene.key);
    let linked = Link(0).with_next(Offset::new(next));
    store_link(medium, scene.bucket(), linked);
    let mut misled = 0;
    for torn in mixtures(0, linked.0) {
        let place = Link(torn).next().raw();
        let is_bucket = scene.room.contains(&place) && place != next;
        if is_bucket {
            scene.store(place + 8, scene.slot(record));
            misled += 1;
        }
        let expected = match place {
            // It was not linked yet.
            0 => 3,
            _ if place == next => 4,
            // Its bucket, nothing or another one, its bucket, the next one.
            _ if scene.index.address().line(place).is_none() => 5,
            _ => 6,
        };
        let found = scene.find(LINK, |nth, _| (nth == 1).then_some(torn));
        assert_eq!(found, (Answer::Absent, expected), "{torn:#x}");
    }
    assert!(misled > 0);
    // A mark that the link has got meanwhile.
    let (answer, rounds) = scene.find(LINK, |nth, _| (nth == 2).then_some(linked.moved().0));
    assert_eq!((answer, rounds), (Answer::Absent, 4));
}

#[test]
fn torn_root_is_refused() {
    let scene = Scene::new();
    let address = scene.index.address();
    let root = bytes(&scene.index.pool, address.root_line()).unwrap();
    let with =
        |index: usize, word: u64| [&root[..8 * index], &word.to_le_bytes(), &root[8 * index + 8..]].concat();
    let other = Table::new(scene.room.start.next_multiple_of(64), 5).word();
    for (index, before) in [(ROOT_CURRENT, scene.table.word()), (ROOT_NEXT, 0)] {
        for torn in mixtures(before, other) {
            for whole in [before, other] {
                let named = Tables::confirm(&address, [&with(index, torn), &with(index, whole)]);
                assert_eq!(named.is_some(), torn == whole, "{torn:#x}, {whole:#x}");
                let named = Tables::confirm(&address, [&with(index, whole), &with(index, torn)]);
                assert_eq!(named.is_some(), torn == whole, "{whole:#x}, {torn:#x}");
            }
        }
    }
}
