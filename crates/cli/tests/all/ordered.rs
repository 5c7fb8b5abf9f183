//! Pools whose index keeps keys in order, by themselves and beside a server.

use crate::common::{Place, Served};

/// Records in CSV, in this order: `user:000,0` and so on, and one key of another kind.
fn csv(order: impl Iterator<Item = usize>) -> String {
    let lines: String = order.map(|n| format!("user:{n:03},{n}\n")).collect();
    format!("key,value\n{lines}item,i\n")
}

const KEYS: usize = 700;

/// Places with the same records: loaded in the order of the keys and not, beside a server and not.
/// Each is given with its server.
fn places() -> Vec<(&'static str, Place, Option<Served>)> {
    let sorted = || csv(0..KEYS);
    let unsorted = || csv((0..KEYS).map(|n| n * 333 % KEYS));
    let load = |place: &Place, records: String| {
        let loaded = place.run_with(&["load", "-", "--index", "ordered"], records.as_bytes()).ok();
        assert!(
            loaded.err.contains("loaded 701 records") || !loaded.err.contains("warning"),
            "{}",
            loaded.err
        );
    };
    let alone = |records| {
        let place = Place::new();
        load(&place, records);
        (place, None)
    };
    let beside = |records| {
        let place = Place::new();
        let served = Served::start(&place.pool(), &["--index", "ordered"]);
        load(&place, records);
        (place, Some(served))
    };
    let named = |name, (place, served)| (name, place, served);
    vec![
        named("sorted", alone(sorted())),
        named("unsorted", alone(unsorted())),
        named("sorted, served", beside(sorted())),
        named("unsorted, served", beside(unsorted())),
    ]
}

fn users(numbers: impl Iterator<Item = usize>) -> String {
    numbers.map(|n| format!("user:{n:03}\n")).collect()
}

#[test]
fn scan_lists_ranges_of_an_ordered_pool() {
    for (name, place, _served) in places() {
        let scan = |arguments: &[&str]| {
            let ended = place.run(&[&["scan"], arguments].concat()).ok();
            ended.text().to_string()
        };
        let all = format!("item\n{}", users(0..KEYS));
        assert_eq!(scan(&[]), all, "{name}");
        assert_eq!(scan(&["--from", "user:690"]), users(690..KEYS), "{name}");
        assert_eq!(scan(&["--from", "user:100", "--to", "user:600"]), users(100..600), "{name}");
        assert_eq!(scan(&["--to", "user:003"]), format!("item\n{}", users(0..3)), "{name}");
        assert_eq!(scan(&["--reverse", "--limit", "600"]), users((100..KEYS).rev()), "{name}");
        let reversed = scan(&["--reverse", "--from", "user:001", "--to", "user:6"]);
        assert_eq!(reversed, users((1..600).rev()), "{name}");
        assert_eq!(scan(&["--prefix", "user:69"]), users(690..KEYS), "{name}");
        assert_eq!(scan(&["--prefix", "user:69", "--from", "user:695"]), users(695..KEYS), "{name}");
        assert_eq!(scan(&["--prefix", "user:69", "--to", "user:695", "--reverse"]), users((690..695).rev()));
        assert_eq!(scan(&["--match", "user:6?5"]), users((605..KEYS).step_by(10)), "{name}");
        assert_eq!(scan(&["--match", "*5", "--from", "user:680"]), users((685..KEYS).step_by(10)), "{name}");
        assert_eq!(scan(&["--prefix", "item", "--values"]), "item\ti\n", "{name}");
        let values = scan(&["--from", "user:698", "--values", "--reverse"]);
        assert_eq!(values, "user:699\t699\nuser:698\t698\n", "{name}");
        let json = scan(&["--from", "user:698", "--to", "user:699", "--json"]);
        assert_eq!(json, "{\"key\":\"user:698\",\"value\":\"698\"}\n", "{name}");
        for nothing in [
            &["--from", "user:500", "--to", "user:400"][..],
            &["--to", ""],
            &["--from", "z", "--reverse"],
            &["--prefix", "user:*"],
            &["--prefix", "b", "--from", "a"],
            &["--from", "a", "--limit", "0"],
        ] {
            assert_eq!(scan(nothing), "", "{name}: {nothing:?}");
        }
    }
}

#[test]
fn dump_of_an_ordered_pool_has_the_order_of_its_keys() {
    for (name, place, _served) in places() {
        let dump = place.run(&["dump"]).ok();
        let keys: Vec<&str> = dump.text().lines().map(|line| line.split('"').nth(3).unwrap()).collect();
        let expected: Vec<String> =
            std::iter::once("item".into()).chain((0..KEYS).map(|n| format!("user:{n:03}"))).collect();
        assert_eq!(keys, expected, "{name}");
        let (other, hashed) = (place.path("other.pool"), place.path("hashed.pool"));
        place.run_on(&hashed, &["load", "-"], &dump.out).ok();
        let mixed = place.run_on(&hashed, &["dump"], b"").ok();
        assert_ne!(mixed.out, dump.out, "{name}");
        place.run_on(&other, &["load", "-", "--index", "ordered"], &mixed.out).ok();
        assert!(place.run_on(&other, &["dump"], b"").ok().out == dump.out, "{name}");
        place.run_on(&other, &["check"], b"").ok();
    }
}

#[test]
fn scan_of_special_bytes_is_exact() {
    let place = Place::new();
    for served in [None, Some(Served::start(&place.path("served.pool"), &["--index", "ordered"]))] {
        let pool = if served.is_some() { place.path("served.pool") } else { place.pool() };
        let put = |key: &str| {
            let index: &[&str] = if pool.exists() { &[] } else { &["--index", "ordered"] };
            place.run_on(&pool, &[&["put", key, "v"], index].concat(), b"").ok();
        };
        ["a*b", "a*c", "axb", "a[b", "a[bc", "ab", "a?", "a\\", "a\\*", ""].into_iter().for_each(put);
        let scan = |arguments: &[&str]| {
            let ended = place.run_on(&pool, &[&["scan", "--raw"], arguments].concat(), b"").ok();
            ended.text().split('\n').map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(scan(&["--prefix", "a*"]), ["a*b", "a*c", ""]);
        assert_eq!(scan(&["--prefix", "a["]), ["a[b", "a[bc", ""]);
        assert_eq!(scan(&["--prefix", "a?"]), ["a?", ""]);
        assert_eq!(scan(&["--prefix", "a\\"]), ["a\\", "a\\*", ""]);
        assert_eq!(scan(&["--from", "a[", "--to", "a\\*"]), ["a[b", "a[bc", "a\\", ""]);
        assert_eq!(scan(&["--reverse", "--to", "a*c"]), ["a*b", "", ""]);
        assert_eq!(scan(&["--from", ""]).len(), 11);
    }
}

#[test]
fn range_of_a_pool_without_order_says_what_it_needs() {
    let place = Place::new();
    place.run_with(&["load", "-"], csv(0..KEYS).as_bytes()).ok();
    let refused = |arguments: &[&str]| {
        let ended = place.run(&[&["scan"], arguments].concat());
        ended.fails(1, "clht").err
    };
    for arguments in [&["--from", "a"][..], &["--to", "b"], &["--reverse"], &["--reverse", "--prefix", "a"]] {
        let err = refused(arguments);
        assert!(err.contains("`masstree`, `art`") && err.contains("load --index ordered"), "{err}");
    }
    assert_eq!(place.run(&["scan", "--prefix", "user:12"]).ok().text().lines().count(), 10);
    let _served = Served::start(&place.pool(), &[]);
    for arguments in [&["--from", "a"][..], &["--to", "b", "--json"], &["--reverse"]] {
        let err = refused(arguments);
        assert!(err.contains("refused: ERR") && err.contains("serve --index ordered"), "{err}");
    }
    assert_eq!(place.run(&["scan", "--prefix", "user:12"]).ok().text().lines().count(), 10);
}
