//! Tests of the disk engine by itself. Histories of all engines on files, beside a map, are in
//! `crates/engine`.

mod changes;
#[path = "../../../engine/tests/common/contents.rs"]
mod contents;
mod descriptors;
mod interleaved;
#[path = "../common/small.rs"]
mod small;
mod space;
mod split;
