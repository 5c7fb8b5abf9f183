//! What a write survives, and how a caller learns that it does.

use std::fmt;

/// What a store keeps through which failure. Each level keeps what the levels before it keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Nothing outlives the process.
    None,
    /// Everything survives the death of the process, nothing a crash of the machine.
    Process,
    /// Everything survives the death of the process; a crash of the machine takes at most the
    /// writes of the last interval.
    Interval,
    /// Everything survives the loss of power.
    Power,
}

impl Durability {
    /// All levels, the weakest first.
    pub const ALL: [Self; 4] = [Self::None, Self::Process, Self::Interval, Self::Power];

    /// The level with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.to_string() == name)
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Interval => "interval",
            Self::Power => "power",
        })
    }
}

/// When a single write returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durably {
    /// Once it survives what the store was opened with.
    #[default]
    Store,
    /// Once it survives this as well, if the store can promise so much.
    AtLeast(Durability),
    /// Once it is visible. [`Engine::settle`](crate::Engine::settle) makes it durable, together
    /// with all other writes made so.
    Later,
}

/// Stands for every write that was visible when [`Engine::ticket`](crate::Engine::ticket) gave it
/// out. Tickets of one store are ordered: settling one settles all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// Of an engine whose writes are durable when they return.
    pub const SETTLED: Self = Self(0);
}

/// How many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Exactly so many.
    Exact(u64),
    /// About so many: the engine would have to read its data to know.
    About(u64),
}

impl Count {
    /// The number, whether exact or not.
    pub fn get(self) -> u64 {
        match self {
            Self::Exact(count) | Self::About(count) => count,
        }
    }

    /// Whether the number is exact.
    pub fn is_exact(self) -> bool {
        matches!(self, Self::Exact(_))
    }
}
