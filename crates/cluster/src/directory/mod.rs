//! The directory: what the nodes of a cluster tell each other, and the wishes of the operator.
//!
//! It is kept in etcd, under `/terrace/<cluster name>/`:
//! ```text
//! id               random, written once: two clusters of one name are noticed
//! memory           where the memory node listens, and which file its     while it lives
//!                  pool is
//! members/<node>   where a serving node listens                          while it lives
//! sessions         the boot of the memory node, and the nodes it serves  while it lives
//! map              which node should own which slot; its revision is the epoch
//! leader           the manager that may write the map                    while it lives
//! drained/<node>   the node shall have no slots
//! moves            slots that the operator wants at a node
//! ```
//! Nothing here is needed for safety: the memory node alone decides which node owns a slot.

pub mod etcd;
mod follower;
pub mod memory;
mod registration;
mod state;

pub(crate) use follower::{Follower, Heard};
pub use registration::{Answers, OnRival, Registrant, Registration};
pub use state::{Leader, Member, Memory, Moves, Sessions, State, is_id, parse_ranges, ranges_text};

use crate::map::Map;
use std::fmt;
use thiserror::Error;

/// The number of a change of the directory; 0 is that of what is not there.
pub type Revision = u64;

/// What is in the directory, by key without the prefix.
pub type Entries = std::collections::BTreeMap<String, Written>;

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its text.
    pub text: String,
    /// Its revision.
    pub revision: Revision,
    /// Whether it goes with a process.
    pub is_kept: bool,
}

/// Is told each new state.
pub type OnChange = Box<dyn FnMut(State) + Send>;

/// The directory did not do what it was asked.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Nobody answers. What was asked may have been done or not.
    #[error("etcd at {endpoints} does not answer: {why}; start it, or name others with --etcd")]
    Away {
        /// Where it was looked for.
        endpoints: String,
        /// What the attempt met.
        why: String,
    },
    /// The service refuses.
    #[error("etcd at {endpoints} refuses: {why}")]
    Refused {
        /// Where it is.
        endpoints: String,
        /// Its words.
        why: String,
    },
    /// A name that is no name of a cluster.
    #[error(
        "{0:?} is no name of a cluster: give 1 to 64 letters, digits, dots, dashes or underscores, as in --cluster shop"
    )]
    Name(String),
    /// What it was told about etcd makes no sense.
    #[error("{0}")]
    Settings(String),
    /// Something of this machine failed.
    #[error("the directory cannot be used: {0}")]
    Failed(String),
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this text.
    Put(String, String),
    /// The key is gone.
    Delete(String),
}

/// A key that is kept in the directory while this lives, again after the directory was away or has
/// lost it. It ends with the directory, too.
pub struct Kept(Box<dyn Fn(Option<String>) + Send + Sync>);

impl Kept {
    /// Changes the text. The directory has it once it answers.
    pub fn set(&self, value: String) {
        (self.0)(Some(value));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        (self.0)(None);
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Kept")
    }
}

/// A key that this process alone has written. It is not written again once its lease is over.
#[derive(Debug)]
pub struct Claim {
    /// Its revision, which every write on the strength of the claim names.
    pub revision: Revision,
    _kept: Kept,
}

/// Calls back until it is dropped.
pub struct Watch(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|end| end());
    }
}

/// The directory of one cluster.
pub trait Directory: Send + Sync {
    /// What it says now.
    ///
    /// # Errors
    /// If it does not answer.
    fn read(&self) -> Result<State, DirectoryError>;

    /// Makes changes, all or none, if each of these keys has this revision. Tells the revision of
    /// the changes, or `None` if a key has another one.
    ///
    /// # Errors
    /// If it does not answer, or refuses.
    fn change(
        &self,
        conditions: &[(&str, Revision)],
        changes: &[Change],
    ) -> Result<Option<Revision>, DirectoryError>;

    /// Keeps a text under a key while this process lives, whatever the key had.
    fn keep(&self, key: &str, value: String) -> Kept;

    /// Writes a key if it has the revision `over`, until this process dies or drops the claim.
    ///
    /// # Errors
    /// If it does not answer, or refuses.
    fn claim(&self, key: &str, value: &str, over: Revision) -> Result<Option<Claim>, DirectoryError>;

    /// Calls back in a thread of its own: with the state now, and with the whole state each time
    /// after something has changed. After the directory was away, too; states may be left out.
    fn watch(&self, on_change: OnChange) -> Watch;

    /// The id of the cluster: `proposed`, if it has none yet, or one that makes no sense.
    ///
    /// # Errors
    /// If it does not answer, or refuses.
    fn identify(&self, proposed: &str) -> Result<String, DirectoryError> {
        let put = [Change::Put("id".into(), proposed.into())];
        loop {
            // First of all: a directory without room takes no change.
            let seen = match self.read()? {
                State { id: Some(id), .. } => return Ok(id),
                State { id_at, .. } => id_at,
            };
            if self.change(&[("id", seen)], &put)?.is_some() {
                return Ok(proposed.into());
            }
        }
    }

    /// Tells which nodes the memory node serves, while it lives. Changes go to [`Kept::set`] as
    /// [`Sessions::text`].
    fn publish(&self, sessions: &Sessions) -> Kept {
        self.keep("sessions", sessions.text())
    }

    /// Tells where a serving node listens, while it lives. Changes go to [`Kept::set`] as
    /// [`Member::text`].
    fn register(&self, node: &str, member: &Member) -> Kept {
        self.keep(&format!("members/{node}"), state::text(member))
    }

    /// Becomes the manager in the place of the one that was seen, if any.
    ///
    /// # Errors
    /// If it does not answer, or refuses.
    fn lead(&self, name: &str, over: Option<&Leader>) -> Result<Option<Claim>, DirectoryError> {
        self.claim("leader", name, over.map_or(0, |leader| leader.revision))
    }

    /// Writes the map, as the manager with this claim, over the map and the moves of a state.
    /// `None`: one of them has changed.
    ///
    /// # Errors
    /// If it does not answer, or refuses.
    fn put_map(
        &self,
        leader: &Claim,
        seen: &State,
        map: &Map,
        moves: Option<&Moves>,
    ) -> Result<Option<Revision>, DirectoryError> {
        let conditions = [("leader", leader.revision), ("map", seen.epoch), ("moves", seen.moves.revision)];
        let mut changes = vec![Change::Put("map".into(), state::map_text(map))];
        changes.extend(moves.map(|moves| Change::Put("moves".into(), moves.text())));
        self.change(&conditions, &changes)
    }

    /// Writes the moves, over those that were seen. `None`: they have changed.
    ///
    /// # Errors
    /// If it does not answer, or refuses.
    fn put_moves(&self, seen: &Moves, moves: &Moves) -> Result<Option<Revision>, DirectoryError> {
        self.change(&[("moves", seen.revision)], &[Change::Put("moves".into(), moves.text())])
    }

    /// Says whether a node shall have no slots.
    ///
    /// # Errors
    /// If it does not answer, or refuses.
    fn drain(&self, node: &str, is_drained: bool) -> Result<(), DirectoryError> {
        let key = format!("drained/{node}");
        let change = if is_drained { Change::Put(key, "{}".into()) } else { Change::Delete(key) };
        self.change(&[], &[change]).map(|_| ())
    }
}

/// The prefix of a cluster's keys.
fn prefix(cluster: &str) -> Result<String, DirectoryError> {
    let is_fine = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let is_name = (1..=64).contains(&cluster.len()) && cluster.chars().all(is_fine);
    is_name.then(|| format!("/terrace/{cluster}/")).ok_or_else(|| DirectoryError::Name(cluster.into()))
}
