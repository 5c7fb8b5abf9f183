//! Tests: truncated, overwritten or modified pools. Each gives an error or a working pool, never a
//! panic, a hang or a crash.

use crate::common::{TINY, closed_image, collect, file_of, is_intact, left_image, open, problem};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use terrace_medium::Shm;
use terrace_pool::{Geometry, Layout, Pool, PoolOptions, Problem};

/// A reproducible sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// Uses what is left of the pool, and returns whether its blocks are still intact.
fn use_it(pool: &Pool<Shm>) -> bool {
    pool.roots();
    pool.verify_superblock_and_roots();
    pool.verify_memory();
    let zones = pool.layout().zones;
    let _ = pool.set_root("three", "test", zones + 8192);
    fill_and_empty(pool);
    collect(pool);
    fill_and_empty(pool);
    let _ = pool.grow(pool.size() + 4096);
    fill_and_empty(pool);
    pool.reclaim_blocking();
    pool.space();
    pool.verify_memory();
    ["one", "two"].iter().all(|name| is_intact(pool, name) != Some(false))
}

/// Allocates all memory in blocks of several sizes, overwrites it, and frees it.
fn fill_and_empty(pool: &Pool<Shm>) {
    let mut taken = Vec::new();
    let guard = pool.pin();
    for bytes in [8, 96, 500, 3000, 9000].into_iter().cycle().take(60) {
        if let Ok(block) = guard.alloc(bytes) {
            block.write(0, &vec![0xcc; bytes]);
            taken.push((block.persist().into_offset(), bytes));
        }
    }
    for (i, (offset, bytes)) in taken.into_iter().enumerate() {
        if i % 2 == 0 { guard.free(offset, bytes) } else { guard.retire(offset, bytes) }
    }
}

fn metadata_bytes() -> usize {
    Layout::new(Geometry::tiny()).unwrap().zones as usize
}

#[test]
fn truncation_at_any_boundary_is_an_error() {
    let image = closed_image();
    let layout = Layout::new(Geometry::tiny()).unwrap();
    let parts = [512, 4096, 4608, layout.roots, layout.participants, layout.shared, layout.allocator];
    let more = [layout.thread_slots, layout.zones, layout.zones + 4096, layout.smallest(), TINY - 4096, TINY];
    for len in parts.into_iter().chain(more).flat_map(|at| [at - 1, at, at + 1]).chain([0, 1, 8]) {
        let mut bytes = image.clone();
        bytes.resize(len as usize, 0xee);
        let file = file_of(&bytes);
        match len {
            TINY.. => assert!(use_it(&open(&file).unwrap())),
            512.. => {
                let found = problem(open(&file));
                assert!(
                    matches!(found, Problem::Truncated { expected: TINY, found } if found == len),
                    "{len}"
                );
                assert!(file.metadata().unwrap().len() == len);
            }
            _ => assert!(matches!(problem(open(&file)), Problem::NotAPool), "{len}"),
        }
    }
}

#[test]
fn truncated_pool_is_readable() {
    let image = left_image();
    let layout = Layout::new(Geometry::tiny()).unwrap();
    for len in [4608, layout.zones, layout.smallest() - 1, layout.smallest(), layout.smallest() + 5, TINY - 1]
    {
        let file = file_of(&image[..len as usize]);
        let options = PoolOptions::in_file(file).salvage(true);
        if len < layout.smallest() {
            assert!(matches!(problem(options.open::<Shm>()), Problem::Truncated { .. }), "{len}");
            continue;
        }
        let pool = options.open::<Shm>().unwrap();
        assert_eq!(pool.size(), len / 4096 * 4096);
        assert_eq!(pool.roots().len(), 2);
        // Blocks beyond the end are missing, but reading them does not fault.
        assert_ne!(is_intact(&pool, "one"), None);
        is_intact(&pool, "two");
    }
}

#[test]
fn flipped_superblock_byte_is_repaired_from_other_copy() {
    let image = closed_image();
    let file = file_of(&image);
    for at in (0..512).chain(4096..4608) {
        file.write_all_at(&image, 0).unwrap();
        file.write_all_at(&[!image[at]], at as u64).unwrap();
        let pool = open(&file).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        assert_eq!(pool.verify_superblock_and_roots(), [], "byte {at}");
        assert_eq!(pool.generation(), 2, "byte {at}");
        assert!(use_it(&pool), "byte {at}");
        pool.close().unwrap();
        file.set_len(TINY).unwrap();
    }
}

/// No metadata before the zones is trusted so far that the allocator could hand out memory in use.
#[test]
fn flipped_metadata_byte_is_an_error_or_harmless() {
    for (image, step) in [(closed_image(), 1), (left_image(), 3)] {
        let file = file_of(&image);
        let mut numbers = Numbers(7);
        for at in (0..metadata_bytes()).step_by(step) {
            let flip = 1 << (numbers.next() % 8);
            let flip = if numbers.next().is_multiple_of(4) { 0xff } else { flip };
            if let Some(pool) = open_flipped(&file, &image, at, flip) {
                assert!(use_it(&pool), "byte {at}, {flip:#x}");
            }
        }
    }
}

/// The metadata of memory is checked: whatever changes there, no memory in use is handed out.
#[test]
fn flipped_header_byte_keeps_reachable_blocks() {
    for (name, image) in [("closed", closed_image()), ("left", left_image())] {
        let file = file_of(&image);
        let blocks = blocks_of(&file_of(&image));
        // All bytes of the zone's header and all nonzero bytes, and a sample of the others.
        let head = metadata_bytes()..metadata_bytes() + 1024;
        let places = (metadata_bytes()..TINY as usize)
            .filter(|at| head.contains(at) || image[*at] != 0 || at % 31 == 0)
            .filter(|at| !blocks.iter().any(|block| block.contains(at)));
        for at in places {
            // To zero, to all ones, and one bit per place; and every value of a unit's use.
            let flips = [image[at], !image[at], 1 << (at % 8)];
            let uses = (0..8u8).map(|usage| image[at] ^ usage).filter(|_| head.contains(&at) && at % 8 == 2);
            for flip in flips.into_iter().chain(uses).filter(|&flip| flip != 0) {
                if let Some(pool) = open_flipped(&file, &image, at, flip) {
                    assert!(use_it(&pool), "{name}, byte {at}, {flip:#x}");
                }
            }
        }
    }
}

#[test]
fn damaged_unit_is_reported_and_affects_no_other() {
    let (image, unit_bytes) = (closed_image(), 32);
    let file = file_of(&image);
    // (That the first unit contains the zone's header is known without its entry.)
    for unit in 1..4 {
        let entry = metadata_bytes() + unit * unit_bytes;
        for at in entry..entry + unit_bytes {
            for flip in [1, 0x80, 0xff] {
                let pool = open_flipped(&file, &image, at, flip).unwrap();
                let findings = pool.verify_memory();
                let start = metadata_bytes() + unit * 4096;
                assert!(findings.iter().any(|found| found.offset == start as u64), "{at}: {findings:?}");
                fill_and_empty(&pool);
                pool.close().unwrap();
                // The damage persists across opens.
                let pool = open(&file).unwrap();
                fill_and_empty(&pool);
                assert!(!pool.verify_memory().is_empty());
                let space = pool.space();
                assert!(space.damaged <= 4096, "{at}, {flip:#x}: {space:?}");
                assert!(["one", "two"].iter().all(|name| is_intact(&pool, name) == Some(true)));
            }
        }
    }
}

/// The ranges in the file of the blocks that the roots point to.
fn blocks_of(file: &File) -> Vec<std::ops::Range<usize>> {
    let pool = open(file).unwrap();
    let block = |(name, bytes): (&str, usize)| {
        let offset = pool.root(name, "test").unwrap().unwrap() as usize;
        offset..offset + bytes
    };
    crate::common::BLOCKS.map(block).into()
}

fn open_flipped(file: &File, image: &[u8], at: usize, flip: u8) -> Option<Pool<Shm>> {
    file.set_len(TINY).unwrap();
    file.write_all_at(image, 0).unwrap();
    file.write_all_at(&[image[at] ^ flip], at as u64).unwrap();
    open(file).ok()
}

#[test]
fn random_bytes_give_an_error_or_a_working_pool() {
    let image = left_image();
    let file = file_of(&image);
    let mut numbers = Numbers(11);
    for round in 0..1500 {
        file.set_len(TINY).unwrap();
        file.write_all_at(&image, 0).unwrap();
        for _ in 0..1 + numbers.next() % 64 {
            let within = if round % 2 == 0 { metadata_bytes() as u64 } else { TINY };
            // The first copy of the superblock is spared; otherwise every round would end there.
            let at = 512 + numbers.next() % (within - 512);
            file.write_all_at(&[numbers.next() as u8], at).unwrap();
        }
        if let Ok(pool) = open(&file) {
            use_it(&pool);
        }
    }
}

#[test]
fn loss_of_both_superblocks_is_a_clear_error() {
    let image = closed_image();
    let file = file_of(&image);
    file.write_all_at(&[!image[100]], 100).unwrap();
    file.write_all_at(&[!image[4196]], 4196).unwrap();
    let error = open(&file).err().unwrap();
    assert!(matches!(error.problem, Problem::Damaged(_)));
    assert!(error.to_string().contains("does not match its checksum"), "{error}");
}

#[test]
fn holes_of_a_sparse_copy_are_allocated() {
    let image = closed_image();
    for place in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let file = tempfile::tempfile_in(place).unwrap();
        file.set_len(TINY).unwrap();
        file.write_all_at(&image[..20480], 0).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 < TINY);
        open(&file).unwrap().close().unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 >= TINY);
    }
}

/// Gives both copies of the superblock in `image` a matching checksum.
fn seal(image: &mut [u8]) {
    for copy in [0, 4096] {
        let sum = xxhash_rust::xxh3::xxh3_64(&image[copy..copy + 504]);
        image[copy + 504..copy + 512].copy_from_slice(&sum.to_le_bytes());
    }
}

#[test]
fn forged_superblock_is_an_error_or_harmless() {
    let sound = left_image();
    let file = file_of(&sound);
    let mut numbers = Numbers(13);
    let mut opened = 0;
    for _ in 0..4000 {
        let mut image = sound.clone();
        for _ in 0..1 + numbers.next() % 3 {
            // Words 1 to 13: everything but magic and label.
            let at = 8 + (numbers.next() % 104) as usize;
            image[at] = numbers.next() as u8;
            image[4096 + at] = image[at];
        }
        seal(&mut image);
        file.set_len(TINY).unwrap();
        file.write_all_at(&image, 0).unwrap();
        if let Ok(pool) = open(&file) {
            opened += 1;
            pool.roots();
            pool.verify_superblock_and_roots();
            use_it(&pool);
        }
    }
    assert!(opened > 200, "only {opened} opened: the test proves nothing");
}
