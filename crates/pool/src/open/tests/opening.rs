//! Tests of `open`.

use super::*;
use std::os::unix::fs::FileExt;
use terrace_medium::{Dram, Shm};

#[test]
fn uuid_and_seed_are_random_except_version_bits() {
    let drawn: Vec<(u128, u64)> = (0..64).map(|_| random().unwrap()).collect();
    let (uuids, seeds): (Vec<u128>, Vec<u64>) = drawn.into_iter().unzip();
    assert!(uuids.iter().all(|uuid| uuid >> 76 & 0xf == 4 && uuid >> 62 & 3 == 2));
    let fixed = 0xf << 76 | 3 << 62;
    let varies = |any: u128, all: u128| any & !all;
    let any = uuids.iter().fold(0, |any, uuid| any | uuid);
    assert_eq!(varies(any, uuids.iter().fold(!0, |all, uuid| all & uuid)), !fixed);
    let any = seeds.iter().fold(0, |any, seed| any | seed);
    assert_eq!(any & !seeds.iter().fold(!0, |all, seed| all & seed), !0);
}

#[test]
fn zero_device_clears_only_the_given_size() {
    let device = tempfile::tempfile_in("/dev/shm").unwrap();
    let (size, len) = (5 * PAGE, 7 * PAGE);
    device.write_all_at(&vec![0xff; len as usize], 0).unwrap();
    zero_device(&device, size).unwrap();
    let mut found = vec![7; len as usize];
    device.read_exact_at(&mut found, 0).unwrap();
    let (zeroed, rest) = found.split_at(size as usize);
    assert!(zeroed.iter().all(|&byte| byte == 0) && rest.iter().all(|&byte| byte == 0xff));
}

#[test]
fn label_has_a_longest_length_and_no_zero() {
    let make = |label: &str| PoolOptions::anonymous().size(1 << 20).label(label).create::<Dram>();
    let longest = "x".repeat(LABEL_BYTES);
    assert_eq!(make(&longest).unwrap().label(), longest);
    for label in [longest + "y", "a\0b".into()] {
        assert!(matches!(make(&label).err().unwrap().problem, Problem::LabelTooLong), "{label:?}");
    }
}

#[test]
fn pool_uses_whole_pages_and_refuses_a_shorter_medium() {
    let medium = |bytes: u64| {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(16 * PAGE + bytes).unwrap();
        let map = |bytes: u64| {
            let file = file.try_clone().unwrap();
            Shm::new(Mapping::file(file, bytes as usize, bytes as usize, Protection::ReadWrite).unwrap())
        };
        (map(16 * PAGE + bytes), map(15 * PAGE))
    };
    let options = PoolOptions::anonymous();
    let (whole, part) = medium(PAGE / 2);
    let pool = options.create_on(whole).unwrap();
    assert_eq!(pool.size(), 16 * PAGE);
    pool.close().unwrap();
    let refused = options.open_on(part).err().unwrap().problem;
    let is_truncated = matches!(refused, Problem::Truncated { expected, found } if expected == 16 * PAGE && found == 15 * PAGE);
    assert!(is_truncated, "{refused:?}");
}
