//! Tests of the layer: each index in each variant behaves as a map, a crash leaves what it must,
//! and the media get as little as the case study says.

mod crashes;
mod media;
mod models;
