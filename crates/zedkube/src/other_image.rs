//! zedkube on an image that was built without Kubernetes (`kvm`, `xen`): as long as the device config names no cluster it
//! says that drains are not supported, and does nothing else. A config that names one goes before the image's word.
//!
//! Source: lf-edge/eve pkg/pillar/cmd/zedkube, which is chosen when it is built.

use std::time::Duration;

use agent::device::HV_TYPE;
use agent::watchdog::Watchdog;
use agent::{AgentContext, Error, Outlet, Tasks, Troubles, outlet, pid};
use topics::{DrainStatus, EdgeNodeClusterConfig, NodeDrainStatus, Requester, Trouble};
use tracing::{info, warn};

use crate::{GLOBAL, NAME};

/// How often this agent reports to the machine's watchdog that it lives.
const TICK: Duration = Duration::from_secs(25);

/// Why it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherImageEnd {
    Stopped,
    /// The device config names a cluster: this node is drained like any other one.
    InCluster,
}

/// Publishes NOTSUPPORTED, until `context` says stop or the device config names a cluster.
pub(crate) async fn run(
    context: &AgentContext,
    troubles: &Troubles,
    word: &'static str,
) -> Result<OtherImageEnd, Error> {
    let open = || {
        pid::write::<NodeDrainStatus>(context, NAME)?;
        Outlet::<NodeDrainStatus>::open(troubles)
    };
    let Some(mut status) = outlet::started(context, troubles, open).await? else {
        return Ok(OtherImageEnd::Stopped);
    };
    info!("this is an image for {word}: there is nothing to drain unless the device config names a cluster");
    let said = NodeDrainStatus { status: DrainStatus::NotSupported, requested_by: Requester::None };
    let (outbox, mut clusters) = agent::inbox();
    let mut tasks = Tasks::new(outbox);
    tasks.follow::<EdgeNodeClusterConfig>(&context.topic_root, "zedagent", |change| {
        change.put().filter(|it| it.member() == Some(true)).map(|it| name(&it))
    });
    let mut watchdog = Watchdog::new(NAME, &context.topic_root, context.clock);
    let mut stop = context.stop.clone();
    loop {
        watchdog.touch();
        let tick = context.clock.now() + TICK;
        let due = if status.put(GLOBAL, &said) { tick } else { status.next_try().unwrap_or(tick) };
        tokio::select! {
            () = stop.stopped() => return Ok(OtherImageEnd::Stopped),
            cluster = clusters.recv() => if let Some(cluster) = cluster {
                differ(context, troubles, word, &cluster);
                return Ok(OtherImageEnd::InCluster);
            },
            () = context.clock.sleep_until(Some(due)) => {}
        }
    }
}

/// Its name, or its identity where it has none.
fn name(config: &EdgeNodeClusterConfig) -> String {
    if config.cluster_name.is_empty() {
        config.cluster_id.uuid.to_string()
    } else {
        config.cluster_name.clone()
    }
}

fn differ(context: &AgentContext, troubles: &Troubles, word: &str, cluster: &str) {
    let error = format!(
        "the image is one for {word}, which has no Kubernetes, and the device config names the cluster {cluster}: the \
         config counts, and this node is drained before an operation"
    );
    warn!(path = HV_TYPE, "{error}");
    troubles.report(&Trouble {
        what: "kind of the image".to_owned(),
        path: context.topic_root.path(HV_TYPE).display().to_string(),
        error,
        next_step: "put an image for clusters on this node, or take its cluster out of the device config"
            .to_owned(),
        ..Trouble::default()
    });
}
