//! A block that is read: its records, and its entries.

use super::edit::{Name, Summed};
use super::format::{
    ENTRY, FOOT, Foot, Mention, PAGE, PIECE, PLACE, mention_in, path_of, place_in, record_of,
};
use crate::space::record::Record;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_disk::{DiskError, cold};
use terrace_medium::files::{Files, Purpose, StoredFile};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// What is wrong with a record.
const UNSOUND: &str = "a record does not match its checksum";

/// Called with the offset of a record, and with its bytes, or with what is wrong with it.
pub(crate) type Visit<'v> = dyn FnMut(u64, Result<&[u8], DiskError>) + 'v;

/// A page: the number of the open block, and its place there.
type PagePlace = (u64, usize);

/// Numbers of open blocks: names tell them apart within one store only, and not that from a copy.
static OPENED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The page that this thread has read last.
    static LAST_PAGE: RefCell<(Option<PagePlace>, Vec<u8>)> = const { RefCell::new((None, Vec::new())) };
}

/// A block on the tier.
pub(crate) struct Block {
    /// Another one each time that a block is opened.
    opened: u64,
    files: Arc<dyn Files>,
    file: Arc<dyn StoredFile>,
    path: PathBuf,
    pub(crate) foot: Foot,
    fences: Box<[u32]>,
    /// Whether the store has removed it.
    is_removed: AtomicBool,
    /// Whether a record of it was found damaged.
    pub(crate) is_damaged: AtomicBool,
    /// When the next of its records may expire, in unix milliseconds.
    pub(crate) next_expiry: AtomicU64,
    /// It keeps versions whose successors were not on the tier when it was written. Those had lower
    /// numbers than this.
    pub(crate) waits_for: AtomicU64,
    /// The offsets of those versions whose keys were removed, in order.
    pub(crate) removed: Mutex<Vec<u32>>,
}

impl Block {
    /// Opens a block, and reads its fences.
    pub(crate) fn open(
        files: &Arc<dyn Files>,
        directory: &Path,
        store: u64,
        (number, generation): Name,
    ) -> Result<Self, DiskError> {
        let path = path_of(directory, number, generation);
        let file = files.open(&path, Purpose::ReadDirect).map_err(DiskError::room("open", &path))?;
        let foot = read_foot(&*file, &path, (store, (number, generation)))?;
        let fences = read_fences(&*file, &path, &foot)?;
        assert_eq!(fences.len() as u64 * PAGE as u64, foot.data_bytes, "a fence for each page");
        Ok(Self {
            opened: OPENED.fetch_add(1, Relaxed),
            files: files.clone(),
            file: file.into(),
            path,
            foot,
            fences,
            is_removed: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
            next_expiry: AtomicU64::new(foot.first_expiry),
            waits_for: AtomicU64::new(0),
            removed: Mutex::default(),
        })
    }

    /// A number that no other open block of this process has.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    pub(crate) fn name(&self) -> Name {
        (self.foot.number, self.foot.generation)
    }

    /// Its name and its checksum.
    pub(crate) fn summed(&self) -> Summed {
        (self.name(), self.foot.sum)
    }

    /// Fails if it is another block than one with this checksum.
    pub(crate) fn check_sum(&self, sum: u64) -> Result<(), DiskError> {
        let is_it = sum == 0 || sum == self.foot.sum;
        let what = "the manifest names another block: this is an older file of the same name";
        if is_it { Ok(()) } else { Err(DiskError::corrupt(&self.path, self.foot.file_bytes() - 8, what)) }
    }

    /// Its file is removed once nobody reads it any more.
    pub(crate) fn remove(&self) {
        self.is_removed.store(true, Relaxed);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that it keeps versions until all writes with lower numbers than `seq` are sealed, and
    /// which of these have tombstones among those writes.
    pub(crate) fn wait_for(&self, seq: u64, removed: Vec<u32>) {
        *self.removed.lock().unwrap_or_else(PoisonError::into_inner) = removed;
        self.waits_for.store(seq, Relaxed);
    }

    /// The versions whose tombstones the tier has, if it has all writes with lower numbers than
    /// `unsealed`.
    pub(crate) fn sealed_removals(&self, unsealed: u64) -> Vec<u32> {
        let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        if self.waits_for.load(Relaxed) <= unsealed { removed.clone() } else { Vec::new() }
    }

    fn corrupt(&self, offset: u64, what: &'static str) -> DiskError {
        DiskError::corrupt(&self.path, offset, what)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<(), DiskError> {
        self.file.read_exact_at(bytes, at).map_err(DiskError::room("read", &self.path))
    }

    /// Runs `with` on some pages. This thread keeps a single one: neighbours are often read one by
    /// one.
    fn with_pages<T>(&self, nth: usize, count: usize, with: impl FnOnce(&[u8]) -> T) -> Result<T, DiskError> {
        let (place, at, len) = ((self.opened, nth), (nth * PAGE) as u64, count * PAGE);
        LAST_PAGE.with_borrow_mut(|(last, pages)| {
            if *last == Some(place) {
                return Ok(with(pages));
            }
            if self.file.may_wait() && cold::must_not_wait() {
                let put_off = cold::put_off((self.opened, at), len, &self.file, with);
                let done = put_off.expect("the thread must not wait");
                return done.map_err(DiskError::room("read", &self.path));
            }
            *last = None;
            pages.resize(len, 0);
            self.read_at(pages, at)?;
            *last = (count == 1).then_some(place);
            Ok(with(pages))
        })
    }

    /// The page that a record with this offset begins in, and the pages that it may take.
    fn pages_of(&self, offset: u64) -> Option<(usize, usize)> {
        let last = self.fences.partition_point(|&fence| u64::from(fence) <= offset).checked_sub(1)?;
        let first = self.fences.partition_point(|&fence| fence < self.fences[last]);
        Some((first, last + 1 - first))
    }

    /// The damage of a block that has not the record that belongs to this offset.
    pub(crate) fn missing(&self, offset: u64) -> DiskError {
        let at = self.pages_of(offset).map_or(0, |(first, _)| first) * PAGE;
        self.corrupt(at as u64, "a page has not the record that belongs there")
    }

    /// The bytes of the record with this offset; `None` if the block has no such record any more.
    /// One read.
    pub(crate) fn find(&self, offset: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let Some((nth, count)) = self.pages_of(offset) else { return Ok(None) };
        let found = self.with_pages(nth, count, |pages| self.find_in(pages, offset))??;
        let Some((start, len, bytes)) = found else { return Ok(None) };
        let at = (nth * PAGE + start) as u64;
        if bytes.len() < len {
            return Err(self.corrupt(at, "a record goes on behind its pages"));
        }
        match record_of(&bytes) {
            Some(_) => Ok(Some(bytes)),
            None => Err(self.corrupt(at, UNSOUND)),
        }
    }

    /// Where pages have the record with this offset, its length, and its bytes in them.
    fn find_in(&self, pages: &[u8], offset: u64) -> Result<Option<(usize, usize, Vec<u8>)>, DiskError> {
        let (mut rest, mut found) = (pages, None);
        while let Some((place, words, behind)) = place_in(rest) {
            let len = 8 * words as usize;
            if u64::from(place) == offset {
                if found.is_some() {
                    // A record does not tell its offset, so neither of both is proved.
                    return Err(self.missing(offset));
                }
                found = Some((pages.len() - behind.len(), len, &behind[..len.min(behind.len())]));
            }
            rest = behind.get(len..).unwrap_or_default();
        }
        let found = found.or_else(|| {
            // A damaged place hides those behind it.
            let mut starts = (0..pages.len() - PLACE).step_by(8);
            starts.find_map(|at| {
                place_in(&pages[at..]).filter(|(place, ..)| u64::from(*place) == offset)?;
                let len = super::sound::record_in(&pages[at..], self.foot.store)?.shape.size();
                Some((at + PLACE, len, &pages[at + PLACE..at + PLACE + len]))
            })
        });
        Ok(found.map(|(start, len, bytes)| (start, len, bytes.to_vec())))
    }

    /// The entry of the record with this offset, if it has this hash.
    pub(crate) fn mention_of(&self, hash: u64, offset: u64) -> Result<Option<Mention>, DiskError> {
        let mut found = None;
        self.mentions((hash, hash), &mut |mention| {
            found = found.or(Some(mention).filter(|mention| u64::from(mention.offset) == offset));
        })?;
        Ok(found)
    }

    /// Visits all records in order, with their offsets: their bytes, or damage.
    pub(crate) fn for_each(&self, each: &mut Visit<'_>) -> Result<(), DiskError> {
        let (mut at, mut bytes) = (0, Vec::new());
        // By page, the sum of its records, unless damage was found there.
        let mut sums = vec![Some(0u64); self.fences.len()];
        let sum_of = |mention: Mention| xxh3_64_with_seed(&mention.to_bytes(), 0);
        while at < self.foot.data_bytes {
            let len = (PIECE as u64).min(self.foot.data_bytes - at) as usize;
            bytes.resize(len, 0);
            self.read_at(&mut bytes[..len], at)?;
            let mut from = 0;
            while from < len {
                let sum = &mut sums[(at as usize + from) / PAGE];
                let mut noted = |offset: u64, found: Result<&[u8], DiskError>| {
                    let record = found.as_ref().ok().and_then(|bytes| Record::read(bytes));
                    let own = record.map(|record| sum_of(Mention::of(&record, offset as u32)));
                    *sum = sum.zip(own).map(|(sum, own)| sum.wrapping_add(own));
                    each(offset, found);
                };
                from = self.visit_page(&mut bytes, (at, from), &mut noted)?;
            }
            at += from as u64;
        }
        // A damaged place may tell another offset, or hide records behind it.
        self.mentions((0, u64::MAX), &mut |mention| {
            if let Some(Some(sum)) = self.pages_of(mention.offset.into()).map(|(nth, _)| &mut sums[nth]) {
                *sum = sum.wrapping_sub(sum_of(mention));
            }
        })?;
        for nth in (0..sums.len()).filter(|nth| sums[*nth].is_some_and(|sum| sum != 0)) {
            let offset = self.fences[nth].into();
            each(offset, Err(self.missing(offset)));
        }
        Ok(())
    }

    /// Visits the records of the page at `from`; returns where the next one begins.
    fn visit_page(
        &self,
        bytes: &mut Vec<u8>,
        (at, from): (u64, usize),
        each: &mut Visit<'_>,
    ) -> Result<usize, DiskError> {
        let mut place = from;
        let end = from + PAGE;
        while let Some((offset, words, _)) = place_in(&bytes[place..end]) {
            let (start, len) = (place + PLACE, 8 * words as usize);
            let whole = start + len;
            if whole > end && (place > from || at + whole as u64 > self.foot.data_bytes) {
                let damage = self.corrupt(at + place as u64, "a record goes on behind its page");
                each(offset.into(), Err(damage));
                return Ok(end);
            }
            if whole > bytes.len() {
                let read = bytes.len();
                bytes.resize(whole.next_multiple_of(PAGE), 0);
                self.read_at(&mut bytes[read..], at + read as u64)?;
            }
            match record_of(&bytes[start..whole]) {
                Some(_) => each(offset.into(), Ok(&bytes[start..whole])),
                None => each(offset.into(), Err(self.corrupt(at + start as u64, UNSOUND))),
            }
            place = whole;
            if whole > end {
                return Ok(whole.next_multiple_of(PAGE));
            }
        }
        Ok(end)
    }

    /// Visits the entries with hashes from `from` up to `to` and with it, in their order. If
    /// `is_whole`, all of them are read, and compared with the checksum first.
    pub(crate) fn mentions(
        &self,
        (from, to): (u64, u64),
        each: &mut dyn FnMut(Mention),
    ) -> Result<(), DiskError> {
        let base = self.foot.entries_at();
        let (mut low, mut high) = (0, self.foot.records);
        while low < high {
            let middle = low.midpoint(high);
            let mut hash = [0; 8];
            self.read_at(&mut hash, base + middle * ENTRY as u64)?;
            if u64::from_le_bytes(hash) < from { low = middle + 1 } else { high = middle }
        }
        let mut bytes = Vec::new();
        while low < self.foot.records {
            let count = (self.foot.records - low).min((PIECE / ENTRY) as u64);
            bytes.resize(count as usize * ENTRY, 0);
            self.read_at(&mut bytes, base + low * ENTRY as u64)?;
            for entry in bytes.chunks_exact(ENTRY) {
                let mention = mention_in(entry).expect("an entry of 32 bytes");
                if mention.hash > to {
                    return Ok(());
                }
                each(mention);
            }
            low += count;
        }
        Ok(())
    }

    /// Compares fences and entries with their checksum.
    pub(crate) fn verify(&self) -> Result<(), DiskError> {
        let (mut at, end) = (self.foot.data_bytes, self.foot.file_bytes() - FOOT as u64);
        let (mut sum, mut bytes) = (Xxh3::with_seed(self.foot.number), Vec::new());
        while at < end {
            bytes.resize((PIECE as u64).min(end - at) as usize, 0);
            self.read_at(&mut bytes, at)?;
            sum.update(&bytes);
            at += bytes.len() as u64;
        }
        let is_same = sum.digest() == self.foot.sum;
        let what = "the entries of a block do not match their checksum";
        if is_same { Ok(()) } else { Err(self.corrupt(self.foot.data_bytes, what)) }
    }
}

/// The foot of the file of a block, which must be of this store and have this name.
fn read_foot(file: &dyn StoredFile, path: &Path, (store, name): (u64, Name)) -> Result<Foot, DiskError> {
    let length = file.length().map_err(DiskError::room("read", path))?;
    let corrupt = |offset, what| DiskError::corrupt(path, offset, what);
    let foot_at = length.checked_sub(FOOT as u64).ok_or_else(|| corrupt(0, "the block is too short"))?;
    let mut bytes = vec![0; FOOT];
    file.read_exact_at(&mut bytes, foot_at).map_err(DiskError::room("read", path))?;
    let foot = Foot::read(&bytes, path, foot_at)?;
    if foot.store != store {
        return Err(DiskError::Foreign { path: path.into() });
    }
    if (foot.number, foot.generation) != name {
        return Err(corrupt(foot_at, "it is another block of this store"));
    }
    let is_possible = foot.data_bytes.is_multiple_of(PAGE as u64) && foot.data_bytes <= length;
    if !is_possible || foot.file_bytes() != length {
        return Err(corrupt(foot_at, "the block has not the length that its foot tells"));
    }
    Ok(foot)
}

/// Of each page, the offset of its first record.
fn read_fences(file: &dyn StoredFile, path: &Path, foot: &Foot) -> Result<Box<[u32]>, DiskError> {
    let mut bytes = vec![0; (foot.data_bytes / PAGE as u64 * 4) as usize];
    file.read_exact_at(&mut bytes, foot.data_bytes).map_err(DiskError::room("read", path))?;
    let fence = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    let fences: Box<[u32]> = bytes.chunks_exact(4).map(fence).collect();
    if !fences.is_sorted() {
        return Err(DiskError::corrupt(path, foot.data_bytes, "the fences of a block are not in order"));
    }
    Ok(fences)
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.is_removed.load(Relaxed) {
            // The next open removes what is left here.
            let _ = self.files.remove(&self.path);
        }
    }
}

/// The entries of a block, read from front to back once, and compared with their checksum.
pub(crate) struct EntryReader {
    block: Held,
    sum: Xxh3,
    /// Bytes that are read at a time.
    piece: usize,
    bytes: Vec<u8>,
    /// The next entry in `bytes`.
    at: usize,
    /// Entries that are not read yet.
    left: u64,
    last_hash: u64,
}

impl EntryReader {
    /// Reads `piece` bytes at a time.
    pub(crate) fn new(block: Held, piece: u64) -> Self {
        let mut sum = Xxh3::with_seed(block.foot.number);
        block.fences.iter().for_each(|fence| sum.update(&fence.to_le_bytes()));
        let (piece, left) = (piece as usize / ENTRY * ENTRY, block.foot.records);
        assert!(piece > 0, "a piece has an entry");
        Self { block, sum, piece, bytes: Vec::new(), at: 0, left, last_hash: 0 }
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// Visits the entries that are left, up to those with the hash `to`.
    pub(crate) fn up_to(&mut self, to: u64, each: &mut dyn FnMut(Mention)) -> Result<(), DiskError> {
        while self.at < self.bytes.len() || self.read_piece()? {
            let mention = mention_in(&self.bytes[self.at..]).expect("an entry of 32 bytes");
            if mention.hash > to {
                return Ok(());
            }
            if mention.hash < self.last_hash {
                return Err(self.corrupt("the entries of a block are not in order"));
            }
            self.last_hash = mention.hash;
            self.at += ENTRY;
            each(mention);
        }
        Ok(())
    }

    /// Whether there was something to read.
    fn read_piece(&mut self) -> Result<bool, DiskError> {
        let count = self.left.min((self.piece / ENTRY) as u64);
        let at = self.block.foot.large_at() - self.left * ENTRY as u64;
        self.bytes.resize(count as usize * ENTRY, 0);
        self.block.read_at(&mut self.bytes, at)?;
        self.sum.update(&self.bytes);
        (self.at, self.left) = (0, self.left - count);
        Ok(count > 0)
    }

    /// The numbers of the files of large values that the block's records name.
    ///
    /// # Panics
    /// If entries are left.
    pub(crate) fn finish(mut self) -> Result<Vec<u64>, DiskError> {
        assert!(self.left == 0 && self.at == self.bytes.len(), "all entries were visited");
        self.bytes.resize(self.block.foot.large as usize * 8, 0);
        self.block.read_at(&mut self.bytes, self.block.foot.large_at())?;
        self.sum.update(&self.bytes);
        if self.sum.digest() != self.block.foot.sum {
            return Err(self.corrupt("the entries of a block do not match their checksum"));
        }
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Ok(self.bytes.chunks_exact(8).map(number).collect())
    }

    fn corrupt(&self, what: &'static str) -> DiskError {
        self.block.corrupt(self.block.foot.data_bytes, what)
    }
}

/// Blocks by their numbers.
pub(crate) type Blocks = [arc_swap::ArcSwapOption<Block>];

/// A block that may be read after it was removed from the store.
pub(crate) type Held = Arc<Block>;
