//! The suite for file systems.

use std::io::{self, ErrorKind, Read};
use std::path::Path;
use terrace_medium::files::{Files, Purpose, Replace, Unpublished};
use terrace_testkit::crash::RandomSource;

/// The suite that every file system passes. `directory` returns an empty directory each time.
/// Panics on the first failure.
pub fn files(files: &dyn Files, mut directory: impl FnMut() -> std::path::PathBuf) {
    names_are_given_once(files, &directory());
    renames_replace_only_on_request(files, &directory());
    directories_hold_names(files, &directory());
    directories_move_as_a_whole(files, &directory());
    links_are_names_of_one_file(files, &directory());
    removed_file_lasts_until_it_is_closed(files, &directory());
    handles_do_what_they_are_for(files, &directory());
    gaps_and_new_lengths_are_zeros(files, &directory());
    published_file_appears(files, &directory());
    lock_excludes_others(files, &directory());
    for seed in 0..8 {
        bytes_match_a_vector(files, &directory(), seed);
        names_match_a_map(files, &directory(), seed);
    }
}

fn kind<T>(done: io::Result<T>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind())
}

fn put(files: &dyn Files, path: &Path, bytes: &[u8]) {
    files.create(path).unwrap().write_all_at(bytes, 0).unwrap();
}

fn content(files: &dyn Files, path: &Path) -> Vec<u8> {
    let (mut stream, length) = files.stream(path).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(length, Some(bytes.len() as u64));
    bytes
}

fn names(files: &dyn Files, directory: &Path) -> Vec<String> {
    let names = files.list(directory).unwrap().into_iter();
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

fn names_are_given_once(files: &dyn Files, d: &Path) {
    let (a, none) = (d.join("a"), d.join("none"));
    assert!(!files.is_taken(&a).unwrap());
    put(files, &a, b"bytes");
    assert!(files.is_taken(&a).unwrap() && !files.is_directory(&a).unwrap());
    assert_eq!(kind(files.create(&a)), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(files.create(&none.join("x"))), Some(ErrorKind::NotFound));
    for purpose in [Purpose::Read, Purpose::ReadDirect, Purpose::Write] {
        assert_eq!(kind(files.open(&none, purpose)), Some(ErrorKind::NotFound));
    }
    assert_eq!(kind(files.remove(&none)), Some(ErrorKind::NotFound));
    assert_eq!(kind(files.stream(&none)), Some(ErrorKind::NotFound));
    files.remove(&a).unwrap();
    assert!(!files.is_taken(&a).unwrap());
    put(files, &a, b"");
    assert_eq!(content(files, &a), b"", "a name that comes back has a new file");
    files.sync_directory(d).unwrap();
}

fn renames_replace_only_on_request(files: &dyn Files, d: &Path) {
    let (a, b) = (d.join("a"), d.join("b"));
    put(files, &a, b"a");
    put(files, &b, b"b");
    assert_eq!(kind(files.rename(&a, &b, Replace::No)), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(files.rename(&d.join("c"), &b, Replace::Yes)), Some(ErrorKind::NotFound));
    assert_eq!((content(files, &a), content(files, &b)), (b"a".to_vec(), b"b".to_vec()));
    files.rename(&a, &b, Replace::Yes).unwrap();
    assert_eq!((names(files, d), content(files, &b)), (vec!["b".into()], b"a".to_vec()));
    files.rename(&b, &a, Replace::No).unwrap();
    assert_eq!((names(files, d), content(files, &a)), (vec!["a".into()], b"a".to_vec()));
}

fn directories_hold_names(files: &dyn Files, d: &Path) {
    let (one, two) = (d.join("one"), d.join("two"));
    files.create_directory(&one).unwrap();
    files.create_directory(&two).unwrap();
    assert_eq!(kind(files.create_directory(&one)), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(files.create_directory(&d.join("none/one"))), Some(ErrorKind::NotFound));
    assert!(files.is_directory(&one).unwrap() && !files.is_directory(&d.join("none")).unwrap());
    let file = one.join("file");
    put(files, &file, b"bytes");
    assert_eq!(kind(files.create(&file.join("x"))), Some(ErrorKind::NotADirectory));
    assert!(!files.is_directory(&file).unwrap() && !files.is_taken(&file.join("x")).unwrap());
    assert_eq!(kind(files.open(&one, Purpose::Write)), Some(ErrorKind::IsADirectory));
    assert_eq!(kind(files.stream(&one)), Some(ErrorKind::IsADirectory));
    assert!(files.remove(&one).is_err());
    assert_eq!(kind(files.remove_directory(&one)), Some(ErrorKind::DirectoryNotEmpty));
    assert_eq!(kind(files.remove_directory(&file)), Some(ErrorKind::NotADirectory));
    assert_eq!(kind(files.list(&d.join("none"))), Some(ErrorKind::NotFound));
    assert_eq!((names(files, &one), names(files, &two)), (vec!["file".into()], vec![]));
    files.remove(&file).unwrap();
    files.remove_directory(&one).unwrap();
    assert_eq!(names(files, d), ["two"]);
    assert!(files.free_bytes(d).unwrap() > 0);
}

fn directories_move_as_a_whole(files: &dyn Files, d: &Path) {
    let (one, two, file) = (d.join("one"), d.join("two"), d.join("file"));
    files.create_directory(&one).unwrap();
    put(files, &one.join("in"), b"bytes");
    put(files, &file, b"");
    files.create_directory(&two).unwrap();
    let onto = |from: &Path, to: &Path| kind(files.rename(from, to, Replace::Yes));
    assert_eq!(onto(&two, &one), Some(ErrorKind::DirectoryNotEmpty));
    assert_eq!(onto(&file, &two), Some(ErrorKind::IsADirectory));
    assert_eq!(onto(&two, &file), Some(ErrorKind::NotADirectory));
    assert_eq!(onto(&one, &one.join("below")), Some(ErrorKind::InvalidInput));
    assert_eq!(onto(&one, &two), None);
    assert_eq!((names(files, d), names(files, &two)), (vec!["file".into(), "two".into()], vec!["in".into()]));
    assert_eq!(content(files, &two.join("in")), b"bytes");
}

fn links_are_names_of_one_file(files: &dyn Files, d: &Path) {
    let (a, b) = (d.join("a"), d.join("b"));
    put(files, &a, b"one");
    files.link(&a, &b).unwrap();
    assert_eq!(kind(files.link(&a, &b)), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(files.link(&d.join("none"), &d.join("c"))), Some(ErrorKind::NotFound));
    files.open(&a, Purpose::Write).unwrap().write_all_at(b"two", 0).unwrap();
    files.rename(&a, &b, Replace::Yes).unwrap();
    assert_eq!(names(files, d), ["a", "b"], "names of one file are not renamed");
    files.remove(&a).unwrap();
    assert_eq!((names(files, d), content(files, &b)), (vec!["b".into()], b"two".to_vec()));
}

fn removed_file_lasts_until_it_is_closed(files: &dyn Files, d: &Path) {
    let (a, b) = (d.join("a"), d.join("b"));
    put(files, &a, &[7; 10_000]);
    let file = files.open(&a, Purpose::ReadDirect).unwrap();
    files.remove(&a).unwrap();
    put(files, &b, &[8; 10_000]);
    let mut bytes = [0; 5000];
    file.read_exact_at(&mut bytes, 5000).unwrap();
    assert_eq!((bytes, file.length().unwrap()), ([7; 5000], 10_000));
    let other = files.open(&b, Purpose::Write).unwrap();
    put(files, &a, b"new");
    files.rename(&a, &b, Replace::Yes).unwrap();
    other.write_all_at(b"nobody sees this", 0).unwrap();
    assert_eq!(content(files, &b), b"new");
}

fn handles_do_what_they_are_for(files: &dyn Files, d: &Path) {
    let a = d.join("a");
    put(files, &a, b"bytes");
    for purpose in [Purpose::Read, Purpose::ReadDirect] {
        let file = files.open(&a, purpose).unwrap();
        assert!(file.write_at(b"x", 0).is_err() && file.set_length(1).is_err());
    }
    let file = files.open(&a, Purpose::Write).unwrap();
    let mut buffer = [0; 9];
    assert_eq!((file.read_at(&mut buffer, 1).unwrap(), &buffer[..4]), (4, &b"ytes"[..]));
    assert_eq!((file.read_at(&mut buffer, 5).unwrap(), file.read_at(&mut buffer, 99).unwrap()), (0, 0));
    assert_eq!(kind(file.read_exact_at(&mut buffer, 0)), Some(ErrorKind::UnexpectedEof));
    file.sync_data().and_then(|()| file.sync()).unwrap();
    let (mut one, mut other) = ([0; 2], [0; 3]);
    file.read_many(&mut [(3, &mut one), (0, &mut other)]).unwrap();
    assert_eq!((&one, &other), (b"es", b"byt"));
}

fn gaps_and_new_lengths_are_zeros(files: &dyn Files, d: &Path) {
    let file = files.create(&d.join("a")).unwrap();
    let all = || {
        let mut bytes = vec![1; file.length().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    file.write_all_at(&[9; 3000], 0).unwrap();
    file.set_length(7).unwrap();
    file.write_all_at(b"end", 5001).unwrap();
    assert_eq!(all(), [&[9; 7][..], &[0; 4994], b"end"].concat());
    file.set_length(3).unwrap();
    file.set_length(70_000).unwrap();
    assert_eq!(all(), [&[9; 3][..], &[0; 69_997]].concat());
    file.allocate(70_100).unwrap();
    file.allocate(10).unwrap();
    assert_eq!((file.length().unwrap(), all()[69_990..].to_vec()), (70_100, vec![0; 110]));
    file.set_length(0).unwrap();
    assert_eq!(all(), []);
}

fn published_file_appears(files: &dyn Files, d: &Path) {
    let path = d.join("a");
    let file = Unpublished::new(files, &path, 7).unwrap();
    file.file().write_all_at(b"bytes", 0).unwrap();
    assert!(!files.is_taken(&path).unwrap());
    file.publish().unwrap();
    assert_eq!((names(files, d), content(files, &path)), (vec!["a".into()], b"bytes".to_vec()));
    drop(Unpublished::named(files, &d.join("b"), 8).unwrap());
    assert_eq!(names(files, d), ["a"]);
}

fn lock_excludes_others(files: &dyn Files, d: &Path) {
    let (a, b) = (d.join("a"), d.join("b"));
    put(files, &a, b"");
    put(files, &b, b"");
    let lock = files.lock(&a).unwrap().expect("a free lock");
    assert!(files.lock(&a).unwrap().is_none() && files.lock(&b).unwrap().is_some());
    files.open(&a, Purpose::Write).unwrap().write_all_at(b"pid", 0).unwrap();
    drop(lock);
    assert!(files.lock(&a).unwrap().is_some());
    assert_eq!(kind(files.lock(&d.join("none"))), Some(ErrorKind::NotFound));
}

/// Writes and lengths of any size, beside a vector.
fn bytes_match_a_vector(files: &dyn Files, d: &Path, seed: u64) {
    let (path, mut dice, mut model) = (d.join("a"), RandomSource::new(seed), Vec::<u8>::new());
    let mut file = files.create(&path).unwrap();
    for turn in 0..60u64 {
        let most = if dice.roll(10) == 0 { 300_000 } else { 5000 };
        let at = dice.roll(model.len() as u64 + 200) as usize;
        match dice.roll(10) {
            0 => {
                let length = if dice.roll(2) == 0 { dice.roll(most) as usize } else { at };
                model.resize(length, 0);
                file.set_length(length as u64).unwrap();
            }
            1 => file.sync().unwrap(),
            2 => file = files.open(&path, Purpose::Write).unwrap(),
            _ => {
                let bytes: Vec<u8> = (0..dice.roll(most)).map(|nth| (nth * 31 + turn) as u8).collect();
                file.write_all_at(&bytes, at as u64).unwrap();
                if !bytes.is_empty() {
                    model.resize(model.len().max(at + bytes.len()), 0);
                    model[at..at + bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
        assert_eq!(file.length().unwrap(), model.len() as u64, "seed {seed}, turn {turn}");
        let from = dice.roll(model.len() as u64 + 1) as usize;
        let mut bytes = vec![0; (model.len() - from).min(9000)];
        file.read_exact_at(&mut bytes, from as u64).unwrap();
        assert!(bytes == model[from..from + bytes.len()], "seed {seed}, turn {turn}");
    }
    assert!(content(files, &path) == model, "seed {seed}");
}

/// Names that come, move and go, beside a map.
fn names_match_a_map(files: &dyn Files, d: &Path, seed: u64) {
    let (mut dice, mut model) = (RandomSource::new(seed), std::collections::BTreeMap::new());
    for turn in 0..300u64 {
        let [name, other] =
            [dice.roll(40), dice.roll(40)].map(|n| format!("{n:0width$}", width = n as usize));
        let (path, to) = (d.join(&name), d.join(&other));
        match dice.roll(5) {
            0 if model.contains_key(&name) => {
                files.remove(&path).unwrap();
                model.remove(&name);
            }
            1 if name != other && model.contains_key(&name) => {
                files.rename(&path, &to, Replace::Yes).unwrap();
                let moved = model.remove(&name).expect("it is there");
                model.insert(other, moved);
            }
            2 if model.contains_key(&name) && !model.contains_key(&other) => {
                files.rename(&path, &to, Replace::No).unwrap();
                let moved = model.remove(&name).expect("it is there");
                model.insert(other, moved);
            }
            _ if !name.is_empty() && !model.contains_key(&name) => {
                put(files, &path, &turn.to_le_bytes());
                model.insert(name, turn);
            }
            _ => {}
        }
    }
    assert_eq!(names(files, d), model.keys().cloned().collect::<Vec<_>>(), "seed {seed}");
    for (name, turn) in model {
        assert_eq!(content(files, &d.join(name)), turn.to_le_bytes(), "seed {seed}");
    }
}
