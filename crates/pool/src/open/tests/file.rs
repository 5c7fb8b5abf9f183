//! Tests of `file`.

use super::*;

#[test]
fn kernel_lock_list_identifies_the_holder() {
    let file = tempfile::tempfile().unwrap();
    let metadata = file.metadata().unwrap();
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let line = |kind: &str, pid: &str| {
        format!("1: {kind}  ADVISORY  READ {pid} {major:02x}:{minor:02x}:{} 0 EOF\n", metadata.ino())
    };
    assert_eq!(locker(&metadata, &line("FLOCK", "42")), Some(42));
    assert_eq!(locker(&metadata, &line("POSIX", "42")), None);
    assert_eq!(locker(&metadata, &line("FLOCK", "-1")), None);
    assert_eq!(locker(&metadata, "1: FLOCK\n\nnonsense\n"), None);
    assert_eq!(locker(&metadata, "1: FLOCK ADVISORY WRITE 7 ff:ff:1 0 EOF\n"), None);
    let all = format!("{}{}", line("POSIX", "1"), line("FLOCK", "2"));
    assert_eq!(locker(&metadata, &all), Some(2));
}

#[test]
fn device_is_distinguished_from_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(is_device("/dev/null".as_ref()) && !is_device(file.path()) && !is_device("/nowhere".as_ref()));
    assert!(is_device_file(&File::open("/dev/null").unwrap()).unwrap());
    assert!(!is_device_file(file.as_file()).unwrap());
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that reports what it could not check")]
fn size_is_rounded_only_on_huge_pages() {
    use rustix::fs::{MemfdFlags, memfd_create};
    // Reserves none.
    let Ok(huge) = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else {
        return eprintln!("SKIPPED size_is_rounded_only_on_huge_pages: this kernel has no huge pages");
    };
    let whole = whole_blocks(&huge.into(), 5).unwrap();
    assert!(whole.is_power_of_two() && whole >= 1 << 20, "{whole}");
    assert_eq!(whole_blocks(&tempfile::tempfile_in("/dev/shm").unwrap(), 5).unwrap(), 5);
}

#[test]
fn temporary_names_differ() {
    let [one, other] = [unique().unwrap(), unique().unwrap()];
    assert_ne!(one, other);
}

#[test]
fn refusal_names_os_error_or_missing_directory() {
    let directory = tempfile::tempdir().unwrap();
    let problem = |name: &str, kind: ErrorKind| refusal(&directory.path().join(name), "open", kind.into());
    assert!(matches!(problem("a", ErrorKind::NotFound), Problem::Missing));
    let none = directory.path().join("none");
    assert!(
        matches!(problem("none/a", ErrorKind::NotFound), Problem::NoDirectory(missing) if missing == none)
    );
    assert!(matches!(problem("a/b", ErrorKind::NotADirectory), Problem::NoDirectory(_)));
    assert!(matches!(problem("a", ErrorKind::AlreadyExists), Problem::Exists));
    assert!(matches!(problem("a", ErrorKind::IsADirectory), Problem::NotAFile));
    assert!(matches!(problem("a", ErrorKind::PermissionDenied), Problem::Denied(_)));
    assert!(matches!(problem("a", ErrorKind::ReadOnlyFilesystem), Problem::ReadOnlyFileSystem));
    assert!(matches!(problem("a", ErrorKind::OutOfMemory), Problem::Os("open", _)));
}

#[test]
fn unreadable_file_is_no_pool_and_reading_ends() {
    let outcome = read_superblock(&File::open("/").unwrap());
    assert!(matches!(outcome, Err(Problem::Os("read", _))));
}

#[test]
fn interrupted_read_continues() {
    let mut outcomes = [Ok(2), Err(ErrorKind::Interrupted), Ok(3), Ok(0)].into_iter();
    let mut asked = Vec::new();
    let mut bytes = [0; 9];
    let have = read_all(&mut bytes, |rest, at| {
        asked.push((at, rest.len()));
        rest[0] = 7;
        outcomes.next().unwrap().map_err(io::Error::from)
    });
    assert_eq!((have.unwrap(), asked), (5, vec![(0, 9), (2, 7), (2, 7), (5, 4)]));
    assert_eq!(bytes, [7, 0, 7, 0, 0, 7, 0, 0, 0]);
}

#[test]
fn holder_without_table_is_found_by_its_kernel_lock() {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    assert_eq!(holder(&file), None);
    // SAFETY: the child only makes calls that are allowed after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above; the child stops at the signal, and is killed if the test fails.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::flock(file.as_raw_fd(), libc::LOCK_EX);
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
    }
    let mut status = 0;
    // SAFETY: waits for the child forked above.
    unsafe { libc::waitpid(child, &raw mut status, libc::WUNTRACED) };
    let found = holder(&file);
    // SAFETY: the child has not been waited for, so the pid is still its own.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: as above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    let found = found.unwrap();
    assert_eq!((found.pid, found.stopped, found.is_local), (child as u32, true, true));
    assert!(!found.program.is_empty());
}
