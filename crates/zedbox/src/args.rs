//! The command line: the only place where flags and variables of the environment enter.
//!
//! Commands take their options from here. Not here: what runs them, which no file below names.

mod cluster;
#[cfg(feature = "demo")]
mod demo;
mod join;
mod log;
mod node;
pub(crate) mod settings;
mod setup;
mod site;
mod time;
mod words;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use agent::{device, partitions};
use anyhow::Context as _;
use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use kubeapi::connect::webhook::Webhook;
use topics::Secret;

pub(crate) use cluster::{
    BundleCommand, DeclareOptions, FailoverAction, FailoverCommand, KubeconfigCommand, LockAction,
    LockCommand, MachinesAction, MachinesCommand, RoleCommand, VerifyCommand, kubeconfig_of,
};
#[cfg(feature = "demo")]
pub(crate) use demo::{DemoAgent, DemoOptions, DrillOptions, Scenario};
pub(crate) use join::{JoinCommand, UpdateStatus};
use log::checked;
pub(crate) use log::{LogFormat, filter};
pub(crate) use node::{
    AtShutdownOptions, Blocked, DrainOptions, ForceOptions, GoOptions, NodeCommand, NodePlace, OrderOptions,
    OtherDrain, Past, PauseOptions, PlanOptions, StatusOptions, UndrainOptions, Whom,
};
pub(crate) use setup::SetupCommand;
pub(crate) use site::{BeginOptions, RestartOptions, SiteAction, SiteCommand};
pub(crate) use words::{ALIKE, called_as, of_now};

/// Agents that a link to the program may be named after.
pub(crate) const NAMES: [&str; 4] = ["zedagent", "baseosmgr", "nodeagent", "zedkube"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agent {
    Zedagent,
    Baseosmgr,
    Nodeagent,
    Zedkube,
}

impl Agent {
    pub(crate) const ALL: [Self; 4] = [Self::Zedagent, Self::Baseosmgr, Self::Nodeagent, Self::Zedkube];

    pub(crate) const fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Takes a node of an edge Kubernetes cluster down safely: drained before it goes, never stuck, always explained.
#[derive(Debug, Parser)]
#[command(name = "zedbox", version, arg_required_else_help = true)]
#[command(
    after_help = "`zedbox help CODE` explains a code that status, the page or the log names; documents: /usr/share/doc/zedbox (night.md first).\n\
    For images, not listed: run (all agents), zedagent, baseosmgr, nodeagent, zedkube, join; `zedbox help run` \
    explains.\n\
    A link to this program named zedagent, baseosmgr, nodeagent or zedkube runs that agent alone, on `/`.\n\
    Options of agents may also be in <root>/etc/zedbox/zedbox.toml, by their names: device = \"systemd\".\n\
    Exit codes: 0 done or stopped by a signal, 1 failed (the last line says why) or check found something,\n\
    2 invalid arguments; `zedbox status --help` lists those of a drain."
)]
pub(crate) struct Args {
    /// What to log to standard error: a level, or a filter such as `info,zedkube=debug`; `kube_client` only when named.
    #[arg(long, global = true, value_name = "FILTER", value_parser = checked, env = "ZEDBOX_LOG")]
    pub(crate) log: Option<String>,
    /// How to log: lines for newlogd, for people or for systemd's journal [default: text; under a link json].
    #[arg(long, global = true, value_name = "FORM", value_enum, env = "ZEDBOX_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Node(NodeCommand),
    /// Shut the whole site down or reboot it, and show how far that is.
    Site(SiteCommand),
    /// Show which node may be down, who waits for a turn, and change that.
    Lock(LockCommand),
    /// Show what would run elsewhere if a node died, and declare one dead.
    Failover(FailoverCommand),
    /// Verify that the cluster is well after an outage, layer by layer. Nothing is written.
    Verify(VerifyCommand),
    /// Show virtual machines that drains have stopped, and start them again.
    Machines(MachinesCommand),
    /// Try where notices for people are posted.
    Notify(NotifyCommand),
    /// Write one archive for whoever helps from afar, without secrets.
    Bundle(BundleCommand),
    /// Validate topic files, settings files, or trees of them.
    Check(CheckOptions),
    /// Print the roles that the agents need, for `kubectl apply -f -`.
    Role(RoleCommand),
    /// Make this machine a node: device config, settings file, roles and kubeconfig.
    Setup(SetupCommand),
    /// Make a kubeconfig for the agents out of a service account.
    Kubeconfig(KubeconfigCommand),
    #[cfg(feature = "demo")]
    /// Show a drained reboot and more on an embedded three-node cluster, and keep that to play with.
    Demo(DemoOptions),
    #[cfg(feature = "demo")]
    /// Run one agent of the demo, for as long as the demo lives.
    #[command(hide = true)]
    DemoAgent(DemoAgent),
    #[command(flatten)]
    Agents(AgentCommand),
    /// Wait for a server of this node's cluster, before it joins.
    #[command(hide = true)]
    Join(JoinCommand),
    /// Report how far the update of a Kubernetes component is: `zedkube pubKubeClusterUpdateStatus …`, for the kube
    /// container.
    #[command(name = zedkube::update_status::COMMAND, hide = true)]
    UpdateStatus(UpdateStatus),
}

/// Agents of this process.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Run all four agents in this process.
    #[command(hide = true)]
    Run(AgentOptions),
    /// Run zedagent alone: device config, reboot and shutdown commands.
    #[command(hide = true)]
    Zedagent(AgentOptions),
    /// Run baseosmgr alone: OS images and partitions.
    #[command(hide = true)]
    Baseosmgr(AgentOptions),
    /// Run nodeagent alone: carries out reboot, shutdown and power-off.
    #[command(hide = true)]
    Nodeagent(AgentOptions),
    /// Run zedkube alone: cordons and drains this node.
    #[command(hide = true)]
    Zedkube(AgentOptions),
}

impl AgentCommand {
    pub(crate) const fn agents(&self) -> (&'static [Agent], &AgentOptions) {
        match self {
            Self::Run(it) => (&Agent::ALL, it),
            Self::Zedagent(it) => (&[Agent::Zedagent], it),
            Self::Baseosmgr(it) => (&[Agent::Baseosmgr], it),
            Self::Nodeagent(it) => (&[Agent::Nodeagent], it),
            Self::Zedkube(it) => (&[Agent::Zedkube], it),
        }
    }
}

/// In which form results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Output {
    /// For people: at most as wide as the terminal; 80 columns when it is none.
    #[default]
    Text,
    /// For programs: members as in the topic files.
    Json,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    /// `NO_COLOR` is set and not empty.
    pub(crate) no_colour: bool,
    /// `TERM` is `dumb`: no colours and no cursor movements.
    pub(crate) dumb: bool,
    /// The caller of `sudo`.
    pub(crate) sudo_user: Option<String>,
}

impl Surroundings {
    pub(crate) fn of_this_process() -> Self {
        let text = |name| std::env::var_os(name).filter(|text| !text.is_empty());
        Self {
            no_colour: text("NO_COLOR").is_some(),
            dumb: text("TERM").is_some_and(|term| term == "dumb"),
            sudo_user: text("SUDO_USER").and_then(|user| user.into_string().ok()),
        }
    }
}

/// systemd's settings for a service.
#[derive(Debug, Clone, Default)]
pub(crate) struct SystemdService {
    /// `NOTIFY_SOCKET`: a path, or `@` and an abstract name.
    pub(crate) socket: Option<OsString>,
    /// `WATCHDOG_USEC`: systemd ends the process after so long without a report.
    pub(crate) watchdog: Option<Duration>,
}

impl SystemdService {
    pub(crate) fn of_this_process() -> Self {
        let micros = std::env::var_os("WATCHDOG_USEC").and_then(|it| it.to_str()?.parse().ok());
        Self {
            socket: std::env::var_os("NOTIFY_SOCKET").filter(|it| !it.is_empty()),
            watchdog: micros.map(Duration::from_micros),
        }
    }
}

/// What is checked.
#[derive(Debug, Clone, Group)]
pub(crate) struct CheckOptions {
    /// A file `<Topic>/<key>.json`, a force file, a settings file `zedbox.toml`, or a directory that holds such files at any depth.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// Where an agent finds its files, its cluster and its machine.
#[derive(Debug, Clone, Group)]
pub(crate) struct AgentOptions {
    /// Directory that holds `run` and `persist`; `/` on a device.
    #[arg(long, value_name = "DIR", env = "ZEDBOX_ROOT")]
    pub(crate) root: PathBuf,
    /// Cluster to drain from, one file [default: <root>/run/.kube/k3s/k3s.yaml].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How the machine is taken down: record (only write down what would be done), systemd, or exec:/path/to/program.
    #[arg(long, value_name = "DEVICE", default_value_t, env = "ZEDBOX_DEVICE")]
    pub(crate) device: device::DeviceChoice,
    /// Where OS images go: none (updates are refused), gpt:/dev/DISK (IMGA and IMGB of that disk),
    /// exec:/path/to/zboot, or record (files under persist/zboot, for tests only).
    #[arg(long, value_name = "PARTITIONS", default_value_t, env = "ZEDBOX_PARTITIONS")]
    pub(crate) partitions: partitions::PartitionsChoice,
    /// IMGA or IMGB, the one that this boot runs from, where the kernel's command line has no root=PARTUUID=…; only
    /// with --partitions gpt:DISK.
    #[arg(long, value_name = "LABEL", env = "ZEDBOX_CURRENT_PARTITION")]
    pub(crate) current_partition: Option<partitions::Label>,
    /// JSON file with waits and counts other than the defaults, one object an agent.
    #[arg(long, value_name = "FILE", env = "ZEDBOX_LIMITS")]
    pub(crate) limits: Option<PathBuf>,
    /// Address that gets each notice for people as a POST of `{"text": "…"}`, as https://host/path: a secret, so better in
    /// the settings file. `zedbox notify test` tries it.
    #[arg(long, value_name = "URL", value_parser = hidden, env = "ZEDBOX_NOTIFY", hide_env_values = true)]
    pub(crate) notify: Option<Secret>,
    /// File by which the OS asks for a reboot, as /run/reboot-required: while it is there, a drained reboot is ordered as by
    /// `zedbox reboot`, for the next window [default: none].
    #[arg(long, value_name = "FILE", env = "ZEDBOX_REBOOT_REQUIRED")]
    pub(crate) reboot_required: Option<PathBuf>,
}

/// Judged later: an error here would quote it.
#[expect(clippy::unnecessary_wraps, reason = "the form of a parser")]
fn hidden(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text.to_owned()))
}

/// The address of `--notify` or of the settings file.
pub(crate) fn webhook(address: &Secret) -> anyhow::Result<Webhook> {
    address.reveal().parse().map_err(anyhow::Error::msg).context("use the address that notify names")
}

/// Notices for people: post one message to the address that `notify` of the settings file names.
#[derive(Debug, Clone, Group)]
#[command(arg_required_else_help = true)]
pub(crate) struct NotifyCommand {
    /// Directory that holds `etc`, `run` and `persist`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// What to do.
    #[arg(required = true, value_parser = ["test"])]
    pub(crate) action: String,
}

impl Command {
    const fn agents(&self) -> &'static [Agent] {
        if let Self::Agents(it) = self { it.agents().0 } else { &[] }
    }

    /// The agent, if it is alone in its process.
    pub(crate) const fn alone(&self) -> Option<&'static str> {
        if let [agent] = self.agents() { Some(agent.name()) } else { None }
    }

    /// The default filter: commands for a person print their own report, and the client's lines on failed
    /// requests repeat what zedkube logs with cause and next step.
    pub(crate) const fn quiet(&self) -> &'static str {
        if self.agents().is_empty() { "off,zedbox=error" } else { "info,kube_client=off" }
    }
}

impl AgentOptions {
    /// Errors: as [`kubeconfig_of`].
    pub(crate) fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        kubeconfig_of(self.kubeconfig.as_deref(), &self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(of_now(line.split(' ').map(OsString::from)).0)
    }

    #[test]
    fn b5_there_are_no_partitions_unless_they_are_asked_for_by_name() {
        for agent in ["run", "baseosmgr"] {
            let of = |words: &str| {
                let words = format!("zedbox {agent} --root / --device systemd{words}");
                match parse(&words).map(|it| it.command) {
                    Ok(Command::Agents(it)) => Ok(it.agents().1.partitions.clone()),
                    Ok(other) => panic!("{other:?}"),
                    Err(refused) => Err(refused.to_string()),
                }
            };
            assert_eq!(of("").unwrap(), partitions::PartitionsChoice::None);
            for text in ["record", "gpt:/dev/sda", "exec:/usr/bin/zboot"] {
                assert_eq!(of(&format!(" --partitions {text}")).unwrap().to_string(), text);
            }
            let refused = of(" --partitions sda").unwrap_err();
            assert!(refused.contains("use none, gpt:/dev/DISK"), "{refused}");
        }
    }

    #[test]
    fn a_mistyped_word_is_answered_with_the_one_that_was_meant() {
        let (drian, stauts) = (("zedbox drian status", "'drain'"), ("zedbox drain stauts", "'status'"));
        for (line, meant) in [drian, stauts, ("zedbox reboot --raeson x", "'--reason'")] {
            let refused = parse(line).unwrap_err().to_string();
            assert!(refused.contains("tip: ") && refused.contains(meant), "{line}: {refused}");
        }
    }
}
