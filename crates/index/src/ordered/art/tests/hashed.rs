//! Tests of `hashed.rs`.

use super::super::super::links::store;
use super::super::node::Kind;
use super::super::ops::Art;
use super::*;
use crate::{PointIndex, Stored, U64};
use terrace_medium::{Dram, Mapping, Region};
use terrace_pool::Pool;

/// A node in new memory.
fn with_node(test: impl FnOnce(&Dram, Node<'_>)) {
    let region = Region::new(Dram::new(Mapping::anonymous(1 << 16, 1 << 16).unwrap()));
    test(region.medium(), Node::at(&region, Kind::Hashed, 64).unwrap());
}

fn found(medium: &Dram, node: Node<'_>, byte: u8) -> Option<Link> {
    node.child(medium, byte).map(|(_, link)| link)
}

#[test]
fn places_of_a_byte_are_all_and_its_own_line_first() {
    for byte in 0..=255 {
        let mut places: Vec<usize> = (0..PLACES).map(|nth| place(byte, nth)).collect();
        assert!(places[..IN_LINE].iter().all(|at| at / IN_LINE == places[0] / IN_LINE));
        places.sort_unstable();
        assert!(places.into_iter().eq(0..PLACES));
    }
    // Bytes that follow each other differ in their places, and seven of them in their lines.
    let mut own: Vec<usize> = (100..164).map(|byte| place(byte, 0)).collect();
    assert!(own.windows(7).all(|own| own[1..].iter().all(|at| at / IN_LINE != own[0] / IN_LINE)));
    own.sort_unstable();
    assert!(own.into_iter().eq(0..PLACES));
}

#[test]
fn search_ends_at_a_new_place_and_not_at_a_vacated_one() {
    with_node(|medium, node| {
        let (links, link) = (node.links(), Link::to_leaf(17, 128));
        assert_eq!(found(medium, node, 17), None);
        store(medium, &links[place(17, 1)], link);
        assert_eq!(found(medium, node, 17), None, "behind a new place");
        store(medium, &links[place(17, 0)], Link::to_leaf(81, 64).vacated().clean());
        assert_eq!(found(medium, node, 17), Some(link));
        store(medium, &links[place(17, 0)], Link::to_leaf(17, 64).vacated());
        assert_eq!(found(medium, node, 17), Some(link), "a link counts beside what is left of another");
        store(medium, &links[place(17, 1)], Link::to_leaf(81, 64));
        assert_eq!(found(medium, node, 17), Some(Link::to_leaf(17, 64).vacated()));
    });
}

#[test]
fn full_line_leads_to_the_next() {
    with_node(|medium, node| {
        // The bytes of one place, and of one line.
        let bytes = (0..=255u8).filter(|&byte| place(byte, 0) / IN_LINE == 7);
        let all: Vec<u8> = bytes.collect();
        assert_eq!(all.len(), 32);
        let mut words = vec![0; LARGE_LINKS + PLACES];
        all.iter().for_each(|&byte| put(&mut words, Link::to_leaf(byte, 64)));
        for (word, &bits) in node.links().iter().zip(&words[LARGE_LINKS..]) {
            store(medium, word, Link(bits));
        }
        assert!((0..=255).all(|byte| found(medium, node, byte).is_some() == all.contains(&byte)));
        let used = |line: usize| words[LARGE_LINKS + line * 8..][..8].iter().all(|&word| word != 0);
        assert_eq!([7, 0, 1, 2, 3, 6].map(used), [true, true, true, true, false, false]);
    });
}

/// Keys of one line come and go: each is found while it is there, and takes the place of another.
#[test]
fn vacated_places_are_taken_again() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let art = Art::<Dram, U64>::create(&pool, "map", 0).unwrap();
    let guard = pool.pin();
    let (moving, kept): (Vec<u64>, Vec<u64>) =
        (0..120).partition(|&byte| place(byte as u8, 0) / IN_LINE == 3);
    let kept = &kept[..24];
    kept.iter().for_each(|key| assert!(art.insert(&guard, key, key + 1).is_ok()));
    for turn in 0..1000 {
        let key = moving[turn * 7 % moving.len()];
        art.insert(&guard, &key, key + 1).unwrap();
        assert_eq!(art.get(&guard, &key), Some(key + 1));
        assert_eq!(art.remove(&guard, &key), Some(key + 1));
        assert!(moving.iter().all(|key| art.get(&guard, key).is_none()));
    }
    assert!(kept.iter().all(|key| art.get(&guard, key) == Some(key + 1)));
    let link = art.tree.follow_locked(art.tree.root_link());
    let (node, _) = art.tree.node_below(art.tree.root_link(), link, 0).unwrap();
    let used = node.links().iter().filter(|word| load(pool.medium(), word) != Link::NONE).count();
    assert!(matches!(node, Node::Hashed(_)) && (24..=24 + IN_LINE).contains(&used), "{used}");
    assert_eq!((art.verify(&guard), art.len()), (vec![], 24));
}

#[test]
fn new_place_before_a_link_is_damage() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let art = Art::<Dram, U64>::create(&pool, "map", 0).unwrap();
    let guard = pool.pin();
    (0..20).for_each(|key| assert!(art.insert(&guard, &key, key).is_ok()));
    // It has the place of key 1.
    assert!(art.insert(&guard, &65, 65).is_ok());
    let link = art.tree.follow_locked(art.tree.root_link());
    let (node, _) = art.tree.node_below(art.tree.root_link(), link, 0).unwrap();
    store(pool.medium(), &node.links()[place(65, 0)], Link::NONE);
    assert!(art.get(&guard, &65).is_none());
    assert!(art.get_sound(&guard, &65).is_err());
    assert_ne!(art.verify(&guard), vec![]);
}

/// In a node with as many children as it can have, a new place hides a child. A change that does
/// not find it must not try for ever to add it to a larger node, which refuses it.
#[test]
fn insert_ends_at_a_child_that_is_hidden() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let art = Art::<Dram, U64>::create(&pool, "map", 0).unwrap();
    let guard = pool.pin();
    let of_line = |line: usize| (0..256).filter(move |&key| place(key as u8, 0) / IN_LINE == line);
    // Nine keys of one line, the last of which lies in the next; the others fill no line.
    let line: Vec<u64> = of_line(3).take(9).collect();
    let lines = (0..8).filter(|&line| line != 3);
    let others: Vec<u64> = lines.flat_map(|line| of_line(line).take(7)).take(MOST - 8).collect();
    for key in others[..30].iter().chain(&line).chain(&others[30..]) {
        if *key == others[30] {
            assert_eq!(art.remove(&guard, &line[0]), Some(line[0]));
        }
        art.insert(&guard, key, *key).unwrap();
    }
    let link = art.tree.follow_locked(art.tree.root_link());
    let (node, _) = art.tree.node_below(art.tree.root_link(), link, 0).unwrap();
    assert!(matches!(node, Node::Hashed(_)) && art.len() == MOST as u64);
    let mut own = node.links()[3 * IN_LINE..4 * IN_LINE].iter();
    let vacated = own.find(|word| load(pool.medium(), word).is_empty()).unwrap();
    store(pool.medium(), vacated, Link::NONE);
    assert_eq!(art.get(&guard, &line[8]), None);
    assert!(art.insert(&guard, &line[8], 1).is_err());
    assert!(art.damage().is_some());
}
