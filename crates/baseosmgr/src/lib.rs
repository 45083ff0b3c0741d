//! baseosmgr: brings a wanted OS image to the other partition and switches to it, once the node is drained.
//!
//! Not here: download of the content (volumemgr), the reboot and the test after it (nodeagent, which acts on
//! a partition `updating`), the drain itself (zedkube).
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
mod shell;
#[cfg(test)]
mod tests;

pub use limits::Limits;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::outlet::LONGEST_PAUSE;
use agent::partitions::{BootResult, Label, PartitionStore, Partitions};
use agent::turn::{self, AgentCore};
use agent::{AgentContext, Error, Tasks, Troubles, force, outlet, pid};
use topics::BaseOSMgrStatus;
use tracing::{info, warn};

use shell::SharedStore;

const NAME: &str = "baseosmgr";

/// Partitions without an answer for so long are reported as unreadable, and tried again meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opened partitions: store, result of this boot, and state.
type OpenedPartitions = (SharedStore, BootResult, Partitions);

/// Runs the agent until `context` says stop. `open` opens the partitions, repeatedly while they are
/// unreadable; meanwhile, and without any, every image is refused.
///
/// Its published values stay when it ends: its next start continues from its request and statuses.
pub async fn run(
    context: AgentContext,
    limits: Limits,
    mut open: impl FnMut() -> Result<Option<Box<dyn PartitionStore>>, Error>,
) -> Result<(), Error> {
    let troubles = Troubles::open(&context.topic_root, context.clock, NAME);
    let mut stop = context.stop.clone();
    let mut known = tokio::select! {
        () = stop.stopped() => return Ok(()),
        known = tokio::time::timeout(PATIENCE, opened(&mut open, &context.boot_id)) => known.unwrap_or_else(|_| {
            Err(unreadable(format!("no answer within {} s", PATIENCE.as_secs())))
        }),
    };
    loop {
        let (store, named) = match &known {
            Ok(Some((store, ..))) => (Some(store.clone()), true),
            Ok(None) => (None, false),
            Err(_) => (None, true),
        };
        let begin = || {
            pid::write::<BaseOSMgrStatus>(&context, NAME)?;
            force::forget_earlier_boot(&context);
            let (outbox, inbox) = agent::inbox();
            let (shell, found) =
                shell::Shell::open(&context, &limits, store.clone(), named, Tasks::new(outbox))?;
            Ok((shell, found, inbox))
        };
        let Some((shell, found, inbox)) = outlet::started(&context, &troubles, begin).await? else {
            return Ok(());
        };
        let (partitions, reason) = match known {
            Ok(Some((_, boot, partitions))) => {
                troubles.over(PARTITIONS);
                log_boot(boot, partitions.current);
                (Some(partitions), None)
            }
            Ok(None) => {
                warn!(
                    "no image partitions are named (--partitions none): every OS update in the device config is \
                     refused, with the reason in /run/baseosmgr/BaseOsStatus"
                );
                (None, None)
            }
            Err(cause) => {
                troubles.note(PARTITIONS, &cause);
                troubles.holds(PARTITIONS, vec!["OS updates".to_owned()]);
                troubles.publish();
                (None, Some(step::chain(&cause)))
            }
        };
        let core = match partitions {
            Some(partitions) => core::BaseOs::new(limits.clone(), partitions, found),
            None => core::BaseOs::refusing(limits.clone(), reason.clone(), found),
        };
        let running = turn::run(AgentCore::First, (core, Vec::new()), shell, inbox, &context, &troubles);
        let Some(reason) = reason else { return running.await };
        known = tokio::select! {
            ended = running => return ended,
            known = again(&context, &mut open, &reason) => known,
        };
    }
}

const PARTITIONS: &str = "image partitions";

async fn opened(
    open: &mut impl FnMut() -> Result<Option<Box<dyn PartitionStore>>, Error>,
    boot_id: &str,
) -> Result<Option<OpenedPartitions>, Error> {
    let Some(mut store) = open()? else { return Ok(None) };
    let boot = store.boot(boot_id).await?;
    let partitions = store.read().await?;
    Ok(Some((Arc::new(Mutex::new(store)), boot, partitions)))
}

/// Opens the partitions again until they are readable, or fail for another reason.
async fn again(
    context: &AgentContext,
    open: &mut impl FnMut() -> Result<Option<Box<dyn PartitionStore>>, Error>,
    reason: &str,
) -> Result<Option<OpenedPartitions>, Error> {
    loop {
        context.clock.sleep_until(Some(context.clock.now() + LONGEST_PAUSE)).await;
        match opened(open, &context.boot_id).await {
            Err(cause) if step::chain(&cause) == reason => {}
            known => return known,
        }
    }
}

fn unreadable(reason: String) -> Error {
    Error::Effect { doing: "keep the image partitions", reason }
}

fn log_boot(boot: BootResult, running: Label) {
    match boot {
        BootResult::Again | BootResult::Same => info!(partition = %running, "runs from the same partition"),
        BootResult::Tried => info!(partition = %running, "a new image has its first boot and is in test"),
        BootResult::FellBack => {
            warn!(partition = %running, "the image before did not pass its test; fell back");
        }
        BootResult::LastResort => {
            warn!(partition = %running, "no partition may be booted; continues with the one before");
        }
    }
}
