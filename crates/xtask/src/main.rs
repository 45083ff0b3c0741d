//! `cargo run -p xtask -- dist`: all release files from one command.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool talks to whoever started it")]

use std::process::ExitCode;

use clap::Parser;
use xtask::dist::{self, DistOptions};

/// Tasks of the workspace.
#[derive(Parser)]
#[command(name = "xtask")]
enum Task {
    /// Build the program and put it into one folder: alone, as Debian package, as OCI image layout; with checksums and a
    /// list of contents.
    Dist(DistOptions),
}

fn main() -> ExitCode {
    let Task::Dist(options) = Task::parse();
    match dist::run(&options) {
        Ok(made) => {
            for (path, bytes) in made {
                println!("{bytes:>10} {}", path.display());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: failed to {error:#}");
            ExitCode::FAILURE
        }
    }
}
