#![no_main]
//! Opens arbitrary bytes as a pool's file: the result is an error or a usable pool, never a crash
//! or a hang.
//!
//! The first byte of the input chooses what the rest is: a whole file, the beginning of one, or
//! changes (two bytes of place, one of value) to a pool that was closed or left in use; and whether
//! the superblocks' checksums stay as they are or are made to fit.

use libfuzzer_sys::fuzz_target;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use terrace_medium::Shm;
use terrace_pool::{Pool, PoolOptions};
use xxhash_rust::xxh3::xxh3_64;

const SIZE: u64 = 64 << 10;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, input)) = input.split_first() else { return };
    let mut image = match mode % 4 {
        0 => input.to_vec(),
        1 => overlaid(images().1.clone(), input),
        2 => changed(images().0.clone(), input),
        _ => changed(images().1.clone(), input),
    };
    if mode & 4 != 0 {
        seal(&mut image);
    }
    let file = memory(&image);
    for options in [options(&file).read_only(true), options(&file).salvage(true), options(&file)] {
        if let Ok(pool) = options.open::<Shm>() {
            use_it(&pool);
        }
    }
});

fn use_it(pool: &Pool<Shm>) {
    pool.verify_superblock_and_roots();
    pool.verify_memory();
    let _ = pool.set_root("new", "fuzz", pool.layout().zones);
    fill_and_empty(pool);
    pool.collect(&mut |marker| {
        for root in pool.roots() {
            if let Ok(Some(offset)) = pool.root(&root.name, &root.kind) {
                marker.mark(offset, 9000);
            }
        }
    });
    let _ = pool.grow(pool.size() + 4096);
    fill_and_empty(pool);
    pool.verify_memory();
}

fn fill_and_empty(pool: &Pool<Shm>) {
    let guard = pool.pin();
    let mut taken = Vec::new();
    for bytes in [8, 96, 500, 3000, 9000].into_iter().cycle().take(40) {
        if let Ok(block) = guard.alloc(bytes) {
            block.write(0, &vec![0xcc; bytes]);
            taken.push((block.persist().into_offset(), bytes));
        }
    }
    for (i, (offset, bytes)) in taken.into_iter().enumerate() {
        if i % 2 == 0 { guard.free(offset, bytes) } else { guard.retire(offset, bytes) }
    }
}

/// The file of a pool after an orderly close, and of one left in use.
fn images() -> &'static (Vec<u8>, Vec<u8>) {
    static IMAGES: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let image = |leave: fn(Pool<Shm>)| {
            let file = memory(&[]);
            let pool = options(&file).size(SIZE).hash_seed(1).create::<Shm>().unwrap();
            let guard = pool.pin();
            for (name, bytes) in [("one", 96), ("two", 9000)] {
                let block = guard.alloc(bytes).unwrap();
                block.write(0, &vec![7; bytes]);
                pool.set_root(name, "fuzz", block.persist().into_offset()).unwrap();
            }
            drop(guard);
            leave(pool);
            let mut bytes = vec![0; SIZE as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        (image(|pool| pool.close().unwrap()), image(Pool::abandon))
    })
}

fn options(file: &File) -> PoolOptions {
    PoolOptions::in_file(file.try_clone().unwrap()).max_size(1 << 20)
}

fn memory(bytes: &[u8]) -> File {
    let file = File::from(rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn overlaid(mut image: Vec<u8>, input: &[u8]) -> Vec<u8> {
    let len = input.len().min(image.len());
    image[..len].copy_from_slice(&input[..len]);
    image
}

fn changed(mut image: Vec<u8>, input: &[u8]) -> Vec<u8> {
    for change in input.as_chunks::<3>().0 {
        let at = u16::from_le_bytes([change[0], change[1]]) as usize;
        image[at] = change[2];
    }
    image
}

fn seal(image: &mut [u8]) {
    for copy in [0, 4096] {
        if let Some(copy) = image.get_mut(copy..copy + 512) {
            let sum = xxh3_64(&copy[..504]);
            copy[504..].copy_from_slice(&sum.to_le_bytes());
        }
    }
}
