//! Ports for servers of tests.

use std::collections::BTreeSet;
use terrace_testkit::free_ports;

#[test]
fn no_port_is_given_twice() {
    let rows = [3, 1].into_iter().cycle().take(120).map(|count| (free_ports(count), count));
    let ports: Vec<u16> = rows.flat_map(|(first, count)| first..first + count).collect();
    assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len(), "{ports:?}");
}
