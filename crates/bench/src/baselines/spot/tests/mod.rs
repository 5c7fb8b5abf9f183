//! Tests of the layer: each index in each variant behaves as a map, and a crash leaves what it must.

mod crashes;
mod models;
