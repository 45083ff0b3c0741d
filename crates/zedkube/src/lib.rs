//! zedkube drains this node for whoever asks, says how far it is, and gives its cordon back; and it takes part in the
//! election of the node that reports on the cluster. It takes this node out of its cluster when the config says so, and
//! tells of its applications there.
//!
//! Not here: whether an operation goes ahead; its requester decides. Source: lf-edge/eve pkg/pillar/cmd/zedkube.

pub mod apps;
pub mod core;
mod duties;
pub mod leader;
mod leave;
mod limits;
mod prune;
mod requests;
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

use agent::{Error, Station, Tasks, Troubles, force, outlet, pid, turn};
use kubeops::Cluster;
use step::Core as _;
use tokio::sync::watch;
use topics::NodeDrainStatus;

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
    let troubles = Troubles::open(&station.bus, station.clock, NAME);
    let target = Target::default();
    let leader = leader::Leader::new(&station, &limits, cluster.clone(), target.clone());
    let open = || {
        pid::write::<NodeDrainStatus>(&station, NAME)?;
        force::forget_earlier_boot(&station);
        let (outbox, inbox) = turn::inbox();
        let (tasks, door) = (Tasks::new(outbox), leader.door());
        let membership = leave::Leaver::open(&station, &troubles, &limits)?;
        let opened = shell::Shell::open(&station, &limits, cluster.clone(), tasks, target.clone(), door)?;
        Ok((inbox, membership, opened))
    };
    let Some((inbox, membership, (mut shell, earlier))) = outlet::started(&station, &troubles, open).await?
    else {
        return Ok(());
    };
    let others = cluster;
    let (standing, heard) = (membership.standing(), membership.heard());
    let (now, booted_at) = (station.clock.now(), station.clock.booted_at());
    let every = limits.prune();
    let (mut core, mut first) =
        core::Zedkube::new(limits, earlier.journal, station.boot_id.clone(), now, booted_at);
    core.count_on(earlier.shown);
    first.extend(core.recall(now, earlier.history));
    // A node that was leaving is not given its cordon back before it is known what the config says now.
    let before = standing.borrow().membership;
    if before == Membership::Leaving {
        first.extend(core.step(now, Event::Member(before)));
    }
    let (places, place) = watch::channel(None);
    let attempt = shell.attempt_limit();
    shell.follow(standing.clone(), heard, place);
    let drain = Box::pin(turn::run((core, first), shell, inbox, &station, &troubles));
    // Each is restarted on its own; the drain neither ends nor waits when one of them fails (K5).
    let election = duties::keep("election", &station, || leader.run(&troubles));
    let leave = membership.run(others.clone(), target.clone(), attempt);
    let status = duties::keep_until_stop("cluster status", &station, || {
        let (station, standing, places) = (station.clone(), standing.clone(), places.clone());
        let troubles = troubles.clone();
        async move {
            let speaker = status::Speaker::open(&troubles)?;
            speaker.follow(station, standing, places).await;
            Ok(())
        }
    });
    let prune = duties::keep_until_stop("replaced nodes", &station, || {
        let (cluster, target, standing) = (others.clone(), target.clone(), standing.clone());
        let leading = leader.leadership();
        async move {
            prune::run(cluster, station.clock, every, target, standing, leading).await;
            Ok(())
        }
    });
    let report = duties::keep_until_stop("statistics", &station, || {
        let (troubles, cluster, standing) = (troubles.clone(), others.clone(), standing.clone());
        let leading = leader.leadership();
        async move {
            let board = stats::Board::open(&troubles)?;
            stats::report(cluster, station.clock, leading, standing, board).await;
            Ok(())
        }
    });
    let apps = duties::keep("applications", &station, || {
        let (station, cluster, target) = (station.clone(), others.clone(), target.clone());
        let (pipe, troubles) = (pipe.clone(), troubles.clone());
        async move {
            apps::Apps::open(&station, &troubles, cluster, target)?.run(pipe).await;
            Ok(())
        }
    });
    let beside = Box::pin(async {
        tokio::join!(
            Box::pin(election),
            Box::pin(leave),
            Box::pin(status),
            Box::pin(prune),
            Box::pin(report),
            Box::pin(apps)
        );
        Ok(())
    });
    // In one task: if any hangs, the machine's watchdog sees it.
    tokio::try_join!(drain, beside).map(|((), ())| ())
}
