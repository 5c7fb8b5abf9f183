//! The RESP parser: commands and errors do not depend on where the network cuts the input.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/protocol/tests/common/mod.rs"]
mod common;

fuzz_target!(|input: &[u8]| {
    // The whole input is parsed once for each split.
    if input.len() <= 400 {
        common::same_at_every_split(input);
    }
});
