//! Stores in files, and what measuring them needs.

mod features;
#[cfg(feature = "fjall")]
mod fjall;
mod latency;
mod load;
mod mix;
mod ours;
mod page;
mod pair;
mod place;
mod plot;
#[cfg(feature = "rocksdb")]
mod rocks;
mod rows;
mod settle;
mod store;

pub(crate) use features::{build_again, is_built};
pub(crate) use latency::{histogram, micros};
pub(crate) use load::{By, Load, RECORD_BYTES, VALUE_BYTES, batch, load_both, shape, value};
pub(crate) use mix::{THREADS, run, thread_work};
pub(crate) use page::write as write_page;
pub(crate) use pair::{Pair, named, peers};
pub(crate) use place::Place;
pub(crate) use plot::{Plot, Series};
pub(crate) use rows::{alone, alternate, beside, rounds};
pub(crate) use settle::settle;
pub(crate) use store::{Setup, Side, Stored, Write};

/// Its errors may come from another thread.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// An error as the other suites have it.
pub(crate) fn plain(error: Box<dyn std::error::Error + Send + Sync>) -> Box<dyn std::error::Error> {
    error
}
