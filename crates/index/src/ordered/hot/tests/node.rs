//! Tests of `node.rs`.

use super::*;
use terrace_medium::Dram;
use terrace_pool::Pool;

fn leaf(nth: usize) -> Link {
    Link::to_leaf(0, 8 + 8 * nth as u64)
}

/// A trie like a list: each fork parts one key from the rest.
fn list(positions: &[u32]) -> Trie {
    let mut trie = Trie::fork(positions[0], leaf(0), leaf(1));
    for (nth, &position) in positions.iter().enumerate().skip(1) {
        trie.part(nth, (position, leaf(nth), leaf(nth + 1)));
    }
    trie
}

/// A key with these bits.
fn key(positions: &[u32]) -> Vec<u8> {
    let last = positions.iter().max().map_or(0, |last| last / BITS + 1);
    let mut key = vec![0; last as usize];
    for position in positions.iter().filter(|position| *position % BITS != 0) {
        key[(position / BITS) as usize] |= 1 << (8 - position % BITS);
    }
    key
}

fn check_kept(trie: &Trie, layout: Layout) {
    let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
    let guard = pool.pin();
    let image = Image::of(trie, 77);
    let fresh = guard.alloc(image.bytes().len()).unwrap();
    fresh.write(0, image.bytes());
    let offset = fresh.persist().into_offset();
    let node = Node::at(&guard, offset).unwrap();
    assert_eq!((node.shape.layout(), node.shape.counted(), node.is_whole()), (layout, 77, true));
    assert_eq!((node.len(), node.bytes()), (trie.entries.len(), image.bytes().len()));
    assert_eq!((node.positions(), node.first()), (trie.positions.clone(), trie.positions[0]));
    assert_eq!(node.bits(), trie.entries.iter().map(|entry| entry.bits).collect::<Vec<_>>());
    for (nth, entry) in trie.entries.iter().enumerate() {
        let link = node.link(pool.region(), nth).load(pool.medium(), Acquire);
        assert_eq!(link, entry.link.0);
    }
    for nth in 0..=trie.positions.len() {
        assert_eq!(node.find(&key(&trie.positions[..nth])), nth, "{layout:?} of {}", trie.positions.len());
    }
}

#[test]
fn node_keeps_its_trie_in_every_layout() {
    for count in [1, 2, 7, 8, 9, 15, 16, 17, 24, 31] {
        let bits: Vec<u32> = (0..9 * 20).filter(|position| position % BITS != 0).collect();
        check_kept(&list(&bits[3..3 + count]), Layout::Window);
        let near: Vec<u32> = bits.iter().copied().step_by(5).take(count).collect();
        check_kept(&list(&near), if count < 14 { Layout::Window } else { Layout::Near });
        let far: Vec<u32> = (0..count as u32).map(|nth| 4 + nth * 9 * 40).collect();
        check_kept(&list(&far), if count == 1 { Layout::Window } else { Layout::Far });
        let wide: Vec<u32> = (0..count as u32).map(|nth| 4 + nth * 9 * 8000).take(8).collect();
        check_kept(&list(&wide), if count == 1 { Layout::Window } else { Layout::Wide });
    }
}

#[test]
fn end_of_a_key_is_a_bit() {
    let trie = list(&[9, 18]);
    assert_eq!(Layout::of(&trie.positions), Layout::Near);
    check_ends(&trie);
}

fn check_ends(trie: &Trie) {
    let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
    let guard = pool.pin();
    let image = Image::of(trie, 0);
    let fresh = guard.alloc(image.bytes().len()).unwrap();
    fresh.write(0, image.bytes());
    let node = Node::at(&guard, fresh.persist().into_offset()).unwrap();
    assert_eq!([&b"a"[..], b"ab", b"abc"].map(|key| node.find(key)), [0, 1, 2]);
}

#[test]
fn last_row_within_is_found() {
    let mut state = 3u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as u32
    };
    for count in 1..=32 {
        for _ in 0..100 {
            let within = next() | next();
            let rows: Vec<u32> = (0..count).map(|_| next() & next() & next()).collect();
            let expected = |bits: u32| rows.iter().rposition(|row| row & !within & bits == 0).unwrap_or(0);
            let bytes = |width: usize| -> Vec<u8> {
                let mut bytes: Vec<u8> =
                    rows.iter().flat_map(|row| row.to_le_bytes()[..width].to_vec()).collect();
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                bytes
            };
            assert_eq!(last_within::<1>(&bytes(1), count, within), expected(0xff));
            assert_eq!(last_within::<2>(&bytes(2), count, within), expected(0xffff));
            assert_eq!(last_within::<4>(&bytes(4), count, within), expected(!0));
        }
    }
}

#[test]
fn changed_byte_of_the_content_is_noticed() {
    let image = Image::of(&list(&[3, 9, 14, 27, 301]), 5);
    let shape = Shape(u64::from_le_bytes(image.bytes()[8..16].try_into().unwrap()));
    let content = image.bytes()[FRONT..FRONT + shape.content_bytes()].to_vec();
    let is_whole = |content: &[u8]| Node { offset: 0, shape, content }.is_whole();
    assert!(is_whole(&content));
    for (at, change) in (0..content.len()).flat_map(|at| (1..=255u8).map(move |change| (at, change))) {
        let mut changed = content.clone();
        changed[at] ^= change;
        assert!(!is_whole(&changed), "byte {at} changed by {change:#x}");
    }
    for (byte, change) in (0..4).flat_map(|byte| (1..256u64).map(move |change| (byte, change))) {
        assert!(!Shape(shape.0 ^ change << (8 * byte)).is_sound(), "{byte} {change:#x}");
    }
}

/// Pools of any age hold such nodes.
#[test]
fn nodes_never_change() {
    let image = Image::of(&list(&[10, 12]), 3);
    let words: Vec<u64> =
        image.bytes().chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words[1], 0x0003_0000_42e7);
    assert_eq!((words[2] & 0xffff_ffff, words[3], words[4]), (10, 0xa000_0000_0000_0000, 0x0003_0200));
    assert_eq!(words[5..], [leaf(0).0, leaf(1).0, leaf(2).0]);
    assert_eq!(words[2] >> 32, 0x9fc7_fa39);
}
