//! What processes that share a pool see of each other: in `terrace stats`, INFO, the metrics and
//! errors, and across namespaces.

use crate::common::{Place, Served, metrics, program_under, run};
use std::process::{Command, Output};
use terrace::{ByteSize, GrowError, PoolGrowError, Store};

const SHARED: &[&str] = &["--shared"];

fn connect(served: &Served) -> redis::Connection {
    let client = redis::Client::open(("127.0.0.1", served.port)).unwrap();
    client.get_connection().unwrap()
}

/// The lines of INFO about the processes that share the pool.
fn sharing(served: &Served) -> Vec<String> {
    let text: String = redis::cmd("INFO").arg("sharing").query(&mut connect(served)).unwrap();
    text.lines().map(str::to_string).collect()
}

#[track_caller]
fn assert_line<'a>(lines: impl IntoIterator<Item = &'a str>, wanted: &str) {
    let lines: Vec<&str> = lines.into_iter().collect();
    assert!(lines.contains(&wanted), "no `{wanted}` in\n{}", lines.join("\n"));
}

#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "no `{part}` in\n{text}"));
}

/// Overwrites a key many times, so that retired memory waits for an entry that the caller holds.
fn retire_memory(served: &Served) {
    let mut redis = connect(served);
    let value = "x".repeat(2000);
    (0..300).for_each(|_| redis::cmd("SET").arg("given:back").arg(&value).exec(&mut redis).unwrap());
}

/// What `stats` shows of a reader, and of a process that keeps freed memory from reuse.
fn check_stats_of_sharers(place: &Place) {
    let own = std::process::id();
    let stats = place.run(&["stats", "--shared"]).ok();
    let line = |with: &str| stats.text().lines().find(|line| line.contains(with)).unwrap_or_default();
    assert_says(line("(a reader,"), &["shared with", &format!("process {own} "), ", which only reads"]);
    assert!(!line("(a reader,").contains("keeps freed memory"), "{}", stats.text());
    assert_says(
        line("(a keeper,"),
        &["shared with", &format!("process {own} "), ", which keeps freed memory from reuse"],
    );
    assert_says(line("waiting for readers"), &[" of at most 6", " MiB, held by 1 of "]);
    let json: serde_json::Value =
        serde_json::from_slice(&place.run(&["stats", "--shared", "--json"]).ok().out).unwrap();
    let number = |name: &str| json[name].as_u64().unwrap();
    assert!(number("waiting_bytes") > 100_000, "{json}");
    assert_eq!(number("waiting_bytes_max"), number("waiting_bytes") + number("free_bytes"));
}

/// What INFO and the metrics page show of both.
fn check_info_of_sharers(served: &Served) {
    let own = std::process::id();
    let says = sharing(served);
    let says = || says.iter().map(String::as_str);
    ["pool_shared:1", "sharers:2", "sharers_stopped:0", "sharers_holding_up:1"]
        .iter()
        .for_each(|line| assert_line(says(), line));
    let sharer = |line: &str| says().any(|said| said.starts_with("sharer") && said.contains(line));
    assert!(sharer(&format!("pid={own},here=1,program=a reader,stopped=0,holding_up=0,reads_only=1")));
    assert!(sharer(&format!("pid={own},here=1,program=a keeper,stopped=0,holding_up=1,reads_only=0")));
    let page = metrics(served.metrics_port);
    for line in [
        "terrace_pool_shared 1".into(),
        "terrace_sharers 2".into(),
        format!("terrace_sharer_holding_up{{pid=\"{own}\",program=\"a keeper\"}} 1"),
        format!("terrace_sharer_holding_up{{pid=\"{own}\",program=\"a reader\"}} 0"),
        format!("terrace_sharer_stopped{{pid=\"{own}\",program=\"a keeper\"}} 0"),
    ] {
        assert_line(page.lines(), &line);
    }
}

#[test]
fn readers_and_processes_that_hold_memory_up_are_reported() {
    let place = Place::new();
    let pool = place.pool();
    let served = Served::start(&pool, SHARED);
    redis::cmd("SET").arg("kept").arg("1").exec(&mut connect(&served)).unwrap();
    let embedded = || Store::options().path(&pool).shared(true);
    let reader = embedded().read_only(true).program("a reader").open().unwrap();
    let keeper = embedded().program("a keeper").open().unwrap();
    let kept = keeper.get(b"kept").unwrap().unwrap();
    retire_memory(&served);

    check_stats_of_sharers(&place);
    check_info_of_sharers(&served);
    drop(kept);
    drop((reader, keeper));
    assert_line(sharing(&served).iter().map(String::as_str), "sharers:0");
}

#[test]
fn server_reports_a_stopped_process() {
    let place = Place::new();
    let (served, stopped) = (Served::start(&place.pool(), SHARED), Served::start(&place.pool(), SHARED));
    stopped.stop();
    let pid = stopped.child.id();
    let says = sharing(&served);
    let says = || says.iter().map(String::as_str);
    assert_line(says(), "sharers_stopped:1");
    assert!(
        says().any(|line| line.starts_with(&format!("sharer0:pid={pid},here=1,program=terrace,stopped=1,")))
    );
    let line = format!("terrace_sharer_stopped{{pid=\"{pid}\",program=\"terrace\"}} 1");
    assert_line(metrics(served.metrics_port).lines(), &line);
    stopped.signal("-CONT");
}

#[test]
fn server_of_an_exclusive_pool_reports_no_sharers() {
    let place = Place::new();
    let served = Served::start(&place.pool(), &[]);
    let says = sharing(&served);
    assert_eq!(says[1..], ["pool_shared:0", "sharers:0", "sharers_stopped:0", "sharers_holding_up:0"]);
    let page = metrics(served.metrics_port);
    assert_line(page.lines(), "terrace_sharers 0");
    assert!(!page.contains("terrace_sharer_stopped{"), "{page}");
}

#[test]
fn participants_limit_the_number_of_processes() {
    let place = Place::new();
    let pool = place.pool();
    let served = Served::start(&pool, &["--shared", "--participants", "2"]);
    let second = Served::start(&pool, SHARED);
    let refused = place.run(&["put", "--shared", "key", "value"]).fails(1, "as it has room for");
    let both = [&served, &second].map(|served| format!("process {} (terrace", served.child.id()));
    assert_says(&refused.err, &[&both[0], &both[1], "created for more (--participants"]);
    drop(second);
    place.run(&["put", "--shared", "key", "value"]).ok();
    // The flag also applies to pools that other commands create.
    let other = place.path("other.pool");
    place.run_on(&other, &["load", "--participants", "1", "-"], b"key,value\na,1\n").ok();
    let _alone = Served::start(&other, SHARED);
    place.run_on(&other, &["get", "--shared", "a"], b"").fails(1, "as it has room for");
}

#[test]
fn participants_have_bounds() {
    let place = Place::new();
    for number in ["4097", "-1", "many"] {
        let refused = place.run(&["load", &format!("--participants={number}"), "-"]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert_says(&refused.err, &[&format!("'{number}' for '--participants <N>'")]);
    }
    let refused = place.run(&["load", "--participants", "4097", "-"]);
    assert_says(&refused.err, &["from 0 to 4096"]);
    // The table of so many participants does not fit into this pool.
    let pool = place.path("small.pool");
    let small = ["load", "--participants", "4096", "--size", "128KiB", "--pool", pool.to_str().unwrap(), "-"];
    let refused = run(small, b"key,value\na,1\n").fails(1, "128.0 KiB");
    assert_says(&refused.err, &["small.pool"]);
    assert!(!pool.exists());
}

#[test]
fn growth_beyond_another_process_reservation_names_it() {
    let place = Place::new();
    let pool = place.pool();
    let narrow = Served::start(&pool, &["--shared", "--max-size", "128MiB"]);
    let wide = Store::options().path(&pool).shared(true).open().unwrap();
    let refused = wide.upkeep().grow(ByteSize::mib(256)).unwrap_err();
    assert!(matches!(refused, GrowError::Pool(PoolGrowError::ReservedByOther { .. })), "{refused:?}");
    let holder = format!("128.0 MiB were reserved by process {} (terrace, since ", narrow.child.id());
    assert_says(&refused.to_string(), &["cannot grow to 256.0 MiB", &holder, "--max-size of at least that"]);
    // Another server reports the same to its client.
    let other = Served::start(&pool, SHARED);
    let answer = redis::cmd("CONFIG").arg(&["SET", "size", "256mb"]).exec(&mut connect(&other)).unwrap_err();
    assert_says(&answer.to_string(), &[&holder]);
    assert_eq!(wide.upkeep().grow(ByteSize::mib(100)).unwrap(), ByteSize::mib(100));
    drop(narrow);
    assert_eq!(
        wide.upkeep().grow(ByteSize::mib(256)).unwrap(),
        ByteSize::mib(256),
        "a process that has exited does not count"
    );
}

/// Whether the system lets this test create such namespaces; prints a message if not.
fn can_unshare(test: &str, unshare: &[&str]) -> bool {
    let tried = Command::new(unshare[0]).args(&unshare[1..]).arg("true").output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        say(&format!("SKIPPED {test}: `{} true` is refused here", unshare.join(" ")));
    }
    can
}

#[allow(clippy::print_stderr, reason = "a skipped test must print a message")]
fn say(what: &str) {
    eprintln!("{what}");
}

#[test]
fn processes_in_two_pid_namespaces_share_a_pool() {
    const APART: [&str; 5] = ["unshare", "-p", "-f", "--mount-proc", "--kill-child"];
    if !can_unshare("processes_in_two_pid_namespaces_share_a_pool", &APART) {
        return;
    }
    let place = Place::new();
    let pool = place.pool();
    let here = Served::start(&pool, SHARED);
    let mut apart = Served::start_under(&APART, &pool, SHARED);
    redis::cmd("SET").arg("from:here").arg("1").exec(&mut connect(&here)).unwrap();
    redis::cmd("SET").arg("from:there").arg("2").exec(&mut connect(&apart)).unwrap();
    for served in [&here, &apart] {
        let both: Vec<String> =
            redis::cmd("MGET").arg(&["from:here", "from:there"]).query(&mut connect(served)).unwrap();
        assert_eq!(both, ["1", "2"]);
        assert_line(sharing(served).iter().map(String::as_str), "sharers:1");
    }
    // The other server is process 1 of its namespace, a number that another process has here. The
    // number of the server here belongs to no process there.
    let stats = place.run(&["stats", "--shared"]).ok();
    assert_says(stats.text(), &["process 1 of another namespace (terrace, since "]);
    assert_says(stats.text(), &[&format!("process {} (terrace, since ", here.child.id())]);
    assert_says(&sharing(&here)[5], &["pid=1,here=0,program=terrace"]);
    assert_says(&sharing(&apart)[5], &[&format!("pid={},here=0,program=terrace", here.child.id())]);
    assert_says(
        &metrics(here.metrics_port),
        &["terrace_sharer_stopped{pid=\"1 elsewhere\",program=\"terrace\"} 0"],
    );
    apart.signal("-KILL");
    apart.end();
    while !sharing(&here).contains(&"sharers:0".to_string()) {
        std::thread::yield_now();
    }
    redis::cmd("SET").arg("from:there").arg("3").exec(&mut connect(&here)).unwrap();
    let stats = place.run(&["stats", "--shared"]).ok();
    assert!(!stats.text().contains("another namespace"), "{}", stats.text());
}

#[test]
fn pool_is_missing_in_another_dev_shm() {
    const APART: [&str; 2] = ["unshare", "-m"];
    // Hides the present /dev/shm from this process.
    const MOUNT: &str = "mount -t tmpfs none /dev/shm && exec \"$0\" \"$@\"";
    let under = [&APART[..], &["sh", "-c", MOUNT]].concat();
    if !can_unshare("pool_is_missing_in_another_dev_shm", &under) {
        return;
    }
    let place =
        tempfile::Builder::new().prefix("terrace-test").suffix(".pool").tempfile_in("/dev/shm").unwrap();
    let pool = place.path().to_path_buf();
    place.close().unwrap();
    let served = Served::start(&pool, SHARED);
    let get = |under: &[&str]| -> Output {
        let arguments = ["get", "--shared", "--pool", pool.to_str().unwrap(), "key"];
        program_under(under).args(arguments).output().unwrap()
    };
    redis::cmd("SET").arg("key").arg("value").exec(&mut connect(&served)).unwrap();
    assert!(get(&[]).status.success());
    let apart = get(&under);
    assert_eq!(apart.status.code(), Some(1), "{apart:?}");
    let wanted = format!("there is no pool {}", pool.display());
    assert_says(&String::from_utf8_lossy(&apart.stderr), &[&wanted, "/dev/shm of its own"]);
    drop(served);
    std::fs::remove_file(&pool).unwrap();
}

/// A pool that one server makes grow has its new size for all.
#[test]
fn every_server_shows_the_size_of_the_pool() {
    let place = Place::new();
    let pool = place.pool();
    let (one, other) = (Served::start(&pool, SHARED), Served::start(&pool, SHARED));
    let shown = |served: &Served, name: &str| {
        let pair: Vec<String> = redis::cmd("CONFIG").arg(&["GET", name]).query(&mut connect(served)).unwrap();
        pair[1].clone()
    };
    let set = |served: &Served, size: &str| {
        redis::cmd("CONFIG").arg(&["SET", "size", size]).exec(&mut connect(served))
    };
    let before = shown(&other, "size");
    set(&one, "96mb").unwrap();
    for served in [&one, &other] {
        assert_eq!([shown(served, "size"), shown(served, "maxmemory")], ["100663296", "100663296"]);
        let info: String = redis::cmd("INFO").arg("memory").query(&mut connect(served)).unwrap();
        assert_line(info.lines(), "maxmemory:100663296");
        assert_line(metrics(served.metrics_port).lines(), "terrace_pool_bytes 100663296");
    }
    // It does not shrink, whatever size a server has seen last.
    let error = set(&other, &before).unwrap_err().to_string();
    assert!(error.contains("cannot shrink"), "{error}");
}
