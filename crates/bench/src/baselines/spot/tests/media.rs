//! What an insert costs the media of the model of Optane memory, counted: the figures of the case
//! study. Exact, and the same in each run.
//!
//! Random inserts, of which the second half is counted: the index doubles, so about as much of it
//! is in buffers at the end as at the beginning. The modelled cache is smaller than usual, so that
//! the indexes exceed it as far as 120 million keys do a processor's.

use crate::baselines::spot::{Spot, SpotSizes, SpotVariant, Spotted};
use crate::baselines::{SkipList, Space, SpotCceh, SpotFastFair};
use crate::spread;
use std::sync::Arc;
use terrace_medium::{MappedMedium, Pmem};
use terrace_testkit::{Profile, Slow, TappedPmem};

const KEYS: u64 = 200_000;
const CACHE: u64 = 64 << 10;

/// Of an insert: blocks written, blocks read, fences.
type Cost = [f64; 3];

fn cost<S: Spotted<TappedPmem>>(variant: SpotVariant) -> Cost {
    let medium = |mapping| {
        TappedPmem::over_slow(Slow::counted(Pmem::new(mapping), Profile::OPTANE_100).cache_bytes(CACHE))
    };
    let space = Arc::new(Space::anonymous(KEYS * 128, medium).expect("memory"));
    let sizes = SpotSizes { buffered: None, logged: KEYS };
    let mut spot = Spot::<_, S>::create(space.clone(), variant, sizes).expect("room for a layer");
    let mut put = |n: u64| assert_eq!(spot.put(spread(n), n), Ok(()));
    (0..KEYS / 2).for_each(&mut put);
    let work = || (KEYS / 2..KEYS).for_each(&mut put);
    let (counts, (traffic, _, ())) = space.medium().during(|| space.medium().slow().during(work));
    assert!(spot.bytes() > 60 * CACHE, "{} bytes are no more than the cache", spot.bytes());
    assert!((0..KEYS).step_by(97).all(|n| spot.get(spread(n)) == Some(n)));
    [traffic.blocks_written, traffic.blocks_read, counts.fences].map(|count| count as f64 / (KEYS / 2) as f64)
}

/// Counts all variants of an index, and compares them with what they are known to cost.
fn costs<S: Spotted<TappedPmem>>(expected: [Cost; 7]) -> [Cost; 7] {
    let found = SpotVariant::ALL.map(cost::<S>);
    for ((variant, found), expected) in SpotVariant::ALL.iter().zip(found).zip(expected) {
        let is_near = |(found, expected): (f64, f64)| (found - expected).abs() <= 0.02 * expected + 0.001;
        let are_near = found.into_iter().zip(expected).all(is_near);
        assert!(are_near, "{} {}: {found:.3?}, not {expected:?}", S::NAME, variant.name());
    }
    found
}

/// Checks what holds for all indexes, and how many times base's blocks, written and read, all
/// guidelines cost at most.
fn check([base, b, bo, boc, logged @ ..]: [Cost; 7], [written, read]: [f64; 2]) {
    assert!(base[0] >= written * boc[0], "{base:?} and {boc:?}: fewer than {written} times as many written");
    assert!(base[1] >= read * boc[1], "{base:?} and {boc:?}: fewer than {read} times as many read");
    assert!(bo[2] <= b[2], "a merge out of place fences less: {b:?}, {bo:?}");
    assert!(
        boc[0] <= 1.001 * bo[0] && boc[1] <= 1.001 * bo[1],
        "a cached path costs nothing: {bo:?}, {boc:?}"
    );
    for (without, with) in [b, bo, boc].into_iter().zip(logged) {
        let more = [0, 1, 2].map(|nth| with[nth] - without[nth]);
        // Eight records lie in a block, which may leave the device's buffer early.
        assert!(more[0] < 0.2 && (0.999..1.001).contains(&more[2]), "a log costs {more:?}");
    }
}

#[test]
fn cceh_costs_a_fourth_of_the_blocks_with_all_guidelines() {
    let expected = [
        [1.163, 3.487, 1.008],
        [0.193, 0.216, 0.006],
        [0.212, 0.115, 0.005],
        [0.212, 0.115, 0.005],
        [0.319, 0.372, 1.006],
        [0.338, 0.274, 1.005],
        [0.338, 0.243, 1.005],
    ];
    check(costs::<SpotCceh<_>>(expected), [4.2, 2.7]);
}

#[test]
fn fast_fair_costs_a_fourth_of_the_blocks_with_all_guidelines() {
    let expected = [
        [1.822, 5.513, 3.941],
        [0.242, 2.554, 2.703],
        [0.311, 2.594, 0.265],
        [0.311, 0.392, 0.265],
        [0.368, 3.057, 3.703],
        [0.437, 3.121, 1.265],
        [0.437, 0.557, 1.265],
    ];
    check(costs::<SpotFastFair<_>>(expected), [3.9, 6.5]);
}

#[test]
fn skip_list_costs_half_of_the_blocks_with_all_guidelines() {
    let expected = [
        [1.379, 22.400, 2.000],
        [0.424, 11.566, 1.549],
        [0.427, 11.017, 0.094],
        [0.427, 0.962, 0.094],
        [0.549, 12.218, 2.549],
        [0.552, 11.662, 1.094],
        [0.552, 1.120, 1.094],
    ];
    check(costs::<SkipList<_>>(expected), [1.9, 11.0]);
}
