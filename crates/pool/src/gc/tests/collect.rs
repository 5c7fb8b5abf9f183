//! Tests of `gc`.

use super::*;
use crate::allocator::words::UNCLEAN;
use crate::format::lifetime::Start;
use crate::reclaim::epoch::GRACE_EPOCHS;
use crate::sharing::process::{field, is_stopped};
use crate::sharing::recover::CHECK_STOPPED_EVERY;
use crate::sync::backoff::rest_with;
use crate::tests::fixtures::{exclusive_pool, geometry, participants, reopened};
use crate::tests::interleavings::{Hooked, hooked, offset_of};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::Cell;
use std::process::Command;
use terrace_medium::{Access, Dram, Line, Offset};

#[test]
fn a_marker_says_whether_its_trace_has_given_up() {
    let pool = exclusive_pool::<Dram>();
    let mut answers = Vec::new();
    pool.request_collection();
    pool.collect(&mut |marker| {
        answers.push(marker.has_given_up());
        marker.give_up();
        answers.push(marker.has_given_up());
    });
    assert_eq!(answers, [false, true]);
    assert!(pool.needs_collection());
}

#[test]
fn reachable_lists_traced_blocks_in_order_with_sizes() {
    let pool = exclusive_pool::<Dram>();
    let guard = pool.pin();
    // Small blocks, and extents of one granule more than these and of many.
    let sizes = [24, 1000, 60, 1, 513, 9000];
    let before = pool.space().used_by_blocks;
    let blocks = sizes.map(|bytes| (guard.alloc(bytes).unwrap().fenced_later().into_offset(), bytes));
    let listed = pool.reachable(&mut |marker| {
        blocks.iter().rev().for_each(|&(offset, bytes)| marker.mark(offset, bytes));
        assert!(!marker.has_given_up());
    });
    assert!(listed.iter().map(|block| block.0).eq(blocks.iter().rev().map(|block| block.0)));
    let bytes: u64 = listed.iter().map(|block| block.1).sum();
    assert_eq!(bytes, pool.space().used_by_blocks - before);
    assert!(listed.iter().rev().zip(sizes).all(|(block, asked)| block.1 >= asked as u64));
}

/// Calls `wait_for_collector` of `waiting` while `collector` collects, which ends after `looks`
/// loads of the phase; without sleeping.
fn wait_for(collector: &Pool<Hooked>, waiting: &Pool<Hooked>, looks: u32) -> bool {
    let shared = waiting.0.base().shared();
    let _collecting = collector.0.peers.acquire(&collector.0.base().shared().collector);
    shared.phase.store(waiting.medium(), UNCLEAN, Relaxed);
    let (at, other) = (offset_of(&waiting.0, &shared.phase), waiting.clone());
    let mut looked = 0;
    let look = move |access, offset| {
        looked += u32::from((access, offset) == (Access::Load, at));
        if looked == looks {
            other.0.base().shared().phase.store(other.medium(), IDLE, Relaxed);
        }
    };
    let wait = || {
        rest_with(|| ());
        hooked(look, || waiting.0.peers.wait_for_collector())
    };
    std::thread::scope(|scope| scope.spawn(wait).join().unwrap())
}

#[test]
fn wait_for_collector_ends_if_a_participant_is_stopped() {
    let (_directory, [collector, waiting]) = participants::<Hooked, 2>(geometry());
    assert!(!waiting.0.peers.wait_for_collector(), "there is none");
    assert!(wait_for(&collector, &waiting, 10 * CHECK_STOPPED_EVERY));
    // The collector is a process that was stopped.
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id();
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    while !is_stopped(pid) {
        std::thread::yield_now();
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let started = field(&stat, 22).unwrap().parse().unwrap();
    let at = collector.layout().participant(u32::from(collector.owner().participant));
    let slot = collector.region().at::<Line>(Offset::new(at));
    slot.0[1..].iter().zip([u64::from(pid), started]).for_each(|(word, value)| {
        word.store(collector.medium(), value, Relaxed);
    });
    let is_done = wait_for(&collector, &waiting, 1000 * CHECK_STOPPED_EVERY);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_done, "it may be stopped for ever");
}

#[test]
fn a_block_is_kept_by_any_byte_of_it() {
    let mut blocks = Vec::new();
    let (_directory, pool) = reopened::<Dram>(Start::Unclean, |pool| {
        let guard = pool.pin();
        blocks.extend((0..20).map(|_| guard.alloc(96).unwrap().fenced_later().into_offset()));
    });
    // A block that is freed before the sweep is not freed by it.
    pool.pin().free(blocks[5], 96);
    let before = pool.space().used_by_blocks;
    let kept = [(3, 0), (7, 50), (19, 95)].map(|(block, byte)| blocks[block] + byte);
    let report = pool.collect(&mut |marker| kept.iter().for_each(|&byte| marker.mark_around(byte)));
    assert_eq!((report.marked, report.unsound, pool.space().used_by_blocks), (3, 0, 3 * 96));
    assert_eq!(report.freed, before - 3 * 96);
    let guard = pool.pin();
    [3, 7, 19].iter().for_each(|&block| guard.free(blocks[block], 96));
    assert_eq!((pool.faults(), pool.space().used_by_blocks), (0, 0));
}

#[test]
fn grace_period_takes_three_epochs_and_stops_after_a_sleep() {
    thread_local!(static RESTS: Cell<u32> = const { Cell::new(0) });
    let pool = exclusive_pool::<Dram>();
    let began = pool.0.epochs().epoch();
    assert_eq!(pool.0.peers.wait_grace_period(&|| true), Some(()));
    assert_eq!(pool.0.epochs().epoch(), began + GRACE_EPOCHS);
    let _held_up = pool.pin();
    let wait = || {
        rest_with(|| RESTS.set(RESTS.get() + 1));
        let should_stop = || {
            assert!(RESTS.get() > 4, "it has yielded a few times, and has not slept");
            true
        };
        assert_eq!(pool.0.peers.wait_grace_period(&should_stop), None);
    };
    std::thread::scope(|scope| scope.spawn(wait).join().unwrap());
}

#[test]
fn new_unit_is_not_quarantined_if_contradicted() {
    let (_directory, pool) = reopened::<Dram>(Start::Unclean, |_| ());
    let guard = pool.pin();
    let [small, large] = [64, 1000].map(|bytes| guard.alloc(bytes).unwrap().fenced_later().into_offset());
    drop(guard);
    let report = pool.collect(&mut |marker| {
        marker.mark(small, 200);
        marker.mark(large, 64);
    });
    assert_eq!((report.unsound, report.freed), (2, 0));
    let guard = pool.pin();
    guard.free(small, 64);
    guard.free(large, 1000);
    drop(guard);
    assert_eq!((pool.verify_memory(), pool.space().used_by_blocks), (vec![], 0));
}
