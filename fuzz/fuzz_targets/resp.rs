//! The RESP parser: the same commands and the same error however the network cuts the input.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/protocol/tests/common/mod.rs"]
mod common;

fuzz_target!(|input: &[u8]| {
    // Every split costs a parse of the whole.
    if input.len() <= 400 {
        common::same_at_every_split(input);
    }
});
