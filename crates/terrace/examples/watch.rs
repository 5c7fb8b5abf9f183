//! Waiting for keys: one thread waits for jobs that another thread writes.
//!
//! `cargo run -p terrace --example watch`

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "an example shows what it does")]

use std::time::Duration;
use terrace::Store;

const JOBS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::options().anonymous().create()?;
    let jobs = store.clone();
    let writer = std::thread::spawn(move || -> Result<(), terrace::WriteError> {
        for job in 0..JOBS {
            jobs.put(format!("job:{job}"), "run")?;
        }
        Ok(())
    });

    // Create the watch before the first read, so that no change is missed.
    let mut watch = store.watch("job:")?;
    let mut done = 0;
    while done < JOBS {
        let waiting: Vec<Vec<u8>> = store.keys_with_prefix("job:").collect::<Result<_, _>>()?;
        for key in &waiting {
            println!("did {}", key.escape_ascii());
            store.remove(key)?;
            done += 1;
        }
        if waiting.is_empty() {
            watch.wait(Duration::from_secs(1));
        }
    }
    writer.join().expect("the writer does not panic")?;
    Ok(())
}
