//! Sizes of pools in control groups with little memory.

use std::{fs, path::PathBuf, process::Output};

use crate::common::{Place, program_under};

/// A control group of one test, with a memory limit.
struct Group(PathBuf);

impl Group {
    /// Creates a group; `None` where that is impossible.
    #[allow(clippy::print_stderr, reason = "a skipped test must print a message")]
    fn new(name: &str, bytes: u64) -> Option<Group> {
        let name = format!("terrace-{name}-{}", std::process::id());
        for (top, limit) in [("memory", "memory.limit_in_bytes"), ("", "memory.max")] {
            let group = Group(PathBuf::from("/sys/fs/cgroup").join(top).join(&name));
            let made =
                fs::create_dir(&group.0).and_then(|()| fs::write(group.0.join(limit), bytes.to_string()));
            if made.is_ok() {
                return Some(group);
            }
        }
        eprintln!("SKIPPED: no control group with a memory limit can be created here");
        None
    }

    /// Runs a shell script in the group; `$0` is the program and `$1` the path of a pool.
    fn run(&self, place: &Place, script: &str) -> Output {
        let enter = format!("echo $$ > '{}' && {{ {script}; }}", self.0.join("cgroup.procs").display());
        program_under(&["sh", "-c", &enter]).arg(place.pool()).output().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The memory of a killed process is released a little later.
        let _ = (0..100).find(|_| {
            let gone = fs::remove_dir(&self.0).is_ok();
            if !gone {
                std::thread::yield_now();
            }
            gone
        });
    }
}

fn both(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn default_size_fits_the_control_group() {
    let Some(group) = Group::new("default", 256 << 20) else { return };
    let place = Place::new();
    let script = r#""$0" serve --pool "$1" --port 0 --metrics-port 0 --unix "$1.socket" >"$1.said" &
        while ! grep -qs ready "$1.said"; do sleep 0.05; kill -0 $! || exit 1; done
        cat "$1.said"; kill -TERM $!; wait $!"#;
    let output = group.run(&place, script);
    let said = both(&output);
    assert!(output.status.success(), "{:?} {said}", output.status);
    assert!(said.contains(" MiB instead of 4.0 GiB, since its control group allows 256 MiB"), "{said}");
    // All of the pool can be filled.
    let script = r#"for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        head -c 8000000 /dev/zero | "$0" put --pool "$1" $n - || exit 1; done; "$0" scan --pool "$1" | wc -l"#;
    let fill = group.run(&place, script);
    assert_eq!(String::from_utf8_lossy(&fill.stdout).trim(), "15", "{}", both(&fill));
}

#[test]
fn size_beyond_the_control_group_is_refused() {
    let Some(group) = Group::new("chosen", 256 << 20) else { return };
    let place = Place::new();
    let output = group.run(&place, r#""$0" put --size 1gb --pool "$1" k v"#);
    let said = both(&output);
    assert!(output.status.code() == Some(1) && said.contains("its control group allows 256 MiB"), "{said}");
    assert!(!place.pool().exists());
    let output = group.run(&place, r#""$0" put --size 128mb --pool "$1" k v"#);
    assert!(output.status.success(), "{}", both(&output));
}

#[test]
fn growth_beyond_the_control_group_is_refused() {
    let Some(group) = Group::new("growth", 256 << 20) else { return };
    let place = Place::new();
    let script = r#""$0" serve --size 64mb --pool "$1" --port 0 --metrics-port 0 --unix "$1.socket" >"$1.said" &
        while ! grep -qs ready "$1.said"; do sleep 0.05; kill -0 $! || exit 1; done
        redis-cli -s "$1.socket" config set size 1gb; redis-cli -s "$1.socket" config set size 128mb
        kill -TERM $!; wait $!"#;
    let output = group.run(&place, script);
    let said = both(&output);
    if said.contains("redis-cli: not found") {
        return;
    }
    assert!(said.contains("its control group allows 256 MiB") && said.contains("OK"), "{said}");
    assert!(output.status.success(), "{said}");
}
