//! zedagent reads the device config, publishes its parts, and holds reboot and shutdown back until the node is
//! drained.
//!
//! Not here: carrying the operation out (nodeagent), the drain (zedkube). Source: lf-edge/eve
//! pkg/pillar/cmd/zedagent.

mod config;
pub mod config_items;
pub mod core;
pub mod device_config;
mod follow;
mod limits;
mod saved;
mod shell;

pub use limits::Limits;

use agent::{Error, Station, Tasks, Troubles, force, outlet, pid, turn};
use topics::ZedAgentStatus;

/// The name of this agent.
const NAME: &str = "zedagent";
/// Where the controller's config is read, under the root.
pub const CONFIG: &str = "persist/config/edge-dev-config.json";

/// Runs zedagent until the station says stop.
///
/// # Errors
/// Another process is this agent.
pub async fn run(station: Station, limits: Limits) -> Result<(), Error> {
    let troubles = Troubles::open(&station.bus, station.clock, NAME);
    let open = || {
        pid::write::<ZedAgentStatus>(&station, NAME)?;
        force::forget_earlier_boot(&station);
        let (outbox, inbox) = turn::inbox();
        let (shell, found) = shell::Shell::open(&station, Tasks::new(outbox))?;
        Ok((shell, found, inbox, config::Config::open(&station.bus, &troubles)?))
    };
    let Some((mut shell, mut found, inbox, config)) = outlet::started(&station, &troubles, open).await?
    else {
        return Ok(());
    };
    // Nothing begins before it is known whether a person lets it.
    let mut pauses = station.pauses();
    found.pause = pauses.next().await;
    let core = core::Zedagent::new(limits, found, station.clock.now(), station.clock.booted_at());
    shell.follow(config);
    shell.follow_pause(pauses);
    turn::run(core, shell, inbox, &station, &troubles).await
}
