//! Tests of ranges of ports.

use terrace_fabric::Ports;

#[test]
fn range_of_ports_is_parsed_and_goes_round() {
    let ports: Ports = "7200-7202".parse().unwrap();
    assert_eq!((ports.count(), ports.to_string()), (3, "7200-7202".into()));
    assert_eq!((0..4).map(|nth| ports.nth(nth)).collect::<Vec<_>>(), [7200, 7201, 7202, 7200]);
    assert!(ports.contains(7202) && !ports.contains(7203));
    assert_eq!("9".parse(), Ok(Ports::new(9, 9).unwrap()));
    assert_eq!("1-65535".parse::<Ports>().unwrap().nth(65_534), 65_535);
    for text in ["", "0-5", "5-4", "1-65536", "a-b", "1-2-3"] {
        assert!(text.parse::<Ports>().is_err(), "{text}");
    }
}
