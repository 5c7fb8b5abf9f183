//! Memory that is slower than this machine's, by a profile.
//!
//! ```text
//!  thread ── hit ──▶ CPU cache (shared, 512 KiB, 8 ways)                      free
//!     │
//!     └───── miss ─▶ device ── a block that this thread has lately read       same_block_read_ns
//!                       │  ─── the block after one of those                   sequential_read_ns
//!                       │  ─── any other                                      random_read_ns
//!                       │                  and never faster than read_mb_per_s, which all threads share
//!                       ▼
//!            write-combining buffer ◀── write-backs, streamed lines, dirty lines that the cache drops
//!                       │               durable after write_back_ns, for which the next fence waits
//!                       └── its oldest block ──▶ media, at write_mb_per_s
//! ```
//!
//! A load waits for its line; a store, a copy and a prefetch only start to fetch it, 16 of them at once for each thread, as a processor's fill buffers do.
//! An access lasts as long as the model says or as long as it really takes, whichever is longer: so a machine
//! whose own memory is slower than the profile cannot show it, and [`Calibration`] says so.

mod cache;
mod calibration;
mod clock;
mod device;
mod medium;
mod profile;
mod thread;

pub use calibration::{Calibration, Comparison};
pub use device::Traffic;
pub use medium::Slow;
pub use profile::Profile;
