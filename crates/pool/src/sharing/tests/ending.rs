//! Tests of `ending`.

use super::*;
use crate::sharing::liveness::{FileLocks, Liveness as _};
use std::fs;

const PLACE_3: i64 = (1 << 62) + 16 + 3;
const PID: u32 = 700;
const LOCK: &str = "pos:\t0\nlock:\t1: OFDLCK  ADVISORY  WRITE -1 00:1b:7 16 16\n";

/// A simulated /proc with one process.
pub(crate) struct View(tempfile::TempDir, u32);

impl View {
    pub(crate) fn of(pid: u32) -> Self {
        Self(tempfile::tempdir().unwrap(), pid)
    }

    pub(crate) fn proc(&self) -> &Path {
        self.0.path()
    }

    fn process(&self) -> std::path::PathBuf {
        self.proc().join(self.1.to_string())
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.process().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Gives the process these threads, the first one first, with that many mapped bytes each.
    pub(crate) fn maps(&self, threads: &[u64]) {
        for (tid, mapped) in (self.1..).zip(threads) {
            let stat = format!("{tid} (a ) b) R{} {mapped} 7\n", " 1".repeat(19));
            self.write(&format!("task/{tid}/stat"), &stat);
            if tid == self.1 {
                self.write("stat", &stat);
            }
        }
    }

    /// Gives the process the files of this process, with their locks.
    pub(crate) fn has_files_of_this_process(&self) {
        for opened in fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
            // Another test may have closed it meanwhile.
            if let Ok(text) = fs::read_to_string(opened.path()) {
                self.write(&format!("fdinfo/{}", opened.file_name().to_str().unwrap()), &text);
            }
        }
    }

    fn has_released_memory(&self) -> bool {
        has_released_memory(self.proc(), PID, "00:1b:7", 16)
    }
}

fn view(threads: &[u64]) -> View {
    let view = View::of(PID);
    view.maps(threads);
    view.write("fdinfo/0", "pos:\t0\n");
    view.write("fdinfo/3", LOCK);
    view
}

#[test]
fn process_without_memory_that_has_its_lock_is_ending() {
    for (threads, is_exiting) in
        [(&[0][..], true), (&[0, 0, 0], true), (&[8], false), (&[8, 0], false), (&[0, 0, 8], false)]
    {
        assert_eq!(view(threads).has_released_memory(), is_exiting, "{threads:?}");
    }
    let view = view(&[0]);
    assert!(!has_released_memory(view.proc(), PID, "00:1b:7", 17), "another byte");
    assert!(!has_released_memory(view.proc(), PID, "00:1b:8", 16), "another pool");
    assert!(!has_released_memory(view.proc(), PID + 1, "00:1b:7", 16), "no such process");
    view.write("fdinfo/3", "pos:\t0\n");
    assert!(!view.has_released_memory(), "it has released the lock");
}

#[test]
fn process_that_the_kernel_does_not_show_is_not_ending() {
    // A thread that has ended since the list was read, and one whose state cannot be read.
    let shown = view(&[0, 0]);
    fs::remove_file(shown.process().join("task/701/stat")).unwrap();
    assert!(shown.has_released_memory());
    fs::create_dir(shown.process().join("task/701/stat")).unwrap();
    assert!(!shown.has_released_memory());
    // A line without a size, as from another kernel.
    for stat in ["", "700 (a) R 1 2 3\n"] {
        let shown = view(&[0]);
        shown.write("stat", stat);
        assert!(!shown.has_released_memory(), "{stat:?}");
    }
    for hidden in ["fdinfo", "task"] {
        let shown = view(&[0]);
        fs::remove_dir_all(shown.process().join(hidden)).unwrap();
        assert!(!shown.has_released_memory(), "{hidden}");
    }
}

fn has_none(pid: u32) -> bool {
    has_no_memory(Path::new(PROC), pid, |_| Ok(true)).unwrap()
}

#[test]
fn live_process_has_memory_and_its_locks_are_found() {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let open = || File::options().read(true).write(true).open(file.path()).unwrap();
    let (opened, other) = (open(), tempfile::NamedTempFile::new_in("/dev/shm").unwrap());
    let locks = FileLocks::new(opened.try_clone().unwrap());
    let own = directory(rustix::fs::CWD, "/proc/self").unwrap();
    assert_eq!(kernel_name(&opened), None);
    assert!(locks.claim(3).unwrap());
    let name = kernel_name(&opened).unwrap();
    assert_eq!(lock_owner(&name, PLACE_3).map(|holder| holder.pid), Some(std::process::id()));
    assert!(holds(&own, &name, PLACE_3).unwrap() && !holds(&own, &name, PLACE_3 + 1).unwrap());
    let of_other = FileLocks::new(other.reopen().unwrap());
    assert!(of_other.claim(4).unwrap());
    assert!(!holds(&own, &name, PLACE_3 + 1).unwrap() && lock_owner(&name, PLACE_3 + 1).is_none());
    assert!(!has_none(std::process::id()) && !FileLocks::new(open()).is_exiting(3, std::process::id()));
}

#[test]
fn only_exclusive_ofd_lock_of_that_byte_matches() {
    let is_lock = |line: &str| is_lock_of(line, "00:1b:7", 16);
    assert!(is_lock("lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:1b:7 16 16"));
    for other in [
        "",
        "lock:",
        "pos:\t0",
        "lock:\t1: OFDLCK  ADVISORY  WRITE",
        "lock:\t1: OFDLCK  ADVISORY  READ -1 00:1b:7 16 16",
        "lock:\t1: POSIX  ADVISORY  WRITE 5 00:1b:7 16 16",
        "lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:1b:8 16 16",
        "lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:1c:7 16 16",
        "lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:1b:77 16 16",
        "lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:1b:7 0 EOF",
        "lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:1b:7 15 16",
        "lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:1b:7 16 17",
    ] {
        assert!(!is_lock(other), "{other}");
    }
}

/// Waits until the kernel reports that the first thread of process `pid` has ended.
fn wait_for_end(pid: u32) {
    let process = directory(rustix::fs::CWD, format!("/proc/{pid}")).unwrap();
    while field(&read(&process, "stat").unwrap(), 3) != Some("Z") {
        std::thread::yield_now();
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a thread that outlives the first one of its process")]
fn process_without_its_first_thread_has_memory() {
    // SAFETY: the child has one thread, the first of its process, and only makes calls that are
    // allowed after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it is killed if the test fails.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let other = std::thread::spawn(|| {
            loop {
                std::thread::park();
            }
        });
        std::mem::forget(other);
        // SAFETY: nothing of this thread is needed any more.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    let pid = child as u32;
    wait_for_end(pid);
    assert!(!has_none(pid));
    // SAFETY: the child has not been waited for, so the pid is still its own.
    unsafe { libc::kill(child, libc::SIGKILL) };
    while !has_none(pid) {
        std::thread::yield_now();
    }
    assert!(!has_released_memory(Path::new(PROC), pid, "00:1b:7", PLACE_3), "no such lock");
    let mut status = 0;
    // SAFETY: waits for the child forked above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(!has_released_memory(Path::new(PROC), pid, "", 0), "unknown");
}

#[test]
fn vanished_thread_has_no_memory_and_unreadable_is_an_error() {
    let own = directory(rustix::fs::CWD, "/proc/self").unwrap();
    // No thread has an id that high.
    assert!(!has_memory(&own, "task/4194304/stat").unwrap());
    assert!(has_memory(&own, "task").is_err());
    // A file that was closed after the list was read, and one that cannot be read.
    let process = tempfile::tempdir().unwrap();
    let opened = process.path().join("fdinfo");
    std::fs::create_dir(&opened).unwrap();
    std::os::unix::fs::symlink("gone", opened.join("3")).unwrap();
    let names = directory(rustix::fs::CWD, process.path().to_str().unwrap()).unwrap();
    assert!(!holds(&names, "00:1b:7", 16).unwrap());
    std::fs::create_dir(opened.join("4")).unwrap();
    assert!(holds(&names, "00:1b:7", 16).is_err());
}

#[test]
fn directory_opens_only_directories_with_cloexec() {
    let opened = directory(rustix::fs::CWD, "/proc/self").unwrap();
    assert!(rustix::io::fcntl_getfd(&opened).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    assert!(directory(rustix::fs::CWD, "/proc/self/stat").is_err());
}
