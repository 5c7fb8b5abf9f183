//! A transaction of a client: the commands that MULTI queues, and the keys that WATCH watches.

use std::collections::HashMap;

use terrace::{Store, Version};
use terrace_protocol::{Args, Queue};

use super::{
    databases::Map,
    failure::{Failure, Outcome},
};

/// Maximum number of bytes that a client may queue.
const QUEUE_BYTES_MAX: usize = 1 << 30;

/// The state between MULTI and EXEC.
#[derive(Default)]
pub(crate) struct Multi {
    queue: Queue,
    /// A command was refused, so EXEC will fail.
    broken: bool,
    /// In a cluster, the slot of the first command with keys.
    slot: Option<u16>,
    /// Another command has keys in another slot, so EXEC will fail.
    crosses_slots: bool,
    /// SWAPDB is one of the commands.
    swaps: bool,
    /// One of the commands takes long by itself.
    has_long: bool,
    /// A command reads a key, so concurrent writes can make the transaction run again.
    may_run_again: bool,
}

/// What a transaction has to know of a command that it queues.
pub(crate) struct Effects {
    /// In a cluster, the slot of its keys.
    pub(crate) slot: Option<u16>,
    /// Whether it is SWAPDB.
    pub(crate) swaps: bool,
    /// Whether it takes long by itself.
    pub(crate) is_long: bool,
    /// Whether it reads a key.
    pub(crate) reads: bool,
}

impl Multi {
    /// Queues a command that exists and has the right number of arguments.
    pub(crate) fn push(&mut self, args: Args<'_>, effects: Effects) -> Outcome {
        if self.queue.bytes() > QUEUE_BYTES_MAX {
            self.broken = true;
            return Err(Failure::Text(
                "ERR the queued commands are larger than 1 GiB: use smaller transactions",
            ));
        }
        // As in Redis, a broken transaction takes no notice of the commands behind.
        if !self.broken {
            self.crosses_slots |=
                self.slot.is_some_and(|first| effects.slot.is_some_and(|slot| slot != first));
            self.slot = self.slot.or(effects.slot);
        }
        self.swaps |= effects.swaps;
        self.has_long |= effects.is_long;
        self.may_run_again |= effects.reads;
        self.queue.push(args);
        Ok(())
    }

    /// Records that a command could not be queued.
    pub(crate) fn refuse(&mut self) {
        self.broken = true;
    }

    /// Whether a command could not be queued.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether SWAPDB is one of the commands.
    pub(crate) fn swaps(&self) -> bool {
        self.swaps
    }

    /// Whether one of the commands takes long by itself.
    pub(crate) fn has_long(&self) -> bool {
        self.has_long
    }

    /// Whether a command reads a key, so concurrent writes can make the transaction run again.
    pub(crate) fn may_run_again(&self) -> bool {
        self.may_run_again
    }

    /// The slot of all keys, if the server belongs to a cluster and there are keys.
    pub(crate) fn slot(&self) -> Result<Option<u16>, Failure> {
        if self.crosses_slots { Err(Failure::CROSS_SLOT) } else { Ok(self.slot) }
    }

    /// Number of the commands.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The commands, in order.
    pub(crate) fn commands(&self) -> impl Iterator<Item = Args<'_>> {
        self.queue.iter()
    }
}

/// Watched keys as they are stored.
pub(crate) type Watches = HashMap<Vec<u8>, Watched>;

/// A watched key of a database. It is stored elsewhere after SWAPDB.
#[derive(Debug)]
pub(crate) struct Watched {
    database: u8,
    /// Of the key where it is stored now, at WATCH or at the last SWAPDB.
    version: Version,
    /// Whether it has changed by a SWAPDB or before one.
    has_changed: bool,
}

impl Watched {
    /// A key of this database that has this version now.
    pub(crate) fn new(database: u8, version: Version) -> Watched {
        Watched { database, version, has_changed: false }
    }

    /// Whether it has changed by a SWAPDB or before one.
    pub(crate) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// The version that the key has to have.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// The watch after a SWAPDB, and the place of its key. A watch belongs to the key of a
    /// database: it changes if the key is in one of the two places, and is of its new place from
    /// now on.
    pub(crate) fn follow(
        self,
        stored: Vec<u8>,
        store: &Store,
        [before, now]: [Map; 2],
    ) -> (Vec<u8>, Watched) {
        let (was_at, is_at) = (before.place(self.database), now.place(self.database));
        if is_at == was_at {
            return (stored, self);
        }
        let key = was_at.decode(&stored).unwrap_or_default();
        let moved = is_at.encode(&key).into_owned();
        let versions = store.version(&stored).and_then(|was| Ok((was, store.version(&moved)?)));
        let watched = match versions {
            Ok((was, version)) => {
                let is_there = was.token().is_some() || version.token().is_some();
                let has_changed = self.has_changed || is_there || !was.meets(&self.version);
                Watched { version, has_changed, ..self }
            }
            // A reply of null is never wrong.
            Err(_) => Watched { has_changed: true, ..self },
        };
        (moved, watched)
    }
}
