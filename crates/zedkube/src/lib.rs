//! zedkube drains this node for whoever asks, says how far it is, and gives its cordon back; and it takes part in the
//! election of the node that reports on the cluster.
//!
//! Not here: whether an operation goes ahead; its requester decides. Source: lf-edge/eve pkg/pillar/cmd/zedkube.

pub mod core;
pub mod leader;
mod limits;
mod server;
mod shell;
pub mod stats;
mod status;
mod token;
mod work;

pub use limits::Limits;

use agent::{Error, Hands as _, Station, Tasks, force, pid, turn};
use kubeops::Cluster;

/// The name of this agent.
const NAME: &str = "zedkube";
/// A name that people write and nobody reads.
const MISSPELT: &str = "persist/kube-status/kubeforce-NodeDrainStatus-global.json";
/// While it exists, a drain that is done is not told.
pub const WAIT: &str = "tmp/DrainStatus_FaultInjection_Wait";

/// Runs zedkube until the station says stop.
///
/// # Errors
/// A topic or file that it cannot go on without.
pub async fn run(station: Station, limits: Limits, cluster: Cluster) -> Result<(), Error> {
    pid::write(&station, NAME)?;
    force::forget_earlier_boot(&station)?;
    let (outbox, inbox) = turn::inbox();
    let leader = leader::Leader::open(&station, &limits, cluster.clone())?;
    let (board, reader) = (stats::Board::open(&station.bus)?, cluster.clone());
    let (tasks, door) = (Tasks::new(outbox), leader.door());
    let (mut shell, journal, history) = shell::Shell::open(&station, &limits, cluster, tasks, door)?;
    let (now, wall) = (station.clock.now(), station.clock.wall());
    let (mut core, effects) = core::Zedkube::new(limits, journal, station.boot_id.clone(), now, wall);
    let recalled = core.recall(now, history);
    let drain = Box::pin(async {
        for effect in effects.into_iter().chain(recalled) {
            shell.perform(effect).await?;
        }
        shell.follow();
        turn::run(NAME, core, shell, inbox, &station).await
    });
    let report =
        Box::pin(stats::report(station.bus.clone(), reader, station.clock, leader.leadership(), board));
    // In one task: if any hangs, the machine's watchdog sees it.
    tokio::try_join!(drain, Box::pin(leader.run()), report).map(|((), (), ())| ())
}
