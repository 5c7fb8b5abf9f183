//! Tests: a damaged byte of names or extents is an error, and harms nothing.

use std::io::ErrorKind;
use std::path::Path;
use terrace_medium::Shm;
use terrace_medium::files::Files;
use terrace_pool::PoolOptions;
use terrace_tier::PoolFiles;

#[test]
fn flipped_byte_of_the_names_is_noticed() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("pool");
    let pool = PoolOptions::at(&path).size(1 << 20).create::<Shm>().unwrap();
    let files = PoolFiles::create(pool, Path::new("/")).unwrap();
    files.create(Path::new("/a")).unwrap().write_all_at(&[1; 5000], 0).unwrap();
    // A chunk, the record of a name, a node, and the extents, whose bytes are their owner's matter.
    let blocks = files.reachable();
    drop(files);
    let sound = std::fs::read(&path).unwrap();
    let (mut noticed, mut tried) = (0, 0);
    for &(at, bytes) in &blocks[..3] {
        let used = (0..bytes.min(128)).map(|nth| (at + nth) as usize);
        for place in used.filter(|&place| sound[place] != 0) {
            let mut damaged = sound.clone();
            damaged[place] ^= 0x41;
            std::fs::write(&path, &damaged).unwrap();
            let pool = PoolOptions::at(&path).read_only(true).open::<Shm>().unwrap();
            let opened = PoolFiles::open(pool, Path::new("/"));
            tried += 1;
            noticed += u32::from(opened.is_err_and(|error| error.kind() == ErrorKind::InvalidData));
        }
    }
    assert!(tried > 30 && noticed == tried, "{noticed} of {tried}");
}
