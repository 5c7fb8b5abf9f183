//! The bytes of a file: a length, and extents of the pool.
//!
//! ```text
//! node, 256 bytes:   | next node | length | bytes, offset | bytes, offset | ... |   15 extents
//! ```
//! The length is that in the first node. An extent counts once its offset is stored, behind its
//! bytes in the same line. Extents are blocks of the pool, multiples of a line. What they have
//! behind the length is arbitrary.
//!
//! # Invariants
//! 1. The extents have room for the length, durably: they are linked before it grows, and unlinked
//!    after it has shrunk.
//! 2. Bytes below the length were written, durably, before the length covered them.
//! 3. All changes are made under the lock of the body, which readers hold while they copy.

use crate::words::{damaged, full, load, store, store_bytes};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering::Acquire};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use terrace_medium::{LINE, MappedMedium};
use terrace_pool::{Durable, Fresh, Guard, Pool};

/// Bytes of a node.
const NODE: usize = 256;
/// Extents of a node.
const EXTENTS: usize = 15;
/// Bytes of the smallest and of the largest extent.
const EXTENT_MIN: u64 = 256;
const EXTENT_MAX: u64 = 4 << 20;
/// A file grows by as much as it has, up to this, or by what is written at once.
const GROWTH_MAX: u64 = 64 << 10;
/// Zeros that are stored at once.
const ZEROS: [u8; 4096] = [0; 4096];

/// A run of the pool's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// Where it begins in the file.
    from: u64,
    /// Where it begins in the pool.
    at: u64,
    bytes: u64,
}

/// What a file has.
#[derive(Debug, Default)]
struct Body {
    length: u64,
    nodes: Vec<u64>,
    extents: Vec<Extent>,
    /// Parts of the pool that were stored to and not written back yet: where, and how many bytes.
    dirty: Vec<(u64, usize)>,
}

impl Body {
    /// What the file has whose first node is at `at`.
    fn load<M: MappedMedium>(pool: &Pool<M>, at: u64) -> io::Result<Self> {
        let mut body = Self { length: load(pool, at + 8)?, ..Self::default() };
        let mut next = at;
        while next != 0 {
            if body.nodes.len() as u64 > pool.size() / NODE as u64 || !next.is_multiple_of(LINE as u64) {
                return Err(damaged(next, "it is no node of a file"));
            }
            body.nodes.push(next);
            body.load_extents(pool)?;
            next = load(pool, next)?;
        }
        if body.length > body.capacity() {
            return Err(damaged(at, "a file is longer than its extents"));
        }
        Ok(body)
    }

    /// Adds the extents of the last node.
    fn load_extents<M: MappedMedium>(&mut self, pool: &Pool<M>) -> io::Result<()> {
        for nth in (self.nodes.len() - 1) * EXTENTS..self.nodes.len() * EXTENTS {
            let pair = self.pair_at(nth);
            let at = load(pool, pair + 8)?;
            if at == 0 {
                break;
            }
            let bytes = load(pool, pair)?;
            let is_inside = at.checked_add(bytes).is_some_and(|end| end <= pool.size());
            if !is_inside || bytes == 0 || !(at | bytes).is_multiple_of(LINE as u64) {
                return Err(damaged(pair, "it is no extent"));
            }
            if self.extents.len() != nth {
                return Err(damaged(pair, "an extent before it is missing"));
            }
            self.extents.push(Extent { from: self.capacity(), at, bytes });
        }
        Ok(())
    }

    /// Bytes that the extents have room for.
    fn capacity(&self) -> u64 {
        self.extents.last().map_or(0, |last| last.from + last.bytes)
    }

    /// Where the words of the `nth` extent lie.
    fn pair_at(&self, nth: usize) -> u64 {
        self.nodes[nth / EXTENTS] + 16 + 16 * (nth % EXTENTS) as u64
    }

    /// The parts of the pool that `len` bytes from `at` on lie in: each with its place in the pool
    /// and its bytes. The extents have room for them.
    fn parts(&self, mut at: u64, mut len: u64) -> impl Iterator<Item = (u64, usize)> + '_ {
        let mut nth = self.extents.partition_point(|extent| extent.from + extent.bytes <= at);
        std::iter::from_fn(move || {
            let extent = self.extents.get(nth).filter(|_| len > 0)?;
            let inside = at - extent.from;
            let now = len.min(extent.bytes - inside);
            (nth, at, len) = (nth + 1, at + now, len - now);
            Some((extent.at + inside, now as usize))
        })
    }

    fn mark_dirty(&mut self, at: u64, bytes: usize) {
        match self.dirty.last_mut() {
            Some((from, len)) if *from + *len as u64 == at => *len += bytes,
            _ => self.dirty.push((at, bytes)),
        }
    }
}

/// A file.
pub(crate) struct Inode<M: MappedMedium> {
    pool: Pool<M>,
    /// Its first node.
    pub(crate) at: u64,
    /// Its names. A file without a name ends with its last handle.
    pub(crate) links: AtomicUsize,
    body: RwLock<Body>,
}

impl<M: MappedMedium> Inode<M> {
    /// An empty file without a name. The caller fences before it gives it one.
    pub(crate) fn create(pool: &Pool<M>, guard: &Guard<'_, M>) -> io::Result<Self> {
        let at = fresh_node(guard)?.fenced_later().into_offset();
        Ok(Self::with(pool, Body { nodes: vec![at], ..Body::default() }))
    }

    fn with(pool: &Pool<M>, body: Body) -> Self {
        Self { pool: pool.clone(), at: body.nodes[0], links: AtomicUsize::new(0), body: RwLock::new(body) }
    }

    /// The file whose first node is at `at`.
    pub(crate) fn load(pool: &Pool<M>, at: u64) -> io::Result<Self> {
        Ok(Self::with(pool, Body::load(pool, at)?))
    }

    fn read(&self) -> RwLockReadGuard<'_, Body> {
        self.body.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Body> {
        self.body.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn pin(&self) -> io::Result<Guard<'_, M>> {
        self.pool.try_pin().map_err(io::Error::other)
    }

    pub(crate) fn length(&self) -> u64 {
        self.read().length
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let body = self.read();
        let guard = self.pin()?;
        let len = body.length.saturating_sub(at).min(buffer.len() as u64);
        let mut done = 0;
        for (place, bytes) in body.parts(at, len) {
            // Nothing writes there while the body is locked.
            let from = guard.bytes(place, bytes).ok_or_else(|| damaged(place, "an extent lies outside"))?;
            buffer[done..done + bytes].copy_from_slice(from);
            done += bytes;
        }
        Ok(done)
    }

    pub(crate) fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(bytes.len() as u64).ok_or(ErrorKind::FileTooLarge)?;
        let mut body = self.write();
        if end > body.length && !bytes.is_empty() {
            return self.append(&mut body, bytes, at);
        }
        let parts: Vec<(u64, usize)> = body.parts(at, bytes.len() as u64).collect();
        let (mut rest, mut has_streamed) = (bytes, false);
        for (place, len) in parts {
            let (now, later) = rest.split_at(len);
            has_streamed |= store_bytes(&self.pool, place, now);
            rest = later;
            if M::VOLATILE_CACHE {
                body.mark_dirty(place, len);
            }
        }
        if has_streamed {
            // PERSIST: what went past the cache: only this thread can wait for it.
            self.pool.region().fence();
        }
        Ok(())
    }

    /// Writes bytes that make the file longer.
    fn append(&self, body: &mut Body, bytes: &[u8], at: u64) -> io::Result<()> {
        let end = at + bytes.len() as u64;
        self.reserve(body, end)?;
        self.zero(body, body.length, at);
        let mut rest = bytes;
        for (place, len) in body.parts(at, bytes.len() as u64) {
            let (now, later) = rest.split_at(len);
            store_bytes(&self.pool, place, now);
            self.pool.region().write_back_bytes(place, len);
            rest = later;
        }
        self.set_length_word(body, end);
        Ok(())
    }

    /// Stores zeros from `from` up to `to`, and starts to write them back.
    fn zero(&self, body: &Body, from: u64, to: u64) {
        for (place, len) in body.parts(from, to.saturating_sub(from)) {
            let pieces = (0..len).step_by(ZEROS.len());
            for done in pieces {
                let now = ZEROS.len().min(len - done);
                store_bytes(&self.pool, place + done as u64, &ZEROS[..now]);
            }
            self.pool.region().write_back_bytes(place, len);
        }
    }

    fn set_length_word(&self, body: &mut Body, length: u64) {
        // PERSIST: the bytes, and then the length that covers them. A crash in between leaves the
        // old length.
        self.pool.region().fence();
        store(&self.pool, self.at + 8, length);
        self.pool.region().fence();
        body.length = length;
    }

    pub(crate) fn set_length(&self, length: u64) -> io::Result<()> {
        let mut body = self.write();
        if length > body.length {
            self.reserve(&mut body, length)?;
            self.zero(&body, body.length, length);
            self.set_length_word(&mut body, length);
        } else if length < body.capacity() {
            self.set_length_word(&mut body, length);
            self.trim(&mut body)?;
        }
        Ok(())
    }

    /// Makes everything durable that was written.
    pub(crate) fn sync(&self) {
        let mut body = self.write();
        let dirty = std::mem::take(&mut body.dirty);
        dirty.iter().for_each(|&(at, len)| self.pool.region().write_back_bytes(at, len));
        // PERSIST: what the caller has written, before the call returns.
        self.pool.region().fence();
    }

    /// Gives the file room for `end` bytes. Waits once for memory that others give back.
    fn reserve(&self, body: &mut Body, end: u64) -> io::Result<()> {
        if end <= body.capacity() {
            return Ok(());
        }
        let mut attempt = || {
            let tried = self.try_reserve(&self.pin()?, body, end);
            // What was linked before a node was missing is of no use.
            tried.or_else(|error| self.trim(body).and(Err(error)))
        };
        match attempt() {
            Err(error) if error.kind() == ErrorKind::StorageFull && self.pool.reclaim_blocking() => attempt(),
            tried => tried,
        }
    }

    fn try_reserve(&self, guard: &Guard<'_, M>, body: &mut Body, end: u64) -> io::Result<()> {
        let capacity = body.capacity();
        let blocks = take_pieces(capacity, end, |bytes| guard.alloc(bytes as usize)).map_err(full)?;
        // PERSIST: that the blocks are taken, before anything links them.
        let fence = guard.fence();
        for block in blocks {
            let bytes = block.len() as u64;
            self.link(guard, body, block.fenced(&fence), bytes)?;
        }
        // PERSIST: the extents before a length that needs them.
        guard.fence();
        Ok(())
    }

    /// Adds an extent. The caller fences.
    fn link(
        &self,
        guard: &Guard<'_, M>,
        body: &mut Body,
        block: Durable<'_, M>,
        bytes: u64,
    ) -> io::Result<()> {
        let nth = body.extents.len();
        if nth == body.nodes.len() * EXTENTS {
            let node = fresh_node(guard)?;
            // PERSIST: an empty node, before it is linked.
            let node = node.persist().into_offset();
            store(&self.pool, *body.nodes.last().expect("a file has a node"), node);
            body.nodes.push(node);
        }
        let extent = Extent { from: body.capacity(), at: block.into_offset(), bytes };
        let pair = body.pair_at(nth);
        // PERSIST: both lie in one line, which keeps their order: an offset has its bytes.
        store(&self.pool, pair, bytes);
        store(&self.pool, pair + 8, extent.at);
        body.extents.push(extent);
        Ok(())
    }

    /// Gives back the extents behind the length, and the nodes that have none then.
    fn trim(&self, body: &mut Body) -> io::Result<()> {
        let guard = self.pin()?;
        let mut gone = Vec::new();
        while let Some(last) = body.extents.pop_if(|last| last.from >= body.length) {
            store(&self.pool, body.pair_at(body.extents.len()) + 8, 0);
            gone.push((last.at, last.bytes as usize));
        }
        let needed = body.extents.len().div_ceil(EXTENTS).max(1);
        while body.nodes.len() > needed {
            gone.extend(body.nodes.pop().map(|node| (node, NODE)));
            store(&self.pool, body.nodes[body.nodes.len() - 1], 0);
        }
        let dirty = std::mem::take(&mut body.dirty);
        dirty.iter().for_each(|&(at, len)| self.pool.region().write_back_bytes(at, len));
        // PERSIST: that nothing links them, before they serve others.
        guard.fence();
        gone.into_iter().for_each(|(at, bytes)| guard.retire(at, bytes));
        Ok(())
    }

    /// Calls `each` with the offset and the bytes of each of its blocks.
    pub(crate) fn each_block(&self, each: &mut dyn FnMut(u64, usize)) {
        let body = self.read();
        body.nodes.iter().for_each(|&node| each(node, NODE));
        body.extents.iter().for_each(|extent| each(extent.at, extent.bytes as usize));
    }

    /// Checks that the pool has of it what this process has noted.
    pub(crate) fn verify(&self) -> io::Result<()> {
        let (body, stored) = (self.read(), Body::load(&self.pool, self.at)?);
        let is_same =
            (body.length, &body.nodes, &body.extents) == (stored.length, &stored.nodes, &stored.extents);
        if is_same { Ok(()) } else { Err(damaged(self.at, "a file has changed beside its owner")) }
    }
}

impl<M: MappedMedium> Drop for Inode<M> {
    fn drop(&mut self) {
        // ORDER: Acquire: pairs with the Release of the thread that took its last name.
        if self.links.load(Acquire) > 0 {
            return;
        }
        let Ok(guard) = self.pool.try_pin() else { return };
        // No name leads to it, durably, and no handle either.
        self.each_block(&mut |at, bytes| guard.retire(at, bytes));
    }
}

/// Blocks that take a file from a capacity of `from` bytes to `end`: large ones, or smaller ones
/// where the free memory is in pieces. A search for a size that is not there takes long, so no size
/// is asked for again once it was refused.
fn take_pieces<B, E>(from: u64, end: u64, mut alloc: impl FnMut(u64) -> Result<B, E>) -> Result<Vec<B>, E> {
    let (mut blocks, mut capacity, mut most) = (Vec::new(), from, EXTENT_MAX);
    while capacity < end {
        let needed = end - capacity;
        let wanted = needed.max(capacity.min(GROWTH_MAX)).clamp(EXTENT_MIN, most);
        let mut bytes = wanted.next_multiple_of(LINE as u64);
        let block = loop {
            let smaller = match alloc(bytes) {
                Ok(block) => break block,
                Err(error) if bytes <= EXTENT_MIN => return Err(error),
                Err(_) if bytes > needed.next_multiple_of(LINE as u64) => needed,
                Err(_) => bytes / 2,
            };
            bytes = smaller.max(EXTENT_MIN).next_multiple_of(LINE as u64);
            most = bytes;
        };
        capacity += bytes;
        blocks.push(block);
    }
    Ok(blocks)
}

/// A node without extents, written back.
fn fresh_node<'g, M: MappedMedium>(guard: &'g Guard<'g, M>) -> io::Result<Fresh<'g, M>> {
    let node = guard.alloc(NODE).map_err(full)?;
    node.write(0, &[0; NODE]);
    node.write_back();
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes pieces of at most `most` bytes. Returns how many there were, and refusals.
    fn pieces(from: u64, end: u64, most: u64) -> (Result<u64, ()>, u64) {
        let mut refused = 0;
        let taken = take_pieces(from, end, |bytes| {
            assert!(bytes.is_multiple_of(LINE as u64));
            refused += u64::from(bytes > most);
            if bytes > most { Err(()) } else { Ok(bytes) }
        });
        (taken.map(|blocks| from + blocks.iter().sum::<u64>()), refused)
    }

    #[test]
    fn sizes_that_were_refused_are_not_asked_for_again() {
        for most in [256, 1000, 4096, 100_000] {
            let (taken, refused) = pieces(0, 4 << 20, most);
            assert!(taken.is_ok_and(|end| end >= 4 << 20), "{most}");
            assert!(refused < 20, "{refused} refusals of more than {most} bytes");
        }
        let (none, refused) = pieces(1 << 20, 2 << 20, 0);
        assert!(none.is_err() && refused < 20, "{refused}");
        assert_eq!(pieces(0, 10, u64::MAX), (Ok(EXTENT_MIN), 0));
        assert!(pieces(0, 8150, 4000).0.is_ok());
    }
}
