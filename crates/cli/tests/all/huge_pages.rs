//! Every command on a pool on hugetlbfs, where a read-only pool cannot be mapped privately.

use crate::common::{Place, program_under};

/// Runs the commands on the pool, without a server and beside one.
const COMMANDS: &str = r#"
set -e
mount -t hugetlbfs -o pagesize=2M none "$1"
pool="$1/a.pool"
terrace="$0"
both() {
  "$terrace" get $1 --pool "$pool" key && echo
  "$terrace" scan $1 --pool "$pool"
  "$terrace" stats $1 --pool "$pool" | grep records
  "$terrace" check $1 --pool "$pool" | sed 's/ in .*: / /'
  "$terrace" dump $1 --pool "$pool"
}
"$terrace" put --pool "$pool" --size 20mb key value
both
"$terrace" check --repair --pool "$pool" | sed 's/ in .*: / /'
"$terrace" serve --shared --pool "$pool" --port 0 --metrics-port 0 --unix "$1.socket" >"$1.said" &
trap 'kill -KILL $! 2>/dev/null || true' EXIT
while ! grep -q ready "$1.said"; do sleep 0.05; kill -0 $!; done
both --shared
"$terrace" put --shared --pool "$pool" other value
kill -KILL $!
"$terrace" scan --pool "$pool" | sort
umount "$1"
"#;

#[test]
#[allow(clippy::print_stderr, reason = "a skipped test must print a message")]
fn pool_on_hugetlbfs_is_readable_by_every_command() {
    let place = Place::new();
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    if free.ok().and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0) < 12 {
        eprintln!("SKIPPED: fewer than 12 free huge pages (echo 12 > /proc/sys/vm/nr_hugepages)");
        return;
    }
    let directory = place.path("huge");
    std::fs::create_dir(&directory).unwrap();
    let mut shell = program_under(&["unshare", "-m", "sh", "-c", COMMANDS]);
    let output = shell.arg(&directory).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("unshare failed") || error.contains("mount:") {
        eprintln!("SKIPPED: {error}");
        return;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{error}");
    let sound = "checked 1 record, 256 buckets, 2 roots sound\n";
    let both = format!(
        "value\nkey\nrecords             1 (0 expire)\n{sound}{{\"key\":\"key\",\"value\":\"value\"}}\n"
    );
    let wanted = [&both, sound, &both, "key\nother\n"];
    assert_eq!(said, wanted.concat(), "{error}");
}
