//! Tests of `roots`.

use super::*;
use terrace_medium::{Dram, Pmem};

fn pool() -> Pool<Dram> {
    Pool::anonymous(64 << 10).unwrap()
}

#[test]
fn root_returns_the_offset_that_was_set() {
    let pool = pool();
    assert_eq!(pool.root("table", "clht"), Ok(None));
    pool.set_root("table", "clht", 40960).unwrap();
    pool.set_root("other", "engine", 49152).unwrap();
    assert_eq!(pool.root("table", "clht"), Ok(Some(40960)));
    pool.set_root("table", "clht", 45056).unwrap();
    assert_eq!(pool.root("table", "clht"), Ok(Some(45056)));
    pool.set_root("table", "clht", 0).unwrap();
    assert_eq!(pool.root("table", "clht"), Ok(None));
    assert_eq!(pool.root("other", "engine"), Ok(Some(49152)));
    let root = Root { name: "table".into(), kind: "clht".into(), offset: None };
    assert_eq!(pool.roots()[0], root);
    assert_eq!(pool.roots().len(), 2);
    assert_eq!(pool.0.directory().verify(), []);
}

/// Existing pools must stay readable: this changes only together with the format version.
#[test]
fn root_words_match_the_format() {
    let pool = pool();
    pool.set_root("table", "clht", 40960).unwrap();
    let words: [u64; 8] =
        std::array::from_fn(|i| pool.0.directory().line(0).0[i].load(pool.medium(), Relaxed));
    let mut bytes = [0; 48];
    bytes[..5].copy_from_slice(b"table");
    bytes[32..36].copy_from_slice(b"clht");
    assert_eq!(words[1..7].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>(), bytes);
    assert_eq!((words[0] >> 8, words[0] & 0xff), (xxh3_64_with_seed(&bytes, 0) >> 8, 1));
    assert_eq!(words[7] % MAX_POOL, 40960);
    assert_eq!(words[7] >> 44, xxh3_64_with_seed(&40960_u64.to_le_bytes(), words[0]) >> 44);
}

#[test]
fn root_of_another_kind_is_an_error_naming_both() {
    let pool = pool();
    pool.set_root("table", "clht", 40960).unwrap();
    let error = pool.root("table", "art").unwrap_err().to_string();
    assert_eq!(error, "the root `table` is of kind `clht`, not `art`");
    assert!(pool.set_root("table", "art", 0).is_err());
}

#[test]
fn swap_changes_only_what_was_expected() {
    let pool = pool();
    assert_eq!(pool.swap_root("t", "k", 0, 40960), Err(RootError::Missing("t".into())));
    pool.set_root("t", "k", 0).unwrap();
    assert_eq!(pool.swap_root("t", "k", 0, 40960), Ok(true));
    assert_eq!(pool.swap_root("t", "k", 0, 45056), Ok(false));
    assert_eq!(pool.root("t", "k"), Ok(Some(40960)));
    assert_eq!(pool.swap_root("t", "k", 45056, 49152), Ok(false));
    assert_eq!(pool.swap_root("t", "k", 40960, 45056), Ok(true));
    assert_eq!(pool.root("t", "k"), Ok(Some(45056)));
}

#[test]
fn names_and_directory_have_limits() {
    let pool = pool();
    for bad in ["", "x\0y", &"x".repeat(32)] {
        assert_eq!(pool.set_root(bad, "k", 0), Err(RootError::Name(bad.into())));
    }
    assert!(pool.set_root("x", &"k".repeat(16), 0).is_err());
    for i in 0..pool.layout().geometry.roots {
        pool.set_root(&format!("{i:031}"), &"k".repeat(15), 40960).unwrap();
    }
    assert_eq!(pool.set_root("more", "k", 0), Err(RootError::Full { roots: 8 }));
    assert_eq!(pool.root("more", "k"), Ok(None));
    assert_eq!(pool.set_root(&"0".repeat(31), "kind", 65536), Err(RootError::OutOfBounds(65536)));
}

#[test]
fn any_flipped_byte_of_a_root_is_detected() {
    let pool = pool();
    pool.set_root("table", "clht", 40960).unwrap();
    let line = pool.0.directory().line(0);
    for (word, shift) in (0..8).flat_map(|word| (0..64).step_by(8).map(move |shift| (word, shift))) {
        for flip in [1u64, 0x80, 0xff] {
            let sound = line.0[word].load(pool.medium(), Relaxed);
            line.0[word].store(pool.medium(), sound ^ flip << shift, Relaxed);
            assert!(pool.root("table", "clht").is_err(), "word {word}, bit {shift}");
            assert_eq!(pool.0.directory().verify().len(), 1, "word {word}, bit {shift}");
            pool.roots();
            line.0[word].store(pool.medium(), sound, Relaxed);
        }
    }
    assert_eq!(pool.root("table", "clht"), Ok(Some(40960)));
}

#[test]
fn root_to_pool_end_or_beyond_is_damaged() {
    let pool = pool();
    pool.set_root("table", "clht", 40960).unwrap();
    let identity = identity("table", "clht").unwrap();
    for (offset, sound) in [(pool.size() - 8, true), (pool.size(), false), (pool.size() + 8, false)] {
        pool.0.directory().line(0).0[7].store(pool.medium(), encode(offset, &identity), Relaxed);
        assert_eq!(pool.root("table", "clht").is_ok(), sound, "{offset}");
        assert_eq!(pool.0.directory().verify().is_empty(), sound, "{offset}");
    }
}

#[test]
fn concurrent_set_root_creates_each_once() {
    let pool = Pool::<Pmem>::anonymous(64 << 10).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let pool = pool.clone();
            scope.spawn(move || {
                for round in 0..200u64 {
                    pool.set_root(&format!("r{}", round % 6), "k", 40960 + 8 * thread).unwrap();
                }
            });
        }
    });
    assert_eq!(pool.roots().len(), 6);
    assert_eq!(pool.0.directory().verify(), []);
}
