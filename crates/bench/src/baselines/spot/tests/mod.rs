//! Tests of the layer: each index in each variant behaves as a map.

mod models;
