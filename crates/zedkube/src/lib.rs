//! zedkube drains this node for whoever asks, says how far it is, and gives its cordon back; and it takes part in the
//! election of the node that reports on the cluster. It takes this node out of its cluster when the config says so, and
//! tells of its applications there.
//!
//! Not here: whether an operation goes ahead; its requester decides. Source: lf-edge/eve pkg/pillar/cmd/zedkube.

pub mod apps;
pub mod core;
pub mod leader;
mod leave;
mod limits;
mod prune;
mod server;
mod shell;
pub mod stats;
mod status;
mod target;
mod token;
mod work;

pub use limits::Limits;
pub use server::trial;
pub use target::Target;

use agent::{Error, Hands as _, Station, Tasks, force, pid, turn};
use kubeops::Cluster;
use step::Core as _;

use crate::core::{Event, Membership};

/// The name of this agent.
const NAME: &str = "zedkube";
/// Key of topics that have one value.
const GLOBAL: &str = "global";
/// A name that people write and nobody reads.
const MISSPELT: &str = "persist/kube-status/kubeforce-NodeDrainStatus-global.json";
/// While it exists, a drain that is done is not told.
pub const WAIT: &str = "tmp/DrainStatus_FaultInjection_Wait";

/// Runs zedkube until the station says stop.
///
/// # Errors
/// A topic or file that it cannot go on without.
pub async fn run(station: Station, limits: Limits, cluster: Cluster) -> Result<(), Error> {
    run_into(station, limits, cluster, apps::Pipe::standard_output()).await
}

/// [`run`], with another place for the lines that applications have logged.
///
/// # Errors
/// As [`run`].
pub async fn run_into(
    station: Station,
    limits: Limits,
    cluster: Cluster,
    pipe: apps::Pipe,
) -> Result<(), Error> {
    pid::write(&station, NAME)?;
    force::forget_earlier_boot(&station)?;
    let (outbox, inbox) = turn::inbox();
    let target = Target::default();
    let leader = leader::Leader::open(&station, &limits, cluster.clone(), target.clone())?;
    let apps = apps::Apps::open(&station, cluster.clone(), target.clone())?;
    let board = stats::Board::open(&station.bus)?;
    let (tasks, door) = (Tasks::new(outbox), leader.door());
    let membership = leave::Leaver::open(&station, &limits)?;
    let others = cluster.clone();
    let (mut shell, earlier) = shell::Shell::open(&station, &limits, cluster, tasks, target.clone(), door)?;
    let standing = membership.standing();
    let (now, booted_at) = (station.clock.now(), station.clock.booted_at());
    let every = limits.prune();
    let (mut core, effects) =
        core::Zedkube::new(limits, earlier.journal, station.boot_id.clone(), now, booted_at);
    core.count_on(earlier.shown);
    let recalled = core.recall(now, earlier.history);
    // A node that was leaving is not given its cordon back before it is known what the config says now.
    let before = standing.borrow().membership;
    let stood =
        if before == Membership::Leaving { core.step(now, Event::Member(before)) } else { Vec::new() };
    let leave = Box::pin(membership.run(others.clone(), target.clone(), shell.attempt_limit()));
    let (clock, leading) = (station.clock, leader.leadership());
    let prune = Box::pin(prune::run(others.clone(), clock, every, target, standing.clone(), leading.clone()));
    let report = Box::pin(stats::report(others, clock, leading, standing.clone(), board));
    let drain = Box::pin(async {
        for effect in effects.into_iter().chain(recalled).chain(stood) {
            shell.perform(effect).await?;
        }
        shell.follow(&standing);
        turn::run(NAME, core, shell, inbox, &station).await
    });
    let beside = async {
        tokio::join!(report, leave, prune, Box::pin(apps.run(pipe)));
        Ok(())
    };
    // In one task: if any hangs, the machine's watchdog sees it.
    tokio::try_join!(drain, Box::pin(leader.run()), beside).map(|((), (), ())| ())
}
