//! Checks shared by the property tests, the corpus and the fuzzer: the outcome does not depend on
//! where the input is cut.
#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "part of several test programs, each of which uses some of it"
)]

use terrace_protocol::{Limits, Parser};

pub type Outcome = (Vec<Vec<Vec<u8>>>, Option<String>);

/// Parses `input` in pieces that end at `cuts`, and drops executed commands after each piece.
pub fn commands(input: &[u8], cuts: &[usize], limits: &Limits, most: usize) -> Outcome {
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

pub fn same_at_every_split(input: &[u8]) {
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
