//! Tests of scripts over a host that has three commands.

mod anything;
mod common;
mod hostile;
mod libraries;
mod limits;
mod patterns;
mod replies;
mod sandbox;
