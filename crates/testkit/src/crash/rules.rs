//! What a crash may take, by kind of memory.

/// A kind of memory, and the crash it is put through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Persistent memory behind the caches of an x86: power fails.
    Pmem,
    /// Shared memory: the process dies between any two stores.
    Shm,
    /// Persistent memory whose platform writes the caches back when power fails: every store that was visible is kept.
    Eadr,
    /// A file on a disk, of which nothing was synced: each line has reached the disk at some time or not at all.
    File,
    /// Persistent memory behind the caches of an aarch64, where locked instructions keep nothing: power fails.
    Arm,
    /// Memory at the other end of a fabric: nothing but a fence makes durable, and pieces of one line arrive in no order.
    Remote,
}

impl Profile {
    /// All of them. Their places are part of the seeds of findings, so new ones come last.
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

    /// What happens to it.
    pub fn crash(self) -> &'static str {
        match self {
            Self::Shm => "the process was killed",
            Self::File => "the machine went down",
            _ => "the machine lost power",
        }
    }

    /// Whether code runs on it that believes in a volatile cache.
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

/// What is kept and what may be lost. Everywhere an aligned 8-byte store is atomic and nothing larger is, and a bulk copy is 8-byte pieces in
/// no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A store that is visible is kept.
    pub keeps_stores: bool,
    /// A fence keeps what its thread wrote back or streamed before.
    pub fences_keep: bool,
    /// A read-modify-write keeps what its thread wrote back before (not what it streamed).
    pub locked_orders: bool,
    /// Of the stores to one line a prefix is kept; otherwise any of them.
    pub keeps_line_order: bool,
}

#[cfg(test)]
mod tests;
