//! Hash slots, against the Redis Cluster specification and redis-server.

use terrace_protocol::{SLOTS, slot};

#[test]
fn slot_is_crc_of_the_key() {
    // The check value of CRC-16/XMODEM, which is below 16,384.
    assert_eq!(slot(b"123456789"), 0x31c3);
    // From redis.io and redis-server 7.0.
    for (key, expected) in [
        ("", 0),
        ("somekey", 11_058),
        ("foo{hash_tag}", 2515),
        ("bar{hash_tag}", 2515),
        ("foo", 12_182),
        ("bar", 5061),
        ("hello", 866),
        ("a", 15_495),
        ("b", 3300),
    ] {
        assert_eq!(slot(key.as_bytes()), expected, "{key}");
    }
}

#[test]
fn slot_depends_on_the_tag_alone() {
    for (key, same) in [
        ("{user1000}.following", "user1000"),
        ("foo{{bar}}zap", "{bar"),
        ("foo{bar}{zap}", "bar"),
        ("{a}{b}", "a"),
        ("}{a}", "a"),
        ("x{a}}", "a"),
    ] {
        assert_eq!(slot(key.as_bytes()), slot(same.as_bytes()), "{key}");
    }
}

#[test]
fn slot_without_a_tag_is_of_the_whole_key() {
    // From redis-server 7.0.
    for (key, expected) in [
        ("foo{}{bar}", 8363),
        ("{a", 10_276),
        ("a}", 5921),
        ("}a{", 11_710),
        ("{", 4092),
        ("a{b", 13_340),
        ("{}", 15_257),
        ("{}a", 10_875),
    ] {
        assert_eq!(slot(key.as_bytes()), expected, "{key}");
    }
}

#[test]
fn slot_of_any_bytes_is_in_range() {
    for byte in (0..=u8::MAX).filter(|byte| *byte != b'}') {
        assert!(slot(&[byte; 70]) < SLOTS);
        assert_eq!(slot(&[b'{', byte, b'}']), slot(&[byte]));
    }
}
