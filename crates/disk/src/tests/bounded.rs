//! Tests of `bounded.rs`.

use super::*;
use terrace_medium::files::SystemFiles;

#[test]
fn ring_reads_the_file_that_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let files = BoundedFiles::new(SystemFiles, 1);
    let open = |name: &str| {
        let path = directory.path().join(name);
        drop(files.create(&path).unwrap());
        files.open(&path, Purpose::ReadDirect).unwrap()
    };
    // The second one closes the first one.
    for file in [open("first"), open("second")] {
        let read = file.to_read().expect("another file");
        assert!(read.as_system().is_some(), "the ring reads no file of the system");
    }
    assert!(files.open(&directory.path().join("first"), Purpose::Read).unwrap().to_read().is_none());
}
