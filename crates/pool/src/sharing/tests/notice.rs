//! Tests of `notice`.

use super::*;
use crate::open::options::PoolOptions;
use terrace_medium::Shm;

fn in_directory(name: &str) -> (tempfile::TempDir, PoolOptions, std::path::PathBuf) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join(name);
    let options = PoolOptions::at(&path).size(1 << 20).huge_pages(false);
    (directory, options, path)
}

#[test]
fn notice_is_read_while_its_participant_is_there() {
    let (_directory, options, path) = in_directory("alone");
    let pool = options.create::<Shm>().unwrap();
    assert!(notices(&path).unwrap().is_empty());
    assert!(pool.post_notice("first") && pool.post_notice("second, λ"));
    assert_eq!(notices(&path).unwrap(), ["second, λ"]);
    assert!(pool.post_notice(&"x".repeat(NOTICE_MAX)));
    assert_eq!(notices(&path).unwrap()[0].len(), NOTICE_MAX);
    assert!(!pool.post_notice(&"x".repeat(NOTICE_MAX + 1)) && !pool.post_notice("a\0b"));
    pool.close().unwrap();
    assert!(notices(&path).unwrap().is_empty());
    // A later participant in the same entry does not inherit it.
    let pool = options.open::<Shm>().unwrap();
    assert!(notices(&path).unwrap().is_empty());
    drop(pool);
    assert!(matches!(notices(path.with_extension("none")).unwrap_err().problem, Problem::Missing));
}

#[test]
fn each_sharer_has_a_notice_of_its_own() {
    let (_directory, options, path) = in_directory("shared");
    let options = options.shared(true);
    let (one, other) = (options.create::<Shm>().unwrap(), options.open::<Shm>().unwrap());
    assert!(one.post_notice("one") && other.post_notice("other"));
    assert_eq!(notices(&path).unwrap(), ["one", "other"]);
    drop(one);
    assert_eq!(notices(&path).unwrap(), ["other"]);
}

#[test]
fn damaged_notice_is_none_and_leaves_the_superblock_alone() {
    let (_directory, options, path) = in_directory("damaged");
    let pool = options.create::<Shm>().unwrap();
    assert!(pool.post_notice("text"));
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"T", place(0) + 8 * TEXT_WORD as u64).unwrap();
    assert!(notices(&path).unwrap().is_empty());
    drop(pool);
    options.open::<Shm>().unwrap();
}
