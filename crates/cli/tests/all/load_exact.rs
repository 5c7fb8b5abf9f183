//! load keeps every byte of a file; it reports lines that it cannot load, and exits with code 1.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
};

use crate::common::{Place, Run, program};

fn load(place: &Place, format: &str, text: &[u8]) -> Run {
    place.run_with(&["load", "-", "--format", format], text)
}

/// Loads a text with refused parts; returns the messages.
#[track_caller]
fn partly(place: &Place, format: &str, text: &[u8]) -> String {
    let loaded = load(place, format, text);
    assert_eq!(loaded.code, 1, "{}", loaded.err);
    loaded.err
}

#[track_caller]
fn assert_says(text: &str, part: &str) {
    assert!(text.contains(part), "no `{part}` in\n{text}");
}

fn keys(place: &Place) -> Vec<String> {
    let mut keys: Vec<String> = place.run(&["scan"]).ok().text().lines().map(String::from).collect();
    keys.sort();
    keys
}

#[test]
fn unclosed_quote_is_reported() {
    let place = Place::new();
    let said = partly(&place, "csv", b"key,value\na,1\nb,\"2\nc,3\nd,4\n");
    assert_says(&said, "lines 3 to 5 of standard input: the quote opened in line 3 is never closed");
    assert_eq!(keys(&place), ["a"]);
    let said = partly(&place, "csv", b"key,value\na,1\n\"b,2\nc,\"3\"\nd,4\n");
    assert_says(&said, "lines 3 to 4 of standard input: the closing quote");
    assert_eq!(keys(&place), ["a", "d"]);
    load(&place, "csv", b"key,\"value\nx\n").fails(1, "the header of standard input is malformed");
}

#[test]
fn csv_keeps_every_byte() {
    let place = Place::new();
    let value: Vec<u8> = (0..=255).collect();
    let quoted: Vec<u8> =
        value.iter().flat_map(|&byte| if byte == b'"' { vec![byte; 2] } else { vec![byte] }).collect();
    let text = [b"\xef\xbb\xbf\"key\",value\r\nall,\"", &quoted[..], b"\"\r\nspace, x \r\n"].concat();
    load(&place, "csv", &text).ok();
    assert_eq!(place.run(&["get", "all"]).ok().out, value);
    assert_eq!(place.run(&["get", "space"]).ok().out, b" x ");
    let said = partly(&place, "csv", b"key,value\na,x\ry\nb,2\n");
    assert_says(&said, "line 2 of standard input: a carriage return");
}

#[test]
fn last_csv_line_without_an_end_is_loaded_with_a_warning() {
    let place = Place::new();
    let loaded = load(&place, "csv", b"key,value\na,1\nb,2").ok();
    assert_says(&loaded.err, "line 3 of standard input: it has no line end");
    assert_eq!(place.run(&["get", "b"]).ok().out, b"2");
}

#[test]
fn json_numbers_are_kept_literally() {
    let place = Place::new();
    let numbers = ["12345678901234567890123", "1e5", "1.10", "-0.0", "1E400"];
    let lines: String = numbers.iter().map(|n| format!("{{\"key\":\"n{n}\",\"value\":{n}}}\n")).collect();
    load(&place, "jsonl", lines.as_bytes()).ok();
    for number in numbers {
        assert_eq!(place.run(&["get", &format!("n{number}")]).ok().text(), number);
    }
}

#[test]
fn json_lines_that_are_no_records_are_reported() {
    let place = Place::new();
    let deep = format!("{{\"key\":\"k\",\"value\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    let lines = [
        r#"{"key":"a","value":"1"}"#,
        r#"{"key":"k","value":true}"#,
        r#"{"key":"k","value":null}"#,
        r#"{"key":"k","value":{"a":1}}"#,
        r#"{"key":"k","key":"l","value":"1"}"#,
        r#"{"key":"k","value":"1","value":"2"}"#,
        r#"{"key":1,"value":"1"}"#,
        r#"{"key":"k","value":"\ud800"}"#,
        r#"{"key":"k","value":"1"}{"key":"l","value":"2"}"#,
        r#"{"key":"k","value":"1""#,
        &deep,
        r#"{"key":"b","value":"1"}"#,
    ];
    let said = partly(&place, "jsonl", lines.join("\n").as_bytes());
    for number in 2..=11 {
        assert_says(&said, &format!("line {number} of standard input: "));
    }
    assert_eq!(keys(&place), ["a", "b"]);
    let wrong = partly(
        &place,
        "jsonl",
        b"{\"key\":\"c\",\"value\":\"\xff\"}\n{\"key\":\"d\",\"value\":\"\\u0000\"}\n",
    );
    assert_says(&wrong, "line 1 of standard input");
    assert_eq!(place.run(&["get", "d"]).ok().out, b"\0");
}

#[test]
fn times_mean_the_same_in_every_format() {
    let place = Place::new();
    for (ttl, at, is_good) in [
        ("60", "", true),
        ("1.5", "", true),
        ("", "4102444800000", true),
        ("", "9223372036854775807", true),
        ("", "1", true),
        ("0", "", false),
        ("-1", "", false),
        ("inf", "", false),
        ("1e300", "", false),
        ("", "0", false),
        ("", "-1", false),
        ("", "9223372036854775808", false),
        ("", "1.5", false),
        ("60", "4102444800000", false),
    ] {
        let csv = format!("key,value,ttl,expires_at_ms\nk,v,{ttl},{at}\n");
        let field = |name, text: &str, quote| match text {
            "" => String::new(),
            text => format!(",\"{name}\":{quote}{text}{quote}"),
        };
        let json = |quote| {
            format!(
                "{{\"key\":\"k\",\"value\":\"v\"{}{}}}\n",
                field("ttl", ttl, quote),
                field("expires_at_ms", at, quote)
            )
        };
        let code = i32::from(!is_good);
        assert_eq!(load(&place, "csv", csv.as_bytes()).code, code, "{csv}");
        assert_eq!(load(&place, "jsonl", json("\"").as_bytes()).code, code, "{}", json("\""));
        assert_eq!(load(&place, "jsonl", json("").as_bytes()).code, code, "{}", json(""));
        let resp = match (ttl, at) {
            (_, "") if !ttl.contains('.') => format!("SET k v EX {ttl}\r\n"),
            ("", _) => format!("SET k v PXAT {at}\r\n"),
            _ => continue,
        };
        assert_eq!(load(&place, "resp", resp.as_bytes()).code, code, "{resp}");
    }
}

#[test]
fn expired_record_is_absent_and_counted() {
    let place = Place::new();
    place.run(&["put", "k", "old"]).ok();
    let loaded = load(&place, "jsonl", b"{\"key\":\"k\",\"value\":\"v\",\"expires_at_ms\":1000}\n").ok();
    assert_says(&loaded.err, "loaded 1 record in ");
    assert_says(&loaded.err, "; 1 of them had expired");
    place.run(&["get", "k"]).fails(1, "there is no key");
}

#[test]
fn commands_without_a_database_are_skipped_and_reported() {
    let place = Place::new();
    let stream =
        b"SELECT 0\r\nSET a 1\r\nSELECT 16\r\nSET a other\r\nMULTI\r\nSET b 1\r\nEXEC\r\nselect 0\r\nSET c 3\r\n";
    let said = partly(&place, "resp", stream);
    assert_says(&said, "command 3 of standard input: ERR DB index is out of range");
    assert_says(&said, "command 3 of standard input: all commands up to the next SELECT are skipped");
    assert_says(&said, "; 5 skipped");
    assert_eq!(keys(&place), ["a", "c"]);
    assert_eq!(place.run(&["get", "a"]).ok().text(), "1");
    load(&place, "resp", b"MULTI\r\nSET d 1\r\nSELECT 16\r\nSET e 1\r\nEXEC\r\n")
        .fails(1, "inside a transaction");
    assert_eq!(keys(&place), ["a", "c"]);
}

#[test]
fn databases_are_dumped_and_loaded() {
    let place = Place::new();
    let stream =
        b"SET k 0\r\nSELECT 3\r\nSET k 3 PX 100000000\r\nSET l 3\r\nSELECT 15\r\nSET k 15\r\nSWAPDB 3 15\r\n\
        MULTI\r\nSELECT 4\r\nSET m 4\r\nEXEC\r\nSET n 4\r\n";
    load(&place, "resp", stream).ok();
    let words = |db: &'static str| ["get", "k", "--db", db];
    assert_eq!(["0", "3", "15"].map(|db| place.run(&words(db)).ok().text().to_owned()), ["0", "15", "3"]);
    assert_eq!(place.run(&["scan", "--db", "4", "--prefix", "m"]).ok().text(), "m\n");
    place.run(&["put", "only", "5", "--db", "5"]).ok();
    place.run(&["get", "only"]).fails(1, "there is no key");
    place.run(&["get", "k", "--db", "16"]).fails(2, "16 is not in 0..16");
    let dump = place.run(&["dump"]).ok();
    assert!(dump.err.contains("dumped 7 records"), "{}", dump.err);
    assert!(dump.text().contains("{\"db\":3,\"key\":\"k\",\"value\":\"15\"}\n"), "{}", dump.text());
    assert_eq!(
        place.run(&["dump", "--db", "5"]).ok().text(),
        "{\"db\":5,\"key\":\"only\",\"value\":\"5\"}\n"
    );
    for format in ["jsonl", "resp"] {
        let dumped = place.run(&["dump", "--format", format]).ok();
        let other = place.path(&format!("{format}.pool"));
        place.run_on(&other, &["load", "-", "--format", format], &dumped.out).ok();
        let again = place.run_on(&other, &["dump"], b"").ok();
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(again.text()), sorted(dump.text()), "{format}");
    }
    place.run(&["del", "k", "l", "--db", "15"]).ok();
    assert_eq!(place.run(&["scan", "--db", "15"]).ok().text(), "");
}

#[test]
fn record_without_a_database_is_for_that_of_the_command() {
    let place = Place::new();
    let line = b"{\"key\":\"x\",\"value\":\"7\"}\n{\"key\":\"x\",\"value\":\"0\",\"db\":0}\n";
    place.run_with(&["load", "-", "--format", "jsonl", "--db", "7"], line).ok();
    assert_eq!(["7", "0"].map(|db| place.run(&["get", "x", "--db", db]).ok().text().to_owned()), ["7", "0"]);
}

#[test]
fn truncated_stream_is_reported() {
    let place = Place::new();
    let stream = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nhel";
    assert_says(
        &partly(&place, "resp", stream),
        "command 1 of standard input: the stream ends before the command does",
    );
    let stream = b"SET a 1\r\nMULTI\r\nSET b 2\r\nSET c 3\r\n";
    assert_says(&partly(&place, "resp", stream), "ends inside a transaction: 2 commands");
    assert_eq!(keys(&place), ["a"]);
    load(&place, "resp", b"SET d 1\r\n*1\r\n!\r\nSET e 1\r\n")
        .fails(1, "command 2 of standard input is malformed");
    assert_eq!(keys(&place), ["a", "d"]);
}

#[test]
fn errors_within_replies_are_reported() {
    let place = Place::new();
    let stream = b"SET text x\r\nMULTI\r\nSET a 1\r\nINCR text\r\nEXEC\r\nHELLO 3\r\nSET b 2\r\n";
    let said = partly(&place, "resp", stream);
    assert_says(&said, "command 5 of standard input: ERR value is not an integer");
    assert_says(&said, "command 6 of standard input: it changes the connection");
    assert_eq!(keys(&place), ["a", "b", "text"]);
}

#[test]
fn quoted_inline_commands_are_executed_literally() {
    let place = Place::new();
    load(&place, "resp", b"\xef\xbb\xbfSET \"a b\" \"x\\r\\n\\\"y\"\r\n").ok();
    assert_eq!(place.run(&["get", "a b"]).ok().out, b"x\r\n\"y");
}

#[test]
fn compressed_file_is_refused_with_a_hint() {
    let place = Place::new();
    fs::write(place.path("users"), b"\x1f\x8b\x08\x00rest").unwrap();
    let refused = place.run(&["load", place.path("users").to_str().unwrap()]);
    assert_says(&refused.fails(2, "is compressed with gzip").err, "gzip -dc");
}

#[test]
fn dump_to_a_full_disk_or_a_closed_pipe_fails() {
    let place = Place::new();
    let lines: String = (0..20_000).map(|nth| format!("key:{nth},{nth}\n")).collect();
    load(&place, "csv", format!("key,value\n{lines}").as_bytes()).ok();
    for format in ["jsonl", "resp"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let dump = || {
            let mut dump = program();
            dump.args(["dump", "--format", format, "--pool"]).arg(place.pool()).stderr(Stdio::piped());
            dump
        };
        let ended = dump().stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(1) && said.contains("No space left"), "{said}");
        let mut child = dump().stdout(Stdio::piped()).spawn().unwrap();
        let head = Command::new("head").arg("-c1").stdin(child.stdout.take().unwrap()).output().unwrap();
        assert_eq!(head.stdout.len(), 1);
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(
            ended.status.code() == Some(1) && said.contains("the reader of the dump closed the pipe"),
            "{said}"
        );
    }
}

#[test]
fn every_format_keeps_all_bytes_and_times() {
    let place = Place::new();
    let values = [vec![], (0..=255).collect::<Vec<u8>>(), vec![1; 3000], "λ\u{feff}\"\\\r\n".into()];
    for (nth, value) in values.iter().enumerate() {
        place.run_with(&["put", &format!("key {nth}"), "-"], value).ok();
        place.run_with(&["put", &format!("timed {nth}"), "-", "--ttl", "7d"], value).ok();
    }
    place.run(&["put", "", "of the empty key"]).ok();
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines.sort();
        lines
    };
    let dump = place.run(&["dump"]).ok();
    assert!(dump.err.contains("dumped 9 records"), "{}", dump.err);
    for format in ["jsonl", "resp"] {
        let other = place.path(&format!("{format}.pool"));
        let dumped = place.run(&["dump", "--format", format]).ok();
        place.run_on(&other, &["load", "-", "--format", format], &dumped.out).ok();
        let again = place.run_on(&other, &["dump"], b"").ok();
        assert_eq!(sorted(again.text()), sorted(dump.text()), "{format}");
    }
}
