//! The memory below a pool: where its bytes come from, and how they become durable.
//!
//! This crate holds every memory map, every flush instruction and almost all the `unsafe` of
//! Terrace. Reading order: [`Medium`] (the contract), [`Word`] and [`Offset`] (what a medium
//! holds), [`Region`] (bounds-checked access), [`Mapping`] (where the bytes come from), then the
//! media: [`Shm`], which is [`Dram`] over an anonymous mapping, and [`Pmem`]. [`files`] is
//! separate: files that are read and written, not mapped.
//!
//! `docs/model.md` says what each medium keeps through a crash.

mod compare;
mod extract;
pub mod files;
mod flush;
mod futex;
mod mapping;
mod match_bytes;
mod media;
mod medium;
mod region;
mod smaps;
mod word;

/// The kernel's boot id, another one each time the machine starts; `None` if it is not available.
pub fn boot_id() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok().filter(|&id| id != 0)
}

pub use extract::extract_bits;
pub use flush::FlushInstruction;
pub use mapping::{Backing, HugePages, MapError, Mapping, Protection};
pub use media::{Dram, Pmem, Shm};
pub use medium::{Access, BLOCK, LINE, MappedMedium, Medium, Order, external_sync, full_barrier};
pub use region::{Offset, Persistent, Region};
pub use word::{Line, Word};
