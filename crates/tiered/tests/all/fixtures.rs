//! What the tests share: a store on a simulated disk.

pub(crate) use crate::contents::{Model, contents};
pub(crate) use crate::tiny::{OfTiered, OfTieredWith, clock, run_aside, settings};
use terrace_testkit::simfs::SimFs;
use terrace_tiered::{Settings, Tiered};

pub(crate) const PATH: &str = "/data/store";

pub(crate) fn create(files: &SimFs, settings: Settings) -> Tiered {
    OfTiered::create(files.clone(), PATH, settings).unwrap()
}

pub(crate) fn open(files: &SimFs, settings: Settings) -> Tiered {
    OfTiered::open(files.clone(), PATH, settings).unwrap()
}
