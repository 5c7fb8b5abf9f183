//! Tests of the lab, in one program: each file that names a store would compile it again.

mod batches;
mod crash;
mod deaths;
mod resizes;
mod revived;
mod schedules;
mod seeds;
mod trees;
