//! load and dump: every format, bad lines, and round trips.

use std::fs;

use crate::common::Place;

#[test]
fn csv_json_lines_and_resp_are_loaded() {
    let place = Place::new();
    place.run_with(&["load", "-"], b"value,key\n1,a\n\"x,\"\"y\"\"\nz\",b\n,empty\n").ok();
    assert_eq!(place.run(&["get", "a"]).ok().out, b"1");
    assert_eq!(place.run(&["get", "b"]).ok().out, b"x,\"y\"\nz");
    assert_eq!(place.run(&["get", "empty"]).ok().out, b"");

    let lines = b"{\"key\":\"c\",\"value\":\"3\"}\n\n{\"key_base64\":\"//8=\",\"value_base64\":\"AAE=\",\"ttl\":60}\n{\"key\":\"n\",\"value\":7}";
    let loaded = place.run_with(&["load", "-"], lines).ok();
    assert!(loaded.err.starts_with("loaded 3 records in "), "{}", loaded.err);
    assert_eq!(place.run(&["get", "n"]).ok().out, b"7");

    let stream = b"*3\r\n$3\r\nSET\r\n$1\r\nd\r\n$2\r\n\xff\x00\r\n*4\r\n$5\r\nSETEX\r\n$1\r\ne\r\n$2\r\n60\r\n$1\r\n5\r\nINCRBY n 35\r\n";
    place.run_with(&["load", "-", "--format", "resp"], stream).ok();
    assert_eq!(place.run(&["get", "d"]).ok().out, b"\xff\x00");
    assert_eq!(place.run(&["get", "n"]).ok().out, b"42");
}

#[test]
fn formats_are_detected_by_name_or_content() {
    let place = Place::new();
    for (name, content) in [
        ("a.csv", "key,value\ncsv,1\n"),
        ("b.ndjson", "{\"key\":\"json\",\"value\":\"1\"}\n"),
        ("c.resp", "SET resp 1\r\n"),
        ("d", "key,value\nsniffed,1\n"),
    ] {
        fs::write(place.path(name), content).unwrap();
        place.run(&["load", place.path(name).to_str().unwrap()]).ok();
    }
    for key in ["csv", "json", "resp", "sniffed"] {
        place.run(&["get", key]).ok();
    }
    fs::write(place.path("e"), "unknown\n").unwrap();
    let refused =
        place.run(&["load", place.path("e").to_str().unwrap()]).fails(2, "cannot detect the format of e");
    assert!(refused.err.contains("--format csv"));
    place.run(&["load", place.path("none").to_str().unwrap()]).fails(1, "cannot read");
    place.run(&["load", place.directory.path().to_str().unwrap()]).fails(1, "it is a directory");
}

#[test]
fn bad_lines_are_reported_and_good_ones_kept() {
    let place = Place::new();
    let long = "k".repeat(70_000);
    let file = format!("key,value,ttl\na,1,\nb,2\nc,3,never\n{long},4,\nd,5,60\n,6,\n");
    fs::write(place.path("users.csv"), file).unwrap();
    let loaded = place.run(&["load", place.path("users.csv").to_str().unwrap()]);
    assert_eq!(loaded.code, 1);
    for warning in [
        "warning: line 3 of users.csv: 2 fields, expected 3 (skipped; 1 of 2 so far)",
        "warning: line 4 of users.csv: the ttl `never` is not a number of seconds above 0 (skipped; 2 of 3 so far)",
        "warning: line 5 of users.csv: the key is longer than 64 KiB",
        "warning: line 7 of users.csv: the key is empty",
        "loaded 2 records in ",
        "; 4 skipped",
    ] {
        assert!(loaded.err.contains(warning), "no `{warning}` in\n{}", loaded.err);
    }
    assert_eq!(place.run(&["scan"]).ok().text().lines().count(), 2);

    let json =
        place.run_with(&["load", "-", "--format", "jsonl"], b"{\"key\":\"x\",\"value\":\"1\"}\nnonsense\n");
    assert_eq!(json.code, 1);
    assert!(json.err.contains("line 2 of standard input: not a record in JSON"), "{}", json.err);
    let resp = place.run_with(&["load", "-", "--format", "resp"], b"SET y 1\r\nLPUSH l 1\r\nSET z 1\r\nGET");
    assert_eq!(resp.code, 1);
    assert!(resp.err.contains("command 2 of standard input: ERR unknown command"), "{}", resp.err);
    assert!(resp.err.contains("command 4 of standard input: the stream ends"), "{}", resp.err);
    place.run(&["get", "z"]).ok();
}

#[test]
fn many_bad_lines_are_counted_only() {
    let place = Place::new();
    let loaded = place
        .run_with(&["load", "-", "--format", "csv"], format!("key,value\n{}", "a\n".repeat(500)).as_bytes());
    assert_eq!(loaded.code, 1);
    assert!(loaded.err.contains("warning: 480 lines skipped as well"), "{}", loaded.err);
    assert!(loaded.err.lines().count() < 30);
}

#[test]
fn wrong_header_is_refused() {
    let place = Place::new();
    for (header, why) in [
        ("id,name", "has a column `id`"),
        ("key,value,colour", "has a column `colour`"),
        ("key,ttl", "has no column `value`"),
        ("value", "has no column `key`"),
        ("key,value,key", "names a column twice"),
    ] {
        let input = format!("{header}\na,b,c\n");
        place.run_with(&["load", "-", "--format", "csv"], input.as_bytes()).fails(1, why);
    }
}

#[test]
fn broken_streams_are_refused() {
    let place = Place::new();
    place.run_with(&["load", "-"], b"*1\r\n!\r\n").fails(1, "Protocol error");
    place
        .run_with(&["load", "-", "--format", "resp"], b"SET a 1\r\nQUIT\r\nSET b 1\r\n")
        .fails(1, "would end the connection");
    place.run(&["get", "a"]).ok();
}

#[test]
fn full_pool_stops_the_load_and_keeps_earlier_records() {
    let place = Place::new();
    let value = "v".repeat(1 << 20);
    let lines: String = (0..100).map(|nth| format!("key:{nth},{value}\n")).collect();
    let stopped = place.run_with(&["load", "-"], format!("key,value\n{lines}").as_bytes());
    let stopped = stopped.fails(1, "the pool is full").err;
    assert!(stopped.contains("stopped at line ") && stopped.contains("loaded "), "{stopped}");
    assert!(place.run(&["scan"]).ok().text().lines().count() > 10);
}

#[test]
fn dump_loads_back_byte_for_byte() {
    let place = Place::new();
    let mut lines = String::from("key,value,ttl\n");
    (0..3000).for_each(|nth| {
        lines.push_str(&format!("key:{nth},\"value, {nth}\",{}\n", if nth % 3 == 0 { "86400" } else { "" }))
    });
    place.run_with(&["load", "-"], lines.as_bytes()).ok();
    place
        .run_with(
            &["load", "-"],
            b"{\"key_base64\":\"/wD+\",\"value_base64\":\"gIE=\"}\n{\"key\":\"\\u0001\\n\",\"value\":\"\"}\n",
        )
        .ok();
    let sorted = |dump: &[u8]| {
        let mut lines: Vec<Vec<u8>> = dump.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort();
        lines
    };
    let dump = place.run(&["dump"]).ok().out;
    for format in ["jsonl", "resp"] {
        let dumped = place.path(&format!("dump.{format}"));
        let written = place.run(&["dump", "--format", format, "--output", dumped.to_str().unwrap()]).ok();
        assert_eq!(written.out, b"");
        let other = place.path(&format!("{format}.pool"));
        place.run_on(&other, &["load", dumped.to_str().unwrap()], b"").ok();
        assert!(sorted(&place.run_on(&other, &["dump"], b"").ok().out) == sorted(&dump), "{format}");
    }
    let taken = place.path("dump.jsonl");
    place.run(&["dump", "--output", taken.to_str().unwrap()]).fails(1, "cannot write");
}
