//! Tests of scripts over a host that has three commands.

mod anything;
mod common;
mod libraries;
mod limits;
mod replies;
mod sandbox;
