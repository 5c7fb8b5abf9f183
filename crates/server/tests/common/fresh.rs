//! Where the stores of these tests lie.

use std::cell::RefCell;

use tempfile::TempDir;
use terrace::{ByteSize, Options, Store};

thread_local! {
    /// The directories of a test's stores. They are removed when its thread ends.
    static DIRECTORIES: RefCell<Vec<TempDir>> = const { RefCell::new(Vec::new()) };
}

/// Whether the stores lie on a disk.
pub(crate) fn is_on_disk() -> bool {
    std::env::var("TERRACE_TEST_ENGINE").is_ok_and(|engine| engine == "wip")
}

/// Options for a new store: in memory, or on a disk if `TERRACE_TEST_ENGINE` is `wip`. `./test`
/// runs these tests both ways.
pub(crate) fn fresh() -> Options {
    if is_on_disk() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = Store::options().directory(directory.path().join("store")).memory(ByteSize::mib(8));
        DIRECTORIES.with_borrow_mut(|directories| directories.push(directory));
        options
    } else {
        Store::options().anonymous()
    }
}
