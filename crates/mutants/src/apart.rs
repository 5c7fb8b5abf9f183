//! A private `/dev/shm` for each test, so that a fault that fills it affects no other program and
//! leaves no files.

use crate::program::print_status;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Mounts an empty file system over `/dev/shm`, visible only to one program and its children.
const MOUNT: [&str; 3] = ["sh", "-c", "mount -t tmpfs -o size=2g none /dev/shm && exec \"$0\" \"$@\""];
/// As root, and as any user where the system permits that.
const UNSHARE: [&[&str]; 2] = [&["unshare", "--mount"], &["unshare", "--map-root-user", "--mount"]];

static PREFIX: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let mut candidates = UNSHARE.iter().map(|unshare| [*unshare, &MOUNT].concat());
    candidates
        .find(|candidate| {
            let mut command = Command::new(candidate[0]);
            command.args(&candidate[1..]).arg("true").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        })
        .unwrap_or_else(|| {
            print_status("cannot mount a private /dev/shm: watch it, a fault may fill it");
            Vec::new()
        })
});

/// A command that starts `program` in this way. The process keeps the process id of the command.
pub(crate) fn command(program: &str) -> Command {
    let mut words = PREFIX.iter().copied().chain([program]);
    let mut command = Command::new(words.next().unwrap_or(program));
    command.args(words);
    command
}
