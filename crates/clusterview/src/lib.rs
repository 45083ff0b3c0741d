//! The side duties for the cluster and its applications: election, statistics, applications and their logs,
//! their consoles, networks and places, services of users, deletion of replaced control-plane nodes. They run
//! beside the drain, each restarted alone.
//!
//! Who may call: `zedkube`, which runs it and sends it the state of its core by channels. Not here: anything
//! that a drain waits for, except the release of the lease (`leader::Door`). Published in zedkube's name.

pub mod apps;
pub mod collections;
pub mod consoles;
pub mod leader;
pub mod lease;
pub mod networks;
pub mod places;
pub mod pods;
pub mod prune;
pub mod services;
pub mod stats;

use std::sync::Arc;
use std::time::Duration;

use agent::wire::{GLOBAL, ZEDKUBE as NAME};
use agent::{AgentContext, Clock, Troubles, duties};
use kubeapi::{ApiClient, OwnNode};
use tokio::sync::watch;
use topics::EdgeNodeClusterConfig;

use apps::{AppRequirements, Pipe};
use consoles::ConsoleFiles;
use leader::{Door, Leader, Leadership};
use lease::ElectionTimes;

/// The valid config of this node's cluster; `None` without one.
pub type ClusterConfig = watch::Receiver<Option<Arc<EdgeNodeClusterConfig>>>;

/// Returns true once leadership differs from `leads`; a renewal is no change; false when the sender is gone.
/// Dropping it loses nothing.
pub async fn leads_otherwise(leading: &mut watch::Receiver<Leadership>, clock: Clock, leads: bool) -> bool {
    leading.wait_for(|it| it.holds(clock.now()) != leads).await.is_ok()
}

/// So that nodes do not ask in step.
fn seed(clock: Clock) -> u64 {
    u64::try_from(clock.now().since_start().as_nanos()).unwrap_or_default()
}

/// Go writes a list that nothing was put into as `null`.
fn listed<T>(items: impl IntoIterator<Item = T>) -> Option<Vec<T>> {
    let items: Vec<T> = items.into_iter().collect();
    (!items.is_empty()).then_some(items)
}

#[derive(Debug, Clone, Copy)]
pub struct DutyLimits {
    pub times: ElectionTimes,
    /// How long the drain, or the end of this agent, waits for the release of the lease.
    pub release: Duration,
    /// How long an existing config may read as failed before it counts as lost.
    pub config_patience: Duration,
    /// Between two looks for replaced nodes.
    pub prune: Duration,
    pub console_files: ConsoleFiles,
}

pub struct ClusterView {
    context: AgentContext,
    limits: DutyLimits,
    cluster: ApiClient,
    own_node: OwnNode,
    leader: Leader,
    wanted: watch::Sender<AppRequirements>,
}

impl ClusterView {
    pub fn new(context: &AgentContext, limits: DutyLimits, cluster: ApiClient, own_node: OwnNode) -> Self {
        let leader = Leader::new(context, limits, cluster.clone(), own_node.clone());
        let wanted = watch::Sender::default();
        Self { context: context.clone(), limits, cluster, own_node, leader, wanted }
    }

    pub fn door(&self) -> Door {
        self.leader.door()
    }

    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leader.leadership()
    }

    /// Runs all duties until `context` says stop; then the lease is released. A failed one is restarted
    /// alone.
    pub async fn run(&self, troubles: &Troubles, config: ClusterConfig, pipe: Pipe) {
        let (context, clock) = (&self.context, self.context.clock);
        let election = duties::keep("election", context, || self.leader.run(troubles));
        let prune = duties::keep_endless("replaced nodes", context, || {
            let (cluster, own_node, config) = (self.cluster.clone(), self.own_node.clone(), config.clone());
            let leading = self.leader.leadership();
            prune::run(cluster, clock, self.limits.prune, own_node, config, leading)
        });
        let report = duties::keep_until_stop("statistics", context, || {
            stats::run(troubles, self.cluster.clone(), clock, self.leader.leadership(), config.clone())
        });
        let apps = duties::keep("applications", context, || {
            let (cluster, own_node) = (self.cluster.clone(), self.own_node.clone());
            apps::run(context, troubles, cluster, own_node, self.wanted.clone(), pipe.clone())
        });
        let services = duties::keep_until_stop("services of users", context, || {
            services::run(context, troubles, self.cluster.clone())
        });
        let consoles = duties::keep_until_stop("consoles", context, || {
            consoles::run(context, self.limits.console_files, self.wanted.subscribe())
        });
        let networks = duties::keep_until_stop("network attachments", context, || {
            networks::run(self.cluster.clone(), clock, self.own_node.clone(), self.wanted.subscribe())
        });
        let places = duties::keep_until_stop("affinity of machines", context, || {
            places::run(self.cluster.clone(), clock, self.own_node.clone(), self.wanted.subscribe())
        });
        tokio::join!(
            Box::pin(election),
            Box::pin(prune),
            Box::pin(report),
            Box::pin(apps),
            Box::pin(services),
            Box::pin(consoles),
            Box::pin(networks),
            Box::pin(places),
        );
    }
}
