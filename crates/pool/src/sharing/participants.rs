//! The participant table: which processes have the pool open. One entry a process:
//!
//! ```text
//! word 0      addresses reserved, in pages (bits 32 to 63) | incarnation (14 to 31)
//!             | only reads (1) | taken (0)
//!      1      pid
//!      2      start time of the process, in the kernel's ticks since boot; detects a reused pid
//!      3      when it opened the pool, Unix ms
//!      4..7   its program, UTF-8, padded with zeros
//!      7      lock held while recovering the dead participants of this entry (see `recover`)
//! ```
//!
//! A participant can follow the pool's growth up to its reserved addresses, so no process grows the
//! pool beyond what all have reserved (see `grow`).
//!
//! After a crash only the incarnation is used, and that only makes lock words differ from older
//! ones. The file's locks determine which participants are alive (see `liveness`); the table only
//! describes them.

use crate::error::Holder;
use crate::format::layout::{Layout, MAX_POOL, PAGE, PARTICIPANT_BYTES};
use crate::sharing::clock::now_ms;
use crate::sharing::liveness::Liveness;
use crate::sharing::process::{is_stopped, printable, process_start, ran_ticks};
use crate::sync::lock::{Lock, Owner};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Line, MappedMedium, Offset, Region};

const TAKEN: u64 = 1;
const READS_ONLY: u64 = 2;
const RESERVED_SHIFT: u32 = 32;
const INCARNATION_SHIFT: u32 = 14;
const INCARNATIONS: u64 = 1 << 18;
const INCARNATION: u64 = (INCARNATIONS - 1) << INCARNATION_SHIFT;
/// Longest program name.
const PROGRAM_BYTES: usize = 24;

/// What a participant records about itself.
pub(crate) struct ProcessInfo {
    pub(crate) program: String,
    pid: u32,
    started: u64,
    opened_ms: u64,
}

impl ProcessInfo {
    /// This process, now.
    pub(crate) fn this_process(program: String) -> Self {
        let pid = std::process::id();
        Self { program, pid, started: process_start(pid).unwrap_or(0), opened_ms: now_ms() }
    }

    /// An entry without process and time, equal on every run.
    pub(crate) fn placeholder() -> Self {
        Self { program: String::new(), pid: 0, started: 0, opened_ms: 0 }
    }
}

/// Takes entry `index` for this process, which has the pool exclusively: all taken entries belong
/// to dead participants.
pub(crate) fn attach_exclusive<M: MappedMedium>(
    region: &Region<M>,
    layout: &Layout,
    generation: u32,
    info: &ProcessInfo,
) -> Owner {
    for index in 0..layout.geometry.participants {
        slot(region, layout, index).0[0].fetch_and(region.medium(), !TAKEN, Release);
        slot(region, layout, index).0[7].store(region.medium(), 0, Relaxed);
    }
    attach(region, layout, generation, info, 0)
}

/// Takes entry `index` in a new incarnation. No live participant has it, and none takes it
/// concurrently.
pub(crate) fn attach<M: MappedMedium>(
    region: &Region<M>,
    layout: &Layout,
    generation: u32,
    info: &ProcessInfo,
    index: u32,
) -> Owner {
    let line = slot(region, layout, index);
    let medium = region.medium();
    let incarnation = incarnation(line.0[0].load(medium, Relaxed)) % (INCARNATIONS - 1) + 1;
    let numbers = [u64::from(info.pid), info.started, info.opened_ms];
    for (word, value) in line.0[1..].iter().zip(numbers.into_iter().chain(program_words(&info.program))) {
        word.store(medium, value, Relaxed);
    }
    let reserved = (medium.mapping().reserved() as u64).min(MAX_POOL - PAGE) / PAGE;
    // ORDER: Release: a process that sees the entry taken sees its owner's description.
    line.0[0].store(
        medium.point("participant.attach"),
        reserved << RESERVED_SHIFT | incarnation << INCARNATION_SHIFT | TAKEN,
        Release,
    );
    Owner { participant: index as u16, incarnation: incarnation as u32, generation }
}

/// The incarnation that has entry `index`, alive or not; `None` if it is free.
pub(crate) fn holder_of<M: MappedMedium>(region: &Region<M>, layout: &Layout, index: u32) -> Option<u32> {
    let word = slot(region, layout, index).0[0].load(region.medium().point("participant.holder"), Acquire);
    (word & TAKEN != 0).then_some(incarnation(word) as u32)
}

/// The pool size in bytes up to which the participant in entry `index` can follow growth; `None` if
/// the entry is free.
pub(crate) fn reserved_bytes_of<M: MappedMedium>(
    region: &Region<M>,
    layout: &Layout,
    index: u32,
) -> Option<u64> {
    let word = slot(region, layout, index).0[0].load(region.medium(), Acquire);
    (word & TAKEN != 0).then_some((word >> RESERVED_SHIFT) * PAGE)
}

/// Records that the participant in entry `index`, this one, stores nothing to the data.
pub(crate) fn mark_read_only<M: MappedMedium>(region: &Region<M>, layout: &Layout, index: u32) {
    slot(region, layout, index).0[0].fetch_or(region.medium(), READS_ONLY, Relaxed);
}

/// The pid recorded in entry `index`; not verified.
pub(crate) fn pid_of<M: MappedMedium>(region: &Region<M>, layout: &Layout, index: u32) -> u32 {
    slot(region, layout, index).0[1].load(region.medium(), Relaxed) as u32
}

/// A key that distinguishes this occupancy of entry `index` from all others. The incarnation wraps
/// around, but not within a millisecond. Never 0.
pub(crate) fn incarnation_key<M: MappedMedium>(
    region: &Region<M>,
    layout: &Layout,
    index: u32,
    incarnation: u32,
) -> u64 {
    opened_ms_of(region, layout, index).wrapping_mul(INCARNATIONS) | u64::from(incarnation)
}

/// When the participant in entry `index` opened the pool, in Unix ms.
pub(crate) fn opened_ms_of<M: MappedMedium>(region: &Region<M>, layout: &Layout, index: u32) -> u64 {
    slot(region, layout, index).0[3].load(region.medium(), Relaxed)
}

/// Incarnation and open time of the participant in `slot`, an entry's bytes; `None` if it is free.
pub(crate) fn incarnation_and_open_time(slot: &[u8]) -> Option<(u32, u64)> {
    let word = |i: usize| slot.as_chunks().0.get(i).map_or(0, |&piece| u64::from_le_bytes(piece));
    (word(0) & TAKEN != 0).then(|| (incarnation(word(0)) as u32, word(3)))
}

/// Releases entry `index`, unless another incarnation has it by now.
pub(crate) fn release<M: MappedMedium>(region: &Region<M>, layout: &Layout, index: u32, incarnation: u32) {
    let (medium, state) = (region.medium(), &slot(region, layout, index).0[0]);
    let now = state.load(medium, Relaxed);
    if self::incarnation(now) == u64::from(incarnation) {
        let _ = state.compare_exchange(
            medium.point("participant.release"),
            now,
            now & INCARNATION,
            Release,
            Relaxed,
        );
    }
}

/// The lock held while recovering the dead participants of entry `index`.
pub(crate) fn recovery<'r, M: MappedMedium>(region: &'r Region<M>, layout: &Layout, index: u32) -> &'r Lock {
    Lock::of(&slot(region, layout, index).0[7])
}

fn slot<'r, M: MappedMedium>(region: &'r Region<M>, layout: &Layout, index: u32) -> &'r Line {
    region.at(Offset::new(layout.participant(index)))
}

fn incarnation(state: u64) -> u64 {
    state >> INCARNATION_SHIFT & (INCARNATIONS - 1)
}

fn program_words(program: &str) -> [u64; PROGRAM_BYTES / 8] {
    let mut bytes = [0; PROGRAM_BYTES];
    let len = (0..=PROGRAM_BYTES).rev().find(|&end| program.is_char_boundary(end)).unwrap_or(0);
    bytes[..len].copy_from_slice(&program.as_bytes()[..len]);
    let mut words = [0; PROGRAM_BYTES / 8];
    for (word, piece) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*piece);
    }
    words
}

/// All live participants in the table with the index of their entry, except entry `but`.
pub(crate) fn live_participants<M: MappedMedium>(
    region: &Region<M>,
    layout: &Layout,
    liveness: &dyn Liveness,
    but: Option<u32>,
) -> Vec<(u32, Holder)> {
    let others = (0..layout.geometry.participants).filter(|&index| Some(index) != but);
    let holders = others.filter(|&index| liveness.is_alive(index)).filter_map(|index| {
        let words = slot(region, layout, index).0.each_ref().map(|word| word.load(region.medium(), Acquire));
        let (holder, started) = named(words.map(u64::to_le_bytes).as_flattened())?;
        // The pid may belong to another kernel or another pid namespace.
        let is_local = liveness.has_common_kernel() && process_start(holder.pid) == Some(started);
        Some((index, if is_local { seen(holder) } else { holder }))
    });
    holders.collect()
}

/// The first live participant in `table`, the bytes of a participant table.
pub(crate) fn first_live(table: &[u8]) -> Option<Holder> {
    table.as_chunks::<{ PARTICIPANT_BYTES as usize }>().0.iter().find_map(|slot| {
        let (holder, started) = named(slot)?;
        let is_alive = process_start(holder.pid) == Some(started);
        is_alive.then(|| seen(holder))
    })
}

/// Adds the kernel's data about `holder`, whose process is visible from here.
fn seen(holder: Holder) -> Holder {
    let (stopped, ran_ticks) = (is_stopped(holder.pid), ran_ticks(holder.pid));
    Holder { is_local: true, stopped, ran_ticks, ..holder }
}

/// The participant described by an entry, and the recorded start time of its process.
fn named(slot: &[u8]) -> Option<(Holder, u64)> {
    let word = |i: usize| slot.as_chunks().0.get(i).map_or(0, |&piece| u64::from_le_bytes(piece));
    let pid = u32::try_from(word(1)).ok().filter(|_| word(0) & TAKEN != 0)?;
    let program = slot[32..56].split(|&byte| byte == 0).next().unwrap_or_default();
    let program = printable(&String::from_utf8_lossy(program));
    let reads_only = word(0) & READS_ONLY != 0;
    Some((Holder { pid, program, since_ms: word(3), reads_only, ..Holder::default() }, word(2)))
}

#[cfg(test)]
#[path = "tests/participants.rs"]
mod tests;
