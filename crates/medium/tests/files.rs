//! Tests: files on the operating system's file system, and on one that transfers little at a time.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Mutex;
use terrace_medium::files::{Files, Purpose, Replace, StoredFile, SystemFiles, Unpublished, directory_of};

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
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(kind(files.create(&path("one"))), Some(ErrorKind::AlreadyExists));
    file.write_all_at(b"one", 0).unwrap();
    file.sync().unwrap();
    assert_eq!((file.length().unwrap(), file.as_system().is_some()), (3, true));
    file.set_length(2).unwrap();
    let mut text = String::new();
    let (mut stream, length) = files.stream(&path("one")).unwrap();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), length), ("on", Some(2)));
    assert_eq!(kind(files.stream(directory.path())), Some(ErrorKind::IsADirectory));
    assert_eq!(files.stream(Path::new("/dev/null")).unwrap().1, None);

    let read = files.open(&path("one"), Purpose::Read).unwrap();
    assert!(StoredFile::write_at(&read, b"x", 0).is_err());
    StoredFile::write_at(&files.open(&path("one"), Purpose::Write).unwrap(), b"x", 0).unwrap();
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
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    StoredFile::allocate(&file, 1 << 20).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 >= 1 << 20);
    assert_eq!(kind(StoredFile::allocate(&file, 1 << 60)), Some(ErrorKind::StorageFull));
    let read = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(kind(StoredFile::allocate(&read, 1 << 20)).is_some_and(|kind| kind != ErrorKind::StorageFull));
}

#[test]
fn unnamed_file_gets_a_name_or_vanishes() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("named");
    let file = SystemFiles.create_unnamed(directory.path()).unwrap().expect("tmpfs has such files");
    file.write_all_at(b"whole", 0).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(SystemFiles.list(directory.path()).unwrap().len(), 0);
    SystemFiles.name(&file, &path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    assert_eq!(kind(SystemFiles.name(&file, &path)), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(SystemFiles.create_unnamed(&path.join("below"))), Some(ErrorKind::NotADirectory));
}

#[test]
fn unpublished_file_appears_whole_or_not_at_all() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("new");
    let names = || SystemFiles.list(directory.path()).unwrap();
    let make: [fn(&Path) -> Unpublished<SystemFiles>; 2] = [
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
