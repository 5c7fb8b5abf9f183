//! What a crash may lose, by kind of memory.

/// A kind of memory, and the crash that is tested on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Persistent memory behind the caches of an x86 processor: power fails.
    Pmem,
    /// Shared memory: the process is killed between any two stores.
    Shm,
    /// Persistent memory whose platform flushes the caches on a power failure: every visible store
    /// is kept.
    Eadr,
    /// A file that was never synced: each line reached the disk at some time or never.
    File,
    /// Persistent memory behind the caches of an aarch64 processor, where locked instructions make
    /// nothing durable: power fails.
    Arm,
    /// Memory across a fabric: only a fence makes stores durable, and pieces of one line arrive in
    /// any order.
    Remote,
}

impl Profile {
    /// All of them. The seeds of findings contain the position in this array, so add new ones at
    /// the end.
    pub const ALL: [Self; 6] = [Self::Pmem, Self::Shm, Self::Eadr, Self::File, Self::Remote, Self::Arm];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pmem => "pmem",
            Self::Shm => "shm",
            Self::Eadr => "eadr",
            Self::File => "file",
            Self::Remote => "remote",
            Self::Arm => "arm",
        }
    }

    /// The crash, in words.
    pub fn crash(self) -> &'static str {
        match self {
            Self::Shm => "the process was killed",
            Self::File => "the machine went down",
            _ => "the machine lost power",
        }
    }

    /// Whether the code on it assumes a volatile cache.
    pub fn has_volatile_cache(self) -> bool {
        !matches!(self, Self::Shm | Self::File)
    }

    /// Its rules.
    pub fn rules(self) -> Rules {
        let pmem =
            Rules { keeps_stores: false, locked_orders: true, keeps_line_order: true, fences_keep: true };
        match self {
            Self::Pmem => pmem,
            Self::Shm | Self::Eadr => Rules { keeps_stores: true, ..pmem },
            Self::Arm => Rules { locked_orders: false, ..pmem },
            Self::File => Rules { fences_keep: false, locked_orders: false, ..pmem },
            Self::Remote => Rules { locked_orders: false, keeps_line_order: false, ..pmem },
        }
    }
}

/// Which stores are kept and which may be lost. Under all rules, aligned 8-byte stores are atomic,
/// larger ones are not, and a bulk copy is a set of 8-byte pieces in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Every visible store is kept.
    pub keeps_stores: bool,
    /// A fence makes earlier write-backs and streamed stores of its thread durable.
    pub fences_keep: bool,
    /// A read-modify-write makes earlier write-backs of its thread durable (but not streamed
    /// stores).
    pub locked_orders: bool,
    /// A crash keeps a prefix of the stores to a line; otherwise any subset.
    pub keeps_line_order: bool,
}

#[cfg(test)]
mod tests;
