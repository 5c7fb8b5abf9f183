//! Directories: the same tests for the one in etcd and the one in memory.

mod conformance;
mod etcd;
mod memory;
mod protected;

use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_cluster::directory::{Directory, State};

pub(crate) use etcd::Etcd;

/// A service that keeps directories.
pub(crate) trait World {
    /// The directory of another process.
    fn connect(&self) -> Arc<dyn Directory>;
    /// Cuts the service off, or makes it answer again.
    fn set_away(&self, is_away: bool);
    /// Ends all leases.
    fn end_leases(&self);
}

/// The first state that is as wanted. Waits at most half a minute for it.
#[allow(clippy::disallowed_methods, reason = "waits for another process")]
pub(crate) fn wait(directory: &dyn Directory, is_it: impl Fn(&State) -> bool) -> State {
    let begin = Instant::now();
    loop {
        let state = directory.read();
        match &state {
            Ok(state) if is_it(state) => return state.clone(),
            _ if begin.elapsed() > Duration::from_secs(30) => panic!("it did not come: {state:?}"),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Each conformance test, for this service.
#[macro_export]
macro_rules! directory_conforms {
    ($world:expr) => {
        $crate::directory_conforms!($world;
            id_is_written_once, change_needs_the_revisions_it_names, kept_key_follows_its_text,
            kept_key_goes_when_it_is_dropped, kept_key_goes_with_its_process,
            kept_key_comes_back_after_its_lease, kept_key_comes_back_over_another_text, kept_key_comes_once_the_directory_answers,
            claim_is_one_process_alone, claim_ends_with_its_lease, claim_that_is_dropped_frees_its_key,
            claim_over_a_claim_outlives_the_drop, map_is_put_by_the_leader_alone,
            map_is_not_put_over_another, moves_are_not_put_over_others, two_leaders_never_both_put_a_map,
            watch_tells_the_latest_state, watch_goes_on_after_the_directory_was_away,
            watch_that_is_dropped_is_silent, memory_node_keeps_its_entry_from_a_rival, damaged_text_is_ignored_and_told, drained_nodes_are_told);
    };
    ($world:expr; $($test:ident),*) => {
        $(#[test]
        fn $test() {
            super::conformance::$test(&$world);
        })*
    };
}
