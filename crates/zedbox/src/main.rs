//! `zedbox`: one program, many names. It reads the command line and starts what was asked for.
//!
//! Not here: decisions. Each agent makes its own; this program gives it a root, a clock, a device and a way out.

mod args;
mod check;
#[cfg(feature = "demo")]
mod demo;
mod drain_cmd;
mod limits;
mod lock_cmd;
mod machines_cmd;
mod site_cmd;
mod supervisor;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

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
    /// Invalid arguments; clap ends with it too.
    Usage = 2,
    /// A drain is under way, or an operation is pending.
    UnderWay = 3,
    /// A drain is under way, and something blocks it.
    Blocked = 4,
    /// The drain failed; it may be requested again.
    DrainFailed = 5,
    /// Not known: zedkube has published nothing, its file is broken, or COMPLETE comes without NodeDrainProgress.
    Unknown = 6,
    /// COMPLETE without a drain: it was skipped, for a reason that is named.
    Skipped = 7,
    /// The request was withdrawn before the node was drained.
    Withdrawn = 8,
    /// A person forced the status; no drain is proved.
    Forced = 9,
    /// A person ended watching a drain, which continues.
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
        #[cfg(feature = "demo")]
        Command::Demo(options) => demo::run(&options).await,
        Command::Drain(command) => return Ok(drain_cmd::run(&command).await),
        Command::Site(command) => return Ok(site_cmd::run(&command).await),
        Command::Machines(command) => return Ok(machines_cmd::run(&command).await),
        Command::Lock(command) => return Ok(lock_cmd::run(&command).await),
        Command::UpdateStatus(command) => report_update(&command),
    }?;
    Ok(Exit::Done)
}

/// Hands the status of an update over to zedkube.
fn report_update(command: &args::UpdateStatus) -> anyhow::Result<()> {
    let [device, component, status, version, error] = command.words.as_slice() else {
        anyhow::bail!("read five words: device, component, status, version and error");
    };
    let words = zedkube::update_status::Words { device, component, status, version, error };
    let value = words.value(agent::Clock::new().wall()).map_err(anyhow::Error::msg)?;
    zedkube::update_status::hand_over(&command.root, &value).map_err(anyhow::Error::msg)?;
    Ok(())
}

/// The library's own lines are left out unless `words` name it: while the API is away it writes several a second that
/// name no call, and each failure is told by whoever made the call.
fn filter(words: &str) -> Result<Targets, ParseError> {
    format!("kube_client=off,{words}").parse()
}

fn log_to_stderr(words: &str) -> anyhow::Result<()> {
    let filter = filter(words).with_context(|| format!("read the log filter `{words}`"))?;
    let terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(std::io::stderr);
    lines.with_ansi(terminal).finish().with(filter).init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_library_is_heard_only_when_it_is_named() {
        let logged = |words: &str| {
            let (log, filter) = (Log::default(), filter(words).unwrap());
            let writer = log.clone();
            let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
            tracing::subscriber::with_default(
                lines.with_writer(move || writer.clone()).finish().with(filter),
                || {
                    tracing::error!(target: "kube_client::client::builder", "of the library");
                    tracing::info!(target: "zedkube::shell", "of ours");
                },
            );
            let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
            (text.contains("of the library"), text.contains("of ours"))
        };
        for (words, heard) in [
            ("info", (false, true)),
            ("debug", (false, true)),
            ("warn", (false, false)),
            ("info,zedkube=warn", (false, false)),
            ("info,kube_client=info", (true, true)),
            ("off,kube_client=debug", (true, false)),
        ] {
            assert_eq!(logged(words), heard, "{words}");
        }
    }
}
