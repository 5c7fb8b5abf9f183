//! Tests: maps spread slots evenly, and move few.

use terrace_cluster::map::{Map, Node};

fn nodes(count: usize) -> Vec<Node> {
    let node =
        |nth: usize| Node { id: format!("{:040x}", nth * 77 + 1), host: "localhost".into(), port: 7000 };
    (0..count).map(node).collect()
}

#[test]
fn spread_gives_each_node_its_share() {
    for count in [1, 2, 3, 6, 16] {
        let (map, share) = (Map::spread(nodes(count)), 16_384 / count);
        let owners = map.owners();
        assert!(owners.iter().all(Option::is_some));
        for node in &map.nodes {
            let slots = owners.iter().flatten().filter(|owner| owner.id == node.id).count();
            assert!(slots > share * 7 / 10 && slots < share * 13 / 10 + 1, "{slots} of {share}");
        }
    }
}

#[test]
fn node_that_comes_takes_slots_only_for_itself() {
    for count in [1, 3, 8] {
        let (before, after) = (Map::spread(nodes(count)), Map::spread(nodes(count + 1)));
        let new = &after.nodes[count].id;
        let moved = before.owners().into_iter().zip(after.owners()).filter(|(old, new)| old != new);
        let moved: Vec<_> = moved.map(|(_, to)| to.unwrap().id.clone()).collect();
        assert!(moved.iter().all(|to| to == new));
        assert!(moved.len() < 16_384 / (count + 1) * 13 / 10, "{}", moved.len());
    }
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
