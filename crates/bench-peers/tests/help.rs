//! The program of `cargo peers`.

use std::process::Command;

#[test]
fn help_names_every_suite() {
    let output = Command::new(env!("CARGO_BIN_EXE_terrace-bench-peers")).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for suite in ["foundation", "hash", "ordered", "slow", "spot", "share", "wip", "wip-answers", "tiered"] {
        assert!(text.contains(suite), "{suite}: {text}");
    }
}
