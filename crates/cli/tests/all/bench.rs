//! bench: every workload runs, finds its keys, and leaves a user's pool unchanged.

use crate::common::{Place, run};
use serde_json::Value;

fn measured(arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["bench"].iter().chain(arguments).copied().chain(["--json"]).collect();
    serde_json::from_str(run(all, b"").ok().text()).unwrap()
}

/// The sum of a figure over the kinds of operations.
fn sum(measured: &Value, figure: &str) -> u64 {
    measured["kinds"].as_object().unwrap().values().map(|kind| kind[figure].as_u64().unwrap()).sum()
}

#[test]
fn every_workload_runs_and_finds_its_keys() {
    for workload in [
        "ycsb-load",
        "ycsb-a",
        "ycsb-b",
        "ycsb-c",
        "ycsb-d",
        "ycsb-e",
        "ycsb-f",
        "random-int",
        "negative",
        "hot-set",
        "recipe-a",
        "recipe-b",
        "recipe-c",
        "recipe-e",
    ] {
        let measured = measured(&[
            "--workload",
            workload,
            "--records",
            "2000",
            "--operations",
            "4000",
            "--threads",
            "2",
        ]);
        assert_eq!(sum(&measured, "operations"), 4000, "{workload}: {measured}");
        assert_eq!((&measured["missed"], &measured["workload"]), (&0.into(), &workload.into()), "{measured}");
        assert!(!measured["samples"].as_array().unwrap().is_empty());
        let last = measured["over_time"].as_array().unwrap().last().unwrap();
        assert!(last["latency_ns_p99"].as_u64() >= last["latency_ns_p50"].as_u64(), "{measured}");
    }
}

#[test]
fn open_loop_keeps_its_rate() {
    let measured = measured(&["--rate", "2000", "--seconds", "1", "--records", "1000", "--threads", "1"]);
    let operations = measured["operations"].as_u64().unwrap();
    // A loaded machine may do less, but none does more: no operation starts before it is due.
    assert!((1..=2000).contains(&operations), "{measured}");
    assert!(measured["service"]["latency_ns_p50"].as_u64().unwrap() > 0);
}

#[test]
fn same_seed_repeats_the_operations() {
    let run = || {
        let measured =
            measured(&["--workload", "ycsb-a", "--records", "500", "--operations", "3000", "--threads", "1"]);
        (measured["kinds"]["read"]["operations"].clone(), measured["data_bytes"].clone())
    };
    assert_eq!(run(), run());
}

#[test]
fn measurement_leaves_a_users_pool_unchanged() {
    let place = Place::new();
    place.run(&["put", "mine", "1"]).ok();
    place.run(&["put", "terrace", "2"]).ok();
    let lines = || {
        let dump = place.run(&["dump"]).ok();
        dump.text().lines().map(str::to_string).collect::<std::collections::BTreeSet<_>>()
    };
    let before = lines();
    for workload in ["ycsb-a", "ycsb-d"] {
        let arguments =
            ["bench", "--records", "2000", "--operations", "10000", "--workload", workload, "--json"];
        let measured: Value = serde_json::from_str(place.run(&arguments).ok().text()).unwrap();
        assert_eq!(sum(&measured, "operations"), 10_000);
        assert_eq!(measured["missed"], 0);
    }
    assert!(lines() == before);
    for keys in ["integer", "ycsb"] {
        place.run(&["bench", "--keys", keys]).fails(2, "overwrite existing keys");
    }
}

#[test]
fn ycsb_keys_have_24_bytes_and_recipe_integers_8() {
    let key_bytes = |keys: &[&str]| {
        let arguments =
            ["--workload", "recipe-a", "--records", "500", "--operations", "500", "--threads", "1"];
        measured(&[&arguments, keys].concat())["key_bytes"].clone()
    };
    assert_eq!((key_bytes(&["--keys", "ycsb"]), key_bytes(&[])), (24.into(), 8.into()));
}

#[test]
fn measurement_prints_a_table_and_writes_a_file() {
    let place = Place::new();
    let file = place.path("run.json");
    let file = file.to_str().unwrap();
    let arguments =
        ["bench", "--records", "1000", "--operations", "1000", "--threads", "1", "--value-bytes", "8..64"];
    let measured = run(arguments.iter().copied().chain(["--json", file]), b"").ok();
    let text = measured.text();
    let table = text.lines().filter(|line| !line.starts_with("to repeat: "));
    assert!({ table }.all(|line| line.chars().count() <= 100), "{text}");
    for part in ["p99.9", "filled in", "values of 8 to 64 B", "to repeat: terrace bench --records 1000"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let written: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(written["operations"], 1000);
}

#[test]
fn invalid_options_are_refused() {
    for wrong in [
        ["--records", "0"],
        ["--reads", "101"],
        ["--workload", "ycsb-z"],
        ["--rate", "0"],
        ["--rate", "NaN"],
        ["--value-bytes", "9..8"],
        ["--value-bytes", "x"],
        ["--distribution", "normal"],
    ] {
        assert_eq!(run(["bench", wrong[0], wrong[1]], b"").code, 2, "{wrong:?}");
    }
}
