//! The root directory: named entry points into a pool's data structures.
//!
//! ```text
//! word 0      0: free, else a hash of words 1 to 6 with its lowest byte 1
//!      1..5   name, padded with zeros
//!      5..7   kind, padded with zeros
//!      7      hash of the offset (20) | offset (44)
//! ```
//!
//! A root is one line, so its words become durable in the order of their stores. Word 0, which
//! publishes it, comes last. After that only word 7 changes. Entries are never freed: a root that
//! is no longer needed is set to 0.

use crate::base::Base;
use crate::error::RootError;
use crate::format::finding::Finding;
use crate::format::layout::MAX_POOL;
use crate::pool::Pool;
use crate::pool::inner::Inner;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use terrace_medium::{Line, MappedMedium, Offset};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const NAME_BYTES: usize = 31;
const KIND_BYTES: usize = 15;
/// Words 1 to 6: name and kind.
type Identity = [u64; 6];

/// A root in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its name.
    pub name: String,
    /// The kind of structure that it points to.
    pub kind: String,
    /// The offset of that structure; `None` if the root points to nothing.
    pub offset: Option<u64>,
}

/// The content of a directory entry.
enum Slot {
    Free,
    Named(Identity),
    Damaged,
}

impl<M: MappedMedium> Pool<M> {
    /// The offset that root `name` points to; `None` if there is no such root or it points to
    /// nothing.
    pub fn root(&self, name: &str, kind: &str) -> Result<Option<u64>, RootError> {
        let (directory, wanted) = (self.0.directory(), identity(name, kind)?);
        let Some(index) = directory.find(name, &wanted)? else { return Ok(None) };
        let line = directory.line(index);
        let word = line.0[7].load(self.medium(), Acquire);
        // PERSIST: the writer may not have made it durable yet, and the caller's next writes may
        // become durable before it.
        self.region().persist(line);
        match decode(word, &wanted, self.size()) {
            Some(0) => Ok(None),
            Some(offset) => Ok(Some(offset)),
            None => Err(directory.damaged(name, index)),
        }
    }

    /// Points root `name` to `offset`, or to nothing if that is 0; creates the root if it is
    /// missing. Atomic; durable on return.
    pub fn set_root(&self, name: &str, kind: &str, offset: u64) -> Result<(), RootError> {
        let (directory, wanted) = (self.0.directory(), identity(name, kind)?);
        directory.check_target(offset)?;
        let _alone = self.0.roots();
        let word = encode(offset, &wanted);
        let index = match directory.find(name, &wanted)? {
            Some(index) => {
                // ORDER: Release: a thread that follows the root sees what it points to.
                directory.line(index).0[7].store(self.medium(), word, Release);
                index
            }
            None => directory.make(&wanted, word)?,
        };
        // PERSIST: after what it points to, which the caller persists. A crash before leaves the
        // root unchanged.
        self.region().persist(directory.line(index));
        Ok(())
    }

    /// Points root `name` to `new` if it points to `expected` (0 is nothing in both). Returns
    /// whether it did. Durable on return.
    pub fn swap_root(&self, name: &str, kind: &str, expected: u64, new: u64) -> Result<bool, RootError> {
        let (directory, wanted) = (self.0.directory(), identity(name, kind)?);
        directory.check_target(new)?;
        let index = directory.find(name, &wanted)?.ok_or_else(|| RootError::Missing(name.into()))?;
        let line = directory.line(index);
        let (expected, new) = (encode(expected & (MAX_POOL - 1), &wanted), encode(new, &wanted));
        // ORDER: AcqRel: as in `root` and `set_root`.
        let swapped = line.0[7].compare_exchange(self.medium(), expected, new, AcqRel, Relaxed).is_ok();
        // PERSIST: as in `set_root`.
        self.region().persist(line);
        Ok(swapped)
    }

    /// All intact roots.
    pub fn roots(&self) -> Vec<Root> {
        let directory = self.0.directory();
        let root = |index| match directory.slot(index) {
            Slot::Named(identity) => {
                let word = directory.line(index).0[7].load(self.medium(), Acquire);
                let offset = decode(word, &identity, self.size()).filter(|&offset| offset != 0);
                let (name, kind) = (text(&identity[..4]), text(&identity[4..]));
                Some(Root { name, kind, offset })
            }
            _ => None,
        };
        (0..self.layout().geometry.roots).filter_map(root).collect()
    }
}

impl<M: MappedMedium> Inner<M> {
    /// The root directory, without exclusive access.
    pub(crate) fn directory(&self) -> Directory<'_, M> {
        Directory(self.base())
    }
}

/// The entries of the root directory.
pub(crate) struct Directory<'p, M: MappedMedium>(&'p Base<M>);

impl<'p, M: MappedMedium> Directory<'p, M> {
    /// Checks the directory and returns the violations.
    pub(crate) fn verify(&self) -> Vec<Finding> {
        let finding = |index, expected: &str, found: &str| {
            Finding::new(self.0.layout.root(index), "a root of the directory", expected, found)
        };
        let verify = |index| match self.slot(index) {
            Slot::Free => None,
            Slot::Damaged => Some(finding(index, "a name and kind that fit their hash", "ones that do not")),
            Slot::Named(identity) => {
                let word = self.line(index).0[7].load(self.0.medium(), Acquire);
                let sound = decode(word, &identity, self.0.size()).is_some();
                let found = format!("{word:#x} in `{}`", text(&identity[..4]));
                (!sound).then(|| finding(index, "an offset in the pool that fits its hash", &found))
            }
        };
        (0..self.0.layout.geometry.roots).filter_map(verify).collect()
    }

    /// The entry of root `name`. A damaged entry may be the wanted one; then absence is not
    /// certain.
    fn find(&self, name: &str, wanted: &Identity) -> Result<Option<u32>, RootError> {
        let mut damaged = None;
        for index in 0..self.0.layout.geometry.roots {
            match self.slot(index) {
                Slot::Named(found) if found == *wanted => return Ok(Some(index)),
                Slot::Named(found) if found[..4] == wanted[..4] => {
                    let (found, asked) = (text(&found[4..]), text(&wanted[4..]));
                    return Err(RootError::Kind { name: name.into(), found, asked });
                }
                Slot::Damaged => damaged = damaged.or(Some(index)),
                Slot::Named(_) | Slot::Free => {}
            }
        }
        damaged.map_or(Ok(None), |index| Err(self.damaged(name, index)))
    }

    /// Fills a free entry. The caller has exclusive access and persists the entry.
    fn make(&self, identity: &Identity, offset_word: u64) -> Result<u32, RootError> {
        let roots = self.0.layout.geometry.roots;
        let free = (0..roots).find(|&index| matches!(self.slot(index), Slot::Free));
        let index = free.ok_or(RootError::Full { roots })?;
        let (line, medium) = (self.line(index), self.0.medium());
        for (word, &value) in line.0[1..].iter().zip(identity.iter().chain([&offset_word])) {
            word.store(medium, value, Relaxed);
        }
        // ORDER: Release: a thread that sees the root sees its name and what it points to. On the
        // medium, stores to one line become durable in their order.
        line.0[0].store(medium, hash(identity), Release);
        Ok(index)
    }

    fn slot(&self, index: u32) -> Slot {
        let (line, medium) = (self.line(index), self.0.medium());
        match line.0[0].load(medium, Acquire) {
            0 => Slot::Free,
            state => {
                let identity = std::array::from_fn(|i| line.0[1 + i].load(medium, Relaxed));
                if hash(&identity) == state { Slot::Named(identity) } else { Slot::Damaged }
            }
        }
    }

    fn line(&self, index: u32) -> &'p Line {
        self.0.region.at(Offset::new(self.0.layout.root(index)))
    }

    fn check_target(&self, offset: u64) -> Result<(), RootError> {
        if offset == 0 || (offset < self.0.size() && offset.is_multiple_of(8)) {
            return Ok(());
        }
        Err(RootError::OutOfBounds(offset))
    }

    fn damaged(&self, name: &str, index: u32) -> RootError {
        RootError::Damaged { name: name.into(), offset: self.0.layout.root(index) }
    }
}

fn identity(name: &str, kind: &str) -> Result<Identity, RootError> {
    let mut bytes = [0; 48];
    for (text, start, most) in [(name, 0, NAME_BYTES), (kind, 32, KIND_BYTES)] {
        if !(1..=most).contains(&text.len()) || text.contains('\0') {
            return Err(RootError::Name(text.into()));
        }
        bytes[start..start + text.len()].copy_from_slice(text.as_bytes());
    }
    let mut words = [0; 6];
    for (word, piece) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*piece);
    }
    Ok(words)
}

fn text(words: &[u64]) -> String {
    let mut bytes = Vec::with_capacity(words.len() * 8);
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()).take_while(|&b| b != 0));
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Word 0 of a root with this identity. Never 0.
fn hash(identity: &Identity) -> u64 {
    let bytes = identity.map(u64::to_le_bytes);
    xxh3_64_with_seed(bytes.as_flattened(), 0) & !0xff | 1
}

/// Word 7 of a root with this identity.
fn encode(offset: u64, identity: &Identity) -> u64 {
    debug_assert!(offset < MAX_POOL, "offset {offset:#x} does not fit beside its hash");
    offset | xxh3_64_with_seed(&offset.to_le_bytes(), hash(identity)) & !(MAX_POOL - 1)
}

/// The offset in word 7, if its hash is right and it is in a pool of `size` bytes.
fn decode(word: u64, identity: &Identity, size: u64) -> Option<u64> {
    let offset = word & (MAX_POOL - 1);
    (encode(offset, identity) == word && offset < size).then_some(offset)
}

#[cfg(test)]
#[path = "tests/roots.rs"]
mod tests;
