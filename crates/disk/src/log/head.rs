//! The head of a file of records.
//!
//! ```text
//!   | magic u64 | format u32 | 0 u32 | store u64 | number u64 | base u64 | end u64 | durable u64
//!   | previous u64 | sum u64 |
//! ```
//! `base` is the position of the head. `end` is the position at which the records of the file
//! before ended, and `previous` the sum of the last of them. So a new file tells how much of the
//! old one counts: bytes behind `end` do not. `durable` means the same as in a record.

use super::record::{Chain, Owner};
use crate::DiskError;
use crate::codec::{Reader, checksum};
use std::path::Path;
use terrace_medium::files::StoredFile;

/// Bytes of a head.
pub(crate) const HEAD: u64 = 72;
const FORMAT: u32 = 1;

/// The head of a file of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) base: u64,
    /// The end of the file before.
    pub(crate) before: Chain,
    pub(crate) durable: u64,
    /// The chain behind this head.
    pub(crate) after: Chain,
}

impl Head {
    /// Appends a head to `out`, and returns the chain behind it.
    pub(crate) fn put(
        out: &mut Vec<u8>,
        magic: [u8; 8],
        owner: Owner,
        base: u64,
        before: Chain,
        durable: u64,
    ) -> Chain {
        let start = out.len();
        out.extend_from_slice(&magic);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        for field in [owner.store, owner.file, base, before.end, durable, before.sum] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        let sum = checksum(&out[start..], owner.seed(0));
        out.extend_from_slice(&sum.to_le_bytes());
        Chain { end: base + HEAD, sum }
    }

    /// Reads the head at the beginning of `bytes`: `None` if there is no sound one.
    ///
    /// # Errors
    /// A sound head of another store, of another file of this store, or of a later format.
    fn read(bytes: &[u8], magic: [u8; 8], owner: Owner, path: &Path) -> Result<Option<Self>, DiskError> {
        let fields = || {
            let mut reader = Reader(bytes.get(..HEAD as usize)?);
            let (found, format) = (reader.take(8)?, reader.u32()?);
            if found != magic {
                return None;
            }
            reader.u32()?;
            let of = Owner { store: reader.u64()?, file: reader.u64()? };
            let (base, end, durable) = (reader.u64()?, reader.u64()?, reader.u64()?);
            let (previous, sum) = (reader.u64()?, reader.u64()?);
            let after = Chain { end: base.checked_add(HEAD)?, sum };
            Some((format, of, Self { base, before: Chain { end, sum: previous }, durable, after }))
        };
        let Some((format, of, head)) = fields() else { return Ok(None) };
        // Every format has its checksum there.
        if checksum(&bytes[..HEAD as usize - 8], of.seed(0)) != head.after.sum {
            return Ok(None);
        }
        if format > FORMAT {
            return Err(DiskError::Newer { path: path.into(), format, known: FORMAT });
        }
        if of.store != owner.store {
            return Err(DiskError::Foreign { path: path.into() });
        }
        if of != owner {
            return Err(DiskError::corrupt(path, 0, "the file has the name of another file of this store"));
        }
        Ok(Some(head))
    }
}

/// The store that the head at the beginning of `bytes` names; `None` if there is no sound head with
/// this magic.
pub(crate) fn store_in(bytes: &[u8], magic: [u8; 8]) -> Option<u64> {
    let head = bytes.get(..HEAD as usize)?;
    let mut reader = Reader(head.strip_prefix(&magic)?);
    reader.take(8)?;
    let of = Owner { store: reader.u64()?, file: reader.u64()? };
    let sum = checksum(&head[..HEAD as usize - 8], of.seed(0));
    (sum.to_le_bytes() == head[HEAD as usize - 8..]).then_some(of.store)
}

/// Reads the head of the file at `path`: `None` if it has no sound one.
pub(crate) fn read_head(
    file: &dyn StoredFile,
    path: &Path,
    magic: [u8; 8],
    owner: Owner,
) -> Result<Option<Head>, DiskError> {
    if file.length().map_err(DiskError::io("read the length of", path))? < HEAD {
        return Ok(None);
    }
    let mut bytes = [0; HEAD as usize];
    file.read_exact_at(&mut bytes, 0).map_err(DiskError::io("read", path))?;
    Head::read(&bytes, magic, owner, path)
}
