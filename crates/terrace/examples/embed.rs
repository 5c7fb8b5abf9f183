//! A store embedded in a program: run it twice, and it remembers.
//!
//! `cargo run -p terrace --example embed`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;
use terrace::{ByteSize, Store};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or("/dev/shm/terrace-embed.pool".into());
    let store = Store::options().path(&path).size(ByteSize::mib(16)).open_or_create()?;

    let runs = store.increment("runs", 1)?;
    store.put("greeting", format!("hello for the {runs}. time"))?;
    store.put_expiring("session", "gone in a minute", Duration::from_secs(60))?;

    for entry in &store {
        let (key, value) = entry?;
        println!("{}: {}", key.escape_ascii(), value.escape_ascii());
    }
    println!("kept in {path}");
    store.close()?;
    Ok(())
}
