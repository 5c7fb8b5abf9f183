//! Shared helpers for tests of whole pools.
#![allow(dead_code, reason = "each test uses a part")]

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use terrace_medium::Shm;
use terrace_pool::{OpenError, Pool, PoolOptions, Problem};

pub(crate) const TINY: u64 = 64 << 10;

/// A pool of 64 KiB at `path`.
pub(crate) fn tiny(path: &Path) -> PoolOptions {
    PoolOptions::at(path).size(TINY)
}

/// The bytes of a closed pool of 64 KiB. Its roots `one` and `two` point to blocks that
/// [`is_intact`] checks.
pub(crate) fn closed_image() -> Vec<u8> {
    image(|pool| pool.close().unwrap())
}

/// As [`closed_image`], but left in use, with unreachable blocks.
pub(crate) fn left_image() -> Vec<u8> {
    image(|pool| {
        let guard = pool.pin();
        for bytes in [24, 24, 700, 5000] {
            guard.alloc(bytes).unwrap().persist().into_offset();
        }
        drop(guard);
        pool.abandon();
    })
}

/// Root names, and the sizes of their blocks in bytes.
pub(crate) const BLOCKS: [(&str, usize); 2] = [("one", 96), ("two", 9000)];

fn contents(name: &str, bytes: usize) -> Vec<u8> {
    name.bytes().cycle().take(bytes).collect()
}

fn image(leave: impl FnOnce(Pool<Shm>)) -> Vec<u8> {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("image.pool");
    let pool = tiny(&path).create::<Shm>().unwrap();
    let guard = pool.pin();
    for (name, bytes) in BLOCKS {
        let block = guard.alloc(bytes).unwrap();
        block.write(0, &contents(name, bytes));
        pool.set_root(name, "test", block.persist().into_offset()).unwrap();
    }
    drop(guard);
    leave(pool);
    std::fs::read(path).unwrap()
}

/// Whether the block of root `name` has its original content; `None` if the root is missing or
/// damaged.
pub(crate) fn is_intact(pool: &Pool<Shm>, name: &str) -> Option<bool> {
    let (_, bytes) = BLOCKS.into_iter().find(|(block, _)| *block == name)?;
    let offset = pool.root(name, "test").ok()??;
    Some(pool.pin().bytes(offset, bytes) == Some(&contents(name, bytes)[..]))
}

/// Collects, marking the blocks of the roots.
pub(crate) fn collect(pool: &Pool<Shm>) {
    let roots = BLOCKS.map(|(name, bytes)| (pool.root(name, "test"), bytes));
    pool.collect(&mut |marker| {
        for (root, bytes) in &roots {
            if let Ok(Some(offset)) = root {
                marker.mark(*offset, *bytes);
            }
        }
    });
}

/// A file in memory with these bytes.
pub(crate) fn file_of(bytes: &[u8]) -> File {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

pub(crate) fn open(file: &File) -> Result<Pool<Shm>, OpenError> {
    PoolOptions::in_file(file.try_clone().unwrap()).open::<Shm>()
}

#[track_caller]
pub(crate) fn problem<T>(outcome: Result<T, OpenError>) -> Problem {
    match outcome {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => {
            // The message is formatted without a panic and not empty.
            assert!(!error.to_string().is_empty());
            error.problem
        }
    }
}

/// Starts this test program again to run its ignored test `name`, with `argument` in TERRACE_TEST.
pub(crate) fn child(name: &str, argument: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .env("TERRACE_TEST", argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

/// Stops a child, and returns once it is stopped.
pub(crate) fn stop(process: &Child) {
    let pid = Pid::from_child(process);
    kill_process(pid, Signal::STOP).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
}

/// Waits until the child prints `word`.
pub(crate) fn expect(lines: &mut BufReader<ChildStdout>, word: &str) {
    let mut line = String::new();
    while lines.read_line(&mut line).unwrap() > 0 {
        if line.trim_end().ends_with(word) {
            return;
        }
        line.clear();
    }
    panic!("the child ended before it printed {word}");
}

/// Prints a word from a child.
pub(crate) fn say(word: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{word}").unwrap();
    out.flush().unwrap();
}

/// The child's argument.
pub(crate) fn argument() -> std::path::PathBuf {
    std::env::var_os("TERRACE_TEST").expect("run by another test").into()
}
