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

use agent::{Error, Hands as _, Station, Tasks, force, pid, turn};

/// The name of this agent.
const NAME: &str = "zedagent";
/// Where the controller's config is read, under the root.
pub const CONFIG: &str = "persist/config/edge-dev-config.json";

/// Runs zedagent until the station says stop.
///
/// # Errors
/// A topic or file that it cannot go on without.
pub async fn run(station: Station, limits: Limits) -> Result<(), Error> {
    pid::write(&station, NAME)?;
    force::forget_earlier_boot(&station)?;
    let (outbox, inbox) = turn::inbox();
    let (mut shell, found) = shell::Shell::open(&station, Tasks::new(outbox))?;
    let (core, effects) = core::Zedagent::new(limits, found, station.clock.now(), station.clock.booted_at());
    for effect in effects {
        shell.perform(effect).await?;
    }
    shell.follow()?;
    turn::run(NAME, core, shell, inbox, &station).await
}
