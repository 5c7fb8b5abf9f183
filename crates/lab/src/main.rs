//! `cargo lab crash|mutants|schedules|replay`: puts what Terrace is made of through crashes and schedules.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the command starts the threads and looks at the clock")]

mod command;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Crashes stores at every store instruction, and judges what they recover to.
#[derive(Parser)]
#[command(name = "cargo lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Explores the crash states of a target until enough distinct ones were judged, or one is wrong.
    Crash(command::Crash),
    /// Breaks each place that asks for durability, in turn, and says which breaks were not noticed.
    Mutants(command::Mutants),
    /// Runs threads in many orders, at every access, with or without a crash, until there were enough runs, or one is wrong.
    Schedules(command::Schedules),
    /// Repeats the run in which something was found, and tells its story.
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
