//! Tests of `superblock`.

use super::*;
use terrace_medium::{Dram, Mapping};

fn superblock(sequence: u64) -> Superblock {
    Superblock {
        version: FIRST_VERSION,
        sequence,
        uuid: 0x1234_5678_9abc_def0_1122_3344_5566_7788,
        generation: 3,
        open_seq: 2,
        clean: sequence.is_multiple_of(2),
        collection_pending: sequence.is_multiple_of(4),
        durability: Durability::Power,
        assumed_persistent: true,
        size: (1 << 20) + sequence * PAGE,
        geometry: Geometry::tiny(),
        boot: 0xb007_0000_0000_0000_0000_0000_0000_0077,
        hash_seed: 99,
        created_ms: 1_700_000_000_000,
        label: "a label, UTF-8: \u{e4}\u{f6}\u{fc}".into(),
        allocator_sum: 123,
    }
}

fn region() -> Region<Dram> {
    Region::new(Dram::new(Mapping::anonymous(64 << 10, 0).unwrap()))
}

fn head(a: &Words, b: &Words) -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    for (start, words) in [(0, a), (SUPERBLOCK_STEP as usize, b)] {
        for (i, word) in words.iter().enumerate() {
            head[start + 8 * i..start + 8 * i + 8].copy_from_slice(&word.to_le_bytes());
        }
    }
    head
}

/// `words` with a matching checksum, as another release or another machine would write them.
fn sealed(mut words: Words) -> Words {
    words[WORDS - 1] = checksum(&words);
    words
}

/// Existing pools must stay readable: this changes only together with the version.
#[test]
fn a_copy_has_the_words_that_the_format_says() {
    let geometry = Geometry { thread_slots: 0x100, participants: 0x40, roots: 0x20, ..Geometry::tiny() };
    let words = Superblock { geometry, ..superblock(4) }.encode();
    let expected = [
        u64::from_le_bytes(*b"TerrPool"),
        0x1234_0040_0000_0003,
        4,
        0x1122_3344_5566_7788,
        0x1234_5678_9abc_def0,
        0x0000_0002_0000_0003,
        0b1111,
        0x10_4000,
        0x0000_0040_0000_0100,
        0x0014_100c_0000_0020,
        0x0000_0000_0000_0077,
        0xb007_0000_0000_0000,
        99,
        1_700_000_000_000,
        u64::from_le_bytes(*b"a label,"),
        u64::from_le_bytes(*b" UTF-8: "),
        u64::from_le_bytes(*b"\xc3\xa4\xc3\xb6\xc3\xbc\0\0"),
    ];
    assert_eq!(words[..expected.len()], expected);
    assert_eq!(words[22], 123);
    let zeros = words[expected.len()..22].iter().chain(&words[23..WORDS - 1]);
    assert!(zeros.into_iter().all(|&word| word == 0));
    let bytes: Vec<u8> = words[..WORDS - 1].iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(words[WORDS - 1], xxh3_64(&bytes));
}

#[test]
fn each_flag_is_a_bit_of_its_own() {
    let none = Superblock {
        clean: false,
        collection_pending: false,
        durability: Durability::Process,
        assumed_persistent: false,
        ..superblock(4)
    };
    let power = Superblock { durability: Durability::Power, ..none.clone() };
    let flags = [
        (Superblock { clean: true, ..none.clone() }, 1),
        (power, 2),
        (Superblock { assumed_persistent: true, ..none.clone() }, 4),
        (Superblock { collection_pending: true, ..none.clone() }, 8),
        (Superblock { version: VERSION, ..none.clone() }, 0),
        (none, 0),
    ];
    for (superblock, bits) in flags {
        let words = superblock.encode();
        assert_eq!(words[6], bits);
        assert_eq!(Superblock::decode(&words).unwrap(), superblock);
    }
}

#[test]
fn stored_superblock_loads_from_either_copy_order() {
    for first in [0, 1] {
        let region = region();
        superblock(4).store(&region, first).unwrap();
        assert_eq!(load(&region).unwrap(), Found { superblock: superblock(4), copy: 0 });
        assert_eq!(load_copy(&region, 1).unwrap(), superblock(4));
    }
}

#[test]
fn newer_of_two_intact_copies_is_loaded() {
    let (old, new) = (superblock(4).encode(), superblock(5).encode());
    for (copies, newer) in [([&new, &old], 0), ([&old, &new], 1)] {
        let region = region();
        for (copy, words) in copies.into_iter().enumerate() {
            let lines = copy_in(&region, copy);
            let stores = lines.iter().flat_map(|line| &line.0).zip(words);
            stores.for_each(|(word, &value)| word.store(region.medium(), value, Relaxed));
        }
        let found = Found { superblock: superblock(5), copy: newer };
        assert_eq!(load(&region).unwrap(), found);
        assert_eq!(parse(&head(copies[0], copies[1])).unwrap(), found);
        assert_eq!(load_copy(&region, 1 - newer).unwrap(), superblock(4));
    }
}

#[test]
fn with_one_copy_damaged_anywhere_the_other_serves() {
    let words = superblock(4).encode();
    let sound = head(&words, &words);
    for at in (0..SUPERBLOCK_BYTES).flat_map(|at| [at, at + SUPERBLOCK_STEP as usize]) {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = sound.clone();
            damaged[at] ^= flip;
            let found = parse(&damaged).unwrap();
            assert_eq!(found.superblock, superblock(4), "byte {at}");
            assert_eq!(found.copy, usize::from(at < SUPERBLOCK_BYTES));
            damaged[at ^ SUPERBLOCK_STEP as usize] ^= flip;
            let error = parse(&damaged).unwrap_err();
            assert!(matches!(error, Problem::Damaged(_) | Problem::NotAPool), "byte {at}: {error:?}");
        }
    }
}

#[test]
fn torn_update_leaves_old_or_new_superblock() {
    let (old, new) = (superblock(4).encode(), superblock(5).encode());
    let torn = |kept: usize| -> Words { std::array::from_fn(|i| if i < kept { new[i] } else { old[i] }) };
    for kept in 0..=WORDS {
        let first = parse(&head(&torn(kept), &old)).unwrap();
        let whole = kept == WORDS;
        assert_eq!(first.superblock, superblock(if whole { 5 } else { 4 }), "{kept} words of the first");
        let second = parse(&head(&new, &torn(kept))).unwrap();
        assert_eq!(second.superblock, superblock(5), "{kept} words of the second");
    }
}

#[test]
fn other_versions_and_other_machines_are_told_from_damage() {
    let words = superblock(4).encode();
    let with = |at: usize, value: u64| {
        let mut words = words;
        words[at] = value;
        let other = sealed(words);
        parse(&head(&other, &other)).unwrap_err()
    };
    assert!(matches!(with(1, MACHINE | 1), Problem::Version { found: 1, known: VERSION }));
    let later = with(1, MACHINE | u64::from(VERSION + 1));
    assert!(matches!(later, Problem::Version { known: VERSION, .. }));
    assert!(matches!(with(1, 32 << 32 | 0x1234 << 48 | 1), Problem::OtherMachine));
    assert!(matches!(with(0, MAGIC.swap_bytes()), Problem::OtherMachine));
    assert!(matches!(with(0, 0), Problem::NotAPool));
    assert!(matches!(with(6, 16), Problem::Damaged(_)));
    assert!(matches!(with(7, (1 << 20) + 1), Problem::Damaged(_)));
    assert!(matches!(with(7, PAGE), Problem::Damaged(_)));
    assert!(matches!(with(7, MAX_POOL + PAGE), Problem::Damaged(_)));
    assert!(matches!(with(8, 0), Problem::Damaged(_)));
    assert!(matches!(with(9, u64::MAX), Problem::Damaged(_)));
    assert!(matches!(with(14, u64::MAX), Problem::Damaged(_)));
}

#[test]
fn a_whole_copy_of_another_version_says_more_than_a_damaged_one() {
    let mut words = superblock(4).encode();
    let damaged = std::array::from_fn(|i| if i == 20 { !words[i] } else { words[i] });
    words[1] = MACHINE | 9;
    let other = sealed(words);
    for (a, b) in [(damaged, other), (other, damaged), ([0; WORDS], other), (other, [0; WORDS])] {
        assert!(matches!(parse(&head(&a, &b)), Err(Problem::Version { found: 9, .. })));
    }
    for (a, b) in [(damaged, [0; WORDS]), ([0; WORDS], damaged)] {
        assert!(matches!(parse(&head(&a, &b)), Err(Problem::Damaged(_))));
    }
}

#[test]
fn a_head_cut_short_gives_the_copy_that_is_left() {
    let words = superblock(4).encode();
    let whole = head(&words, &words);
    for len in 0..HEAD_BYTES {
        let found = parse(&whole[..len]);
        assert_eq!(found.is_ok(), len >= SUPERBLOCK_BYTES, "{len} bytes");
    }
}
