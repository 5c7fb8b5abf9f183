//! The context in which a command runs.

use terrace::Change;
use terrace_protocol::Reply;

use super::{Failure, Outcome};
use crate::{
    keyspace::{Found, Keyspace, modify},
    state::{encodings::EMBEDDED_BYTES_MAX, session_state::State, shared::Shared},
};

/// Everything that a command may use.
pub struct Context<'a> {
    /// The keys: the store or a transaction.
    pub keys: &'a mut dyn Keyspace,
    /// The state that all connections share.
    pub shared: &'a Shared,
    /// The state of this connection.
    pub state: &'a mut State,
    /// The reply. If the command fails, what it wrote here is discarded.
    pub reply: Reply<'a>,
    /// Unix milliseconds.
    pub now_ms: u64,
}

impl Context<'_> {
    /// Calls `look` with a key's entry, and counts a hit or a miss.
    pub fn read<R>(
        &mut self,
        key: &[u8],
        look: impl FnOnce(&mut Reply<'_>, Option<Found<'_>>) -> R,
    ) -> Result<R, Failure> {
        let (mut look, mut result) = (Some(look), None);
        let (reply, tally) = (&mut self.reply, &mut self.state.tally);
        self.keys.read(key, &mut |found| {
            tally.count_lookup(found.is_some());
            result = look.take().map(|look| look(reply, found));
        })?;
        result.ok_or(Failure::Text("ERR internal error: the store did not complete a read"))
    }

    /// Whether a key exists; counts a hit or a miss.
    pub fn exists(&mut self, key: &[u8]) -> Result<bool, Failure> {
        self.read(key, |_, found| found.is_some())
    }

    /// Changes a key's entry. `change` may run more than once; its last result is returned.
    pub fn modify<R>(
        &mut self,
        key: &[u8],
        change: impl FnMut(Option<Found<'_>>) -> (Change, R),
    ) -> Result<R, Failure> {
        modify(self.keys, key, change)
    }

    /// Remembers how Redis encodes a value of this length that was just written, where its bytes do
    /// not tell. The writes of a transaction are not there yet.
    pub fn remember_encoding(&mut self, key: &[u8], len: usize, encoding: &'static [u8]) {
        if len <= EMBEDDED_BYTES_MAX && !self.keys.is_transaction() {
            let stored = self.state.place().encode(key);
            self.shared.encodings.remember(&self.shared.store, &stored, encoding);
        }
    }

    /// Writes one key unconditionally.
    pub fn put(&mut self, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Outcome {
        self.keys.put(terrace::Put { key, value, expires_at })
    }
}
