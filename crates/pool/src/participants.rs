//! Who has the pool open: a table with a slot a process.
//!
//! ```text
//! word 0      addresses reserved for the pool, in pages (63 to 32) | incarnation (31 to 14) | 2 only reads | 1 taken
//!      1      pid
//!      2      when that process started, in the kernel's ticks since boot: tells it from a later one with its pid
//!      3      when it opened the pool, unix ms
//!      4..7   its program, UTF-8, padded with zeros
//!      7      lock of whoever recovers what this slot's dead have left (see `recover`)
//! ```
//!
//! How much a participant has reserved is as far as it can follow the pool's growth: nobody grows it beyond what all have (see `grow`).
//!
//! Nothing here is believed after a crash but the incarnation, and that only makes lock words differ from older ones. The file's locks
//! say whether anyone is there (see `liveness`); the table only gives him a name.

use crate::clock::now_ms;
use crate::error::Holder;
use crate::layout::{Layout, MAX_POOL, PAGE, PARTICIPANT_BYTES};
use crate::liveness::Liveness;
use crate::lock::Lock;
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

/// Whom a lock word names: a participant in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Slot in the participant table, below 4096.
    pub participant: u16,
    /// How often the slot has been taken, modulo 2^18.
    pub incarnation: u32,
    /// The pool's generation: locks of another one are free.
    pub generation: u32,
}

/// What a participant says about itself.
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

    /// Nobody in particular, at no time: the same on every run.
    pub(crate) fn placeholder() -> Self {
        Self { program: String::new(), pid: 0, started: 0, opened_ms: 0 }
    }
}

/// Takes slot `index` for this process, which is alone in the pool: whatever slot is taken belongs to someone dead.
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

/// Takes slot `index`, which nobody alive has and nobody else takes meanwhile, in a new incarnation.
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
    // ORDER: Release: whoever sees the slot taken sees by whom.
    line.0[0].store(
        medium.point("participant.attach"),
        reserved << RESERVED_SHIFT | incarnation << INCARNATION_SHIFT | TAKEN,
        Release,
    );
    Owner { participant: index as u16, incarnation: incarnation as u32, generation }
}

/// The incarnation that has slot `index`, alive or not; `None` if it is free.
pub(crate) fn holder_of<M: MappedMedium>(region: &Region<M>, layout: &Layout, index: u32) -> Option<u32> {
    let word = slot(region, layout, index).0[0].load(region.medium().point("participant.holder"), Acquire);
    (word & TAKEN != 0).then_some(incarnation(word) as u32)
}

/// Up to how many bytes the participant in slot `index` can follow the pool's growth; `None` if the slot is free.
pub(crate) fn reserved_bytes_of<M: MappedMedium>(
    region: &Region<M>,
    layout: &Layout,
    index: u32,
) -> Option<u64> {
    let word = slot(region, layout, index).0[0].load(region.medium(), Acquire);
    (word & TAKEN != 0).then_some((word >> RESERVED_SHIFT) * PAGE)
}

/// The participant in slot `index`, this one, stores nothing to the data.
pub(crate) fn mark_read_only<M: MappedMedium>(region: &Region<M>, layout: &Layout, index: u32) {
    slot(region, layout, index).0[0].fetch_or(region.medium(), READS_ONLY, Relaxed);
}

/// The process that says it has slot `index`; believed by nobody who does not look.
pub(crate) fn pid_of<M: MappedMedium>(region: &Region<M>, layout: &Layout, index: u32) -> u32 {
    slot(region, layout, index).0[1].load(region.medium(), Relaxed) as u32
}

/// Tells this life of slot `index` from every other. The incarnation begins again some time, but not within the millisecond. Never 0.
pub(crate) fn incarnation_key<M: MappedMedium>(
    region: &Region<M>,
    layout: &Layout,
    index: u32,
    incarnation: u32,
) -> u64 {
    opened_ms_of(region, layout, index).wrapping_mul(INCARNATIONS) | u64::from(incarnation)
}

/// When the participant in slot `index` opened the pool, unix ms.
pub(crate) fn opened_ms_of<M: MappedMedium>(region: &Region<M>, layout: &Layout, index: u32) -> u64 {
    slot(region, layout, index).0[3].load(region.medium(), Relaxed)
}

/// Incarnation and time of opening of the participant in `slot`, the bytes of one; `None` if it is free.
pub(crate) fn incarnation_and_open_time(slot: &[u8]) -> Option<(u32, u64)> {
    let word = |i: usize| slot.as_chunks().0.get(i).map_or(0, |&piece| u64::from_le_bytes(piece));
    (word(0) & TAKEN != 0).then(|| (incarnation(word(0)) as u32, word(3)))
}

/// Gives slot `index` back, unless it is another incarnation's by now.
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

/// The lock of whoever recovers what the dead of slot `index` have left.
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

/// Everyone in the table that is alive, with the number of its slot; but for slot `but`.
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
        // Its number may be one of another kernel, or of another view of this one.
        let is_here = liveness.has_common_kernel() && process_start(holder.pid) == Some(started);
        Some((index, if is_here { seen(holder) } else { holder }))
    });
    holders.collect()
}

/// The first participant in `table`, the bytes of a participant table, that is alive.
pub(crate) fn first_live(table: &[u8]) -> Option<Holder> {
    table.as_chunks::<{ PARTICIPANT_BYTES as usize }>().0.iter().find_map(|slot| {
        let (holder, started) = named(slot)?;
        let is_alive = process_start(holder.pid) == Some(started);
        is_alive.then(|| seen(holder))
    })
}

/// What the kernel says of `holder`, whose process is to be seen from here.
fn seen(holder: Holder) -> Holder {
    let (stopped, ran_ticks) = (is_stopped(holder.pid), ran_ticks(holder.pid));
    Holder { is_here: true, stopped, ran_ticks, ..holder }
}

/// Who has taken a slot, by what it says there itself, and when its process started.
fn named(slot: &[u8]) -> Option<(Holder, u64)> {
    let word = |i: usize| slot.as_chunks().0.get(i).map_or(0, |&piece| u64::from_le_bytes(piece));
    let pid = u32::try_from(word(1)).ok().filter(|_| word(0) & TAKEN != 0)?;
    let program = slot[32..56].split(|&byte| byte == 0).next().unwrap_or_default();
    let program = printable(&String::from_utf8_lossy(program));
    let reads_only = word(0) & READS_ONLY != 0;
    Some((Holder { pid, program, since_ms: word(3), reads_only, ..Holder::default() }, word(2)))
}

/// The name of the running process `pid`, as the kernel has it.
pub(crate) fn program_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| String::new(), |s| printable(s.trim_end()))
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// When the process `pid` started, in ticks since boot; `None` if there is no such process.
fn process_start(pid: u32) -> Option<u64> {
    field_of(pid, 22)?.parse().ok()
}

/// Whether the process `pid` was stopped by a signal or by a debugger, with all its threads: who traces it may stop one of them at a time.
pub(crate) fn is_stopped(pid: u32) -> bool {
    // The first thread may have ended before the others. Where it runs, nothing more has to be asked.
    if !matches!(field_of(pid, 3).as_deref(), Some("T" | "t" | "Z")) {
        return false;
    }
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut any = false;
    for thread in threads.flatten() {
        let stat = std::fs::read_to_string(thread.path().join("stat"));
        match stat.as_ref().ok().and_then(|stat| field(stat, 3)) {
            Some("T" | "t") => any = true,
            // One that has ended does nothing.
            None | Some("Z" | "X") => {}
            Some(_) => return false,
        }
    }
    any
}

/// How long the threads of process `pid` have run, those that have ended too, in the kernel's ticks.
fn ran_ticks(pid: u32) -> u64 {
    let ticks =
        [14, 15].map(|number| field_of(pid, number).and_then(|ticks| ticks.parse().ok()).unwrap_or(0));
    ticks.iter().sum()
}

fn field_of(pid: u32, number: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    field(&stat, number).map(str::to_string)
}

/// A field from the third on of /proc/PID/stat, counted as in proc_pid_stat(5). (The second one, the program in parentheses, may hold spaces and parentheses itself.)
pub(crate) fn field(stat: &str, number: usize) -> Option<&str> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(number - 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Geometry;
    use crate::liveness::tests::FixedLiveness;
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
        // SAFETY: nobody writes now.
        unsafe { region.bytes(layout.participants, len) }.unwrap().to_vec()
    }

    #[test]
    fn a_participant_is_named_while_it_is_there() {
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
    fn a_dead_process_and_one_that_took_over_its_pid_are_not_named() {
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
    fn a_slot_is_given_back_by_the_incarnation_that_has_it() {
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
    fn each_life_of_a_slot_has_an_incarnation_of_its_own() {
        let (region, layout) = table();
        let incarnation = |index| attach(&region, &layout, 1, &info("x"), index).incarnation;
        assert_eq!([3, 3, 3, 1, 3].map(incarnation), [1, 2, 3, 1, 4]);
        // A new generation does not begin again.
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

    /// No process has a number so high.
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
    fn a_process_is_named_as_the_kernel_names_it() {
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
        // One has its place already, and is about to take its slot.
        assert_eq!(named(&[2, 3], Some(0)), [(2, false)]);
        assert!(named(&[], None).is_empty());
    }

    #[test]
    fn a_name_is_shown_without_what_would_upset_a_terminal() {
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
