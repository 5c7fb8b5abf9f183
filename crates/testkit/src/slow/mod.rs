//! Memory that is slower than this machine's, according to a profile.
//!
//! ```text
//!  thread ── hit ──▶ CPU cache (shared, 512 KiB, 8 ways)                    free
//!     │
//!     └───── miss ─▶ device ── a block that this thread read recently       same_block_read_ns
//!                       │  ─── the block after one of those                 sequential_read_ns
//!                       │  ─── any other                                    random_read_ns
//!                       │                  never faster than read_mb_per_s, for all threads
//!                       ▼
//!            write-combining buffer ◀── write-backs, streamed lines, evicted dirty lines
//!                       │               durable after write_back_ns; the next fence waits for it
//!                       └── its oldest block ──▶ media, at write_mb_per_s
//! ```
//!
//! A load waits for its line. A store, a copy and a prefetch only start to fetch it, up to 16 at
//! once per thread, like a processor's fill buffers. An access takes the modelled or the actual
//! time, whichever is longer. So a machine whose own memory is slower than the profile cannot
//! simulate it; [`Calibration`] detects that.

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
