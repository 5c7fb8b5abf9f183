//! get, put, del and scan, directly on a pool.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    process::{Command, Stdio},
};

use crate::common::{Place, program, run};

#[test]
fn get_and_del_see_earlier_puts() {
    let place = Place::new();
    assert_eq!(place.run(&["put", "greeting", "hello"]).ok().out, b"");
    assert_eq!(place.run(&["get", "greeting"]).ok().out, b"hello");
    place.run(&["put", "greeting", ""]).ok();
    assert_eq!(place.run(&["get", "greeting"]).ok().out, b"");
    assert_eq!(place.run(&["del", "greeting", "absent"]).ok().text(), "removed 1 key\n");
    place.run(&["get", "greeting"]).fails(1, "there is no key `greeting`");
}

#[test]
fn binary_keys_and_values_are_kept_exactly() {
    let place = Place::new();
    let value: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    place.run_with(&["put", "binary", "-"], &value).ok();
    assert!(place.run(&["get", "binary"]).ok().out == value);
    let pool = place.pool();
    let arguments =
        ["put".as_ref(), OsStr::from_bytes(b"\xff\xfe\n"), "x".as_ref(), "--pool".as_ref(), pool.as_os_str()];
    run(arguments, b"").ok();
    assert_eq!(place.run(&["scan", "--prefix", "binary"]).ok().text(), "binary\n");
    assert!(place.run(&["scan"]).ok().text().lines().any(|line| line == "\\xff\\xfe\\n"));
    assert!(place.run(&["scan", "--raw"]).ok().out.windows(4).any(|bytes| bytes == b"\xff\xfe\n\n"));
    assert!(
        place.run(&["scan", "--json"]).ok().text().contains("{\"key_base64\":\"//4K\",\"value\":\"x\"}\n")
    );
}

#[test]
fn times_to_live_are_kept() {
    let place = Place::new();
    place.run(&["put", "short", "x", "--ttl", "1ms"]).ok();
    place.run(&["put", "long", "x", "--ttl", "7d"]).ok();
    place.run(&["get", "long"]).ok();
    assert!(place.run(&["scan", "--json"]).ok().text().contains("\"expires_at_ms\":"));
    place.run(&["get", "short"]).fails(1, "there is no key");
}

#[test]
fn scan_filters_by_prefix_pattern_and_limit() {
    let place = Place::new();
    let lines: String = (0..50).map(|nth| format!("user:{nth}:name,n{nth}\nitem:{nth},i\n")).collect();
    place.run_with(&["load", "-"], format!("key,value\n{lines}").as_bytes()).ok();
    let count = |arguments: &[&str]| place.run(&[&["scan"], arguments].concat()).ok().text().lines().count();
    assert_eq!(count(&[]), 100);
    assert_eq!(count(&["--prefix", "item:"]), 50);
    assert_eq!(count(&["--match", "user:1?:name"]), 10);
    assert_eq!(count(&["--match", "user:*", "--prefix", "item"]), 0);
    assert_eq!(count(&["--limit", "7"]), 7);
    assert_eq!(count(&["--limit", "0"]), 0);
    let values = place.run(&["scan", "--values", "--match", "user:42:*"]).ok();
    assert_eq!(values.text(), "user:42:name\tn42\n");
}

#[test]
fn usage_errors_have_exit_code_2() {
    let place = Place::new();
    for arguments in [
        &["put", "k", "v", "--ttl", "soon"][..],
        &["put", "k"],
        &["scan", "--raw", "--json"],
        &["get", "k", "--durability", "hope"],
        &["get", "k", "--size", "much"],
        &["frobnicate"],
        &[],
    ] {
        let ended = run(arguments.iter(), b"");
        assert_eq!(ended.code, 2, "{arguments:?}: {}", ended.err);
        assert!(!ended.err.is_empty());
    }
    assert!(run(["--help"], b"").ok().text().contains("Usage"));
    assert!(run(["--version"], b"").ok().text().starts_with("terrace "));
    assert!(!place.pool().exists());
}

#[test]
fn failures_have_exit_code_1_and_a_reason() {
    let place = Place::new();
    place.run(&["get", "k"]).fails(1, "there is no pool");
    place.run(&["put", "", "of no name"]).ok();
    assert_eq!(place.run(&["get", ""]).ok().out, b"of no name");
    assert_eq!(place.run(&["dump"]).ok().text(), "{\"key\":\"\",\"value\":\"of no name\"}\n");
    let long = "k".repeat(70_000);
    place.run(&["put", &long, "v"]).fails(1, "the key is longer than 64 KiB");
    fs::write(place.path("foreign"), b"not a pool at all").unwrap();
    place.run_on(&place.path("foreign"), &["get", "k"], b"").fails(1, "is not a Terrace pool");
    assert_eq!(fs::read(place.path("foreign")).unwrap(), b"not a pool at all");
    place.run_on(&place.path("no/such/directory/pool"), &["put", "k", "v"], b"").fails(1, "does not exist");
    place.run(&["put", "k", "v", "--durability", "power"]).fails(1, "durability `power`");
}

#[test]
fn settings_are_read_from_the_environment() {
    let place = Place::new();
    let with = |arguments: &[&str]| {
        program()
            .args(arguments)
            .env("TERRACE_POOL", place.pool())
            .env("TERRACE_SIZE", "64MiB")
            .output()
            .unwrap()
    };
    assert!(with(&["put", "k", "from the environment"]).status.success());
    assert_eq!(with(&["get", "k"]).stdout, b"from the environment");
    assert!(fs::metadata(place.pool()).unwrap().len() >= 64 << 20);
}

#[test]
fn closed_pipe_is_no_error_for_scan() {
    let place = Place::new();
    let lines: String = (0..20_000).map(|nth| format!("key:{nth},{nth}\n")).collect();
    place.run_with(&["load", "-"], format!("key,value\n{lines}").as_bytes()).ok();
    let mut child = program()
        .args(["scan", "--pool"])
        .arg(place.pool())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let head = Command::new("head").arg("-1").stdin(child.stdout.take().unwrap()).output().unwrap();
    assert!(!head.stdout.is_empty());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

#[test]
fn missing_pool_is_reported_with_its_path() {
    let place = Place::new();
    for path in [place.path("none"), place.path("no/such/directory")] {
        for command in [&["get", "k"][..], &["del", "k"], &["scan"], &["dump"], &["stats"], &["check"]] {
            let failed =
                place.run_on(&path, command, b"").fails(1, &format!("there is no pool {}", path.display()));
            assert!(
                failed.err.contains("terrace put") && !failed.err.contains("made"),
                "{command:?}: {}",
                failed.err
            );
        }
        assert!(!path.exists());
    }
}

#[test]
fn help_lists_only_settings_that_affect_the_command() {
    let listed = |command: &str| run([command, "--help"], b"").ok().text().to_string();
    for command in ["get", "scan", "dump", "stats", "check", "del"] {
        let help = listed(command);
        for flag in ["--size", "--index", "--engine", "--participants"] {
            assert!(!help.contains(&format!("{flag} ")), "{command} {flag}");
        }
        assert!(help.contains("--pool") && help.contains("--shared"), "{command}");
    }
    for command in ["put", "load", "serve"] {
        assert!(listed(command).contains("--size "), "{command}");
    }
}
