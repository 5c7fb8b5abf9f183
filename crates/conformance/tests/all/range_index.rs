//! Runs the suite for ordered indexes on the reference, and on references with faults, which it
//! must find.

use terrace_conformance::{Setup, range_index};
use terrace_index::{Bytes, U64};
use terrace_medium::Dram;
use terrace_testkit::{Reference, TestRecord};

fn integers(setup: Setup) -> Reference<Dram, U64> {
    Reference::new(&setup.pool())
}

fn strings(setup: Setup) -> Reference<Dram, Bytes<TestRecord>> {
    Reference::new(&setup.pool())
}

#[test]
fn reference_passes_with_integers() {
    range_index(integers);
}

#[test]
fn reference_passes_with_byte_strings() {
    range_index(strings);
}

/// The suite finds that these keys are confused.
fn check_confused(confuse: fn(&[u8]) -> Vec<u8>) {
    range_index(|setup| strings(setup).confusing_keys(confuse));
}

#[test]
#[should_panic(expected = "keys that begin others: ")]
fn confused_by_zeros_at_the_end() {
    check_confused(|key| {
        let end = key.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        key[..end].to_vec()
    });
}

#[test]
#[should_panic(expected = "keys that begin others: ")]
fn confused_behind_255_bytes() {
    check_confused(|key| key[..key.len().min(255)].to_vec());
}

#[test]
#[should_panic(expected = "keys of up to 64 KiB: ")]
fn confused_behind_60_000_bytes() {
    check_confused(|key| key[..key.len().min(60_000)].to_vec());
}

#[test]
#[should_panic(expected = "plain: ")]
fn bytes_ordered_as_signed_numbers() {
    check_confused(|key| key.iter().map(|byte| byte ^ 0x80).collect());
}

#[test]
#[should_panic(expected = "keys that begin others: ")]
fn order_lost_behind_100_bytes() {
    check_confused(|key| {
        let (front, rest) = key.split_at(key.len().min(100));
        front.iter().chain(rest.iter().rev()).copied().collect()
    });
}

#[test]
#[should_panic(expected = "plain: ")]
fn integers_ordered_by_their_last_byte() {
    range_index(|setup| integers(setup).confusing_keys(|key| key.swap_bytes()));
}

#[test]
#[should_panic(expected = "dense bytes at each place: ")]
fn one_byte_taken_for_another() {
    range_index(|setup| {
        integers(setup).confusing_keys(|key| {
            let mut bytes = key.to_be_bytes();
            bytes[3] += u8::from(bytes[3] == 0xfe);
            u64::from_be_bytes(bytes)
        })
    });
}

/// The suite finds what only the ranges of other threads than the maker's do.
fn check_garbled_beside(garble: fn(&mut Vec<((), u64)>)) {
    range_index(|setup| {
        let maker = std::thread::current().id();
        strings(setup).garbling_ranges(move |words| {
            if std::thread::current().id() != maker && words.len() > 30 {
                garble(words);
            }
        })
    });
}

#[test]
#[should_panic(expected = "a thread of the test panicked")]
fn key_missed_beside_writers() {
    check_garbled_beside(|words| _ = words.remove(20));
}

#[test]
#[should_panic(expected = "a thread of the test panicked")]
fn key_visited_twice_beside_writers() {
    check_garbled_beside(|words| words.insert(20, words[20]));
}

#[test]
#[should_panic(expected = "a thread of the test panicked")]
fn order_lost_beside_writers() {
    check_garbled_beside(|words| words.swap(20, 21));
}
