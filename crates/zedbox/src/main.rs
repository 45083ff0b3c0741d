//! `zedbox`: one program, many names. It reads the command line and starts what was asked for.
//!
//! Not here: decisions. Each agent makes its own; this program gives it a root, a clock, a device and a way out.

mod args;
mod check;
mod demo;
mod drain_cmd;
mod limits;
mod supervisor;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use args::{Args, Command};

/// How long the end of the program waits for calls that are still under way on threads of their own.
const LAST_CALLS: Duration = Duration::from_secs(2);

/// How the program ends, for scripts and unit files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Exit {
    /// Done, or stopped by a signal.
    Done = 0,
    /// Something failed while at work; the last line on standard error says what and what to do. Or a check has
    /// findings.
    Failed = 1,
    // 2 is the command line's: clap uses it for wrong words.
    /// A drain is under way.
    UnderWay = 3,
    /// A drain is under way, and something blocks it.
    Blocked = 4,
    /// The drain failed; it may be asked for again.
    DrainFailed = 5,
    /// Nothing is known of a drain: zedkube has published nothing, or its file is broken.
    Unknown = 6,
    /// A person had seen enough of a drain, which goes on.
    Interrupted = 130,
}

fn main() -> ExitCode {
    let args = Args::parse_from(args::by_name(std::env::args_os()));
    let outcome = log_to_stderr(args.log.as_deref().unwrap_or(args.command.quiet())).and_then(|()| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start the runtime")?;
        let outcome = runtime.block_on(run(args.command));
        // Not longer: a call to a device may hang, and whoever ended the program waits.
        runtime.shutdown_timeout(LAST_CALLS);
        outcome
    });
    match outcome {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(error) => {
            tracing::error!("failed to {error:#}");
            ExitCode::from(Exit::Failed as u8)
        }
    }
}

async fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Check(options) => {
            return Ok(if check::run(&options.paths)? { Exit::Done } else { Exit::Failed });
        }
        Command::Run(options) => supervisor::run(&supervisor::Agent::ALL, &options).await,
        Command::Zedagent(options) => supervisor::run(&[supervisor::Agent::Zedagent], &options).await,
        Command::Baseosmgr(options) => supervisor::run(&[supervisor::Agent::Baseosmgr], &options).await,
        Command::Nodeagent(options) => supervisor::run(&[supervisor::Agent::Nodeagent], &options).await,
        Command::Zedkube(options) => supervisor::run(&[supervisor::Agent::Zedkube], &options).await,
        Command::Demo(options) => demo::run(&options).await,
        Command::Drain(command) => return Ok(drain_cmd::run(&command).await),
    }?;
    Ok(Exit::Done)
}

fn log_to_stderr(words: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(words).with_context(|| format!("read the log filter `{words}`"))?;
    let terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal).init();
    Ok(())
}
