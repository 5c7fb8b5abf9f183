//! Reads of single keys by a reader elsewhere: P-CLHT's
//! [remote lookup](terrace_index::hash::remote), and then the record.
//!
//! A record never changes while it is reachable, except for its batch word. So it may be read in
//! pieces, each byte at a moment of its own. Its checksum covers the rest. The batch word becomes 0
//! once: if all of it reads as 0, it was 0 at some moment of the read, even if the word was torn.
//!
//! [`Get`] does no I/O: a caller may run many in lockstep.
//!
//! # What a remote reader may believe
//! * **A record that no batch wrote, or whose batch word is 0**: its batch was committed and
//!   finalized. Any other batch word leads to a descriptor, and a tombstone or a kept key means
//!   something only with it: then a process that has the pool is asked.
//! * **A checksum that matches.** If it does not, the record is damaged, or the reader's pin has
//!   ended: asked, too.
//! * **Nothing about time**: the owner of the key decides whether the entry has expired.

mod get;

pub use get::Get;

use crate::Kind;
use crate::record::format::{HEADER, Role, Shape};
use crate::record::layout::INDEX;
use crate::record::view::Record;
use terrace_engine::{Entry, OpenError, Value};
use terrace_index::Stored;
use terrace_index::hash::Clht;
use terrace_index::hash::remote::{Address, Answer, Fetch, Remote};
use terrace_medium::MappedMedium;
use terrace_pool::Pool;

/// The address of the index of the open store in `pool`; `None` if the pool contains no store.
///
/// # Errors
/// The index is of another kind than P-CLHT, or damaged.
pub fn address_in<M: MappedMedium>(pool: &Pool<M>) -> Result<Option<Address>, OpenError> {
    let index = Clht::<M, Kind>::recover(pool, INDEX)?;
    Ok(index.map(|index| index.address()))
}

/// What the first bytes of a record tell a reader that looks for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<'b> {
    /// The key's entry.
    Entry(Entry<'b>),
    /// It is another key's record.
    OtherKey,
    /// The record is longer than that.
    More {
        /// Bytes of it to read.
        len: usize,
    },
    /// A remote reader cannot decide: the record belongs to a batch that is not finalized, its
    /// value lies in an extent, or it is damaged.
    Ask,
}

/// Reads a record of which these are the first bytes, for a reader that looks for `key`.
pub fn read<'b>(key: &[u8], bytes: &'b [u8]) -> Reading<'b> {
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
    let (Some(first), Some(second)) = (word(0), word(8)) else { return Reading::More { len: HEADER } };
    let shape = match Shape::decode(first) {
        None | Some(Shape { role: Role::Stray, .. }) => return Reading::Ask,
        Some(shape) if bytes.len() < shape.size() => return Reading::More { len: shape.size() },
        Some(shape) => shape,
    };
    // Nothing that is returned tells its offset.
    let record = Record::parse(0, [first, second], shape, &bytes[shape.body_at()..shape.size()]);
    let Some(record) = record.filter(|record| record.verify().is_ok()) else { return Reading::Ask };
    let is_final = match shape.role {
        Role::Single => true,
        Role::Put => word(HEADER) == Some(0),
        Role::Tombstone | Role::Keep | Role::Stray => false,
    };
    match record.body {
        body if body.key != key => Reading::OtherKey,
        body if is_final && body.external.is_none() => {
            Reading::Entry(Entry { value: body.inline, expires_at: body.expires_at, token: record.token() })
        }
        _ => Reading::Ask,
    }
}

/// Gets the entry of `key`, expired or not. First reads `guess` bytes of a record: as many as most
/// records have, so that one read is enough.
pub fn get<E>(
    remote: &mut Remote,
    key: &[u8],
    guess: usize,
    fetch: &mut Fetch<'_, E>,
) -> Result<Answer<Value<'static>>, E> {
    let mut get = Get::new(remote, key, guess);
    loop {
        if let Some(answer) = get.next(&fetch(get.reads())?) {
            get.end(remote);
            return Ok(answer);
        }
    }
}

#[cfg(test)]
#[path = "tests/reading.rs"]
mod tests;
