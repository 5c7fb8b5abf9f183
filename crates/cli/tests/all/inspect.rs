//! check and stats: reports, repairs, and the figures of pools and servers.

use std::{fs, os::unix::fs::FileExt};

use crate::common::{Place, Served};
use terrace_pool::{Geometry, Layout};

fn filled() -> Place {
    let place = Place::new();
    let lines: String = (0..5000).map(|nth| format!("key:{nth},value {nth}\n")).collect();
    place.run_with(&["load", "-"], format!("key,value\n{lines}").as_bytes()).ok();
    place
}

#[test]
fn sound_pool_is_reported_as_sound() {
    let place = filled();
    let checked = place.run(&["check"]).ok();
    assert!(checked.text().starts_with("checked 5,000 records, "), "{}", checked.text());
    assert!(checked.text().ends_with(": sound\n"), "{}", checked.text());
}

#[test]
fn stats_name_the_index_chosen_at_creation() {
    let place = Place::new();
    place.run_with(&["load", "--index", "turbo", "-"], b"key,value\na,1\nb,2\n").ok();
    let stats = place.run(&["stats"]).ok();
    assert!(
        stats.text().lines().any(|line| line.starts_with("index ") && line.contains("turbo, ")),
        "{}",
        stats.text()
    );
    let server = Served::start(&place.pool(), &["--index", "clht"]);
    assert!(server.heading.contains("index turbo"), "{}", server.heading);
    let port = server.metrics_port.to_string();
    let served = place.run(&["stats", "--json", "--metrics-port", &port]).ok();
    assert!(served.text().replace(' ', "").contains("\"index\":\"turbo\""), "{}", served.text());
}

#[test]
fn damage_is_found_and_repair_keeps_all_sound_records() {
    let place = filled();
    let pool = fs::read(place.pool()).unwrap();
    let value = b"value 1234";
    let at = pool.windows(value.len()).position(|bytes| bytes == value).unwrap();
    let file = fs::File::options().write(true).open(place.pool()).unwrap();
    file.write_all_at(b"VALUE", at as u64).unwrap();

    let checked = place.run(&["check"]);
    assert_eq!(checked.code, 1, "{}", checked.err);
    assert!(checked.text().lines().count() >= 2, "{}", checked.text());
    assert!(checked.text().lines().last().unwrap().contains("finding"), "{}", checked.text());
    let finding = checked.text().lines().find(|line| line.contains("a record:")).unwrap();
    assert!(finding.ends_with("; touches \"key:1234\"; --repair drops it"), "{finding}");
    place.run(&["get", "key:1234"]).fails(1, "damaged");
    assert_eq!(place.run(&["get", "key:1235"]).ok().out, b"value 1235");
    // All others are listed and dumped, and the exit code says that the output is incomplete.
    let message = "left out 1 damaged record; all others were written";
    for command in ["scan", "dump"] {
        assert_eq!(place.run(&[command]).fails(1, message).text().lines().count(), 4999, "{command}");
    }

    let repaired = place.run(&["check", "--repair"]).ok();
    assert!(repaired.err.contains("salvaged 4,999 records, dropped 1 record; the damaged pool is now"));
    assert!(place.run(&["check"]).ok().text().starts_with("checked 4,999 records, "));
    assert_eq!(place.run(&["get", "key:1235"]).ok().out, b"value 1235");
    assert_eq!(place.run(&["check", "--repair"]).ok().err, "");
}

#[test]
fn damage_to_allocator_metadata_is_repaired_without_loss() {
    let place = filled();
    let pool = fs::read(place.pool()).unwrap();
    let zones = Layout::new(Geometry::for_size(64 << 20)).unwrap().zones;
    let at = pool.windows(10).position(|bytes| bytes == b"value 1234").unwrap() as u64;
    let unit = (at - zones) >> 16;
    let file = fs::File::options().write(true).open(place.pool()).unwrap();
    file.write_all_at(b"?", zones + 32 * unit + 1).unwrap();

    let checked = place.run(&["check"]);
    assert_eq!(checked.code, 1, "{}", checked.err);
    let finding = checked.text().lines().next().unwrap();
    let start = zones + (unit << 16);
    assert!(finding.starts_with(&format!("{start:#x}: the description of a memory unit")), "{finding}");
    assert!(finding.contains("; touches \"key:") && finding.contains(" more"), "{finding}");
    assert!(finding.ends_with("; --repair recreates it"), "{finding}");
    // The damaged pool is usable before the repair.
    assert_eq!(place.run(&["get", "key:1234"]).ok().out, b"value 1234");
    place.run(&["put", "key:1234", "other"]).ok();
    place.run(&["check", "--repair"]).ok();
    assert!(place.run(&["check"]).ok().text().starts_with("checked 5,000 records, "));
    assert_eq!(place.run(&["get", "key:1234"]).ok().out, b"other");
}

#[test]
fn unopenable_pool_is_repaired_or_left_unchanged() {
    let place = filled();
    let file = fs::File::options().write(true).open(place.pool()).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len - 4096).unwrap();
    place.run(&["check"]).fails(1, "cut short");
    let repaired = place.run(&["check", "--repair"]).ok();
    assert!(repaired.err.contains("salvaged 5,000 records, dropped 0 records"), "{}", repaired.err);
    place.run(&["check"]).ok();

    fs::write(place.pool(), "no pool at all").unwrap();
    place.run(&["check", "--repair"]).fails(1, "");
    assert_eq!(fs::read(place.pool()).unwrap(), b"no pool at all");
    let _server = Served::start(&place.path("other"), &[]);
    let refused = place.run_on(&place.path("other"), &["check", "--repair"], b"");
    assert_eq!(refused.fails(1, "is in use by process").err.matches("in use by process").count(), 1);
    place.run_on(&place.path("nowhere"), &["check", "--repair"], b"").fails(1, "there is no pool");
}

#[test]
fn stats_of_pool_and_server_have_the_same_names() {
    let place = filled();
    let alone: serde_json::Value = serde_json::from_str(place.run(&["stats", "--json"]).ok().text()).unwrap();
    assert_eq!(alone["records"], 5000);
    assert!(alone["overhead_per_record_bytes"].as_f64().unwrap() > 0.0);
    let table = place.run(&["stats"]).ok();
    assert!(table.text().starts_with("records             5,000"), "{}", table.text());
    assert!(table.text().contains("\nflushes             none: "), "{}", table.text());
    assert_eq!((&alone["fences_per_put"], &alone["damaged_bytes"]), (&0.into(), &0.into()));

    let server = Served::start(&place.pool(), &[]);
    let port = server.metrics_port.to_string();
    let ask = |arguments: &[&str]| place.run(&[&["stats", "--metrics-port", &port], arguments].concat());
    let served: serde_json::Value = serde_json::from_str(ask(&["--json"]).ok().text()).unwrap();
    assert_eq!(served["records"], 5000);
    assert_eq!(served["connections"], 0);
    for name in alone.as_object().unwrap().keys() {
        assert!(served.get(name).is_some(), "a server does not report {name}");
    }
    assert!(ask(&[]).ok().text().contains("latency"));
    place.run(&["stats", "--metrics-port", "1"]).fails(1, "is in use by process");

    let other = place.path("other.pool");
    place.run_on(&other, &["put", "k", "v"], b"").ok();
    let watched = place.run_on(&other, &["stats", "--watch", "--metrics-port", &port], b"");
    assert!(watched.fails(1, "no running server").err.contains("serves another pool"));
}

#[test]
fn overhead_of_few_records_has_no_percentage() {
    let place = Place::new();
    place.run(&["put", "k", "v"]).ok();
    let stats = place.run(&["stats"]).ok();
    let line = stats.text().lines().find(|line| line.starts_with("overhead")).unwrap();
    assert!(line.contains("MiB, nearly all of it the empty pool's") && !line.contains('%'), "{line}");
    let filled = filled().run(&["stats"]).ok();
    let line = filled.text().lines().find(|line| line.starts_with("overhead")).unwrap();
    assert!(line.contains(" B per record, "), "{line}");
}
