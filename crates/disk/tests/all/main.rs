//! Tests of the disk parts, in one program.
#![allow(missing_docs, reason = "tests")]

mod directory;
mod gated;
mod log;
mod manifest;
mod merge;
mod model;
mod table;
mod table_reads;
mod versions;

/// Signs the changed head of a file of records, as a later version of the format would.
fn sign_head(bytes: &mut [u8], store: u64, file: u64) {
    let seed = store ^ file.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[..64], seed);
    bytes[64..72].copy_from_slice(&sum.to_le_bytes());
}
