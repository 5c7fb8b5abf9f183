//! Tests of the engine, in one program, so that what they have in common is compiled once.

mod costs;
mod grown;
mod limits;
mod room;
mod words;
