//! Tests of `participants`.

use super::*;
use crate::format::layout::Geometry;
use crate::sharing::liveness::tests::FixedLiveness;
use crate::sharing::process::{field, program_of};
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
    let owner =
        attach_exclusive(&region, &layout, 7, &info("terrace serve, with a name that is too long for it"));
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
        (reserved_bytes_of(&region, &layout, 2), first_live(&bytes(&region, &layout)).map(|it| it.reads_only))
    };
    assert_eq!(seen_state(), (None, None));
    for _ in 0..2 {
        let owner = attach(&region, &layout, 1, &info("x"), 2);
        assert_eq!(seen_state(), (Some(region.medium().mapping().reserved() as u64), Some(false)));
        mark_read_only(&region, &layout, 2);
        assert_eq!((seen_state().1, holder_of(&region, &layout, 2)), (Some(true), Some(owner.incarnation)));
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
        lives.extend([1, 2, 3, INCARNATIONS - 1].map(|it| incarnation_key(&region, &layout, 2, it as u32)));
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
