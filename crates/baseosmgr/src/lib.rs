//! baseosmgr: brings a wanted OS image to the other partition and switches to it, once the node is drained.
//!
//! Not here: download of the content (volumemgr), the reboot and the test after it (nodeagent, which acts when
//! it sees a partition `updating`), the drain itself (zedkube).
//!
//! | Order | Reason |
//! |---|---|
//! | write, then drain, then `updating` | the node serves while the image is copied; a failed write costs no drain |
//! | partition first, topics second | a restart goes on from the partitions and from our own request file |
//!
//! Unlike the reference it does not wait for onboarding, vault and containerd at its start: nothing is touched
//! before a content tree is LOADED, and that takes all three.

pub mod core;
mod follow;
mod image;
mod limits;
mod saved;
mod shell;
#[cfg(test)]
mod tests;

pub use limits::Limits;

use agent::zboot::{Boot, Zboot};
use agent::{Error, Station, Tasks, force, pid, turn};
use tracing::{info, warn};

/// Name of this agent on the bus.
const NAME: &str = "baseosmgr";

/// Runs the agent until the station says stop. Without partitions every image is refused.
///
/// What it published stays when it leaves: its request and statuses are what its next start goes on from.
///
/// # Errors
/// A topic or file could not be served; the next start goes on from disk.
pub async fn run(station: Station, limits: Limits, zboot: Option<Box<dyn Zboot>>) -> Result<(), Error> {
    pid::write(&station, NAME)?;
    force::forget_earlier_boot(&station)?;
    let (outbox, inbox) = turn::inbox();
    let tasks = Tasks::new(outbox);
    let Some(mut zboot) = zboot else {
        warn!(
            "no image partitions are named (--partitions none): every OS update in the device config is refused, \
             with the reason in /run/baseosmgr/BaseOsStatus"
        );
        let (shell, found) = shell::Shell::open(&station, None, tasks)?;
        return turn::run(NAME, core::Refusal::new(found), shell, inbox, &station).await;
    };
    let boot = zboot.boot(&station.boot_id)?;
    let running = zboot.current()?;
    match boot {
        Boot::Again | Boot::Same => info!(partition = %running, "runs from the same partition"),
        Boot::Tried => info!(partition = %running, "a new image has its first boot and is in test"),
        Boot::FellBack => warn!(partition = %running, "the image before did not pass its test; fell back"),
        Boot::LastResort => {
            warn!(partition = %running, "no partition may be booted; goes on with the one before");
        }
    }
    let partitions = zboot.read()?;
    let (shell, found) = shell::Shell::open(&station, Some(zboot), tasks)?;
    turn::run(NAME, core::BaseOs::new(limits, partitions, found), shell, inbox, &station).await
}
