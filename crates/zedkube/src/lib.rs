//! zedkube drains this node on request, reports how far it is, and uncordons it again. It takes this node out of its
//! cluster when the config says so.
//!
//! Beside its core it runs `clusterview` and `nodestatus`, which receive from it by channels and report to it only that
//! the lease is released. Not here: how a node is drained (`kubenodeop`), and whether an operation goes ahead (its
//! requester decides). Source: lf-edge/eve pkg/pillar/cmd/zedkube.

pub mod after_boot;
pub mod core;
mod failover;
mod hooks;
pub mod k3s;
mod leave;
mod left_behind;
mod limits;
mod local;
mod longhorn;
mod maintenance;
mod node_report;
mod other_image;
mod outage;
pub mod preflight;
mod reserve;
mod runtime;
mod shell;
mod site;
mod stuck;
mod token;
pub mod update_status;
pub mod window;
mod work;

pub use limits::Limits;
pub use node_report::condition;

use std::sync::Arc;
use std::time::Duration;

use ::outage::calls::LeaseRead;
use agent::device::ImageKind;
use agent::turn::{self, AgentCore};
use agent::wire::{self, GLOBAL, ZEDKUBE as NAME};
use agent::{AgentContext, Error, Tasks, Troubles, duties, force, outlet, pid};
use clusterview::ClusterView;
use clusterview::apps::Pipe;
use kubeapi::nodes::MachineIds;
use kubeapi::{ApiClient, OwnNode};
use nodestatus::{ClusterMembership, Membership};
use step::Core as _;
use tokio::sync::watch;
use topics::{EdgeNodeClusterConfig, NodeDrainStatus};
use tracing::warn;

use crate::core::Event;
use crate::other_image::OtherImageEnd;
use crate::work::{TaskContext, pass_on};

/// A name that people write and no program reads.
const MISSPELT: &str = "persist/kube-status/kubeforce-NodeDrainStatus-global.json";
/// While it exists, a drain that is done is not published.
pub const WAIT: &str = "tmp/DrainStatus_FaultInjection_Wait";

/// How long a stop waits for evictions under way, which take 20 to 700 ms.
const CALLS_END: Duration = Duration::from_secs(5);

/// What duties beside the drain work with.
#[derive(Clone)]
pub(crate) struct BesideDrain {
    context: AgentContext,
    cluster: ApiClient,
    own_node: OwnNode,
    members: watch::Receiver<ClusterMembership>,
    troubles: Troubles,
}

/// Runs zedkube until `context` says stop.
pub async fn run(context: AgentContext, limits: Limits, cluster: ApiClient) -> Result<(), Error> {
    Box::pin(run_into(context, limits, cluster, Pipe::standard_output())).await
}

/// [`run`], with another place for the lines that applications have logged.
#[expect(clippy::too_many_lines, reason = "what is started, one after the other")]
pub async fn run_into(
    context: AgentContext,
    limits: Limits,
    cluster: ApiClient,
    pipe: Pipe,
) -> Result<(), Error> {
    let troubles = Troubles::open(&context.topic_root, context.clock, NAME);
    if let ImageKind::Without(word) = ImageKind::read(&context.topic_root)
        && other_image::run(&context, &troubles, word).await? == OtherImageEnd::Stopped
    {
        return Ok(());
    }
    let cluster = cluster.on_machine(MachineIds::here(context.topic_root.root(), &context.boot_id));
    let own_node = OwnNode::default();
    let (sender, lease) = watch::channel(None);
    let view = ClusterView::new(&context, limits.cluster_view(), cluster.clone(), own_node.clone());
    let open = || {
        pid::write::<NodeDrainStatus>(&context, NAME)?;
        force::forget_earlier_boot(&context);
        let (outbox, inbox) = agent::inbox();
        let (tasks, door) = (Tasks::new(outbox), view.door());
        let membership = leave::Leaver::open(&context, &troubles, &limits)?;
        let sites = site::Sites::open(&context, &troubles, &limits)?;
        let work = TaskContext::new(
            cluster.clone(),
            context.clone(),
            limits.clone(),
            own_node.clone(),
            lease.clone(),
        );
        let opened = shell::Shell::open(&context, work.clone(), tasks, door)?;
        let found = work.preflight.report();
        let updates = Box::new(k3s::Updates::open(&context, work)?);
        let asked = agent::publication(&context.topic_root, wire::MAINTENANCE)?;
        Ok((inbox, membership, sites, (updates, found, asked), opened))
    };
    let Some((inbox, membership, sites, (updates, found, asked), (mut shell, earlier))) =
        outlet::started(&context, &troubles, open).await?
    else {
        return Ok(());
    };
    let (cluster_membership, heard) = (membership.membership(), membership.acknowledged());
    let (now, booted_at) = (context.clock.now(), context.clock.booted_at());
    let machines = cluster.clone();
    let (windows, says_of) = (limits.windows.clone(), limits.clone());
    let server = nodestatus::ServerLimits {
        port: limits.server_port,
        further: limits.server_addresses.clone(),
        ..nodestatus::ServerLimits::default()
    };
    let (mut core, mut first) =
        core::Zedkube::new(limits, earlier.journal, context.boot_id.clone(), now, booted_at);
    core.count_on(earlier.shown);
    core.answered(earlier.answered);
    first.extend(core.recall(now, earlier.history));
    // A node that was leaving is not given its cordon back before it is known what the config says now.
    let before = cluster_membership.borrow().membership;
    if before == Membership::Leaving {
        first.extend(core.step(now, Event::Member(before)));
    }
    // Nor does one that a whole-site operation holds begin anything before it is known how far that is.
    let held = sites.hold().borrow().clone();
    first.extend(core.step(now, Event::Site(held)));
    // Nor is a turn given back before the k3s that it was taken for runs.
    let held = updates.hold().borrow().clone();
    first.extend(core.step(now, Event::K3s(held)));
    first.extend(shell.hooks.left().into_iter().flat_map(|left| core.step(now, left)));
    // Nor does a drain start before the clock has been held against the windows.
    let closed = window::follow(&mut shell.tasks, &context.topic_root, context.clock, &windows);
    first.extend(core.step(now, closed));
    // Nor before it is known whether a person lets one.
    let mut pauses = context.pauses();
    first.extend(core.step(now, Event::Pause(pauses.next().await)));
    let (attempt, reserve) = (shell.attempt.subscribe(), shell.reserve.subscribe());
    let storage = shell.longhorn.subscribe();
    let (says, published, answers) =
        (shell.work.statement(), shell.published.subscribe(), shell.work.hears.clone());
    let beside = BesideDrain {
        context: context.clone(),
        cluster: cluster.clone(),
        own_node: own_node.clone(),
        members: cluster_membership.clone(),
        troubles: troubles.clone(),
    };
    let maintained =
        maintenance::MaintenanceDuty { asked, beside: beside.clone(), wanted: shell.maintenance.subscribe() };
    shell.follow(cluster_membership.clone(), heard);
    let of_site = sites.hold();
    shell.tasks.events("follow the whole-site operation", |outbox| pass_on(of_site, outbox, Event::Site));
    let of_k3s = updates.hold();
    shell.tasks.events("follow the update of k3s", |outbox| pass_on(of_k3s, outbox, Event::K3s));
    shell.tasks.follow_pause(pauses, Event::Pause);
    let drain = Box::pin(turn::run(AgentCore::First, (core, first), shell, inbox, &context, &troubles));
    let membership_of_updates = cluster_membership.clone();
    // What fails of these is restarted on its own; the drain neither ends nor waits for it (K5).
    let way_out = membership.run(cluster.clone(), own_node.clone(), attempt);
    let silent = failover::FailoverDuty {
        beside: beside.clone(),
        port: server.port,
        lease: lease.clone(),
        hears: answers,
        told: watch::Sender::default(),
    };
    let told = silent.told.subscribe();
    let silent = duties::keep_endless("nodes that are silent", &context, || silent.clone().run());
    let sites = sites.run(cluster.clone(), own_node.clone(), lease, cluster_membership.clone());
    let newest = follow_lease(&context, cluster.clone(), cluster_membership.clone(), sender);
    let (configs, config) = watch::channel(None);
    let totals = watch::Sender::<nodestatus::Totals>::default();
    totals.send_modify(|it| it.codes = kubenodeop::BlockCode::WORDS);
    let report = node_report::NodeReport { beside: beside.clone(), published, totals: totals.clone(), told };
    let report = duties::keep_until_stop("report on the Node", &context, || {
        let (report, limits) = (report.clone(), says_of.clone());
        async move {
            report.run(&limits).await;
            Ok(())
        }
    });
    let says = (says, totals.subscribe());
    let status =
        nodestatus::run(&context, &troubles, &server, cluster, own_node, cluster_membership.clone(), says);
    let left_behind = duties::keep_endless("leftovers of nodes that are away", &context, || {
        left_behind::run(machines.clone(), context.clock, view.leadership())
    });
    let stuck = duties::keep_endless("machines that do not start", &context, || {
        stuck::run(machines.clone(), context.clock, view.leadership(), troubles.clone())
    });
    let mounts =
        duties::keep_endless("volumes that are not mounted", &context, || stuck::mounts(beside.clone()));
    let disks =
        duties::keep_endless("room on disks", &context, || reserve::run(beside.clone(), reserve.clone()));
    let properties = duties::keep_endless("properties of Longhorn", &context, || {
        longhorn::run(machines.clone(), context.clock, view.leadership(), storage.clone())
    });
    let token = duties::keep_endless("token of the kubeconfig", &context, || {
        token::run(machines.clone(), context.clock)
    });
    let updates_of_components = duties::keep_until_stop("updates of Kubernetes components", &context, || {
        update_status::run(&context, &troubles)
    });
    let preflight = duties::keep_until_stop("report of the preflight", &context, || {
        preflight::publish(&context, &troubles, found.clone())
    });
    let mut stop = context.stop.clone();
    let others = Box::pin(async {
        tokio::join!(
            Box::pin(way_out),
            Box::pin(sites),
            Box::pin(newest),
            Box::pin(status),
            Box::pin(view.run(&troubles, config, pipe)),
            Box::pin(tell_config(&context, cluster_membership, configs)),
            Box::pin(left_behind),
            Box::pin(silent),
            Box::pin(stuck),
            Box::pin(mounts),
            Box::pin(disks),
            Box::pin(properties),
            Box::pin(async {
                tokio::select! { () = maintained.run() => {}, () = stop.stopped() => {} }
            }),
            Box::pin(token),
            Box::pin(updates_of_components),
            Box::pin(preflight),
            Box::pin(report),
        );
        Ok(())
    });
    // In one task: if any hangs, the machine's watchdog sees it.
    let updates = Box::pin(updates.run(membership_of_updates, &troubles));
    let ended = tokio::try_join!(drain, updates, others).map(|((), (), ())| ());
    // No new one starts; what a budget has counted by now comes to its end.
    if !machines.ended(CALLS_END).await {
        warn!(secs = CALLS_END.as_secs(), "evictions under way had no answer in time; leaving all the same");
    }
    ended
}

/// Keeps one watch of the Lease of turns for all who read it, while this node is in a cluster, until the context says
/// stop.
async fn follow_lease(
    context: &AgentContext,
    cluster: ApiClient,
    mut cluster_membership: watch::Receiver<ClusterMembership>,
    leases: watch::Sender<Option<LeaseRead>>,
) {
    let mut stop = context.stop.clone();
    loop {
        let is_in = cluster_membership.borrow_and_update().is_in();
        tokio::select! {
            () = ::outage::calls::follow(&cluster, &leases), if is_in => {}
            changed = cluster_membership.changed() => if changed.is_err() { return stop.stopped().await },
            () = stop.stopped() => return,
        }
    }
}

/// Passes on the valid part of the config of the cluster, until `context` says stop.
async fn tell_config(
    context: &AgentContext,
    mut cluster_membership: watch::Receiver<ClusterMembership>,
    configs: watch::Sender<Option<Arc<EdgeNodeClusterConfig>>>,
) {
    let mut stop = context.stop.clone();
    loop {
        let valid = cluster_membership.borrow_and_update().config.clone().filter(|it| it.valid);
        configs.send_if_modified(|held| step::update(held, valid));
        tokio::select! {
            changed = cluster_membership.changed() => if changed.is_err() { return stop.stopped().await },
            () = stop.stopped() => return,
        }
    }
}
