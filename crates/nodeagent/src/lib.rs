//! nodeagent: takes the device through reboot, shutdown and power-off, keeps the reasons for the next boot, and
//! finds out whether a new image is good.
//!
//! Not here: whether an operation may begin. zedagent and baseosmgr hold theirs back until the node is drained. Only a
//! last look is here: an order whose drain was undone meanwhile is held (`requester::undone`). It restarts the device
//! on its own account for three reasons only, each of them a limit after which no other agent can help, each logged and
//! stored as a restart without a drain, and each in its turn (`core::last_look`):
//!
//! | Limit | Boot reason |
//! |---|---|
//! | the image in test has no controller for `timer.update.fallback.no.network` | 4 |
//! | no controller for `timer.reboot.no.network` | 5 |
//! | the vault stays shut for `timer.vault.ready.cutoff` under the image in test | 13 |
//!
//! | What is kept | Where | Why there |
//! |---|---|---|
//! | the operation that is latched, and how the last boot ended | `/run/nodeagent/journal.json` | a restart of this agent continues with it; a boot ends it |
//! | why this boot ends | `/persist/reboot-reason` and its neighbours | the next boot reports it |

pub mod core;
mod follow;
mod hooks;
mod journal;
mod limits;
mod plain;
mod reasons;
mod shell;
#[cfg(test)]
mod tests;

pub use limits::Limits;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent::device::Device;
use agent::turn::{self, AgentCore};
use agent::{AgentContext, Error, Tasks, Troubles, outlet, pid};
use topics::NodeAgentStatus;

const NAME: &str = "nodeagent";

/// Runs the agent until `context` says stop.
///
/// It also returns `Ok`, without a stop, when a real device was asked to go down and is still up two minutes
/// later. Its caller must not restart it then: the touch file grows old, and the machine's watchdog does what
/// the device did not. A restart by hand goes through the operation once more.
pub async fn run(context: AgentContext, limits: Limits, device: Box<dyn Device>) -> Result<(), Error> {
    let troubles = Troubles::open(&context.topic_root, context.clock, NAME);
    let device: Arc<dyn Device> = Arc::from(device);
    let open = || {
        pid::write::<NodeAgentStatus>(&context, NAME)?;
        let (outbox, inbox) = agent::inbox();
        let (shell, found) = shell::Shell::open(&context, &device, Tasks::new(outbox), (&troubles, limits))?;
        Ok((shell, found, inbox))
    };
    let Some((shell, found, inbox)) = outlet::started(&context, &troubles, open).await? else {
        return Ok(());
    };
    let leaves = Arc::clone(&shell.leaves);
    let core = core::NodeAgent::new(limits, core::Waits::default(), found, context.clock.now());
    match turn::run(AgentCore::First, (core, Vec::new()), shell, inbox, &context, &troubles).await {
        Err(_) if leaves.load(Ordering::Relaxed) => Ok(()),
        ended => ended,
    }
}
