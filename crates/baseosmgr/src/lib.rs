//! baseosmgr: brings a wanted OS image to the other partition and switches to it, once the node is drained.
//!
//! Not here: download of the content (volumemgr), the reboot and the test after it (nodeagent, which acts when
//! it sees a partition `updating`), the drain itself (zedkube).
//!
//! | Order | Reason |
//! |---|---|
//! | write, then drain, then `updating` | the node serves while the image is copied; a failed write costs no drain |
//! | partition first, topics second | a restart continues from the partitions and from our own request file |
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

use std::sync::{Arc, Mutex, PoisonError};

use agent::zboot::{Boot, Label, Zboot};
use agent::{Error, Station, Tasks, Troubles, force, outlet, pid, turn};
use topics::BaseOSMgrStatus;
use tracing::{info, warn};

/// Name of this agent on the bus.
const NAME: &str = "baseosmgr";

/// Runs the agent until the station says stop. `zboot` opens the partitions, again and again while the disk takes
/// nothing; without any every image is refused.
///
/// What it published stays when it leaves: its request and statuses are what its next start continues from.
///
/// # Errors
/// Another process is this agent.
pub async fn run(
    station: Station,
    limits: Limits,
    mut zboot: impl FnMut() -> Result<Option<Box<dyn Zboot>>, Error>,
) -> Result<(), Error> {
    let troubles = Troubles::open(&station.bus, station.clock, NAME);
    let open = || {
        pid::write::<BaseOSMgrStatus>(&station, NAME)?;
        force::forget_earlier_boot(&station);
        let zboot = zboot()?.map(|zboot| Arc::new(Mutex::new(zboot)));
        let partitions = match &zboot {
            Some(zboot) => {
                let mut zboot = zboot.lock().unwrap_or_else(PoisonError::into_inner);
                Some((zboot.boot(&station.boot_id)?, zboot.current()?, zboot.read()?))
            }
            None => None,
        };
        let (outbox, inbox) = turn::inbox();
        let (shell, found) = shell::Shell::open(&station, zboot, Tasks::new(outbox))?;
        Ok((partitions, shell, found, inbox))
    };
    let Some((partitions, shell, found, inbox)) = outlet::started(&station, &troubles, open).await? else {
        return Ok(());
    };
    if let Some((boot, running, partitions)) = partitions {
        tell(boot, running);
        let core = core::BaseOs::new(limits, partitions, found);
        return turn::run((core, Vec::new()), shell, inbox, &station, &troubles).await;
    }
    warn!(
        "no image partitions are named (--partitions none): every OS update in the device config is refused, with the \
         reason in /run/baseosmgr/BaseOsStatus"
    );
    turn::run((core::Refusal::new(found), Vec::new()), shell, inbox, &station, &troubles).await
}

fn tell(boot: Boot, running: Label) {
    match boot {
        Boot::Again | Boot::Same => info!(partition = %running, "runs from the same partition"),
        Boot::Tried => info!(partition = %running, "a new image has its first boot and is in test"),
        Boot::FellBack => warn!(partition = %running, "the image before did not pass its test; fell back"),
        Boot::LastResort => {
            warn!(partition = %running, "no partition may be booted; continues with the one before");
        }
    }
}
