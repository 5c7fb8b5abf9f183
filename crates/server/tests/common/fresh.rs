//! Where the stores of these tests lie.

use std::cell::RefCell;

use tempfile::TempDir;
use terrace::{ByteSize, Engine, Options, Store};

thread_local! {
    /// The directories of a test's stores. They are removed when its thread ends.
    static DIRECTORIES: RefCell<Vec<TempDir>> = const { RefCell::new(Vec::new()) };
}

/// The engine of the stores: `TERRACE_TEST_ENGINE`, or else a pool's.
fn engine() -> Engine {
    std::env::var("TERRACE_TEST_ENGINE")
        .map_or(Engine::Direct, |name| Engine::named(&name).expect("an engine"))
}

/// Whether the stores lie on a disk.
pub(crate) fn is_on_disk() -> bool {
    engine() != Engine::Direct
}

/// Whether the stores lie in DRAM and on a disk.
pub(crate) fn is_tiered() -> bool {
    engine() == Engine::Tiered
}

/// Options for a new store: in memory, or on a disk if `TERRACE_TEST_ENGINE` says so. `./test` runs
/// these tests in all ways.
pub(crate) fn fresh() -> Options {
    if is_on_disk() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = Store::options().engine(engine()).directory(directory.path().join("store"));
        DIRECTORIES.with_borrow_mut(|directories| directories.push(directory));
        options.memory(ByteSize::mib(16))
    } else {
        Store::options().anonymous()
    }
}
