//! Ports for servers of tests.

use terrace_testkit::free_ports;

#[test]
fn rows_of_different_lengths_do_not_overlap() {
    let counts = [3, 1].into_iter().cycle().take(16_000);
    let rows: Vec<_> = counts.map(free_ports).zip([3, 1].into_iter().cycle()).collect();
    for pair in rows.windows(2) {
        let [(first, count), (next, next_count)] = [pair[0], pair[1]];
        assert!(first + count <= next || next + next_count <= first, "{pair:?}");
    }
}
