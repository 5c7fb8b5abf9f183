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
use crate::sync::lock::Lock;
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

/// The participant and incarnation that a lock word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Entry in the participant table, below 4096.
    pub participant: u16,
    /// How often the entry has been taken, modulo 2^18.
    pub incarnation: u32,
    /// The pool's generation. Locks of other generations are free.
    pub generation: u32,
}

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

/// The kernel's name for the running process `pid`.
pub(crate) fn program_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| String::new(), |s| printable(s.trim_end()))
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// The start time of process `pid`, in ticks since boot; `None` if there is no such process.
fn process_start(pid: u32) -> Option<u64> {
    field_of(pid, 22)?.parse().ok()
}

/// Whether all threads of process `pid` are stopped, by a signal or a debugger. A debugger may stop
/// single threads.
pub(crate) fn is_stopped(pid: u32) -> bool {
    // The first thread may have ended before the others. While it runs, no further check is needed.
    if !matches!(field_of(pid, 3).as_deref(), Some("T" | "t" | "Z")) {
        return false;
    }
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut any = false;
    for thread in threads.flatten() {
        let stat = std::fs::read_to_string(thread.path().join("stat"));
        match stat.as_ref().ok().and_then(|stat| field(stat, 3)) {
            Some("T" | "t") => any = true,
            // An ended thread does not run.
            None | Some("Z" | "X") => {}
            Some(_) => return false,
        }
    }
    any
}

/// CPU time of the threads of process `pid`, ended ones included, in the kernel's ticks.
fn ran_ticks(pid: u32) -> u64 {
    let ticks =
        [14, 15].map(|number| field_of(pid, number).and_then(|ticks| ticks.parse().ok()).unwrap_or(0));
    ticks.iter().sum()
}

fn field_of(pid: u32, number: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    field(&stat, number).map(str::to_string)
}

/// Field `number`, from the third on, of /proc/PID/stat, counted as in proc_pid_stat(5). (The
/// second field, the program in parentheses, may itself contain spaces and parentheses.)
pub(crate) fn field(stat: &str, number: usize) -> Option<&str> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(number - 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::Geometry;
    use crate::sharing::liveness::tests::FixedLiveness;
    use terrace_medium::{Dram, Mapping};

    fn table() -> (Region<Dram>, Layout) {
        let layout = Layout::new(Geometry::tiny()).unwrap();
        let mapping = Mapping::anonymous(layout.smallest() as usize, 0).unwrap();
        (Region::new(Dram::new(mapping)), layout)
    }

    fn info(program: &str) -> ProcessInfo {
        ProcessInfo::this_process(program.into())
    }

    fn bytes(region: &Region<Dram>, layout: &Layout) -> Vec<u8> {
        let len = layout.geometry.participants as usize * PARTICIPANT_BYTES as usize;
        // SAFETY: no thread writes now.
        unsafe { region.bytes(layout.participants, len) }.unwrap().to_vec()
    }

    #[test]
    fn participant_is_found_while_it_is_attached() {
        let (region, layout) = table();
        assert_eq!(first_live(&bytes(&region, &layout)), None);
        let owner = attach_exclusive(
            &region,
            &layout,
            7,
            &info("terrace serve, with a name that is too long for it"),
        );
        assert_eq!(owner, Owner { participant: 0, incarnation: 1, generation: 7 });
        let holder = first_live(&bytes(&region, &layout)).unwrap();
        assert_eq!(holder.pid, std::process::id());
        assert_eq!(holder.program, "terrace serve, with a na");
        release(&region, &layout, 0, owner.incarnation);
        assert_eq!(first_live(&bytes(&region, &layout)), None);
        assert_eq!(attach_exclusive(&region, &layout, 8, &info("x")).incarnation, 2);
    }

    #[test]
    fn process_with_a_reused_pid_is_not_a_participant() {
        let (region, layout) = table();
        attach_exclusive(&region, &layout, 1, &info("x"));
        let line = slot(&region, &layout, 0);
        let start = line.0[2].fetch_add(region.medium(), 1, Relaxed);
        assert_eq!(first_live(&bytes(&region, &layout)), None);
        line.0[2].store(region.medium(), start, Relaxed);
        assert!(first_live(&bytes(&region, &layout)).is_some());
        line.0[1].store(region.medium(), u64::MAX, Relaxed);
        assert_eq!(first_live(&bytes(&region, &layout)), None);
    }

    #[test]
    fn slot_is_released_only_by_its_incarnation() {
        let (region, layout) = table();
        let first = attach(&region, &layout, 1, &info("x"), 2);
        assert_eq!((first.participant, holder_of(&region, &layout, 2)), (2, Some(1)));
        let second = attach(&region, &layout, 1, &info("x"), 2);
        release(&region, &layout, 2, first.incarnation);
        assert_eq!(holder_of(&region, &layout, 2), Some(second.incarnation));
        release(&region, &layout, 2, second.incarnation);
        assert_eq!(holder_of(&region, &layout, 2), None);
    }

    #[test]
    fn slot_has_reserved_bytes_and_read_only_flag() {
        let (region, layout) = table();
        let seen_state = || {
            (
                reserved_bytes_of(&region, &layout, 2),
                first_live(&bytes(&region, &layout)).map(|it| it.reads_only),
            )
        };
        assert_eq!(seen_state(), (None, None));
        for _ in 0..2 {
            let owner = attach(&region, &layout, 1, &info("x"), 2);
            assert_eq!(seen_state(), (Some(region.medium().mapping().reserved() as u64), Some(false)));
            mark_read_only(&region, &layout, 2);
            assert_eq!(
                (seen_state().1, holder_of(&region, &layout, 2)),
                (Some(true), Some(owner.incarnation))
            );
            release(&region, &layout, 2, owner.incarnation);
            assert_eq!(seen_state(), (None, None));
        }
    }

    #[test]
    fn incarnations_fit_in_their_bits_and_are_never_zero() {
        let (region, layout) = table();
        let state = slot(&region, &layout, 0);
        state.0[0].store(region.medium(), (INCARNATIONS - 1) << INCARNATION_SHIFT, Relaxed);
        assert_eq!(attach_exclusive(&region, &layout, 1, &info("x")).incarnation, 1);
        state.0[0].store(region.medium(), u64::MAX, Relaxed);
        assert_eq!(attach_exclusive(&region, &layout, 1, &info("x")).incarnation, 1);
    }

    #[test]
    fn each_attach_of_a_slot_increments_its_incarnation() {
        let (region, layout) = table();
        let incarnation = |index| attach(&region, &layout, 1, &info("x"), index).incarnation;
        assert_eq!([3, 3, 3, 1, 3].map(incarnation), [1, 2, 3, 1, 4]);
        // A new generation does not restart the count.
        assert_eq!(attach_exclusive(&region, &layout, 2, &info("x")).incarnation, 1);
        assert_eq!([3, 1, 2].map(incarnation), [5, 2, 1]);
    }

    #[test]
    fn attach_exclusive_frees_all_other_slots() {
        let (region, layout) = table();
        for index in 0..layout.geometry.participants {
            attach(&region, &layout, 1, &info("x"), index);
            slot(&region, &layout, index).0[7].store(region.medium(), 77, Relaxed);
        }
        attach_exclusive(&region, &layout, 2, &info("x"));
        let others = 1..layout.geometry.participants;
        assert_eq!(holder_of(&region, &layout, 0), Some(2));
        assert!(others.into_iter().all(|index| holder_of(&region, &layout, index).is_none()));
        let locks = (0..layout.geometry.participants).map(|index| recovery(&region, &layout, index));
        assert!(locks.into_iter().all(|lock| lock.load_word(region.medium()) == 0));
    }

    #[test]
    fn incarnation_key_differs_by_incarnation_and_open_time() {
        let (region, layout) = table();
        let mut lives = vec![0];
        for opened_ms in [0, 1, 2, 1 << 40] {
            slot(&region, &layout, 2).0[3].store(region.medium(), opened_ms, Relaxed);
            lives.extend(
                [1, 2, 3, INCARNATIONS - 1].map(|it| incarnation_key(&region, &layout, 2, it as u32)),
            );
        }
        lives.sort_unstable();
        assert!(lives.is_sorted_by(|one, next| one < next), "{lives:x?}");
    }

    /// No process has a pid that high.
    const NOBODY: u32 = 1 << 22;

    #[test]
    fn missing_process_is_not_a_live_participant() {
        let (region, layout) = table();
        for started in [0, 1, process_start(std::process::id()).unwrap()] {
            let placeholder = ProcessInfo { pid: NOBODY, started, ..info("x") };
            attach(&region, &layout, 1, &placeholder, 0);
            assert_eq!(first_live(&bytes(&region, &layout)), None);
        }
        assert_eq!((program_of(NOBODY), is_stopped(NOBODY)), (String::new(), false));
    }

    #[test]
    fn process_has_the_kernels_program_name() {
        let own = std::process::id();
        let name = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!((program_of(own), is_stopped(own)), (name.trim_end().to_string(), false));
        let (region, layout) = table();
        attach(&region, &layout, 1, &info("x"), 2);
        assert_eq!(pid_of(&region, &layout, 2), own);
    }

    #[test]
    fn live_participant_is_named_even_on_another_host() {
        let (region, layout) = table();
        for index in [0, 1, 2] {
            attach(&region, &layout, 1, &ProcessInfo { pid: NOBODY + index, ..info("x") }, index);
        }
        let named = |alive, but| -> Vec<(u32, bool)> {
            let all = live_participants(&region, &layout, &FixedLiveness(alive), but);
            all.into_iter().map(|(_, holder)| (holder.pid - NOBODY, holder.stopped)).collect()
        };
        assert_eq!(named(&[0, 1, 2], None), [(0, false), (1, false), (2, false)]);
        assert_eq!(named(&[0, 1, 2], Some(1)), [(0, false), (2, false)]);
        assert_eq!(named(&[1], None), [(1, false)]);
        // Participant 3 has claimed its liveness, but not taken its entry yet.
        assert_eq!(named(&[2, 3], Some(0)), [(2, false)]);
        assert!(named(&[], None).is_empty());
    }

    #[test]
    fn program_name_is_shown_without_control_characters() {
        let (region, layout) = table();
        attach_exclusive(&region, &layout, 1, &info("a\tb \u{1b}[c\u{7f}ä"));
        assert_eq!(first_live(&bytes(&region, &layout)).unwrap().program, "ab [cä");
    }

    #[test]
    fn stat_fields_are_counted_after_the_process_name() {
        let stat = "7 (a) (b) 3 c) R 1 22";
        assert_eq!([3, 4, 5, 6].map(|number| field(stat, number)), [Some("R"), Some("1"), Some("22"), None]);
        assert_eq!(field("7 a R 1 22", 3), None);
    }
}
