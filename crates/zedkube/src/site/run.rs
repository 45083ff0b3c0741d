//! Reads the Lease, keeps the record, cordons, and says how far this node is; works for all where that is its part.
//!
//! At rest the Lease is watched; nothing else is asked. The record is on disk before anything follows from it.

use std::time::Duration;

use agent::outlet::KeptRecord;
use agent::{AgentContext, Clock, Error, Troubles};
use kubeapi::{ApiClient, NodeName, OwnNode};
use kubenodeop::{CordonAnnotation, node};
use nodestatus::{ClusterMembership, Membership};
use outage::calls::{self, LeaseRead, Newest, Pulses};
use outage::margin;
use outage::margin::facts::{Data, Readyz};
use outage::operator::{self as lease, Failed};
use outage::site::calls::Address;
use outage::site::member::{self, Next, OwnIdentity, SiteFacts};
use outage::site::record::{Move, NodeStep, PhaseReadings, SiteMember, SitePhase, SiteRecord};
use outage::site::{calls as site_calls, coordinate, operator};
use outage::turn::record::{Mode, RecordSnapshot};
use outage::turn::rule::TurnNode;
use step::Mono;
use tokio::sync::watch;
use topics::{CordonOwner, GoTime, SiteOperation};
use tracing::{info, warn};

use super::restart;
use crate::GLOBAL;
use crate::core::SiteHold;
use crate::limits::Limits;

/// This node in the operation.
pub(crate) struct Sites {
    context: AgentContext,
    limits: Limits,
    /// While it cannot be written nothing follows from what is read.
    record: KeptRecord<SiteOperation>,
    hold: watch::Sender<SiteHold>,
    started: Mono,
    pulses: Pulses,
    /// Since when it could go or the API has been silent; and what of the two.
    waits: Option<(bool, Mono)>,
    stage: Option<Stage>,
    /// Of a restart: see [`restart::ordered`].
    drains_before: String,
    /// A restart that has stopped, with nothing on disk: until the Lease has another one, nothing is read again.
    stopped: Option<Mode>,
    /// The last look failed, and nothing is on disk yet.
    failed: bool,
}

/// What the site has been in since when, and what was seen meanwhile.
#[derive(Default)]
struct Stage {
    /// See [`coordinate::stage`].
    of: String,
    since: Mono,
    address: Address,
    /// Of a restart: when the cluster was looked at last, and since when it is well.
    looked: Option<Mono>,
    well: Option<Mono>,
}

impl Sites {
    /// Becomes the publisher of the record, if that can be, with what an earlier run left.
    /// Errors: the record cannot be read: whether an operation holds this node is not known then.
    pub(crate) fn open(context: &AgentContext, troubles: &Troubles, limits: &Limits) -> Result<Self, Error> {
        let record = KeptRecord::open(troubles, GLOBAL)?;
        let hold = hold(record.get(), &context.boot_id);
        Ok(Self {
            context: context.clone(),
            limits: limits.clone(),
            record,
            hold: watch::Sender::new(hold),
            started: context.clock.now(),
            pulses: Pulses::default(),
            waits: None,
            stage: None,
            drains_before: String::new(),
            stopped: None,
            failed: false,
        })
    }

    /// What this node is held to, from before the first look on.
    pub(crate) fn hold(&self) -> watch::Receiver<SiteHold> {
        self.hold.subscribe()
    }

    /// Looks again and again until `context` says stop. Dropping it ends a call; the next look continues.
    pub(crate) async fn run(
        mut self,
        cluster: ApiClient,
        own_node: OwnNode,
        mut lease: Newest,
        mut cluster_membership: watch::Receiver<ClusterMembership>,
    ) {
        let mut stop = self.context.stop.clone();
        let clock = self.context.clock;
        loop {
            let membership = cluster_membership.borrow_and_update().membership;
            let at_rest = self.record.get().is_none() && !self.failed && membership == Membership::Member;
            let look = async {
                let stopped = self.stopped.take();
                let changed = |seen: &Option<LeaseRead>| {
                    calls::record(seen.as_ref()).and_then(|it| it.mode.as_ref()) != stopped.as_ref()
                };
                if at_rest && lease.wait_for(changed).await.is_err() {
                    return std::future::pending().await;
                }
                match membership {
                    Membership::Member => {
                        let (name, device_uuid) = own_node.known().await;
                        self.failed = false;
                        if let Err(why) = self.look(&cluster, &name, &device_uuid).await {
                            self.alone(&name, &why).await;
                        }
                    }
                    // Of a cluster that the node has left nothing holds it.
                    Membership::Outside => {
                        self.keep(Next::default(), None);
                    }
                    Membership::Undecided | Membership::Leaving => {}
                }
                if membership != Membership::Member && self.record.get().is_none() {
                    return std::future::pending().await;
                }
                clock.sleep_until(Some(clock.now() + self.limits.site_step())).await;
            };
            tokio::select! {
                () = stop.stopped() => return,
                () = look => {}
                changed = cluster_membership.changed() => if changed.is_err() { return stop.stopped().await },
            }
        }
    }

    /// One look: what this node does for itself, and then what it does for all.
    /// Errors: what could not be read or done, in one line.
    async fn look(&mut self, cluster: &ApiClient, name: &NodeName, device_uuid: &str) -> Result<(), String> {
        let held = calls::read(cluster).await.map_err(|it| it.to_string())?;
        let site = held.as_ref().map(|it| operator::current(&it.record)).transpose();
        let site = site.map_err(|it| it.to_string())?.flatten();
        let (Some(held), Some(site)) = (held, site) else {
            (self.waits, self.stage) = (None, None);
            self.keep(Next::default(), None);
            return Ok(());
        };
        let uid = calls::own(cluster, name, device_uuid).await.map_err(|it| it.line())?.uid;
        let own = self.own(name, uid);
        let Some(member) = site.member(&own.node, &own.uid) else {
            self.keep(Next::default(), None);
            return Ok(());
        };
        let seen = node::read(cluster, name, device_uuid).await.map_err(|it| it.line())?;
        let now = self.context.clock.now();
        // Only servers look at the others: one of them works for all, and they go one after another.
        let nodes = if member.is_server() || !site.nodes.iter().any(SiteMember::is_server) {
            let looked = calls::look(cluster, name, &mut self.pulses, now).await;
            looked.map_err(|it| it.to_string())?.nodes
        } else {
            Vec::new()
        };
        let is_gone = |it: &&SiteMember| !nodes.is_empty() && coordinate::is_gone(&site, it, &nodes);
        let before = (own.node.as_str(), self.record.get());
        let reboot = restart::ordered(&self.context, &site, before, &mut self.drains_before);
        let facts = SiteFacts {
            cordoned: seen.unschedulable,
            open: seen.cordon != CordonOwner::Ours,
            gone: site.nodes.iter().filter(is_gone).map(|it| it.node.clone()).collect(),
            waited: self.waited(false),
            reboot,
            ..self.facts(member.is_server()).await
        };
        let next = member::next(&own, self.record.get(), Ok(&site), &facts);
        let (cordon, say) = (next.cordon, next.say.clone());
        // Nothing of this node's own files keeps it from working for all.
        if self.keep(next, Some(&site)) {
            if cordon {
                let owner = CordonAnnotation {
                    boot_id: own.boot_id.clone(),
                    requested_by: 0,
                    requested_at: site.by.when.clone(),
                    fence: held.record.fence,
                    lease_uid: held.uid.clone(),
                    site: site.id.clone(),
                };
                node::cordon(cluster, name, device_uuid, &owner).await.map_err(|it| it.line())?;
            }
            if let Some(mut ack) = say {
                let wall = self.context.clock.wall().to_timestamp();
                ack.since = wall.to_string();
                let mut heard = site.clone();
                heard.hear(ack.clone());
                if heard != site {
                    let edit = |record: &_| operator::hear(record, &site, &ack);
                    lease::change(cluster, wall, edit).await.map_err(|it| it.to_string())?;
                }
            }
        }
        if site.phase == SitePhase::Stopped && self.record.get().is_none() {
            self.stopped.clone_from(&held.record.mode);
        }
        let of = coordinate::stage(&site, &nodes);
        let stage = match &mut self.stage {
            Some(known) if known.of == of => known,
            other => other.insert(Stage { of, since: now, ..Stage::default() }),
        };
        let lasted = now.since(stage.since);
        if coordinate::works_for_all(&own.node, &site, &nodes, lasted) {
            return work_for_all(cluster, self.context.clock, (&held, &site), &nodes, lasted, stage).await;
        }
        stage.well = None;
        Ok(())
    }

    /// Nothing can be read: what is on disk decides.
    async fn alone(&mut self, name: &NodeName, why: &str) {
        let Some(record) = self.record.get().cloned() else {
            self.failed = true;
            return;
        };
        let own = self.own(name, String::new());
        let facts = SiteFacts { waited: self.waited(true), ..self.facts(record.server).await };
        let next = member::next(&own, Some(&record), Err(why), &facts);
        self.keep(next, None);
    }

    fn own(&self, name: &NodeName, uid: String) -> OwnIdentity {
        OwnIdentity { node: name.to_string(), uid, boot_id: self.context.boot_id.clone() }
    }

    /// What is seen without the API.
    async fn facts(&self, server: bool) -> SiteFacts {
        let clock = self.context.clock;
        let mut facts = SiteFacts { up: clock.now().since(self.started), ..SiteFacts::default() };
        let (now, least) = (clock.wall(), self.record.get().map_or(GoTime::ZERO, |it| it.at));
        if now < least {
            let (now, least) = (now.shown(), least.shown());
            facts.clock = format!("its clock to be set: it shows {now}, and was at {least} before");
        }
        if !server {
            return facts;
        }
        let etcd = margin::calls::read(&self.limits.etcd(&self.context.topic_root.path(""))).await;
        if matches!(etcd.data, Ok(Data::Absent { .. })) {
            return facts;
        }
        if let Ok(metrics) = &etcd.metrics {
            facts.leads = metrics.is_leader;
            facts.peers = Some(metrics.streams.values().filter(|it| **it).count());
        }
        facts.etcd = match &etcd.readyz {
            Ok(Readyz::Ready) => String::new(),
            Ok(Readyz::NotReady(why)) => format!("its etcd to be ready: {why}"),
            Err(why) => format!("its etcd: {why}"),
        };
        facts
    }

    /// How long it has waited since it could go, or since the API fell silent.
    fn waited(&mut self, silent: bool) -> Duration {
        let now = self.context.clock.now();
        let all_ready = self.record.get().is_some_and(|it| it.all_ready);
        let known = self.waits.take().filter(|(of, _)| *of == all_ready);
        if all_ready || silent {
            self.waits = Some(known.unwrap_or((all_ready, now)));
        }
        self.waits.map_or(Duration::ZERO, |(_, since)| now.since(since))
    }

    /// Writes the record and holds the node to it. Returns whether it is on disk.
    fn keep(&mut self, next: Next, site: Option<&SiteRecord>) -> bool {
        let (mut record, before) = (next.disk, self.record.get().cloned());
        // The moment alone is no reason to write.
        if let Some(changed) = record.as_mut().filter(|it| before.as_ref() != Some(*it)) {
            changed.at = self.context.clock.wall();
        }
        if !self.record.put(record.as_ref()) {
            self.failed = true;
            return false;
        }
        let changed = record.as_ref().map(shown) != before.as_ref().map(shown);
        match &record {
            Some(SiteOperation { id: operation, phase, step, waiting_for: waits, op, .. }) if changed => {
                info!(operation, phase, step, waits, "whole-site {}", op.word());
            }
            None if changed => info!("the whole-site operation is over"),
            Some(_) | None => {}
        }
        let is_queued = next.say.is_some_and(|it| it.step == NodeStep::Seen) && record.is_none();
        let hold = match site.filter(|_| is_queued) {
            Some(site) => SiteHold::Queued(site.order.join(", then ")),
            None => hold(record.as_ref(), &self.context.boot_id),
        };
        self.hold.send_if_modified(|held| step::update(held, hold));
        true
    }
}

/// What is due for all: the next phase, or what it waits for.
async fn work_for_all(
    cluster: &ApiClient,
    clock: Clock,
    (held, site): (&RecordSnapshot, &SiteRecord),
    nodes: &[TurnNode],
    lasted: Duration,
    stage: &mut Stage,
) -> Result<(), String> {
    let waits = |waits: String, next: String| Some(SiteRecord { waits, next, ..site.clone() });
    let found = if coordinate::is_verifying(site) {
        // That reads all of the cluster, so not in each look of this node.
        let now = clock.now();
        if stage.looked.is_some_and(|at| now.since(at) < coordinate::WELL) {
            return Ok(());
        }
        stage.looked = Some(now);
        Ok(restart::look(cluster, clock, site, &mut stage.well).await)
    } else {
        site_calls::find(cluster, &site.phase, &site.id).await
    };
    let mut found = match found {
        Ok(found) => PhaseReadings { lasted, ..found },
        Err(error) => {
            let to = waits(error.line(), error.next_step().clone());
            return advance(cluster, clock, site, to).await;
        }
    };
    if site.phase == SitePhase::Starting {
        let looked = stage.address.look(cluster, nodes).await;
        let why = looked.unwrap_or_else(|error| Some(format!("the virtual IP: {}", error.line())));
        found.blocking.splice(0..0, why);
    }
    found.holders = held.record.holders.iter().map(|it| it.node.clone()).collect();
    let to = match coordinate::next(site, nodes, &found) {
        Move::Wait(what, next) => waits(what, next),
        Move::Scale(work) => {
            for it in work {
                info!(workload = %format_args!("{}/{}", it.namespace, it.name), replicas = it.replicas, "scaled for the whole-site operation");
                site_calls::scale(cluster, &it).await.map_err(|it| it.line())?;
            }
            return Ok(());
        }
        Move::Machines(work) => {
            let mut refused = Vec::new();
            for it in work {
                let machine = &it.machine;
                info!(kind = machine.kind, machine = machine.path(), work = ?it.turn, "for the whole-site operation");
                if let Err(error) = site_calls::act(cluster, &it).await {
                    refused.push(error.line());
                }
            }
            if refused.is_empty() {
                return Ok(());
            }
            waits(format!("virtual machines: {}", refused.join("; ")), coordinate::refused_step(site))
        }
        Move::To(mut to) => {
            let wall = clock.wall().to_timestamp().to_string();
            to.stamp(&wall);
            if to.phase != site.phase {
                to.since = wall;
            }
            if !to.missing.is_empty() {
                warn!(missing = to.missing.join(", "), "the site continues without nodes");
            }
            Some(*to)
        }
        Move::End => None,
    };
    advance(cluster, clock, site, to).await
}

async fn advance(
    cluster: &ApiClient,
    clock: Clock,
    from: &SiteRecord,
    to: Option<SiteRecord>,
) -> Result<(), String> {
    if to.as_ref() == Some(from) {
        return Ok(());
    }
    if let Some(to) = to.as_ref().filter(|it| topic_of(&it.waits) != topic_of(&from.waits)) {
        let (phase, kind) = (to.phase.text(), to.kind.text());
        info!(operation = to.id, phase, waits = to.waits, "whole-site {kind}");
    }
    let edit = |record: &_| operator::advance(record, from, to.as_ref());
    match lease::change(cluster, clock.wall().to_timestamp(), edit).await {
        // Another one was faster: the next look sees what it wrote.
        Ok(_) | Err(Failed::Outrun(_)) => Ok(()),
        Err(why) => Err(why.to_string()),
    }
}

/// What the record holds this node to, in the boot `boot_id`.
fn hold(record: Option<&SiteOperation>, boot_id: &str) -> SiteHold {
    let Some(record) = record.filter(|it| !it.released) else { return SiteHold::None };
    let op = record.op.word();
    match topic_of(&record.waiting_for) {
        _ if record.go && record.boot_id == boot_id => SiteHold::Go(format!("whole-site {op} {}", record.id)),
        "" => SiteHold::Kept(format!("whole-site {op}")),
        waits => SiteHold::Kept(format!("whole-site {op} (waits for {waits})")),
    }
}

/// What is waited for, without the figures and names behind it that change.
fn topic_of(waits: &str) -> &str {
    waits.split(':').next().unwrap_or_default()
}

/// What is logged of this node's record when it changes.
fn shown(it: &SiteOperation) -> [&str; 4] {
    [&it.id, &it.step, &it.phase, topic_of(&it.waiting_for)]
}

#[cfg(test)]
mod tests {
    use topics::DeviceOp;

    use super::*;

    #[test]
    fn a_node_that_is_held_says_by_which_operation_and_what_that_waits_for() {
        let held = |waiting_for: &str, boot_id: &str| {
            let (id, waiting_for) = ("op-1".to_owned(), waiting_for.to_owned());
            let (op, go, own) = (DeviceOp::Shutdown, true, "b".to_owned());
            let record = SiteOperation { id, op, waiting_for, boot_id: own, go, ..SiteOperation::default() };
            hold(Some(&record), boot_id)
        };
        assert_eq!(held("", "c"), SiteHold::Kept("whole-site shutdown".to_owned()));
        let waits = "whole-site shutdown (waits for node edge-node-3)".to_owned();
        assert_eq!(held("node edge-node-3: 2 of 5 pods", "c"), SiteHold::Kept(waits));
        assert_eq!(held("", "b"), SiteHold::Go("whole-site shutdown op-1".to_owned()));
    }
}
