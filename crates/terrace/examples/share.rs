//! Several processes on one store: this program starts itself four times, and all of them count in
//! the same key.
//!
//! `cargo run -p terrace --example share`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::process::Command;
use terrace::{ByteSize, Store};

const PROCESSES: i64 = 4;
const EACH: i64 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("terrace-share-{}.pool", std::process::id()));
    match std::env::args().nth(1) {
        Some(path) => count(&path),
        None => start(path.to_str().expect("a path in UTF-8")),
    }
}

fn open(path: &str) -> Result<Store, terrace::OpenError> {
    Store::options().path(path).size(ByteSize::mib(16)).shared(true).open_or_create()
}

/// Starts the other processes, waits for them, and prints the sum.
fn start(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let store = open(path)?;
    let program = std::env::current_exe()?;
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        children.push(Command::new(&program).arg(path).spawn()?);
    }
    for mut child in children {
        child.wait()?;
    }
    let counted = store.increment("count", 0)?;
    println!("{PROCESSES} processes counted to {counted}");
    assert_eq!(counted, PROCESSES * EACH);
    store.close()?;
    Ok(std::fs::remove_file(path)?)
}

fn count(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let store = open(path)?;
    for _ in 0..EACH {
        store.increment("count", 1)?;
    }
    Ok(())
}
