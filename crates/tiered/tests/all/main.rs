//! Tests of the tiered engine by itself. Histories of all engines on files, beside a map, are in
//! `crates/engine`.

#[path = "../../../engine/tests/common/contents.rs"]
mod contents;
mod damage;
mod dram;
mod fixtures;
mod open;
mod order;
mod space;
mod threads;
#[path = "../common/tiny.rs"]
mod tiny;
