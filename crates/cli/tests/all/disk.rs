//! Stores in a directory, by themselves and beside a server.

use std::{
    fs,
    io::{Seek, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::common::{Run, free_port, program, ready, run};

/// A directory with a store in it.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a command on the store called `name`.
    fn run(&self, name: &str, arguments: &[&str], input: &str) -> Run {
        let path = self.path(name);
        let place = ["--dir", path.to_str().unwrap(), "--memory", "8mb"];
        run(arguments.iter().chain(&place), input.as_bytes())
    }

    fn load(&self, name: &str, records: std::ops::Range<usize>) {
        let lines: String = records.map(|n| format!("key{n:06},value of {n}\n")).collect();
        self.run(name, &["load", "-", "--format", "csv"], &format!("key,value\n{lines}")).ok();
    }

    fn keys(&self, name: &str) -> usize {
        self.run(name, &["scan"], "").ok().text().lines().count()
    }
}

/// A server of the store called `name`, killed when dropped.
struct Server(std::process::Child, u16);

impl Server {
    fn start(place: &Place, name: &str, more: &[&str]) -> Server {
        let (port, metrics) = (free_port(), free_port().to_string());
        let mut child = program()
            .args([
                "serve",
                "--memory",
                "8mb",
                "--metrics-port",
                &metrics,
                "--port",
                &port.to_string(),
                "--dir",
            ])
            .arg(place.path(name))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(ready(&mut child).is_some(), "the server starts");
        Server(child, port)
    }

    /// Sends commands, one a line, and returns how many OK came back.
    fn pipe(&self, commands: &str) -> usize {
        let mut input = tempfile::tempfile().unwrap();
        input.write_all(commands.as_bytes()).unwrap();
        input.rewind().unwrap();
        let mut cli = Command::new("redis-cli");
        let out = cli.args(["-p", &self.1.to_string()]).stdin(input).output().unwrap();
        String::from_utf8(out.stdout).unwrap().lines().filter(|line| *line == "OK").count()
    }

    fn ask(&self, words: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        let out = cli.args(["-p", &self.1.to_string()]).args(words).output().unwrap();
        String::from_utf8(out.stdout).unwrap().trim().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Flips a bit in the middle of the largest file whose name ends so.
fn damage(directory: &Path, ends: &str) {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let named = files.filter(|path| path.to_str().unwrap().ends_with(ends));
    let path = named.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::File::options().write(true).open(&path).unwrap().write_all(&bytes).unwrap();
}

#[test]
fn records_survive_restarts_and_kills() {
    let place = Place::new();
    place.load("db", 0..30_000);
    assert_eq!(place.keys("db"), 30_000);
    let server = Server::start(&place, "db", &["--durability", "power"]);
    assert_eq!(server.ask(&["get", "key000007"]), "value of 7");
    assert_eq!(server.ask(&["set", "new", "1"]), "OK");
    assert_eq!(server.ask(&["x.range", "[key000010", "(key000012"]), "key000010\nkey000011");
    // A command finds the server and goes through it.
    assert_eq!(place.run("db", &["get", "new"], "").ok().text(), "1");
    assert!(place.run("db", &["stats"], "").ok().text().contains("tables"));
    drop(server);
    assert_eq!(place.run("db", &["get", "new"], "").ok().text(), "1");
    place.run("db", &["check"], "").ok();
}

#[test]
fn copies_have_what_the_store_had() {
    let place = Place::new();
    place.load("db", 0..20_000);
    let (copy, backup) = (place.path("copy"), place.path("backup"));
    let (copy, backup) = (copy.to_str().unwrap(), backup.to_str().unwrap());
    let server = Server::start(&place, "db", &[]);
    place.run("db", &["checkpoint", copy], "").ok();
    assert_eq!(server.ask(&["del", "key000001"]), "1");
    place.run("db", &["backup", backup], "").ok();
    assert_eq!(server.ask(&["bgsave"]), "Background saving started");
    assert_eq!(server.ask(&["save"]), "OK");
    assert_eq!(fs::read_dir(place.path("db/checkpoints")).unwrap().count(), 1, "the last one only");
    assert_eq!(server.ask(&["x.compact"]), "OK");
    drop(server);
    assert_eq!((place.keys("copy"), place.keys("backup")), (20_000, 19_999));
    place.run("restored", &["restore", backup], "").ok();
    assert_eq!(place.keys("restored"), 19_999);
    place.run("db", &["checkpoint", copy], "").fails(1, "there is a store at");
    place.run("restored", &["restore", backup], "").fails(1, "exists");
    place.run("db", &["compact"], "").ok();
    assert_eq!(place.keys("db"), 19_999);
}

/// A backup that was killed leaves its copy and its checkpoint. The next one takes both over.
#[test]
fn killed_backup_is_taken_over() {
    let place = Place::new();
    place.load("db", 0..1000);
    let (backup, begun) = (place.path("backup"), place.path("backup.copying"));
    let left = place.path("db/checkpoints/backup-1");
    let leave = || {
        fs::create_dir_all(&left).unwrap();
        fs::write(left.with_extension("lock"), "").unwrap();
        fs::write(left.join("0000000001.log"), "old").unwrap();
        fs::create_dir(&begun).unwrap();
        fs::write(begun.join("0000000001.log"), "half").unwrap();
        fs::File::create(begun.join("COPYING")).unwrap()
    };
    let mark = leave();
    mark.try_lock().unwrap();
    place.run("db", &["backup", backup.to_str().unwrap()], "").fails(1, "another process copies");
    drop(mark);
    place.run("db", &["backup", backup.to_str().unwrap()], "").ok();
    assert!(!begun.exists() && !left.exists() && !place.path("db/checkpoints").exists());
    assert!(!backup.join("COPYING").exists());
    assert_eq!(place.keys("backup"), 1000);

    // What is no interrupted copy stays.
    fs::remove_dir_all(&backup).unwrap();
    fs::create_dir(&begun).unwrap();
    fs::write(begun.join("letter.txt"), "dear").unwrap();
    place.run("db", &["backup", backup.to_str().unwrap()], "").fails(1, "no interrupted copy");
    assert!(begun.join("letter.txt").exists());
}

/// One of a thousand records of the log is damaged: it alone is lost, and the check says so.
#[test]
fn damaged_record_of_the_log_is_told_from_a_torn_tail() {
    let place = Place::new();
    for engine in [&["--engine", "wip"][..], &["--engine", "tiered", "--dram", "16mb"]] {
        let name = engine[1];
        let server = Server::start(&place, name, engine);
        let sets: String = (0..1000).map(|n| format!("set key{n:04} value{n:04}\n")).collect();
        assert_eq!(server.pipe(&sets), 1000);
        drop(server);
        let log = place.path(name).join("0000000001.log");
        let mut bytes = fs::read(&log).unwrap();
        let at = bytes.windows(9).position(|window| window == b"value0100").unwrap();
        bytes[at] ^= 1;
        fs::write(&log, &bytes).unwrap();
        place.run(name, &[&["check"][..], engine].concat(), "").fails(1, "0000000001.log is damaged");
        let repaired = place.run(name, &[&["check", "--repair"][..], engine].concat(), "").ok();
        assert!(repaired.err.contains("salvaged 999 records, dropped 1 record"), "{}", repaired.err);
        let checked = place.run(name, &[&["check"][..], engine].concat(), "").ok();
        assert!(checked.text().contains("checked 999 records"), "{}", checked.text());
    }
}

/// A log that is cut short while a server writes it ends the server with a sentence.
#[test]
fn log_truncated_while_served_is_reported() {
    // On a file system where small writes go through a mapping.
    let place = Place { directory: tempfile::tempdir_in("/dev/shm").unwrap() };
    let mut server = Server::start(&place, "db", &[]);
    assert_eq!(server.ask(&["set", "key", "1"]), "OK");
    let log = place.path("db/0000000001.log");
    fs::File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
    let is_noticed = (0..1000).any(|_| server.ask(&["set", "key", "2"]) != "OK");
    assert!(is_noticed, "the server goes on without its log");
    server.0.wait().unwrap();
    let mut err = String::new();
    std::io::Read::read_to_string(&mut server.0.stderr.take().unwrap(), &mut err).unwrap();
    let said =
        err.lines().find(|line| line.starts_with("error: the file ")).unwrap_or_else(|| panic!("{err}"));
    assert!(said.contains("0000000001.log was cut short to 0 bytes while it was in use"), "{said}");
    place.run("db", &["check"], "").fails(1, "0000000001.log is damaged");
}

/// Large records go past the mapping, and must not make the file longer again.
#[test]
fn log_truncated_under_large_writes_is_reported() {
    let place = Place { directory: tempfile::tempdir_in("/dev/shm").unwrap() };
    let server = Server::start(&place, "db", &[]);
    assert_eq!(server.ask(&["set", "key", "1"]), "OK");
    let log = place.path("db/0000000001.log");
    fs::File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
    let value = "v".repeat(20_000);
    let is_noticed = (0..20).any(|_| server.ask(&["set", "key", &value]) != "OK");
    assert!(is_noticed, "the server goes on without its log");
    drop(server);
    place.run("db", &["check"], "").fails(1, "0000000001.log is damaged");
}

#[test]
fn dump_and_scan_of_a_damaged_store_fail_and_write_the_rest() {
    let place = Place::new();
    place.load("db", 0..20_000);
    place.run("db", &["compact"], "").ok();
    damage(&place.path("db"), ".table");
    let all_but_some = |with: &str| {
        for command in ["dump", "scan"] {
            let run = place.run("db", &[command], "");
            let lines = run.text().lines().count();
            assert!((19_000..20_000).contains(&lines), "{command} {with}: {lines}");
            run.fails(1, "left out at least 1 damaged record");
        }
    };
    all_but_some("by itself");
    let server = Server::start(&place, "db", &[]);
    all_but_some("through a server");
    assert!(!server.ask(&["info", "stats"]).contains("damaged_records_skipped:0"));
}

#[test]
fn salvage_leaves_a_sound_store_alone() {
    let place = Place::new();
    for engine in [&["--engine", "wip"][..], &["--engine", "tiered", "--dram", "16mb"]] {
        let name = engine[1];
        let more = [engine, &["--salvage=yes"]].concat();
        for times in 0..2 {
            let server = Server::start(&place, name, &more);
            assert_eq!(server.ask(&["incr", "starts"]), (times + 1).to_string());
        }
        assert!(!place.path(&format!("{name}.damaged")).exists(), "{name}");
        fs::remove_file(place.path(name).join("CURRENT")).unwrap();
        let server = Server::start(&place, name, &more);
        assert_eq!(server.ask(&["incr", "starts"]), "3");
        assert!(place.path(&format!("{name}.damaged")).is_dir(), "{name}");
    }
}

/// The damaged store and the new one lie where the link leads.
#[test]
fn repair_follows_a_link() {
    let place = Place::new();
    fs::create_dir(place.path("disk")).unwrap();
    place.load("disk/db", 0..1000);
    std::os::unix::fs::symlink(place.path("disk/db"), place.path("link")).unwrap();
    fs::remove_file(place.path("disk/db/CURRENT")).unwrap();
    place.run("link", &["check", "--repair"], "").ok();
    assert!(place.path("link").is_symlink() && place.path("disk/db.damaged").is_dir());
    assert_eq!(place.keys("disk/db"), 1000);
}

#[test]
fn damage_is_named_and_repaired() {
    let place = Place::new();
    place.load("db", 0..60_000);
    place.run("db", &["compact"], "").ok();
    damage(&place.path("db"), ".table");
    let checked = place.run("db", &["check"], "");
    assert_eq!(checked.code, 1);
    assert!(checked.text().contains(".table"), "{}", checked.text());
    let repaired = place.run("db", &["check", "--repair"], "").ok();
    assert!(repaired.err.contains("salvaged"), "{}", repaired.err);
    place.run("db", &["check"], "").ok();
    assert!(place.keys("db") > 55_000 && place.path("db.damaged").is_dir());

    damage(&place.path("db"), "TERRACE");
    place.run("db", &["get", "key000001"], "").fails(1, "TERRACE");
    place.run("db", &["check", "--repair"], "").ok();
    assert!(place.keys("db") > 55_000);
}

#[test]
fn damage_of_a_tiered_store_is_named_and_repaired() {
    let place = Place::new();
    let db = place.path("db");
    let tiered = |arguments: &[&str], input: &str| {
        let rest = ["--engine", "tiered", "--dram", "16mb", "--dir", db.to_str().unwrap()];
        run(arguments.iter().chain(&rest), input.as_bytes())
    };
    let keys = || tiered(&["scan"], "").ok().text().lines().count();
    let lines: String = (0..60_000).map(|n| format!("key{n:06},value of {n}\n")).collect();
    tiered(&["load", "-", "--format", "csv"], &format!("key,value\n{lines}")).ok();
    damage(&db, ".block");
    let checked = tiered(&["check"], "");
    assert_eq!(checked.code, 1);
    assert!(checked.text().contains(".block"), "{}", checked.text());
    let repaired = tiered(&["check", "--repair"], "").ok();
    assert!(repaired.err.contains("salvaged 59,999 records, dropped 1 record"), "{}", repaired.err);
    tiered(&["check"], "").ok();
    assert!(keys() == 59_999 && place.path("db.damaged").is_dir());

    damage(&db, "TERRACE");
    tiered(&["get", "key000001"], "").fails(1, "TERRACE");
    // The other files tell the engine.
    place.run("db", &["check", "--repair", "--dram", "16mb"], "").ok();
    assert_eq!(keys(), 59_999);

    fs::remove_file(db.join("CURRENT")).unwrap();
    tiered(&["get", "key000001"], "").fails(1, "CURRENT");
    tiered(&["check", "--repair"], "").ok();
    assert_eq!(keys(), 59_999);
}

#[test]
fn second_server_of_a_tiered_store_names_the_first() {
    let place = Place::new();
    let tiered = ["--engine", "tiered", "--dram", "16mb"];
    let server = Server::start(&place, "db", &tiered);
    let socket = place.path("second.sock").to_string_lossy().into_owned();
    let listen = ["serve", "--port", "0", "--metrics-port", "0", "--unix", &socket];
    let second = place.run("db", &[&listen[..], &tiered].concat(), "");
    let (pid, path) = (server.0.id(), place.path("db"));
    second.fails(1, &format!("process {pid} has the store at {} open; stop it first", path.display()));
    assert_eq!(server.ask(&["set", "key", "1"]), "OK");
}

#[test]
fn serve_on_a_disk_refuses_a_policy() {
    let place = Place::new();
    for (name, engine) in [("a", &["--engine", "wip"][..]), ("b", &["--engine", "tiered", "--dram", "16mb"])]
    {
        let path = place.path(name);
        let port = free_port().to_string();
        let words = ["serve", "--port", &port, "--metrics-port", "0", "--dir", path.to_str().unwrap()];
        let policy = ["--maxmemory-policy", "allkeys-lru"];
        let refused = run([&words, engine, &policy].concat(), b"");
        refused.fails(1, "only a store in a pool of its own evicts");
    }
}

#[test]
fn wrong_places_and_settings_are_explained() {
    let place = Place::new();
    run(["serve", "--engine", "wip"], b"").fails(2, "--dir");
    run(["get", "a", "--engine", "direct", "--dir", "x"], b"").fails(2, "--pool");
    run(["get", "a", "--pool", "p", "--dir", "x"], b"").fails(2, "--pool or --dir");
    place.run("none", &["get", "a"], "").fails(1, "no store at");
    fs::write(place.path("file"), "no directory").unwrap();
    place.run("file", &["put", "a", "1"], "").fails(1, "a file has this name");
    fs::create_dir(place.path("other")).unwrap();
    fs::write(place.path("other/letter.txt"), "dear").unwrap();
    place.run("other", &["put", "a", "1"], "").fails(1, "letter.txt");
    let pool = place.path("pool");
    run(["backup", "copy", "--pool", pool.to_str().unwrap()], b"").fails(2, "--dir");

    // Two servers: the second one names the first one's process.
    let server = Server::start(&place, "db", &[]);
    let port = free_port().to_string();
    let path = place.path("db");
    let second = ["serve", "--port", &port, "--metrics-port", "0", "--dir", path.to_str().unwrap()];
    run(second, b"").fails(1, &format!("process {}", server.0.id()));
}
