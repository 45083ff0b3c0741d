//! zedagent reads the device config, publishes its parts, and holds reboot and shutdown back until the node is
//! drained.
//!
//! Not here: carrying the operation out (nodeagent), the drain (zedkube). Source: lf-edge/eve
//! pkg/pillar/cmd/zedagent.

mod config;
pub mod core;
pub mod device_config;
mod follow;
mod limits;
mod reboot_required;
mod shell;

pub use limits::Limits;

use agent::turn::{self, AgentCore};
use agent::{AgentContext, Error, Tasks, Troubles, force, outlet, pid};
use topics::ZedAgentStatus;

const NAME: &str = "zedagent";
/// The controller's config, under the root.
pub const CONFIG: &str = "persist/config/edge-dev-config.json";

/// Runs zedagent until `context` says stop.
pub async fn run(context: AgentContext, limits: Limits) -> Result<(), Error> {
    let troubles = Troubles::open(&context.topic_root, context.clock, NAME);
    let open = || {
        pid::write::<ZedAgentStatus>(&context, NAME)?;
        force::forget_earlier_boot(&context);
        let (outbox, inbox) = agent::inbox();
        let (shell, found) = shell::Shell::open(&context, Tasks::new(outbox))?;
        Ok((shell, found, inbox, config::ConfigTopics::open(&context.topic_root, &troubles)?))
    };
    let Some((mut shell, mut found, inbox, config)) = outlet::started(&context, &troubles, open).await?
    else {
        return Ok(());
    };
    // Nothing begins before a person's pause is known.
    let mut pauses = context.pauses().keeping();
    found.pause = pauses.next().await;
    if let Some(path) = limits.reboot_required.clone() {
        let follow = reboot_required::follow(context.clone(), path);
        shell.tasks.start("follow what the OS wants", async {
            follow.await;
            None
        });
    }
    let core = core::Zedagent::new(&limits, found, context.clock.now(), context.clock.booted_at());
    shell.follow(config, &troubles);
    shell.tasks.follow_pause(pauses, core::Event::Pause);
    turn::run(AgentCore::First, core, shell, inbox, &context, &troubles).await
}
