//! New pages: what goes into them, and their blocks.

use super::super::keys::OrderedKind;
use super::page::{
    ENTRIES_MAX, MAGIC, NO_PAGE, Page, Parts, Pid, common, head_of, header_check, sealed, sum_of, sums,
    written_at,
};
use super::slots::before_body;
use super::tree::Tree;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{LINE, MappedMedium};
use terrace_pool::{Fresh, Guard, PoolFull};

/// Bytes of a block up to which one is taken that is far too large.
const LARGE: usize = 16 << 10;

/// What a page is made of.
#[derive(Clone)]
pub(super) struct Content {
    pub(super) pid: Pid,
    pub(super) level: usize,
    pub(super) sibling: Pid,
    pub(super) low: Vec<u8>,
    pub(super) high: Option<Vec<u8>>,
    /// Front bytes that all keys have in common, and that the heads leave out.
    pub(super) skip: usize,
    /// The head and the word of each entry, in the order of their keys.
    pub(super) entries: Vec<(u64, u64)>,
    /// The keys of the entries, of an inner page.
    pub(super) keys: Vec<Vec<u8>>,
}

/// A block for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// What needs a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// A change that may fail, or that can be put off.
    Room,
    /// A change of a present key, which may use what the index has set aside.
    Present,
    /// A change that gives back more than it takes. It may use all that is set aside.
    Less,
}

/// The front bytes that all keys between two have in common.
pub(super) fn skip_of(low: &[u8], high: Option<&[u8]>) -> usize {
    high.map_or(0, |high| common(low, high))
}

impl Content {
    /// The content of an inner page with these keys and children.
    pub(super) fn inner<K: OrderedKind>(
        (pid, level, sibling): (Pid, usize, Pid),
        (low, high): (Vec<u8>, Option<Vec<u8>>),
        (keys, children): (Vec<Vec<u8>>, Vec<Pid>),
    ) -> Self {
        let skip = if K::LEAF_BYTES > 0 { 0 } else { skip_of(&low, high.as_deref()) };
        let entry = |(key, &child): (&Vec<u8>, &Pid)| (head_of(key, skip), u64::from(child));
        let entries = keys.iter().zip(&children).map(entry).collect();
        Self { pid, level, sibling, low, high, skip, entries, keys }
    }

    /// The rests of its keys, and where each ends.
    fn rests<K: OrderedKind>(&self) -> (Vec<u8>, Vec<u32>) {
        let (mut rests, mut ends) = (Vec::new(), Vec::new());
        if self.level > 0 && K::LEAF_BYTES == 0 {
            for key in &self.keys {
                rests.extend_from_slice(key.get(self.skip..).unwrap_or_default());
                ends.push(rests.len() as u32);
            }
        }
        (rests, ends)
    }

    /// All behind the slots.
    fn body<K: OrderedKind>(&self, (rests, ends): (&[u8], &[u32])) -> Vec<u64> {
        let mut bytes = [&self.low[..], self.high.as_deref().unwrap_or_default()].concat();
        let pad = |bytes: &mut Vec<u8>| bytes.resize((bytes.len() + 7) & !7, 0);
        pad(&mut bytes);
        self.entries.iter().for_each(|(head, _)| bytes.extend(head.to_le_bytes()));
        ends.iter().for_each(|end| bytes.extend(end.to_le_bytes()));
        pad(&mut bytes);
        bytes.extend_from_slice(rests);
        pad(&mut bytes);
        let stored = |word| if self.level == 0 { sealed::<K>(word) } else { word };
        self.entries.iter().for_each(|&(_, word)| bytes.extend(stored(word).to_le_bytes()));
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    /// Bytes of the smallest block for it.
    pub(super) fn bytes<K: OrderedKind>(&self, slots: usize) -> usize {
        let fences = self.low.len() + self.high.as_ref().map_or(0, Vec::len);
        let has_rests = self.level > 0 && K::LEAF_BYTES == 0;
        let rest = |key: &Vec<u8>| key.len().saturating_sub(self.skip);
        let rests = if has_rests { self.keys.iter().map(rest).sum() } else { 0 };
        let parts = Parts::of(fences, self.entries.len(), has_rests, rests);
        (before_body(self.slots_of(slots)) + parts.end).next_multiple_of(LINE)
    }

    fn slots_of(&self, slots: usize) -> usize {
        if self.level == 0 { slots } else { 0 }
    }

    /// The lines of its block.
    fn lines<K: OrderedKind>(&self, slots: usize, written: u32, bytes: usize) -> Vec<[u64; LINE / 8]> {
        assert!(self.entries.len() <= ENTRIES_MAX, "a page of {} entries", self.entries.len());
        let (rests, ends) = self.rests::<K>();
        let body = self.body::<K>((&rests, &ends));
        let slots = self.slots_of(slots);
        let high = self.high.as_ref();
        // The words of a leaf are summed for themselves.
        let (front, words) = body.split_at(body.len() - if self.level == 0 { self.entries.len() } else { 0 });
        let sum = sums(sum_of(front.iter().copied()), sum_of(words.iter().copied()));
        let header = [
            (self.level as u64) << 56 | (self.entries.len() as u64) << 40 | (self.skip as u64) << 16 | MAGIC,
            u64::from(self.pid) << 32 | u64::from(written),
            u64::from(self.sibling) << 32 | (bytes / LINE) as u64,
            high.map_or(0, |high| high.len() as u64 + 1) << 32 | self.low.len() as u64,
            high.map_or(0, |high| head_of(high, 0)),
            sum,
            (slots as u64) << 32 | rests.len() as u64,
        ];
        let mut words = header.to_vec();
        words.push(header_check(&header));
        // The marks are clear, and the slots are free.
        words.resize(before_body(slots) / 8, 0);
        words.extend(body);
        words.resize(words.len().next_multiple_of(LINE / 8), 0);
        words.as_chunks().0.to_vec()
    }
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// A block of so many bytes.
    pub(super) fn take_block(
        &self,
        guard: &Guard<'_, M>,
        bytes: usize,
        need: Need,
    ) -> Result<Block, PoolFull> {
        if self.is_scarce(need) {
            return self.take_spare(bytes, need).ok_or_else(|| no_memory(guard));
        }
        let found = guard.alloc(bytes).or_else(|full| self.take_larger(guard, bytes, need).ok_or(full));
        match found {
            Ok(fresh) => {
                self.fill_spares(guard);
                let bytes = fresh.len();
                Ok(Block { offset: fresh.fenced_later().into_offset(), bytes })
            }
            Err(full) => self.take_spare(bytes, need).ok_or(full),
        }
    }

    /// Whether this counts as a time without memory, in a tree that a test has made so.
    pub(super) fn is_scarce(&self, need: Need) -> bool {
        self.shape.is_scarce && need != Need::Room && self.pool.epoch().is_multiple_of(2)
    }

    /// What the first memory of a merge is for: in a tree in which a test makes memory scarce,
    /// merges begin all the same.
    pub(super) fn need_of_reserve(&self) -> Need {
        if self.shape.is_scarce { Need::Room } else { Need::Less }
    }

    /// A block that other pages have left, of another size. What may not fail takes any.
    #[cold]
    fn take_larger<'g>(&self, guard: &'g Guard<'_, M>, bytes: usize, need: Need) -> Option<Fresh<'g, M>> {
        let is_last = need == Need::Room || self.refused.load(Relaxed) == self.pool.epoch();
        let times: &[usize] = if is_last { &[1] } else { &[1, 2, 4, 8] };
        let mut sizes = times.iter().map(|times| bytes * times).take_while(|&size| size <= bytes.max(LARGE));
        self.pool.with_larger_blocks(|| sizes.find_map(|size| guard.alloc(size).ok()))
    }

    /// Gives back a block that was never linked.
    pub(super) fn drop_block(&self, guard: &Guard<'_, M>, block: Block) {
        match self.forget_spare(block) {
            // The collector's walk may have read its word.
            true => guard.retire(block.offset, block.bytes),
            false => guard.free(block.offset, block.bytes),
        }
    }

    /// Writes a page into a block of its own, durable at the next fence.
    pub(super) fn write_page(
        &self,
        guard: &Guard<'_, M>,
        content: &Content,
        need: Need,
    ) -> Result<Block, PoolFull> {
        let block = self.take_block(guard, content.bytes::<K>(self.shape.slots), need)?;
        self.write_into(block, content);
        Ok(block)
    }

    /// As [`Tree::write_page`], into this block, which is large enough.
    pub(super) fn write_into(&self, block: Block, content: &Content) {
        let written = written_at(self.pool.generation(), self.pool.epoch());
        let lines = content.lines::<K>(self.shape.slots, written, block.bytes);
        self.pool.region().stream_lines(block.offset, &lines);
    }

    /// Counts a page that has come into the tree or has left it.
    pub(super) fn count_page(&self, guard: &Guard<'_, M>, level: usize, bytes: usize, by: i64) {
        let (count, thread) = (self.count(), guard.slot_index());
        count.add_figure(thread, if level == 0 { LEAVES } else { INNER }, by);
        count.add_figure(thread, BYTES, by * bytes as i64);
    }

    /// Retires the block of a page that is no longer in the tree. Its removal is durable.
    pub(super) fn retire_page(&self, guard: &Guard<'_, M>, page: &Page<'_, K>) {
        self.count_page(guard, page.level, page.bytes, -1);
        guard.retire(page.offset, page.bytes);
    }
}

/// The figures beside the count of keys.
pub(super) const LEAVES: usize = 0;
pub(super) const INNER: usize = 1;
pub(super) const BYTES: usize = 2;
/// Splits, merges, and roots that were replaced.
pub(super) const RESHAPED: usize = 3;

/// The content of an empty tree's only page.
pub(super) fn empty_root() -> Content {
    Content {
        pid: super::page::ROOT_PAGE,
        level: 0,
        sibling: NO_PAGE,
        low: Vec::new(),
        high: None,
        skip: 0,
        entries: Vec::new(),
        keys: Vec::new(),
    }
}

/// The lines of that page.
pub(super) fn empty_root_lines<K: OrderedKind>(slots: usize, generation: u32) -> Vec<[u64; LINE / 8]> {
    let content = empty_root();
    content.lines::<K>(slots, written_at(generation, 0), content.bytes::<K>(slots))
}

/// What says that there is no memory, whatever there is.
pub(super) fn no_memory<M: MappedMedium>(guard: &Guard<'_, M>) -> PoolFull {
    const NO_POOL_HAS: usize = usize::MAX >> 1;
    guard.alloc(NO_POOL_HAS).map(drop).expect_err("no pool has so much")
}
