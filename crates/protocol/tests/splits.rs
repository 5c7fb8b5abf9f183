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
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$a\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\nx3\r\n", "expected '$', got 'x'"),
        (&many, "too big mbulk count string"),
        (&bulk, "too big bulk count string"),
        (b"set \"a\r\n", "unbalanced quotes in request"),
    ];
    for (input, text) in cases {
        assert_eq!(error_of(input, &Limits::DEFAULT), format!("ERR Protocol error: {text}"));
    }
}

#[test]
fn limit_errors_name_limit_and_value() {
    let two_long = [b"*3\r\n$9000\r\n".to_vec(), vec![0; 9000], b"\r\n$9000\r\n".to_vec()].concat();
    let (known, unknown) = (Limits::DEFAULT, Limits::BEFORE_AUTHENTICATION);
    let query = Limits { query_bytes: 100, ..Limits::DEFAULT };
    let cases: &[(&[u8], Limits, &str)] = &[
        (b"*3000000\r\n", known, "invalid multibulk length (a command has at most 1048576 arguments)"),
        (b"*1\r\n$67108865\r\n", known, "invalid bulk length (proto-max-bulk-len is 67108864 bytes)"),
        (
            b"*1\r\n$101\r\n",
            Limits::with_bulk_bytes(100),
            "invalid bulk length (proto-max-bulk-len is 100 bytes)",
        ),
        (
            b"*1\r\n$1000\r\n",
            query,
            "too big command (at most 100 bytes; a larger proto-max-bulk-len allows more)",
        ),
        (&[b'a'; 70_000], known, "too big inline request (at most 65536 bytes)"),
        (b"*11\r\n", unknown, "unauthenticated multibulk length (at most 10 arguments before AUTH)"),
        (b"*1\r\n$16385\r\n", unknown, "unauthenticated bulk length (at most 16384 bytes before AUTH)"),
        (&two_long, unknown, "unauthenticated bulk length (at most 16384 bytes before AUTH)"),
    ];
    for (input, limits, text) in cases {
        assert_eq!(error_of(input, limits), format!("ERR Protocol error: {text}"));
    }
}

/// A command that began under wide limits is judged by narrow ones as soon as these hold.
#[test]
fn narrower_limits_hold_for_begun_commands() {
    for begun in [&b"*2\r\n$20000\r\nabc"[..], b"*11\r\n$1\r\na\r\n", b"*11\r\n"] {
        let (mut parser, mut input) = (Parser::new(), begun.to_vec());
        parser.parse(&mut input, &Limits::DEFAULT, 64).unwrap();
        input.push(b'x');
        let error = parser.parse(&mut input, &Limits::BEFORE_AUTHENTICATION, 64).unwrap_err();
        assert!(error.to_string().contains("unauthenticated "), "{error}");
    }
}

/// Commands that were read ahead under wide limits can be checked against narrow ones.
#[test]
fn narrower_limits_can_be_checked_for_held_commands() {
    let mut input = b"*1\r\n$4\r\nPING\r\n".to_vec();
    input.extend([b"*2\r\n$4\r\nECHO\r\n$20000\r\n".to_vec(), vec![b'x'; 20_000], b"\r\n".to_vec()].concat());
    input.extend([b"*11\r\n".to_vec(), b"$1\r\na\r\n".repeat(11)].concat());
    let mut parser = Parser::new();
    parser.parse(&mut input, &Limits::DEFAULT, 64).unwrap();
    let unknown = &Limits::BEFORE_AUTHENTICATION;
    let checks = [0, 1, 2].map(|nth| parser.check(nth, unknown).map_err(|error| error.to_string()));
    assert_eq!(checks[0], Ok(()));
    assert!(checks[1].as_ref().unwrap_err().contains("unauthenticated bulk length"));
    assert!(checks[2].as_ref().unwrap_err().contains("unauthenticated multibulk length"));
    assert!((0..3).all(|nth| parser.check(nth, &Limits::DEFAULT).is_ok()));
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
