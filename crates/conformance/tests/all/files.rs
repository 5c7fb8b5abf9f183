//! Tests: the operating system's files and the simulated ones pass one suite.

use std::cell::Cell;
use std::path::PathBuf;
use terrace_conformance::files;
use terrace_medium::files::{Files, SystemFiles};
use terrace_testkit::simfs::SimFs;

/// New directories, one after the other.
fn directories(files: &impl Files, top: PathBuf) -> impl FnMut() -> PathBuf {
    let number = Cell::new(0);
    move || {
        number.set(number.get() + 1);
        let path = top.join(number.get().to_string());
        files.create_directory(&path).unwrap();
        path
    }
}

#[test]
fn system_files_conform() {
    let directory = tempfile::tempdir().unwrap();
    files(&SystemFiles, directories(&SystemFiles, directory.path().into()));
}

#[test]
fn simulated_files_conform() {
    for disk in [SimFs::new(["/d"]), SimFs::new(["/d"]).with_unnamed_files()] {
        files(&disk, directories(&disk, "/d".into()));
    }
}
