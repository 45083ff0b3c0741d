//! `zedbox`: one program with many names. It parses the command line and starts what was requested.
//!
//! Who may call: its own `main.rs`, and `xtask`, which makes manual pages and completions from [`command`].
//! Not here: decisions, which each agent makes; this program gives it a root, a clock, a device and a stop.

mod args;
mod bundle_cmd;
mod check;
#[cfg(feature = "demo")]
mod demo;
mod drain_cmd;
mod failover_cmd;
mod help;
mod join_cmd;
mod kubeconfig_cmd;
mod limits;
mod lock_cmd;
mod log;
mod machines_cmd;
mod manifests;
mod notify;
mod notify_cmd;
mod panic;
mod role_cmd;
mod setup_cmd;
mod site_cmd;
mod supervisor;
mod verify_cmd;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::CommandFactory as _;
use sheet::DrainOutcome;

use args::settings::{SettingsFault, StartRefusal};
use args::{Command, LogFormat};
use drain_cmd::voice::Voice;
use log::LogLevels;

/// How long the end of the program waits for calls under way on other threads.
const LAST_CALLS: Duration = Duration::from_secs(2);

/// Exit codes, for scripts and unit files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Exit {
    /// Finished, or stopped by a signal.
    Done = 0,
    /// A failure; the last line on standard error names it and the next step. Or a check with findings.
    Failed = 1,
    /// Invalid arguments; clap's code too.
    Usage = 2,
    /// A drain in progress, or a pending operation; or a server that is not ready.
    UnderWay = 3,
    /// A blocked drain; or a server of another cluster.
    Blocked = 4,
    /// It may be requested again.
    DrainFailed = 5,
    /// Unknown: zedkube has published nothing, its file is broken, or COMPLETE comes without
    /// NodeDrainProgress.
    Unknown = 6,
    /// COMPLETE without a drain, with the reason.
    Skipped = 7,
    /// Before the node was drained.
    Withdrawn = 8,
    /// By a person; no drain is proved.
    Forced = 9,
    /// A person ended watching a drain, which continues.
    Interrupted = 130,
}

impl Exit {
    /// For a drain's outcome.
    const fn of(outcome: DrainOutcome) -> Self {
        match outcome {
            DrainOutcome::Idle | DrainOutcome::Complete => Self::Done,
            DrainOutcome::UnderWay => Self::UnderWay,
            DrainOutcome::Blocked => Self::Blocked,
            DrainOutcome::Failed => Self::DrainFailed,
            DrainOutcome::Skipped => Self::Skipped,
            DrainOutcome::Forced => Self::Forced,
            DrainOutcome::Unknown | DrainOutcome::Unproved => Self::Unknown,
        }
    }
}

/// For fuzzing and its corpus: bytes as the settings file of an image. Returns how many options it sets.
///
/// Errors: a fault that names neither what was expected nor what was found.
pub fn settings_trial(bytes: &[u8]) -> Result<usize, String> {
    args::settings::trial(bytes)
}

pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(mut again) = panic::without_stacks(&words) {
        let error = again.exec();
        eprintln!(
            "failed to start again without RUST_BACKTRACE, which this program has no tables for: {error}; type \
             `env -u RUST_BACKTRACE -u RUST_LIB_BACKTRACE zedbox …`"
        );
        return ExitCode::from(Exit::Failed as u8);
    }
    let link = args::called_as(&words).is_some();
    let (words, said) = args::of_now(words);
    if let Some(said) = said {
        Voice::warn(&format!("this is now `{said}`; the former words will go with a later version"));
    }
    let unsaid = if link { LogFormat::Json } else { LogFormat::Text };
    let args = match args::settings::parse(words.clone(), link) {
        Ok(args) => args,
        Err(refused) => return refuse(refused, &words, unsaid),
    };
    let format = args.log_format.unwrap_or(unsaid);
    let (words, quiet, alone) = (args.log.as_deref(), args.command.quiet(), args.command.alone());
    let outcome = log::begin(format, words, quiet, alone).and_then(|levels| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start the runtime")?;
        let outcome = runtime.block_on(run(args.command, &levels));
        // Limited: a call to a device may hang, and the person who ended the program waits.
        runtime.shutdown_timeout(LAST_CALLS);
        outcome
    });
    let exit = outcome.unwrap_or_else(|error| {
        tracing::error!("failed to {error:#}");
        Exit::Failed
    });
    log::flush();
    ExitCode::from(exit as u8)
}

pub fn command() -> clap::Command {
    args::Args::command()
}

fn refuse(refused: StartRefusal, words: &[OsString], unsaid: LogFormat) -> ExitCode {
    let (format, alone) = args::settings::voice(words);
    let format = format.unwrap_or(unsaid);
    if let StartRefusal::Words(cause) = &refused
        && let Some(exit) = help::answer(words, cause)
    {
        return ExitCode::from(exit as u8);
    }
    match refused {
        // Help, a version, and messages for people.
        StartRefusal::Words(cause) if !cause.use_stderr() || format == LogFormat::Text => cause.exit(),
        // Without a log nothing can be reported; the exit code remains.
        _ if log::begin(format, None, "info", alone).is_err() => {}
        StartRefusal::Words(cause) => {
            let text = cause.render().to_string();
            tracing::error!("{}", text.trim_start_matches("error: ").trim_end());
        }
        StartRefusal::File { path, faults } => {
            let path = path.display();
            for SettingsFault { line, expected, found } in faults {
                tracing::error!(line, "settings {path}: expected {expected}, found {found}");
            }
            tracing::error!("nothing starts until {path} is right: `zedbox check {path}`");
        }
    }
    ExitCode::from(Exit::Usage as u8)
}

async fn run(command: Command, levels: &LogLevels) -> anyhow::Result<Exit> {
    let (word, done) = match &command {
        Command::Check(it) => ("", check::run(&it.paths)),
        Command::Agents(it) => {
            let (agents, options) = it.agents();
            ("", supervisor::run(agents, options, levels).await)
        }
        #[cfg(feature = "demo")]
        Command::Demo(it) => ("", Box::pin(demo::run(it)).await.map(|()| Exit::Done)),
        #[cfg(feature = "demo")]
        Command::DemoAgent(it) => ("", demo::agent(it, levels).await),
        Command::Notify(it) => ("", notify_cmd::run(it).await),
        Command::Role(it) => ("", role_cmd::run(it)),
        Command::UpdateStatus(it) => ("", report_update(it)),
        Command::Node(it) => drain_cmd::run(it).await,
        Command::Join(it) => ("join", join_cmd::wait(it).await),
        Command::Kubeconfig(it) => ("kubeconfig", kubeconfig_cmd::make(it).await.map(|()| Exit::Done)),
        Command::Setup(it) => ("setup", setup_cmd::set_up(it).await),
        Command::Bundle(it) => ("bundle", bundle_cmd::run(it).await),
        Command::Site(it) => ("site", site_cmd::run(it).await),
        Command::Machines(it) => ("machines", machines_cmd::run(it).await),
        Command::Lock(it) => ("lock", lock_cmd::run(it).await),
        Command::Failover(it) => ("failover", Box::pin(failover_cmd::run(it)).await),
        Command::Verify(it) => ("verify", verify_cmd::run(it).await),
    };
    // Without a word it goes to the log.
    if word.is_empty() { done } else { Ok(Voice::exit(word, done)) }
}

/// Passes an update's status to zedkube.
fn report_update(command: &args::UpdateStatus) -> anyhow::Result<Exit> {
    let [device, component, status, version, error] = command.words.as_slice() else {
        anyhow::bail!("read five words: device, component, status, version and error");
    };
    let words = zedkube::update_status::UpdateStatusArgs { device, component, status, version, error };
    let value = words.value(agent::Clock::new().wall()).map_err(anyhow::Error::msg)?;
    zedkube::update_status::hand_over(&command.root, &value).map_err(anyhow::Error::msg)?;
    Ok(Exit::Done)
}
