//! Tests of the fabric, in one program.

mod conformance;
#[cfg(feature = "libfabric")]
mod half;
#[cfg(feature = "libfabric")]
mod libfabric;
#[cfg(feature = "libfabric")]
mod library;
mod ports;
mod sim;
