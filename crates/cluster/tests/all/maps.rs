//! Tests: maps spread slots evenly, and move few.

use std::collections::BTreeMap;
use terrace_cluster::map::{Map, Node};
use terrace_cluster::slot::{SLOTS, SlotRange};

fn nodes(count: usize) -> Vec<Node> {
    let node =
        |nth: usize| Node { id: format!("{:040x}", nth * 77 + 1), host: "localhost".into(), port: 7000 };
    (0..count).map(node).collect()
}

/// How many slots each node has, at least and at most, and how many ranges all have.
fn sizes(map: &Map) -> (usize, usize, usize) {
    let owners = map.owners();
    assert!(owners.iter().all(Option::is_some));
    let of = |node: &Node| owners.iter().flatten().filter(|owner| owner.id == node.id).count();
    let counts: Vec<usize> = map.nodes.iter().map(of).collect();
    let ranges = map.slots.values().map(Vec::len).sum();
    (*counts.iter().min().unwrap(), *counts.iter().max().unwrap(), ranges)
}

fn anew(map: &Map, nodes: Vec<Node>) -> Map {
    map.spread_anew(nodes, &BTreeMap::new())
}

#[test]
fn spread_gives_each_node_one_range() {
    for count in [1, 2, 3, 6, 16, 64] {
        let (least, most, ranges) = sizes(&Map::spread(nodes(count)));
        assert!(ranges == count && most - least <= 1, "{count}: {least} to {most}, {ranges} ranges");
    }
}

#[test]
fn node_that_comes_takes_slots_only_for_itself() {
    for count in [1, 3, 8] {
        let before = Map::spread(nodes(count));
        let after = anew(&before, nodes(count + 1));
        let new = &after.nodes[count].id;
        let moved = before.owners().into_iter().zip(after.owners()).filter(|(old, new)| old != new);
        let moved: Vec<_> = moved.map(|(_, to)| to.unwrap().id.clone()).collect();
        assert!(moved.iter().all(|to| to == new));
        assert!(moved.len() < 16_384 / (count + 1) * 13 / 10, "{}", moved.len());
    }
}

/// Whatever comes and goes, shares differ by little, and ranges are few.
#[test]
fn ranges_stay_few_while_nodes_come_and_go() {
    let all = nodes(8);
    let mut map = Map::spread(all[..3].to_vec());
    // A node that comes back, and some that come, go, and come in another order.
    let steps: [&[usize]; 9] = [
        &[0, 2],
        &[0, 1, 2],
        &[0, 1, 2, 3],
        &[0, 1, 2, 3, 4, 5],
        &[1, 2, 3, 4, 5],
        &[1, 3, 5],
        &[0, 1, 2, 3, 4, 5, 6, 7],
        &[2, 6, 7],
        &[6, 7],
    ];
    for step in steps {
        let nodes: Vec<Node> = step.iter().map(|nth| all[*nth].clone()).collect();
        map = anew(&map, nodes.clone());
        let ((least, most, ranges), share) = (sizes(&map), 16_384 / step.len());
        assert!(least >= share * 8 / 10 && most <= share * 12 / 10 + 1, "{step:?}: {least} to {most}");
        assert!(ranges <= 3 * step.len(), "{step:?}: {ranges} ranges");
        assert_eq!(anew(&map, nodes), map);
        if step.len() == 3 && step[1] == 1 {
            assert_eq!(ranges, 3, "a node that comes back has one range");
        }
    }
}

#[test]
fn map_in_crumbs_is_dealt_anew() {
    let nodes = nodes(3);
    let crumbs = |nth: u16| SlotRange::of((0..SLOTS).filter(|slot| slot / 8 % 3 == nth));
    let slots = (0..3).map(|nth| (nodes[usize::from(nth)].id.clone(), crumbs(nth))).collect();
    let map = anew(&Map { nodes: nodes.clone(), slots }, nodes.clone());
    assert_eq!(map, Map::spread(nodes));
}

#[test]
fn map_without_nodes_has_no_owners() {
    assert!(Map::spread(Vec::new()).owners().iter().all(Option::is_none));
}

#[test]
fn ranges_are_read_as_they_are_written() {
    use terrace_cluster::directory::{parse_ranges, ranges_text};
    for text in ["", "0", "0-99", "0-99 200", "16383"] {
        assert_eq!(ranges_text(&parse_ranges(text).unwrap()), text);
    }
    assert_eq!(parse_ranges("200, 0-99,100"), parse_ranges("0-100 200"));
    for text in ["0-1,,2", ",", "1,", "-1", "2-1", "16384", "a", "0-16384", "1-2-3"] {
        assert_eq!(parse_ranges(text), None, "{text:?}");
    }
}
