//! Tests of the parts of a memory node.

mod data;
mod ledger;
mod readers;
