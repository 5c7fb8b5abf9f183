//! How a space divides its memory.

/// How a space divides its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Bytes of a page: a power of two.
    pub page_bytes: u64,
    /// Pages of a block: a power of two.
    pub block_pages: u64,
    /// Threads that add records at once, each to a page of its own.
    pub seats: usize,
}

impl Shares {
    /// The shares of so many bytes of DRAM: pages of a MiB and blocks of a sixteenth where there is
    /// enough for that.
    pub fn of(dram: u64) -> Self {
        // A page has room for the longest key.
        let page_bytes = (dram / 256).next_power_of_two().clamp(128 << 10, 1 << 20);
        let block = (dram / 16).next_power_of_two().clamp(4 * page_bytes, 1 << 30);
        let seats = (dram / 32 / page_bytes).clamp(1, 32) as usize;
        Self { page_bytes, block_pages: block / page_bytes, seats }
    }

    /// The same for a store that is only read: each value of the log has room in a page, as it
    /// cannot get a file.
    pub(crate) fn for_reading(self) -> Self {
        const PAGE: u64 = 512 << 10;
        let block_bytes = self.block_bytes();
        let page_bytes = self.page_bytes.max(PAGE.min(block_bytes));
        Self { page_bytes, block_pages: block_bytes / page_bytes, ..self }
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        self.page_bytes * self.block_pages
    }

    /// The same for blocks of so many bytes.
    pub(crate) fn with_block(self, bytes: u64) -> Self {
        let page_bytes = self.page_bytes.min(bytes);
        Self { page_bytes, block_pages: bytes / page_bytes, ..self }
    }
}
