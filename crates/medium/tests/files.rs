//! Tests: files on the operating system's file system, and on one that transfers little at a time.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use terrace_medium::files::{
    DIRECT_BLOCK, Files, Purpose, Replace, Ring, StoredFile, SystemFile, SystemFiles, Unpublished,
    directory_of,
};

/// A file that transfers two bytes at a time, and is interrupted before each transfer but the
/// first.
struct Choppy {
    bytes: Mutex<Vec<u8>>,
    calls: Mutex<u32>,
    /// Its answer at byte 6.
    end: fn() -> io::Result<usize>,
}

impl Choppy {
    fn new(bytes: &[u8], end: fn() -> io::Result<usize>) -> Self {
        Self { bytes: Mutex::new(bytes.to_vec()), calls: Mutex::default(), end }
    }

    fn transfer(&self, at: u64, wanted: usize) -> io::Result<usize> {
        let mut calls = self.calls.lock().unwrap();
        *calls += 1;
        match at {
            _ if calls.is_multiple_of(2) => Err(ErrorKind::Interrupted.into()),
            6 => (self.end)(),
            _ => Ok(wanted.min(2)),
        }
    }
}

impl StoredFile for Choppy {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let count = self.transfer(at, buffer.len())?;
        buffer[..count].copy_from_slice(&self.bytes.lock().unwrap()[at as usize..][..count]);
        Ok(count)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let count = self.transfer(at, bytes.len())?;
        self.bytes.lock().unwrap()[at as usize..][..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }
    fn set_length(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn allocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn partial_transfers_complete_or_fail() {
    let file = Choppy::new(b"........", || Ok(0));
    file.write_all_at(b"abcde", 1).unwrap();
    let mut read = [0; 5];
    file.read_exact_at(&mut read, 1).unwrap();
    assert_eq!((&read, &file.bytes.lock().unwrap()[..]), (b"abcde", &b".abcde.."[..]));
    file.write_all_at(b"", 6).unwrap();
    file.read_exact_at(&mut [], 6).unwrap();
    assert_eq!(file.write_all_at(b"abcd", 4).unwrap_err().kind(), ErrorKind::WriteZero);
    assert_eq!(file.read_exact_at(&mut [0; 4], 4).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    let full = Choppy::new(b"........", || Err(ErrorKind::StorageFull.into()));
    assert_eq!(full.write_all_at(b"abcd", 4).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(full.read_exact_at(&mut [0; 4], 4).unwrap_err().kind(), ErrorKind::StorageFull);
    assert!(file.as_system().is_none());
}

fn kind<T>(done: io::Result<T>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind())
}

#[test]
fn system_files_never_replace_unless_asked() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let files = SystemFiles;
    let file = files.create(&path("one")).unwrap();
    assert_eq!(file.as_system().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(kind(files.create(&path("one"))), Some(ErrorKind::AlreadyExists));
    file.write_all_at(b"one", 0).unwrap();
    file.sync().unwrap();
    file.sync_data().unwrap();
    file.forget();
    assert_eq!((file.length().unwrap(), file.as_system().is_some()), (3, true));
    file.set_length(2).unwrap();
    let mut text = String::new();
    let (mut stream, length) = files.stream(&path("one")).unwrap();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), length), ("on", Some(2)));
    assert_eq!(kind(files.stream(directory.path())), Some(ErrorKind::IsADirectory));
    assert_eq!(files.stream(Path::new("/dev/null")).unwrap().1, None);

    let read = files.open(&path("one"), Purpose::Read).unwrap();
    assert!(read.write_at(b"x", 0).is_err());
    files.open(&path("one"), Purpose::Write).unwrap().write_at(b"x", 0).unwrap();
    read.read_exact_at(&mut [0; 2], 0).unwrap();
    assert_eq!(kind(read.read_exact_at(&mut [0; 3], 0)), Some(ErrorKind::UnexpectedEof));

    files.create(&path("two")).unwrap();
    assert_eq!(kind(files.rename(&path("one"), &path("two"), Replace::No)), Some(ErrorKind::AlreadyExists));
    files.rename(&path("one"), &path("two"), Replace::Yes).unwrap();
    files.rename(&path("two"), &path("three"), Replace::No).unwrap();
    assert_eq!(files.list(directory.path()).unwrap(), ["three"]);
    files.remove(&path("three")).unwrap();
    assert_eq!(kind(files.remove(&path("three"))), Some(ErrorKind::NotFound));
    files.sync_directory(directory.path()).unwrap();
    // A device answers as a file system does that cannot sync directories.
    files.sync_directory(Path::new("/dev/null")).unwrap();
    assert_eq!(
        kind(files.open(Path::new("/dev/null"), Purpose::Write).unwrap().sync()),
        Some(ErrorKind::InvalidInput)
    );
    assert_eq!(kind(files.sync_directory(&path("nowhere"))), Some(ErrorKind::NotFound));
}

#[test]
fn is_taken_finds_every_kind_of_entry() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    assert!(!SystemFiles.is_taken(&path("one")).unwrap());
    SystemFiles.create(&path("one")).unwrap();
    std::os::unix::fs::symlink(path("nowhere"), path("link")).unwrap();
    assert!(SystemFiles.is_taken(&path("one")).unwrap() && SystemFiles.is_taken(&path("link")).unwrap());
    assert!(!SystemFiles.is_taken(&path("one").join("below")).unwrap());
    assert!(SystemFiles.is_taken(&path(&"x".repeat(300))).is_err());
}

#[test]
fn allocate_provides_storage() {
    let file = SystemFile::from(tempfile::tempfile_in("/dev/shm").unwrap());
    file.allocate(1 << 20).unwrap();
    assert!(file.as_system().unwrap().metadata().unwrap().blocks() * 512 >= 1 << 20);
    assert_eq!(kind(file.allocate(1 << 60)), Some(ErrorKind::StorageFull));
    let read = SystemFiles.open(Path::new("/proc/self/exe"), Purpose::Read).unwrap();
    assert!(kind(read.allocate(1 << 20)).is_some_and(|kind| kind != ErrorKind::StorageFull));
}

#[test]
fn unnamed_file_gets_a_name_or_vanishes() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("named");
    let file = SystemFiles.create_unnamed(directory.path()).unwrap().expect("tmpfs has such files");
    file.write_all_at(b"whole", 0).unwrap();
    assert_eq!(file.as_system().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(SystemFiles.list(directory.path()).unwrap().len(), 0);
    SystemFiles.name(&*file, &path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    assert_eq!(kind(SystemFiles.name(&*file, &path)), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(SystemFiles.create_unnamed(&path.join("below"))), Some(ErrorKind::NotADirectory));
}

#[test]
fn unpublished_file_appears_whole_or_not_at_all() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("new");
    let names = || SystemFiles.list(directory.path()).unwrap();
    let make: [fn(&Path) -> Unpublished<'static>; 2] = [
        |path| Unpublished::new(&SystemFiles, path, 1).unwrap(),
        |path| Unpublished::named(&SystemFiles, path, 2).unwrap(),
    ];
    for (nth, make) in make.into_iter().enumerate() {
        let file = make(&path);
        assert_eq!(names().len(), nth, "only one that needs a name until then has one");
        assert!(names().iter().all(|name| *name == ".new.0000000000000002.new"));
        drop(file);
        assert_eq!(names().len(), 0);
        let file = make(&path);
        let mut appending = file.appender();
        [&b"one "[..], b"two"].iter().for_each(|part| appending.write_all(part).unwrap());
        appending.flush().unwrap();
        assert_eq!(file.file().length().unwrap(), 7);
        file.publish().unwrap();
        assert_eq!((names().len(), std::fs::read(&path).unwrap()), (1, b"one two".to_vec()));
        assert_eq!(kind(Unpublished::new(&SystemFiles, &path, 3)), Some(ErrorKind::AlreadyExists));
        // Another process creates the file first.
        std::fs::remove_file(&path).unwrap();
        let late = make(&path);
        std::fs::write(&path, b"another's").unwrap();
        assert_eq!(kind(late.publish()), Some(ErrorKind::AlreadyExists));
        assert_eq!((names().len(), std::fs::read(&path).unwrap()), (1, b"another's".to_vec()));
        std::fs::remove_file(&path).unwrap();
    }
    assert_eq!(kind(Unpublished::named(&SystemFiles, Path::new("/"), 4)), Some(ErrorKind::IsADirectory));
}

#[test]
fn directory_of_a_bare_name_is_the_current_one() {
    assert_eq!(directory_of(Path::new("name")), Path::new("."));
    assert_eq!(directory_of(Path::new("some/name")), Path::new("some"));
    assert_eq!(directory_of(Path::new("/")), Path::new("."));
}

#[test]
fn directories_are_private_and_removed_when_empty() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let files = SystemFiles;
    files.create_directory(&path("one")).unwrap();
    assert_eq!(path("one").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(kind(files.create_directory(&path("one"))), Some(ErrorKind::AlreadyExists));
    files.create(&path("one/file")).unwrap();
    assert_eq!(kind(files.create_directory(&path("one/file"))), Some(ErrorKind::AlreadyExists));
    assert!(files.is_directory(&path("one")).unwrap());
    for other in ["nothing", "one/file", "one/file/below"] {
        assert!(!files.is_directory(&path(other)).unwrap(), "{other}");
    }
    assert!(files.is_directory(&path(&"x".repeat(300))).is_err());
    assert_eq!(kind(files.remove_directory(&path("one"))), Some(ErrorKind::DirectoryNotEmpty));
    assert_eq!(kind(files.remove_directory(&path("one/file"))), Some(ErrorKind::NotADirectory));
    assert!(files.remove(&path("one")).is_err());
    files.rename(&path("one"), &path("two"), Replace::No).unwrap();
    files.remove(&path("two/file")).unwrap();
    files.remove_directory(&path("two")).unwrap();
    assert_eq!(kind(files.remove_directory(&path("two"))), Some(ErrorKind::NotFound));
}

#[test]
fn links_share_bytes_until_the_last_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (files, [one, two]) = (SystemFiles, ["one", "two"].map(path));
    let file = files.create(&one).unwrap();
    files.link(&one, &two).unwrap();
    assert_eq!(kind(files.link(&one, &two)), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(files.link(&path("nothing"), &path("three"))), Some(ErrorKind::NotFound));
    file.write_all_at(b"bytes", 0).unwrap();
    files.rename(&one, &two, Replace::Yes).unwrap();
    assert_eq!(files.list(directory.path()).unwrap().len(), 2, "names of one file are not renamed");
    files.remove(&one).unwrap();
    assert_eq!(std::fs::read(&two).unwrap(), b"bytes");
}

#[test]
fn lock_is_free_though_a_child_has_its_handle() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    std::fs::write(&path, "").unwrap();
    let held = SystemFiles.lock(&path).unwrap().unwrap();
    // SAFETY: the child only waits, until it is killed or its parent ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: these calls are allowed after a fork.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::pause();
            libc::_exit(0);
        }
    }
    drop(held);
    let again = SystemFiles.lock(&path);
    // SAFETY: the child has not been waited for, so the number is its own.
    unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, std::ptr::null_mut(), 0)) };
    assert!(again.unwrap().is_some());
}

#[test]
fn lock_survives_a_drop_by_a_child() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    std::fs::write(&path, "").unwrap();
    let held = SystemFiles.lock(&path).unwrap().unwrap();
    // SAFETY: the child drops its copy of the lock, which closes a handle, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(held);
        // SAFETY: this call is allowed after a fork.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: waits for the child forked above.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert!(SystemFiles.lock(&path).unwrap().is_none());
    drop(held);
}

#[test]
fn lock_excludes_others_until_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    assert_eq!(kind(SystemFiles.lock(&path)), Some(ErrorKind::NotFound));
    let file = SystemFiles.create(&path).unwrap();
    let held = SystemFiles.lock(&path).unwrap().expect("nothing else has it");
    assert!(SystemFiles.lock(&path).unwrap().is_none());
    // Another process; its program need not be installed.
    if let Ok(status) = std::process::Command::new("flock").arg("-n").arg(&path).arg("true").status() {
        assert!(!status.success());
    }
    file.write_all_at(b"x", 0).unwrap();
    drop(held);
    assert!(SystemFiles.lock(&path).unwrap().is_some());
}

#[test]
fn free_bytes_are_those_of_the_file_system() {
    let free = SystemFiles.free_bytes(Path::new("/dev/shm")).unwrap();
    let system = rustix::fs::statvfs("/dev/shm").unwrap();
    assert!(free > 0 && free <= system.f_blocks * system.f_frsize, "{free}");
    assert_eq!(kind(SystemFiles.free_bytes(Path::new("/dev/nowhere"))), Some(ErrorKind::NotFound));
}

/// Whether reads of a file go past the page cache.
fn is_direct(file: &dyn StoredFile) -> bool {
    rustix::fs::fcntl_getfl(file.as_system().unwrap()).unwrap().contains(rustix::fs::OFlags::DIRECT)
}

/// On a disk, and on tmpfs, which refuses direct reads on some kernels.
#[test]
fn direct_reads_give_the_same_bytes_as_plain_ones() {
    for directory in [
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
        tempfile::tempdir_in("/dev/shm").unwrap(),
    ] {
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..3 * DIRECT_BLOCK as u32 + 100).map(|n| (n ^ n >> 8) as u8).collect();
        let written = SystemFiles.create(&path).unwrap();
        written.write_all_at(&bytes, 0).unwrap();
        let direct = SystemFiles.open(&path, Purpose::ReadDirect).unwrap();
        let points = [0, 1, 511, 512, 4095, 4096, 4097, 8192, 12288, 12300, 12387, 12388, 12389, 20000];
        let mut memory = vec![0; 40000];
        let aligned = memory.as_ptr().align_offset(DIRECT_BLOCK);
        for (at, length, shift) in points
            .iter()
            .flat_map(|&at| points.iter().flat_map(move |&length| [(at, length, 0), (at, length, 1)]))
        {
            let buffer = &mut memory[aligned + shift..][..length];
            let there = bytes.get(at..).unwrap_or_default();
            let read = direct.read_at(buffer, at as u64).unwrap();
            assert_eq!(&buffer[..read], &there[..length.min(there.len())], "{length} bytes from {at} on");
        }
        written.write_all_at(b"later", 5000).unwrap();
        let (mut one, mut two) = ([0; 5], [0; 9000]);
        direct.read_many(&mut [(5000, &mut one), (10, &mut two)]).unwrap();
        assert_eq!((&one, &two[4990..4995]), (b"later", &b"later"[..]));
        let past = kind(direct.read_many(&mut [(12385, &mut one)]));
        assert_eq!(past, Some(ErrorKind::UnexpectedEof));
        assert!(direct.write_at(b"x", 0).is_err());
    }
    let nowhere = SystemFiles.open(Path::new("/dev/shm/nowhere"), Purpose::ReadDirect);
    assert_eq!(kind(nowhere), Some(ErrorKind::NotFound));
}

#[test]
fn refused_direct_reads_become_plain_ones() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    SystemFiles.create(&path).unwrap().write_all_at(&[7; 5000], 0).unwrap();
    let file = SystemFiles.open(&path, Purpose::ReadDirect).unwrap();
    let possible = std::fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(&path).is_ok();
    assert_eq!(is_direct(&*file), possible);
    let mut read = [0; 5000];
    file.read_exact_at(&mut read, 0).unwrap();
    // The kernel's answer to this offset is its answer to a direct read that it refuses.
    assert_eq!(kind(file.read_at(&mut read, 1 << 63)), Some(ErrorKind::InvalidInput));
    assert!(!is_direct(&*file));
    read = [0; 5000];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, [7; 5000]);
}

#[test]
fn long_direct_reads_are_completed() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n / 4096) as u8).collect();
    SystemFiles.create(&path).unwrap().write_all_at(&bytes, 0).unwrap();
    let mut read = vec![0; bytes.len() - 3];
    SystemFiles.open(&path, Purpose::ReadDirect).unwrap().read_exact_at(&mut read, 3).unwrap();
    assert!(read == bytes[3..]);
}

#[test]
fn small_writes_reach_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = SystemFiles.create(&path).unwrap();
    file.allocate(100_000).unwrap();
    file.expect_small_writes(100_000);
    // Small and long ones, at the border of the pages, across the end of what is mapped, behind it.
    let mut expected = vec![0; 120_000];
    let writes = [(0, 10), (4090, 12), (4096, 4096), (5000, 9000), (99_990, 10), (99_995, 10), (110_000, 9)];
    for (nth, (at, len)) in writes.into_iter().enumerate() {
        let bytes = vec![nth as u8 + 1; len];
        file.write_all_at(&bytes, at as u64).unwrap();
        expected[at..at + len].copy_from_slice(&bytes);
    }
    file.sync_data().unwrap();
    expected.truncate(110_009);
    assert_eq!(std::fs::read(&path).unwrap(), expected);
    // Behind a cut, writes make the file longer again.
    file.set_length(5).unwrap();
    file.write_all_at(b"behind", 8000).unwrap();
    assert_eq!(std::fs::read(&path).unwrap().len(), 8006);
    file.write_all_at(&[9], 4).unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[..6], [1, 1, 1, 1, 9, 0]);
}

/// A write behind the end would make the file longer again, and hide that it was cut.
#[test]
fn write_to_a_file_that_was_cut_by_others_fails() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("file");
    let file = SystemFiles.create(&path).unwrap();
    file.allocate(1 << 20).unwrap();
    file.expect_small_writes(1 << 20);
    file.write_all_at(&[1; 50_000], 0).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(1000).unwrap();
    let error = file.write_all_at(&[2; 50_000], 50_000).unwrap_err().to_string();
    assert!(error.contains("was cut short to 1000 bytes"), "{error}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1000);
    // Its own cut is no such.
    file.set_length(5).unwrap();
    file.write_all_at(&[3; 50_000], 0).unwrap();
}

/// A file of so many blocks, each filled with its number.
fn numbered_blocks(directory: &Path, blocks: usize) -> Arc<dyn StoredFile> {
    let path = directory.join("blocks");
    let file = SystemFiles.create(&path).unwrap();
    for nth in 0..blocks {
        file.write_all_at(&[nth as u8; DIRECT_BLOCK], (nth * DIRECT_BLOCK) as u64).unwrap();
    }
    file.sync().unwrap();
    SystemFiles.open(&path, Purpose::ReadDirect).unwrap().into()
}

fn ring(most: u32) -> Option<Ring> {
    let ring = Ring::new(most);
    let is_forbidden = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS));
    assert!(ring.as_ref().err().is_none_or(is_forbidden), "the system has no io_uring, and says why");
    ring.ok()
}

#[test]
fn ring_makes_more_reads_than_go_on_at_once() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = numbered_blocks(directory.path(), 200);
    let Some(mut ring) = ring(8) else { return };
    let mut left: Vec<usize> = (0..200).collect();
    for &nth in &left {
        ring.read(nth as u64, Arc::clone(&file), (nth * DIRECT_BLOCK) as u64, DIRECT_BLOCK);
    }
    assert_eq!(ring.len(), 200);
    while !left.is_empty() {
        ring.wait().unwrap();
        while let Some(done) = ring.take() {
            let nth = left.iter().position(|&nth| nth as u64 == done.token).expect("each read once");
            assert_eq!(*done.bytes.unwrap(), [left.remove(nth) as u8; DIRECT_BLOCK]);
        }
    }
    assert!(ring.is_empty() && ring.take().is_none());
}

#[test]
fn ring_reports_reads_behind_the_end() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = numbered_blocks(directory.path(), 3);
    let Some(mut ring) = ring(8) else { return };
    ring.read(1, Arc::clone(&file), 2 * DIRECT_BLOCK as u64, 2 * DIRECT_BLOCK);
    ring.wait().unwrap();
    let error = ring.take().expect("a read that has ended").bytes.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn ring_reads_files_that_are_not_the_systems() {
    let Some(mut ring) = ring(8) else { return };
    ring.read(7, Arc::new(Choppy::new(b"abcdef", || Ok(0))), 1, 4);
    ring.submit().unwrap();
    let done = ring.take().expect("a read that has ended");
    assert_eq!((done.token, &*done.bytes.unwrap()), (7, &b"bcde"[..]));
}

#[test]
fn ring_that_is_dropped_waits_for_its_reads() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = numbered_blocks(directory.path(), 64);
    for _ in 0..50 {
        let Some(mut ring) = ring(64) else { return };
        (0..64).for_each(|nth| ring.read(nth, Arc::clone(&file), nth * DIRECT_BLOCK as u64, DIRECT_BLOCK));
        ring.submit().unwrap();
        drop(ring);
        // Nothing writes to memory that others have now.
        let memory = vec![vec![0xAA_u8; 2 * DIRECT_BLOCK]; 64];
        assert!(memory.iter().flatten().all(|byte| *byte == 0xAA));
    }
    assert_eq!(Arc::strong_count(&file), 1);
}
