//! Tests of the parts of the managers.

mod manager;
