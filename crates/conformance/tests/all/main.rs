//! Tests of the suites: what is correct passes them, and each fault of the reference is found.

mod files;
mod range_index;
