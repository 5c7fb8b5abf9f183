//! A `/dev/shm` of its own for each test, so that a mutant that fills it takes nobody's memory but its own, and leaves nothing there.

use crate::program::say;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// In place of what is there now, for one program and all that it starts.
const MOUNT: [&str; 3] = ["sh", "-c", "mount -t tmpfs -o size=2g none /dev/shm && exec \"$0\" \"$@\""];
/// As root, and as anybody else where the system lets them.
const WAYS: [&[&str]; 2] = [&["unshare", "--mount"], &["unshare", "--map-root-user", "--mount"]];

static UNDER: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let mut ways = WAYS.iter().map(|way| [*way, &MOUNT].concat());
    ways.find(|way| {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).arg("true").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
    .unwrap_or_else(|| {
        say("this system gives nobody a /dev/shm of their own: look after it, a mutant may fill it");
        Vec::new()
    })
});

/// To start `program` so. It keeps the process id that it is started with.
pub(crate) fn command(program: &str) -> Command {
    let mut words = UNDER.iter().copied().chain([program]);
    let mut command = Command::new(words.next().unwrap_or(program));
    command.args(words);
    command
}
