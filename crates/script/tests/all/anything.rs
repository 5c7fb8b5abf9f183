//! No bytes and no script get a machine to do anything but reply, fail or stop at a limit.

use proptest::{collection::vec, prelude::*, sample::select};
use terrace_script::Ended;

use crate::common::Bench;

/// What reads bytes of a client, each with ARGV[1] and ARGV[2].
const READERS: [&str; 7] = [
    "return cjson.encode(cjson.decode(ARGV[1]))",
    "return {cmsgpack.unpack(ARGV[1])}",
    "return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))",
    "return {cmsgpack.unpack_limit(ARGV[1], #ARGV[2], 0)}",
    "return {struct.unpack(ARGV[2], ARGV[1])}",
    "return struct.pack(ARGV[2], 1, 'x', ARGV[1], 2.5)",
    "return ('%' .. ARGV[2]):format(ARGV[1])",
];

/// Pieces of texts that the readers take.
const PIECES: [&[u8]; 24] = [
    b"[",
    b"]",
    b"{",
    b"}",
    b"\"",
    b"\\u12",
    b":",
    b",",
    b"1e999",
    b"-0",
    b"null",
    b"true",
    b"\xdf\xff",
    b"\xdd\x00\x00\xff\xff",
    b"\xc6",
    b"\x93",
    b"\x81\xa1",
    b"\xcb",
    b">I4",
    b"<s",
    b"c0",
    b"!16",
    b"99",
    b"\0",
];

/// Words of scripts.
const WORDS: [&str; 48] = [
    "return",
    "local",
    "function",
    "end",
    "if",
    "then",
    "while",
    "do",
    "for",
    "repeat",
    "until",
    "nil",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "=",
    "..",
    ",",
    "#",
    "-",
    "1",
    "1e9",
    "'x'",
    "a",
    "KEYS",
    "ARGV",
    "redis.call",
    "redis.pcall",
    "'get'",
    "'set'",
    "pcall",
    "error",
    "setmetatable",
    "getmetatable",
    "_G",
    "string.rep",
    "table.insert",
    "unpack",
    "coroutine.wrap",
    "next",
    "rawset",
    "cjson.encode",
    "cmsgpack.pack",
    "math.random",
    "tostring",
];

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![select(&PIECES[..]).prop_map(<[u8]>::to_vec), vec(any::<u8>(), 0..6)];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.limits.instructions = 200_000;
    bench
}

/// Runs a script; whatever becomes of it, the next one runs as usual.
fn run(bench: &mut Bench, text: &[u8], args: &[&[u8]]) -> Result<(), TestCaseError> {
    if let Err(Ended::Failed(reply) | Ended::Stopped(_, reply)) = bench.run_bytes(text, args, false) {
        prop_assert!(!reply.is_empty());
    }
    if bench.machine.is_spoilt() {
        *bench = self::bench();
    }
    prop_assert_eq!(bench.run("return {type(string.rep), x == nil, #KEYS}"), NEXT);
    Ok(())
}

const NEXT: &str = "-ERR user_script:1: Script attempted to access nonexistent global variable 'x'";

#[test]
fn libraries_take_any_bytes() {
    let bench = std::cell::RefCell::new(bench());
    proptest!(|(text in select(&READERS[..]), first in bytes(), second in bytes())| {
        run(&mut bench.borrow_mut(), text.as_bytes(), &[&first, &second])?;
    });
}

#[test]
fn any_words_are_a_script_that_ends() {
    let bench = std::cell::RefCell::new(bench());
    proptest!(|(words in vec(select(&WORDS[..]), 0..25))| {
        run(&mut bench.borrow_mut(), words.join(" ").as_bytes(), &[b"1", b"2"])?;
    });
}

#[test]
fn any_bytes_are_a_script_that_ends() {
    let bench = std::cell::RefCell::new(bench());
    proptest!(|(text in bytes())| run(&mut bench.borrow_mut(), &text, &[b"1"])?);
}
