//! However the network cuts the input, the commands and the error are the same.

use proptest::prelude::*;
use terrace_protocol::{Limits, Parser};

type Outcome = (Vec<Vec<Vec<u8>>>, Option<String>);

/// Parses `input` given in pieces that end at `cuts`; drops what is executed after each piece.
fn commands(input: &[u8], cuts: &[usize], limits: &Limits, most: usize) -> Outcome {
    let mut parser = Parser::new();
    let (mut buffer, mut found, mut given) = (Vec::new(), Vec::new(), 0);
    for &cut in cuts.iter().chain([&input.len()]) {
        if cut < given {
            continue;
        }
        buffer.extend_from_slice(&input[given..cut]);
        given = cut;
        loop {
            let result = parser.parse(&mut buffer, limits, most);
            let whole = parser.len();
            found.extend(
                (0..whole).map(|nth| parser.command(&buffer, nth).iter().map(<[u8]>::to_vec).collect()),
            );
            let left = parser.len() - whole;
            buffer.drain(..parser.release(whole));
            if left > 0 {
                continue;
            }
            if let Err(error) = result {
                return (found, Some(error.to_string()));
            }
            if whole == 0 {
                break;
            }
        }
    }
    (found, None)
}

const SMALL: Limits =
    Limits { arguments: 5, bulk_bytes: 20, line_bytes: 30, query_bytes: 60, before_authentication: false };

fn same_at_every_split(input: &[u8]) {
    for limits in [Limits::DEFAULT, SMALL, Limits::BEFORE_AUTHENTICATION] {
        let whole = commands(input, &[], &limits, 64);
        assert_eq!(whole, commands(input, &[], &limits, 1));
        assert_eq!(
            whole,
            commands(input, &(0..input.len()).collect::<Vec<_>>(), &limits, 64),
            "byte by byte"
        );
        for cut in 0..input.len() {
            assert_eq!(
                whole,
                commands(input, &[cut], &limits, 3),
                "cut at {cut} of {}",
                input.escape_ascii()
            );
        }
    }
}

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
fn empty_requests_are_passed_over() {
    let (found, error) =
        commands(b"\r\n*0\r\n*-1\r\n  \r\n*1\r\n$4\r\nPING\r\n\n", &[], &Limits::DEFAULT, 64);
    assert_eq!((found, error), (vec![vec![b"PING".to_vec()]], None));
}

#[test]
fn memory_is_taken_as_bytes_arrive() {
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
    fn the_same_commands_at_every_split(commands in proptest::collection::vec(command(), 0..5)) {
        same_at_every_split(&commands.concat());
    }

    #[test]
    fn what_was_written_is_read(arguments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 1..20)) {
        let mut input = Vec::new();
        let mut reply = terrace_protocol::Reply::new(&mut input, false);
        reply.array(arguments.len());
        arguments.iter().for_each(|argument| reply.bulk(argument));
        prop_assert_eq!(commands(&input, &[], &Limits::DEFAULT, 64), (vec![arguments], None));
    }
}
