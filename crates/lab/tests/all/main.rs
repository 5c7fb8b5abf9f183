//! Tests of the lab, in one program: each file that names a store would compile it again.

/// A test for each index but P-CLHT: one call with the name of its target over integers, another
/// with that over byte strings.
macro_rules! on_each_index {
    ($integers:path, $strings:path) => {
        crate::on_each_index! {
            $integers: turbo "turbo", rewo "rewo", level "level", art "art", hot "hot",
                bwtree "bwtree", masstree "masstree", sptree "sptree";
            $strings: turbo_bytes "turbo-bytes", rewo_bytes "rewo-bytes", level_bytes "level-bytes",
                art_bytes "art-bytes", hot_bytes "hot-bytes", bwtree_bytes "bwtree-bytes",
                masstree_bytes "masstree-bytes", sptree_bytes "sptree-bytes";
        }
    };
    ($($explore:path: $($test:ident $target:literal),+;)+) => {
        $($(
            #[test]
            fn $test() {
                $explore($target);
            }
        )+)+
    };
}
pub(crate) use on_each_index;

mod batches;
mod crash;
mod deaths;
mod hot;
mod orders;
mod puts;
mod resizes;
mod revived;
mod schedules;
mod seeds;
mod steps;
mod trees;
