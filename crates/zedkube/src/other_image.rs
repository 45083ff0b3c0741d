//! zedkube on an image whose hypervisor is not `k`: there is no Kubernetes, so it says that drains are not supported, and
//! does nothing else.
//!
//! Source: spec/eve-rest.md 2; lf-edge/eve pkg/pillar/cmd/zedkube, which is chosen when it is built. Goal E10.

use std::time::Duration;

use agent::watchdog::Watchdog;
use agent::{AgentContext, Error, Outlet, Troubles, outlet, pid};
use topics::{DrainStatus, NodeDrainStatus, Requester};
use tracing::info;

use crate::{GLOBAL, NAME};

/// How often the machine's watchdog hears that this agent lives.
const TICK: Duration = Duration::from_secs(25);

/// Publishes NOTSUPPORTED, until `context` says stop.
///
/// # Errors
/// The topic cannot be had.
pub(crate) async fn run(context: &AgentContext, troubles: &Troubles) -> Result<(), Error> {
    let open = || {
        pid::write::<NodeDrainStatus>(context, NAME)?;
        Outlet::<NodeDrainStatus>::open(troubles)
    };
    let Some(mut status) = outlet::started(context, troubles, open).await? else { return Ok(()) };
    info!("the hypervisor of this image is not k: there is nothing to drain");
    let said = NodeDrainStatus { status: DrainStatus::NotSupported, requested_by: Requester::None };
    let mut watchdog = Watchdog::new(NAME, &context.topic_root, context.clock);
    let mut stop = context.stop.clone();
    loop {
        watchdog.touch();
        let tick = context.clock.now() + TICK;
        let due = if status.put(GLOBAL, &said) { tick } else { status.next_try().unwrap_or(tick) };
        tokio::select! {
            () = stop.stopped() => return Ok(()),
            () = context.clock.sleep_until(Some(due)) => {}
        }
    }
}
