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
