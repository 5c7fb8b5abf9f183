//! The default pool's path, the default size where space is short, and the headings of --help.

use crate::common::{Place, program_under, run};
use std::process::Output;

/// Runs a shell script in a mount namespace; `$0` is the program and `$1` a directory. `None` if
/// the system does not allow that.
#[allow(clippy::print_stderr, reason = "a skipped test must print a message")]
fn run_in_mount_namespace(script: &str) -> Option<Output> {
    let place = Place::new();
    let mut shell = program_under(&["unshare", "-m", "sh", "-c", script]);
    let output = shell.arg(place.directory.path()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("unshare failed") || error.contains("mount:") {
        eprintln!("SKIPPED: {error}");
        return None;
    }
    Some(output)
}

/// The default pool's directory is created, for its owner only; no other directory is.
#[test]
fn default_pool_is_created_and_found() {
    const SCRIPT: &str = r#"
mount -t tmpfs none /dev/shm
"$0" put --size 8mb key value && "$0" get key && echo
stat -c %a /dev/shm/terrace
rm /dev/shm/terrace/default.pool
"$0" put --size 8mb key other && "$0" get key && echo
"$0" put --size 8mb --pool /dev/shm/another/a.pool key value 2>&1
ls /dev/shm
mount -t tmpfs -o ro none /dev/shm
"$0" put --size 8mb key value 2>&1
"#;
    let Some(output) = run_in_mount_namespace(SCRIPT) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("  ")).collect();
    assert_eq!(lines[..3], ["value", "700", "other"], "{said}");
    assert!(lines[3].starts_with("error: ") && lines[3].contains("/dev/shm/another"), "{said}");
    assert_eq!(lines[4], "terrace", "{said}");
    assert!(lines[5].starts_with("error: cannot create the directory /dev/shm/terrace: "), "{said}");
    assert!(said.ends_with("\n  to put the pool elsewhere: --pool PATH\n"), "{said}");
}

#[test]
fn default_size_leaves_a_quarter_of_the_space() {
    const SCRIPT: &str = r#"
mount -t tmpfs -o size=64m none "$1"
serve() {
  "$0" serve --pool "$1/$2.pool" --port 0 --metrics-port 0 --unix "$1/$2.socket" $3 >"$1/$2.said" &
  while ! grep -qs ready "$1/$2.said"; do sleep 0.05; kill -0 $! || exit 1; done
  cat "$1/$2.said"
  kill -KILL $!
  wait
}
serve "$1" a "" 
rm "$1/a.pool"
serve "$1" b "--size 60mb"
"#;
    let Some(output) = run_in_mount_namespace(SCRIPT) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let [smaller, _, _, note, "ready", as_given, _, _, "ready"] = lines[..] else { panic!("{said}") };
    assert!(smaller.contains(".pool (48 MiB,"), "{said}");
    assert!(
        note.starts_with("48 MiB instead of 4.0 GiB, since ")
            && note.ends_with(" free; --size sets another size"),
        "{said}"
    );
    assert!(as_given.contains(".pool (60 MiB,"), "{said}");
}

#[test]
fn help_lists_flags_under_their_headings() {
    let help = run(["serve", "--help"], b"").ok();
    let mut heading = "";
    let mut found = std::collections::BTreeMap::new();
    for line in help.text().lines() {
        match line.trim_start() {
            flag if flag.starts_with("--") => {
                _ = found.insert(flag.split(['=', ' ', '[']).next().unwrap_or_default(), (heading, flag))
            }
            _ if line.ends_with(':') && !line.starts_with(' ') => heading = line,
            _ => {}
        }
    }
    for (wanted, flags) in [
        ("Pool:", &["--pool", "--size", "--shared", "--participants", "--end-stopped"][..]),
        ("Where to listen:", &["--bind", "--port", "--unix", "--unix-perm", "--metrics-port"]),
        ("Clients:", &["--password", "--maxclients", "--timeout", "--tcp-keepalive", "--proto-max-bulk-len"]),
        ("Program:", &["--threads", "--log-level"]),
    ] {
        for flag in flags {
            assert_eq!(found[flag].0, wanted, "{flag}");
        }
    }
    assert!(found["--bind"].1.contains("<ADDRESSES>") && found["--unix"].1.contains("<PATH>"));
}
