//! Reads of single keys by a reader elsewhere: P-CLHT's [remote lookup](terrace_index::hash::remote)
//! and then the record.
//!
//! A record never changes while it is reachable, except for its batch word, which is one word. So
//! it may be read in pieces, each word at a moment of its own. Its checksum covers the rest.
//!
//! # What a remote reader may believe
//! * **A record that no batch wrote, or whose batch word is 0**: its batch was committed and
//!   finalized. Any other batch word leads to a descriptor, and a tombstone or a kept key means
//!   something only with it: then a process that has the pool is asked.
//! * **A checksum that matches.** If it does not, the record is damaged, or the reader's pin has
//!   ended: asked, too.
//! * **Nothing about time**: the owner of the key decides whether the entry has expired.

use super::Kind;
use super::record::{HEADER, Role, Shape};
use super::root::INDEX;
use super::view::Record;
use crate::entry::Bytes;
use crate::{Entry, OpenError, Value};
use terrace_index::hash::Clht;
use terrace_index::hash::remote::{Address, Answer, Fetch, Remote};
use terrace_index::{KeyKind, Stored};
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
        body if is_final && body.external.is_none() => Reading::Entry(Entry {
            value: body.inline,
            expires_at: body.expires_at,
            token: record.token(),
        }),
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
    let address = *remote.address();
    remote.find(Kind::hash(key, address.seed), fetch, |fetch, offset| {
        read_at(&address, key, offset, guess, fetch)
    })
}

/// Reads the record at `offset`: the answer for `key`, or `None` if it is another key's.
fn read_at<E>(
    address: &Address,
    key: &[u8],
    offset: u64,
    guess: usize,
    fetch: &mut Fetch<'_, E>,
) -> Result<Option<Answer<Value<'static>>>, E> {
    let (mut bytes, mut wanted) = (Vec::new(), guess.max(HEADER));
    while bytes.len() < wanted {
        // The part that is missing.
        let Some(part) = address.block(offset + bytes.len() as u64, wanted - bytes.len()) else { break };
        let fetched = fetch(part)?;
        if fetched.len() != part.len {
            break;
        }
        bytes.extend(fetched);
        match read(key, &bytes) {
            Reading::More { len } => wanted = len,
            Reading::OtherKey => return Ok(None),
            Reading::Ask => break,
            Reading::Entry(Entry { value, expires_at, token }) => {
                let bytes = Bytes::Owned(value.to_vec());
                return Ok(Some(Answer::Found(Value { bytes, expires_at, token })));
            }
        }
    }
    Ok(Some(Answer::Ask))
}
