//! Tests of scripts over a host that has three commands.

mod common;
mod libraries;
mod limits;
mod replies;
mod sandbox;
