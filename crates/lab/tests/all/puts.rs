//! Several puts at once, in a pool without room for the last of them.

use super::steps::{acts, script};
use terrace_lab::targets::HotBytes;
use terrace_testkit::crash::{Key, Memory, Op, Plan, Target, Version};
use terrace_testkit::schedule::cues::{after, to};
use terrace_testkit::schedule::{Answer, Scenario, Scheduler, Stop, run};

/// Keys behind the first one, each as long that the pool has no room for all of their records.
const LONG: usize = 16;

/// A plan that puts each key but the last, for which there is no room; and that last key.
fn plan_without_room() -> (Plan, Key) {
    let mut keys = vec![b"a".to_vec()];
    keys.extend((0..LONG).map(|nth| [vec![b'b' + nth as u8], vec![b'x'; 11_000]].concat()));
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let before = (0..=LONG).map(|key| Op::Put(key, 1 + key as Version)).collect();
    (Plan { before, ..HotBytes::plan_over(2, &keys) }, LONG)
}

/// The lab collects and tries again what had no room, and nothing else. Another thread has replaced
/// the word of the first put meanwhile: if that were done again, too, the history would be wrong,
/// and the tree would be right.
#[test]
fn puts_are_done_once_each_if_the_last_has_no_room() {
    let (plan, last) = plan_without_room();
    let (first, long): (Key, Key) = (0, 1);
    let puts = acts(&[Op::Puts(vec![(first, 100), (last, 101)])]);
    let scenario = Scenario::of(plan, vec![puts, acts(&[Op::Put(first, 102), Op::Remove(long)])]);
    let stored = [to(0, after("tree.link")), to(0, after("lock.release"))];
    let policy = script(&[&stored[..], &[to(1, Stop::End), to(0, Stop::End)]].concat());
    let memory = Memory::<true>::zeroed(HotBytes::BYTES.0, HotBytes::BYTES.1).expect("memory for a run");
    let run = run::<HotBytes, true>(&Scheduler::new(), memory, &scenario, &policy, 1).expect("a run");
    assert_eq!(run.wrong, None);
    assert_eq!(run.calls.initial[last], None, "the pool was full before");
    let answers: Vec<_> = run.calls.calls.iter().flat_map(|call| &call.returned).collect();
    let answers: Vec<_> = answers.into_iter().map(|(_, answer)| answer.clone()).collect();
    let expected = [None, Some(100), Some(1 + long as Version)].map(Answer::Found);
    assert_eq!(answers, expected, "the puts found room in the end");
}

/// What several puts did before one of them found no room is known to the history: also of those
/// that precede the threads.
#[test]
fn puts_that_are_done_in_part_before_the_threads_are_known() {
    let (plan, last) = plan_without_room();
    let (first, long): (Key, Key) = (0, 1);
    let before = [plan.before.clone(), vec![Op::Puts(vec![(first, 100), (last, 101)])]].concat();
    let scenario = Scenario::of(Plan { before, ..plan }, vec![acts(&[Op::Update(long, 102)])]);
    let memory = Memory::<true>::zeroed(HotBytes::BYTES.0, HotBytes::BYTES.1).expect("memory for a run");
    let run = run::<HotBytes, true>(&Scheduler::new(), memory, &scenario, &script(&[]), 1).expect("a run");
    assert_eq!(run.wrong, None);
    assert_eq!((run.calls.initial[first], run.calls.initial[last]), (Some(100), None));
}
