//! Prints how closely this machine simulates each profile of the slow medium: `cargo run --release
//! -p terrace-testkit --example calibrate`.

use std::io::Write;
use terrace_testkit::{Calibration, Profile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for profile in Profile::ALL {
        writeln!(std::io::stdout(), "{}", Calibration::measure(profile)?)?;
    }
    Ok(())
}
