//! What each fabric does, as tests that run on all of them.

mod atomics;
mod bounds;
mod ends;
mod subject;
mod transfers;

#[cfg(feature = "libfabric")]
pub(crate) use subject::RealSubject;
pub(crate) use subject::{SimSubject, add, idle, read, write};

/// Makes a module of tests for each fabric.
macro_rules! on_each_fabric {
    ($($group:ident: $($test:ident),+;)+) => {
        on_each_fabric!(@of simulation, super::SimSubject, $($group: $($test),+;)+);
        #[cfg(feature = "libfabric")]
        on_each_fabric!(@of tcp, super::RealSubject, $($group: $($test),+;)+);
    };
    (@of $module:ident, $subject:ty, $($group:ident: $($test:ident),+;)+) => {
        mod $module {
            $($(#[test]
            fn $test() {
                super::$group::$test::<$subject>();
            })+)+
        }
    };
}

on_each_fabric! {
    transfers:
        write_arrives_in_the_targets_memory,
        read_returns_the_targets_memory,
        region_begins_where_its_range_does,
        bytes_that_are_no_whole_words_keep_their_neighbours,
        payload_of_8_mb_arrives_and_returns,
        batch_completes_each_operation_once,
        more_operations_than_a_queue_holds_complete,
        write_is_persistent_or_refused_by_name;
    atomics:
        compare_and_swap_tells_the_word_before,
        fetch_add_wraps_around,
        atomics_are_atomic_beside_the_targets_processor,
        atomics_of_two_peers_add_up;
    bounds:
        operation_beyond_its_region_is_refused,
        operation_without_the_right_is_refused,
        unknown_key_is_refused,
        key_of_another_endpoint_is_refused,
        revoked_region_is_refused,
        refusal_ends_the_connection,
        operation_without_sense_is_an_error,
        range_outside_of_the_memory_is_an_error,
        address_of_nonsense_is_an_error;
    ends:
        closed_endpoint_does_not_answer,
        dead_target_is_lost_within_the_deadline,
        giving_up_completes_what_is_under_way,
        connection_to_a_closed_endpoint_is_lost,
        closing_one_endpoint_leaves_the_others,
        dropped_connection_leaves_the_endpoint;
}
