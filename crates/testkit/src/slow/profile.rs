//! The speed of kinds of memory, with sources.

/// The speed of a kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name on command lines and in reports.
    pub name: &'static str,
    /// Bytes that the device reads and writes at once.
    pub block_bytes: u64,
    /// Latency of a line in a block that is not near a recently read one.
    pub random_read_ns: u64,
    /// Latency of a line in the block after one that the thread recently read.
    pub sequential_read_ns: u64,
    /// Latency of another line in a block that the thread recently read.
    pub same_block_read_ns: u64,
    /// Time from a write-back until the line is durable.
    pub write_back_ns: u64,
    /// Read bandwidth of all threads together; 0 means unlimited.
    pub read_mb_per_s: u64,
    /// Write bandwidth of all threads together; 0 means unlimited.
    pub write_mb_per_s: u64,
    /// Size of the device's write-combining buffer; 0 means there is none.
    pub write_combining_bytes: u64,
}

impl Profile {
    /// Local DRAM: 98 ns and 147 GB/s, measured on the machine of the SHIFT paper (chapter 5 of the
    /// RECIPE/DINOMO/SHIFT thesis, experimental setup), within the 80 to 140 ns of its
    /// introduction. The sequential figure is an assumption, here and in other profiles without a
    /// source: a quarter, as with a processor's prefetcher.
    pub const DRAM: Self = Self {
        name: "dram",
        block_bytes: 64,
        random_read_ns: 98,
        sequential_read_ns: 25,
        same_block_read_ns: 25,
        write_back_ns: 98,
        read_mb_per_s: 147_000,
        write_mb_per_s: 147_000,
        write_combining_bytes: 0,
    };

    /// One DIMM of Intel Optane DC persistent memory, first series.
    ///
    /// - Blocks of 256 bytes, reads of 300 to 400 ns, 6 GB/s per DIMM: Rewo-Hash paper, Table 3.
    ///   The profile uses the middle of the range.
    /// - Write latency: within 3 to 9% of DRAM's (section 2.2 there, "write latency"). Reads take
    ///   3.0 times DRAM's there, so DRAM is at 117 ns and a write at 124.
    /// - Write bandwidth: a third of DRAM's for reads and an eighth for writes (the same section),
    ///   so three eighths of the read bandwidth.
    /// - The buffer of 16 KiB: thesis on WipDB, TurboHash and Spot-on, section 4.2.2. Random writes
    ///   of 64 B must run at a quarter of the speed (section 4.1); the buffer and the blocks of 256
    ///   bytes cause that.
    /// - Sequential: 16 reads in a row cost between a quarter and a seventh of 16 random ones
    ///   (section 3.2.2 there). 100 ns for the next block and 30 for another line of the same block
    ///   make it 5.5 times; how the two share it is an assumption.
    pub const OPTANE_100: Self = Self {
        name: "optane-100",
        block_bytes: 256,
        random_read_ns: 350,
        sequential_read_ns: 100,
        same_block_read_ns: 30,
        write_back_ns: 124,
        read_mb_per_s: 6_000,
        write_mb_per_s: 2_250,
        write_combining_bytes: 16 << 10,
    };

    /// Memory behind a CXL link: 170 to 300 ns, of which the profile uses the middle, and 80 GB/s
    /// (chapter 5 of the RECIPE/DINOMO/SHIFT thesis: its introduction, and its stand-in machine).
    pub const CXL: Self = Self {
        name: "cxl",
        block_bytes: 64,
        random_read_ns: 235,
        sequential_read_ns: 59,
        same_block_read_ns: 59,
        write_back_ns: 235,
        read_mb_per_s: 80_000,
        write_mb_per_s: 80_000,
        write_combining_bytes: 0,
    };

    /// Samsung's CMM-H: flash behind DRAM behind a CXL link. Pages of 4 KiB, 850 to 950 ns, 4 GB/s
    /// per lane (Rewo-Hash paper, Table 3). Assumed: 8 lanes, and that a page in the module's DRAM
    /// costs as much as the slowest CXL memory, 300 ns.
    pub const CMM_H: Self = Self {
        name: "cmm-h",
        block_bytes: 4096,
        random_read_ns: 900,
        sequential_read_ns: 300,
        same_block_read_ns: 300,
        write_back_ns: 300,
        read_mb_per_s: 32_000,
        write_mb_per_s: 32_000,
        write_combining_bytes: 1 << 20,
    };

    /// Phase-change memory as emulated in the level hashing paper (section 5.2.3): 200 ns per read,
    /// 600 ns after each write-back. Unlimited bandwidth.
    pub const PCM: Self = Self {
        name: "pcm",
        block_bytes: 64,
        random_read_ns: 200,
        sequential_read_ns: 50,
        same_block_read_ns: 50,
        write_back_ns: 600,
        read_mb_per_s: 0,
        write_mb_per_s: 0,
        write_combining_bytes: 0,
    };

    /// All of them.
    pub const ALL: [Self; 5] = [Self::DRAM, Self::OPTANE_100, Self::CXL, Self::CMM_H, Self::PCM];

    /// The profile with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }

    /// Lines per block.
    pub(super) fn lines_of_block(&self) -> u64 {
        self.block_bytes / terrace_medium::LINE as u64
    }
}
