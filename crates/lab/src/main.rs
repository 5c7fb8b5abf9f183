//! `cargo lab crash|mutants|schedules|replay`: explores crash states and thread schedules of
//! Terrace's parts.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the command starts the threads and reads the clock")]

mod command;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Crashes stores at every store instruction, and checks the recovered state.
#[derive(Parser)]
#[command(name = "cargo lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Explores crash states of a target until enough distinct states were checked, or one is
    /// wrong.
    Crash(command::Crash),
    /// Removes or delays each write-back and fence in turn, and lists the faults that no run
    /// detects.
    Mutants(command::Mutants),
    /// Runs threads in many interleavings of their accesses, with or without crashes, until enough
    /// runs were done, or one is wrong.
    Schedules(command::Schedules),
    /// Repeats the run of a finding, and prints a report.
    Replay(command::Replay),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Crash(crash) => crash.run(),
        Command::Mutants(mutants) => mutants.run(),
        Command::Schedules(schedules) => schedules.run(),
        Command::Replay(replay) => replay.run(),
    }
}
