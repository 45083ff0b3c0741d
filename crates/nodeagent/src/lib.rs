//! nodeagent carries out reboot, shutdown and power-off, keeps their reasons, and tests new images.
//!
//! Not here: whether an operation may go ahead; zedagent and baseosmgr hold theirs back until they are drained.
//! Source: lf-edge/eve pkg/pillar/cmd/nodeagent.

pub mod core;
mod limits;
mod saved;
mod shell;

pub use limits::Limits;

use agent::device::Device;
use agent::{Error, Station, Tasks, turn};

/// The name of this agent.
const NAME: &str = "nodeagent";

/// Runs nodeagent until the station says stop.
///
/// # Errors
/// A topic or file that it cannot go on without.
pub async fn run(station: Station, limits: Limits, device: Box<dyn Device>) -> Result<(), Error> {
    let (outbox, inbox) = turn::inbox();
    let (shell, last) = shell::Shell::open(&station, device, Tasks::new(outbox))?;
    let core = core::NodeAgent::new(limits, last, station.clock.now());
    let mut shell = shell;
    agent::Hands::perform(&mut shell, core::Effect::Publish(Box::new(core.status().clone()))).await?;
    turn::run(NAME, core, shell, inbox, &station).await
}
