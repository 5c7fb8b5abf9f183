//! What a store can be made of: its index, and its engine.

/// The index of a store. Chosen when the store is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Index {
    /// A hash table with buckets of one cache line. Keys have no order.
    #[default]
    Clht,
    /// TurboHash: a hash table of small shards that are resized one by one, with buckets of 256
    /// bytes. Keys have no order.
    Turbo,
    /// Rewo-Hash: a cuckoo hash table with buckets of 256 bytes, the most compact: it grows when
    /// more than 92% is used, by splitting one of 16 large tables. Keys have no order.
    Rewo,
    /// Level hashing: a hash table of two levels with buckets of 128 bytes, which fills up before
    /// it grows, in place. Keys have no order.
    Level,
    /// Adaptive radix tree (P-ART). Keeps keys in order, so the store has ranges:
    /// [`Store::range`](crate::Store::range).
    Art,
    /// Height optimized trie (P-HOT): the ordered index with the least memory for byte strings.
    Hot,
    /// Masstree (P-Masstree): B-link trees of 15 keys a node, one for each 8 bytes of a key. Keeps
    /// keys in order.
    Masstree,
    /// Bw-tree (P-BwTree): pages behind a table of addresses, changed without locks: a writer waits
    /// for nobody but a batch of writes to its keys. In a full pool, removals and updates take a
    /// lock. Keeps keys in order.
    BwTree,
    /// SPTree: nodes of 64 keys behind a Masstree of their borders, for pools that are slower than
    /// DRAM. It can have layers in DRAM: [`Options::index_dram`](crate::Options::index_dram). Keeps
    /// keys in order.
    SpTree,
}

impl Index {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Clht,
        Self::Turbo,
        Self::Rewo,
        Self::Level,
        Self::Art,
        Self::Hot,
        Self::Masstree,
        Self::BwTree,
        Self::SpTree,
    ];

    /// Its name, as in commands and in [`Stats::index`](crate::Stats::index).
    pub fn name(self) -> &'static str {
        match self {
            Self::Clht => "clht",
            Self::Turbo => "turbo",
            Self::Rewo => "rewo",
            Self::Level => "level",
            Self::Art => "art",
            Self::Hot => "hot",
            Self::Masstree => "masstree",
            Self::BwTree => "bwtree",
            Self::SpTree => "sptree",
        }
    }

    /// Whether this program was built with it: each but P-CLHT is a feature of this crate.
    pub fn is_built(self) -> bool {
        match self {
            Self::Clht => true,
            Self::Turbo => cfg!(feature = "turbo"),
            Self::Rewo => cfg!(feature = "rewo"),
            Self::Level => cfg!(feature = "level"),
            Self::Art => cfg!(feature = "art"),
            Self::Hot => cfg!(feature = "hot"),
            Self::Masstree => cfg!(feature = "masstree"),
            Self::BwTree => cfg!(feature = "bwtree"),
            Self::SpTree => cfg!(feature = "sptree"),
        }
    }

    /// Whether it keeps keys in order, so that the store has ranges.
    pub fn is_ordered(self) -> bool {
        match self {
            Self::Clht | Self::Turbo | Self::Rewo | Self::Level => false,
            Self::Art | Self::Hot | Self::Masstree | Self::BwTree | Self::SpTree => true,
        }
    }

    /// The ordered index for a store of which nothing else is known.
    pub const ORDERED: Self = Self::Art;

    /// The index with this name; `ordered` stands for [`Index::ORDERED`].
    pub fn named(name: &str) -> Option<Self> {
        if name == "ordered" {
            return Some(Self::ORDERED);
        }
        Self::ALL.into_iter().find(|index| index.name() == name)
    }
}

/// How a store keeps its entries. Chosen when the store is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// In a pool of memory that outlives the process.
    #[default]
    Direct,
    /// In files of a directory, in the order of their keys: for data larger than memory, durable on
    /// any disk.
    Wip,
    /// In DRAM and on a slower tier: the index and what is used often in DRAM, everything in files
    /// of a directory, or in a pool of persistent or CXL memory. For point reads and writes of data
    /// larger than DRAM.
    Tiered,
}

impl Engine {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Wip, Self::Tiered];

    /// Its name, as in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Wip => "wip",
            Self::Tiered => "tiered",
        }
    }

    /// The engine with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| engine.name() == name)
    }
}
