//! Tests of the test kit, in one program, so that what they have in common is compiled once.

mod counting;
mod pool_files;
mod ports;
mod recording;
mod simfs;
mod simfs_names;
mod simfs_states;
mod slow;
