//! Tests: commands and errors do not depend on where the network cuts the input.

mod common;

use common::{commands, same_at_every_split};
use proptest::prelude::*;
use terrace_protocol::{Limits, Parser};

fn error_of(input: &[u8], limits: &Limits) -> String {
    commands(input, &[], limits, 64).1.unwrap_or_default()
}

#[test]
fn errors_have_the_texts_of_redis() {
    let many = [b"*".to_vec(), b"1".repeat(70_000)].concat();
    let bulk = [b"*1\r\n$".to_vec(), b"1".repeat(70_000)].concat();
    let cases: &[(&[u8], &str)] = &[
        (b"*a\r\n", "invalid multibulk length"),
        (b"*3000000\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$a\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$67108865\r\n", "invalid bulk length"),
        (b"*1\r\nx3\r\n", "expected '$', got 'x'"),
        (&many, "too big mbulk count string"),
        (&bulk, "too big bulk count string"),
        (&[b'a'; 70_000], "too big inline request"),
        (b"set \"a\r\n", "unbalanced quotes in request"),
    ];
    for (input, text) in cases {
        assert_eq!(error_of(input, &Limits::DEFAULT), format!("ERR Protocol error: {text}"));
    }
    let unknown = &Limits::BEFORE_AUTHENTICATION;
    assert_eq!(error_of(b"*11\r\n", unknown), "ERR Protocol error: unauthenticated multibulk length");
    assert_eq!(error_of(b"*1\r\n$16385\r\n", unknown), "ERR Protocol error: unauthenticated bulk length");
    assert_eq!(
        error_of(&[b"*3\r\n$9000\r\n".to_vec(), vec![0; 9000], b"\r\n$9000\r\n".to_vec()].concat(), unknown),
        "ERR Protocol error: unauthenticated bulk length"
    );
}

#[test]
fn empty_requests_are_ignored() {
    let (found, error) =
        commands(b"\r\n*0\r\n*-1\r\n  \r\n*1\r\n$4\r\nPING\r\n\n", &[], &Limits::DEFAULT, 64);
    assert_eq!((found, error), (vec![vec![b"PING".to_vec()]], None));
}

#[test]
fn memory_grows_with_arrived_bytes_only() {
    let mut parser = Parser::new();
    let mut input = b"*1000000\r\n$60000000\r\nabc".to_vec();
    parser.parse(&mut input, &Limits::DEFAULT, 64).unwrap();
    assert!(parser.in_command() && parser.is_empty());
    assert_eq!(parser.wanted(&input), 60_000_000 - 3 + 2);
    assert_eq!(parser.release(1), 0);
}

fn command() -> impl Strategy<Value = Vec<u8>> {
    let argument = proptest::collection::vec(any::<u8>(), 0..40);
    let array = proptest::collection::vec(argument, 1..8).prop_map(|arguments| {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in &arguments {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    });
    let inline = "[a-c \"'\\\\x0-9]{0,30}\r?\n".prop_map(String::into_bytes);
    let junk = proptest::collection::vec(
        prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), any::<u8>()],
        0..12,
    );
    prop_oneof![4 => array, 2 => inline, 1 => junk]
}

proptest! {
    #[test]
    fn commands_are_the_same_at_every_split(commands in proptest::collection::vec(command(), 0..5)) {
        same_at_every_split(&commands.concat());
    }

    #[test]
    fn written_arguments_are_parsed(arguments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 1..20)) {
        let mut input = Vec::new();
        let mut reply = terrace_protocol::Reply::new(&mut input, false);
        reply.array(arguments.len());
        arguments.iter().for_each(|argument| reply.bulk(argument));
        prop_assert_eq!(commands(&input, &[], &Limits::DEFAULT, 64), (vec![arguments], None));
    }
}
