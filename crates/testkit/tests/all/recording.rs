//! Tests of the recording medium.

use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, Mapping, Medium, Offset, Pmem, Region, Word};
use terrace_testkit::{Recording, Trace, What};

const BYTES: usize = 8192;

fn region() -> Region<Recording<Pmem>> {
    Region::new(Recording::new(Mapping::anonymous(BYTES, BYTES).unwrap()))
}

fn word<M: Medium>(region: &Region<M>, at: u64) -> &Word {
    region.at(Offset::new(at))
}

fn some_work(region: &Region<Recording<Pmem>>) {
    let medium = region.medium();
    word(region, 64).store(medium, 1, Relaxed);
    region.write_back(word(region, 64));
    region.fence();
    word(region, 64).fetch_add(medium, 4, Relaxed);
    let _ = word(region, 64).compare_exchange(medium, 9, 10, Relaxed, Relaxed);
    // SAFETY: only this thread uses the region.
    unsafe { region.copy_in(131, b"thirteen bytes") };
    region.stream_lines(256, &[[3; 8]; 2]);
    region.fence();
    medium.mark(7);
    let _ = word(region, 64).load(medium, Relaxed);
}

fn recorded() -> (Trace, Vec<u64>, Vec<u64>) {
    let region = region();
    word(&region, 0).store(region.medium(), 42, Relaxed);
    let before = region.medium().start();
    some_work(&region);
    let trace = region.medium().trace();
    (trace, before, region.medium().start())
}

#[test]
fn trace_is_in_order_with_old_and_new_values() {
    let (trace, before, _) = recorded();
    assert_eq!(before[0], 42);
    let what: Vec<What> = trace.events().iter().map(|event| event.what).collect();
    assert_eq!(what[0], What::Store { at: 64, old: 0, new: 1 });
    assert_eq!(what[1..3], [What::WriteBack { line: 64 }, What::Fence]);
    assert_eq!(what[3], What::Rmw { at: 64, old: 1, new: 5 });
    assert_eq!(what[4], What::RmwFailed { at: 64 });
    assert!(matches!(what[5], What::Copy(piece) if (piece.at, piece.len) == (131, 14)));
    assert!(matches!(what[6], What::StreamedCopy(piece) if (piece.at, piece.len) == (256, 128)));
    assert_eq!(what[7..], [What::Fence, What::Mark(7)]);
    assert!(trace.events().iter().all(|event| event.thread == 0));
    assert!(trace.events().iter().all(|event| event.site.file().ends_with("tests/all/recording.rs")));
}

#[test]
fn replay_gives_the_content_of_the_medium() {
    let (trace, before, after) = recorded();
    let mut image = before.clone();
    trace.replay(&mut image, 0);
    assert_eq!(image, before);
    trace.replay(&mut image, trace.events().len());
    assert_eq!(image, after);
}

#[test]
fn equal_runs_give_equal_traces() {
    assert_eq!(recorded().0, recorded().0);
}

#[test]
fn trace_of_several_threads_has_the_actual_order() {
    let region = region();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..500).for_each(|_| _ = word(&region, 64).fetch_add(region.medium(), 1, Relaxed))
            });
        }
    });
    let trace = region.medium().trace();
    for (i, event) in (0..).zip(trace.events()) {
        assert_eq!(event.what, What::Rmw { at: 64, old: i, new: i + 1 });
    }
    assert_eq!(trace.events().len(), 2000);
    assert_eq!(trace.events().iter().map(|event| event.thread).max(), Some(3));
}
