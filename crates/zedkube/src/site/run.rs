//! Reads the Lease, keeps the record, cordons, and says how far this node is; works for all where that is its part.
//!
//! At rest the Lease is watched; nothing else is asked. The record is on disk before anything follows from it.
//!
//! The record on disk, as the rule has it and as the topic has it.

use std::collections::BTreeSet;
use std::time::Duration;

use agent::outlet::Tries;
use agent::{AgentContext, Error, Troubles, publication, wire};
use kubeapi::{ApiClient, NodeName, OwnNode};
use kubenodeop::{CordonAnnotation, node};
use nodestatus::{ClusterMembership, Membership};
use outage::calls::{self, LeaseRead, Newest, Pulses};
use outage::margin;
use outage::margin::facts::{Data, OwnEtcd as Etcd, Readyz};
use outage::operator::{self as lease, Failed};
use outage::site::calls::Address;
use outage::site::member::{self, LeaseReading, LocalSite, Next, OwnIdentity, SiteFacts};
use outage::site::record::Move;
use outage::site::record::{Ack, NodeStep, SiteKind, SitePhase, SiteRecord};
use outage::site::restart::{stage, stands_in};
use outage::site::{calls as site_calls, coordinate, operator};
use outage::turn::record::{RecordSnapshot, TurnRecord};
use outage::turn::rule::TurnNode;
use pubsub::Publication;
use step::Mono;
use tokio::sync::watch;
use topics::{CordonOwner, DeviceOp, GoTime, SiteOperation};
use tracing::{info, warn};

use super::{log_changed, restart, topic_of};
use crate::core::SiteHold;
use crate::limits::Limits;
use crate::{GLOBAL, NAME};

/// This node in the operation.
pub(crate) struct Sites {
    context: AgentContext,
    limits: Limits,
    /// `None` while it cannot be had: then nothing follows from what is read.
    topic: Option<Publication<SiteOperation>>,
    record: Option<SiteOperation>,
    hold: watch::Sender<SiteHold>,
    tries: Tries,
    started: Mono,
    pulses: Pulses,
    /// Since when it could go or the API has been silent; and what of the two.
    waits: Option<(bool, Mono)>,
    /// Since when the phase is seen, and what was seen of the virtual IP meanwhile.
    phase: Option<((SitePhase, String), Mono, Address)>,
    /// Of a restart: what the looks at the cluster have shown.
    verify: restart::Verify,
    /// Of a restart: how this node's own reboot is.
    ordered: restart::Ordered,
    /// What the last look found where it waits for device configs: until that changes, nobody is asked again.
    looked: Option<TurnRecord>,
    /// The last look failed, and nothing is on disk yet.
    failed: bool,
}

struct SiteReadings<'a> {
    name: &'a NodeName,
    device_uuid: &'a str,
    own: OwnIdentity,
    held: &'a RecordSnapshot,
    site: &'a SiteRecord,
    nodes: Vec<TurnNode>,
}

impl Sites {
    /// Becomes the publisher of the record, if that can be, with what an earlier run left.
    /// Errors: the record cannot be read: whether an operation holds this node is not known then.
    pub(crate) fn open(context: &AgentContext, troubles: &Troubles, limits: &Limits) -> Result<Self, Error> {
        // What fails here is tried again, and then reported, with the first write.
        let topic: Option<Publication<SiteOperation>> = publication(&context.topic_root, NAME).ok();
        let record = match &topic {
            Some(topic) => topic.get(GLOBAL).cloned(),
            None => wire::peek(&context.topic_root, NAME, GLOBAL).map_err(Error::pubsub("SiteOperation"))?,
        };
        let hold = hold(record.as_ref(), &context.boot_id);
        Ok(Self {
            context: context.clone(),
            limits: limits.clone(),
            topic,
            record,
            hold: watch::Sender::new(hold),
            tries: Tries::new(troubles),
            started: context.clock.now(),
            pulses: Pulses::default(),
            waits: None,
            phase: None,
            verify: restart::Verify::default(),
            ordered: restart::Ordered::default(),
            looked: None,
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
            let at_rest = self.record.is_none() && !self.failed && membership == Membership::Member;
            let look = async {
                let begun = |seen: &Option<LeaseRead>| {
                    calls::record(seen.as_ref()).is_some_and(|it| it.mode.is_some())
                };
                if at_rest && lease.wait_for(begun).await.is_err() {
                    return std::future::pending().await;
                }
                match membership {
                    Membership::Member => {
                        let stopped = if at_rest { stopped(&lease) } else { None };
                        if stopped.is_none() || stopped != self.looked {
                            let (name, device_uuid) = own_node.known().await;
                            self.look(&cluster, &name, &device_uuid).await;
                            self.looked = stopped.filter(|_| !self.failed);
                        }
                    }
                    // Of a cluster that the node has left nothing holds it.
                    Membership::Outside => {
                        self.keep(&Next::default(), None);
                    }
                    Membership::Undecided | Membership::Leaving => {}
                }
                if membership != Membership::Member && self.record.is_none() {
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

    async fn look(&mut self, cluster: &ApiClient, name: &NodeName, device_uuid: &str) {
        self.failed = false;
        let held = match calls::read(cluster).await {
            Ok(held) => held,
            Err(why) => return self.alone(name, why.to_string()).await,
        };
        let site = match held.as_ref().map(|it| operator::current(&it.record)).transpose() {
            Ok(site) => site.flatten(),
            Err(why) => return self.alone(name, why.to_string()).await,
        };
        let (Some(held), Some(site)) = (held, site) else {
            (self.waits, self.phase) = (None, None);
            self.keep(&Next::default(), None);
            return;
        };
        if let Err(why) = self.take_part(cluster, name, device_uuid, (&held, &site)).await {
            self.alone(name, why).await;
        }
    }

    /// Nothing can be read: what is on disk decides.
    async fn alone(&mut self, name: &NodeName, why: String) {
        let Some(record) = self.record.clone() else {
            self.failed = true;
            return;
        };
        let own = self.own(name, String::new());
        let etcd = self.etcd(record.server).await;
        let facts = SiteFacts { waited: self.waited(true), ..self.facts(etcd.as_ref()) };
        let next = member::next(&own, Some(&local(&record)), &LeaseReading::Silent(why), &facts);
        self.keep(&next, None);
    }

    fn own(&self, name: &NodeName, uid: String) -> OwnIdentity {
        OwnIdentity { node: name.to_string(), uid, boot_id: self.context.boot_id.clone() }
    }

    async fn take_part(
        &mut self,
        cluster: &ApiClient,
        name: &NodeName,
        device_uuid: &str,
        (held, site): (&RecordSnapshot, &SiteRecord),
    ) -> Result<(), String> {
        let uid = calls::own(cluster, name, device_uuid).await.map_err(|it| it.line())?.uid;
        let own = self.own(name, uid);
        let Some(member) = site.member(&own.node, &own.uid) else {
            self.keep(&Next::default(), None);
            return Ok(());
        };
        let facts = node::read(cluster, name, device_uuid).await.map_err(|it| it.line())?;
        let now = self.context.clock.now();
        let alone = !site.nodes.iter().any(outage::site::record::SiteMember::is_server);
        // Only servers look at the others: one of them works for all, and they go one after another.
        let nodes = if member.is_server() || alone {
            let looked = calls::look(cluster, name, &mut self.pulses, now).await;
            looked.map_err(|it| it.to_string())?.nodes
        } else {
            Vec::new()
        };
        let etcd = self.etcd(member.is_server()).await;
        let gone: BTreeSet<String> = site
            .nodes
            .iter()
            .filter(|it| !nodes.is_empty() && coordinate::is_gone(site, it, &nodes))
            .map(|it| it.node.clone())
            .collect();
        let facts = SiteFacts {
            cordoned: facts.unschedulable,
            open: facts.cordon != CordonOwner::Ours,
            gone,
            waited: self.waited(false),
            reboot: self.ordered.look(&self.context, site, (&own.node, self.record.as_ref())),
            ..self.facts(etcd.as_ref())
        };
        let leads = facts.leads;
        let word = LeaseReading::Site(Box::new(site.clone()));
        let next = member::next(&own, self.record.as_ref().map(local).as_ref(), &word, &facts);
        let kept = self.keep(&next, Some(site));
        let read = SiteReadings { name, device_uuid, own, held, site, nodes };
        if kept && next.cordon {
            self.cordon(cluster, &read).await?;
        }
        if let Some(step) = next.say.clone().filter(|_| kept) {
            let (own, waits) = (&read.own, next.waits.clone());
            let boot_id = restart::boot_id(site, &next, own);
            let ack = Ack { leads, waits, ..Ack::of(&own.node, &own.uid, &boot_id, step) };
            self.say(cluster, site, ack).await?;
        }
        let stage = (site.phase.clone(), stage(site, &read.nodes));
        let seen = self.phase.take().filter(|(of, ..)| *of == stage);
        let (_, since, _) = self.phase.insert(seen.unwrap_or_else(|| (stage, now, Address::default())));
        let lasted = now.since(*since);
        // Nothing of this node's own files keeps it from working for all.
        if coordinate::is_coordinator(&read.own.node, site, &read.nodes)
            || stands_in(&read.own.node, site, &read.nodes, lasted)
        {
            return self.coordinate(cluster, &read, lasted).await;
        }
        self.verify = restart::Verify::default();
        Ok(())
    }

    /// What is seen without the API.
    fn facts(&self, etcd: Option<&Etcd>) -> SiteFacts {
        let clock = self.context.clock;
        let (now, least) = (clock.wall(), self.record.as_ref().map_or(GoTime::ZERO, |it| it.at));
        let behind =
            || format!("its clock to be set: it shows {}, and was at {} before", now.shown(), least.shown());
        let mut facts = SiteFacts { up: clock.now().since(self.started), ..SiteFacts::default() };
        if now < least {
            facts.clock = behind();
        }
        let Some(etcd) = etcd.filter(|it| !matches!(it.data, Ok(Data::Absent { .. }))) else { return facts };
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

    async fn etcd(&self, server: bool) -> Option<Etcd> {
        if !server {
            return None;
        }
        Some(margin::calls::read(&self.limits.etcd(&self.context.topic_root.path(""))).await)
    }

    /// How long it has waited since it could go, or since the API fell silent.
    fn waited(&mut self, silent: bool) -> Duration {
        let now = self.context.clock.now();
        let all_ready = self.record.as_ref().is_some_and(|it| it.all_ready);
        if !all_ready && !silent {
            self.waits = None;
            return Duration::ZERO;
        }
        let (of, since) = *self.waits.get_or_insert((all_ready, now));
        if of != all_ready {
            self.waits = Some((all_ready, now));
            return Duration::ZERO;
        }
        now.since(since)
    }

    /// Writes the record and holds the node to it. Returns whether it is on disk.
    fn keep(&mut self, next: &Next, site: Option<&SiteRecord>) -> bool {
        let at = (self.context.clock.wall(), self.ordered.before.as_str());
        let record = record(next, site, self.record.as_ref(), at);
        let written = self.write(record.as_ref());
        if !self.tries.ended("SiteOperation global", written) {
            self.failed = true;
            return false;
        }
        log_changed(record.as_ref(), self.record.as_ref());
        self.record = record;
        let hold = match (hold(self.record.as_ref(), &self.context.boot_id), site) {
            (SiteHold::None, Some(site)) if next.say == Some(NodeStep::Seen) && next.local.is_none() => {
                SiteHold::Queued(site.order.join(", then "))
            }
            (hold, _) => hold,
        };
        self.hold.send_if_modified(|held| step::update(held, hold));
        true
    }

    fn write(&mut self, record: Option<&SiteOperation>) -> Result<(), Error> {
        if record == self.record.as_ref() {
            return Ok(());
        }
        let topic = match &mut self.topic {
            Some(topic) => topic,
            none => none.insert(publication(&self.context.topic_root, NAME)?),
        };
        match record {
            Some(record) => wire::publish(topic, GLOBAL, record),
            None => wire::withdraw(topic, GLOBAL),
        }
    }

    async fn cordon(&self, cluster: &ApiClient, read: &SiteReadings<'_>) -> Result<(), String> {
        let owner = CordonAnnotation {
            boot_id: self.context.boot_id.clone(),
            requested_by: 0,
            requested_at: read.site.by.when.clone(),
            fence: read.held.record.fence,
            lease_uid: read.held.uid.clone(),
            site: read.site.id.clone(),
        };
        node::cordon(cluster, read.name, read.device_uuid, &owner).await.map(drop).map_err(|it| it.line())
    }

    async fn say(&self, cluster: &ApiClient, site: &SiteRecord, mut ack: Ack) -> Result<(), String> {
        let known = site.ack(&ack.node);
        let said = known.is_some_and(|it| {
            (&it.step, &it.boot_id, it.leads, &it.waits) == (&ack.step, &ack.boot_id, ack.leads, &ack.waits)
        });
        if said {
            return Ok(());
        }
        let wall = self.context.clock.wall().to_timestamp();
        ack.since = wall.to_string();
        let edit = |record: &_| operator::hear(record, site, &ack);
        lease::change(cluster, wall, edit).await.map(drop).map_err(|it| it.to_string())
    }

    async fn coordinate(
        &mut self,
        cluster: &ApiClient,
        read: &SiteReadings<'_>,
        lasted: Duration,
    ) -> Result<(), String> {
        let site = read.site;
        let found = async {
            let mut found = site_calls::find(cluster, &site.phase, &site.id).await?;
            if let Some((.., address)) = self.phase.as_mut().filter(|_| site.phase == SitePhase::Starting) {
                let looked = address.look(cluster, &read.nodes).await;
                found.address = looked.unwrap_or_else(|error| format!("the virtual IP: {}", error.line()));
            }
            Ok::<_, kubeapi::Error>(found)
        };
        let mut found = match found.await {
            Ok(found) => found,
            Err(error) => {
                let to = waiting(site, error.line(), error.next_step().clone());
                return self.advance(cluster, site, Some(to)).await;
            }
        };
        found.lasted = lasted;
        let stage = self.phase.as_ref().map(|((_, stage), ..)| stage.clone()).unwrap_or_default();
        self.verify.look(cluster, self.context.clock, (site, stage), &mut found).await;
        found.holders = read.held.record.holders.iter().map(|it| it.node.clone()).collect();
        match coordinate::next(site, &read.nodes, &found) {
            Move::Wait(waits, next) => self.advance(cluster, site, Some(waiting(site, waits, next))).await,
            Move::Scale(work) => {
                for it in work {
                    info!(workload = %format_args!("{}/{}", it.namespace, it.name), replicas = it.replicas, "scaled for the whole-site operation");
                    site_calls::scale(cluster, &it).await.map_err(|it| it.line())?;
                }
                Ok(())
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
                let waits = format!("virtual machines: {}", refused.join("; "));
                self.advance(cluster, site, Some(waiting(site, waits, coordinate::refused_step(site)))).await
            }
            Move::To(mut to) => {
                let wall = self.context.clock.wall().to_timestamp().to_string();
                to.seen.iter_mut().filter(|it| it.since.is_empty()).for_each(|it| it.since.clone_from(&wall));
                if to.phase != site.phase {
                    to.since = wall;
                }
                if !to.missing.is_empty() {
                    warn!(missing = to.missing.join(", "), "the site continues without nodes");
                }
                self.advance(cluster, site, Some(*to)).await
            }
            Move::End => self.advance(cluster, site, None).await,
        }
    }

    async fn advance(
        &mut self,
        cluster: &ApiClient,
        from: &SiteRecord,
        to: Option<SiteRecord>,
    ) -> Result<(), String> {
        if to.as_ref() == Some(from) {
            return Ok(());
        }
        if let Some(to) = to.as_ref().filter(|it| topic_of(&it.waits) != topic_of(&from.waits)) {
            info!(
                operation = to.id,
                phase = to.phase.text(),
                waits = to.waits,
                "whole-site {}",
                to.kind.text()
            );
        }
        let edit = |record: &_| operator::advance(record, from, to.as_ref());
        match lease::change(cluster, self.context.clock.wall().to_timestamp(), edit).await {
            // Another one was faster: the next look sees what it wrote.
            Ok(_) | Err(Failed::Outrun(_)) => Ok(()),
            Err(why) => Err(why.to_string()),
        }
    }
}

fn waiting(site: &SiteRecord, waits: String, next: String) -> SiteRecord {
    SiteRecord { waits, next, ..site.clone() }
}

/// The record of a restart that has stopped.
fn stopped(lease: &Newest) -> Option<TurnRecord> {
    let record = calls::record(lease.borrow().as_ref())?.clone();
    let site = operator::current(&record).ok()??;
    (site.phase == SitePhase::Stopped).then_some(record)
}

/// What is done with the machine, for its own agents.
pub(super) fn op(kind: &SiteKind) -> DeviceOp {
    if matches!(kind, SiteKind::Reboot | SiteKind::Restart) { DeviceOp::Reboot } else { DeviceOp::Shutdown }
}

/// What the rule needs of the record.
pub(super) fn local(record: &SiteOperation) -> LocalSite {
    LocalSite {
        id: record.id.clone(),
        kind: match record.op {
            DeviceOp::Reboot => SiteKind::Reboot,
            DeviceOp::Shutdown => SiteKind::Shutdown,
        },
        step: NodeStep::from(record.step.clone()),
        boot_id: record.boot_id.clone(),
        server: record.server,
        order: record.order.clone(),
        all_ready: record.all_ready,
        released: record.released,
    }
}

/// The record of what follows; `None` while there is no operation. `site` is what the Lease says, if that could be read;
/// `newest` is the newest drain that is over.
pub(super) fn record(
    next: &Next,
    site: Option<&SiteRecord>,
    before: Option<&SiteOperation>,
    (at, newest): (GoTime, &str),
) -> Option<SiteOperation> {
    let local = next.local.as_ref()?;
    let before = before.cloned().unwrap_or_default();
    let by = site.map(|it| format!("{}: {}", it.by.who, it.by.why));
    let is_ordered = before.id == local.id && before.step == local.step.text();
    let record = SiteOperation {
        drains_before: if is_ordered { before.drains_before.clone() } else { newest.to_owned() },
        id: local.id.clone(),
        op: op(&local.kind),
        step: local.step.text().to_owned(),
        boot_id: local.boot_id.clone(),
        go: next.go,
        server: local.server,
        order: local.order.clone(),
        all_ready: local.all_ready,
        released: local.released,
        phase: site.map_or(before.phase.clone(), |it| it.phase.text().to_owned()),
        by: by.unwrap_or_else(|| before.by.clone()),
        waiting_for: next.waits.clone(),
        next_step: if next.waits.is_empty() { "" } else { "zedbox site status" }.to_owned(),
        at: before.at,
    };
    // The moment alone is no reason to write.
    Some(if record == before { before } else { SiteOperation { at, ..record } })
}

/// What the record holds this node to, in the boot `boot_id`.
pub(super) fn hold(record: Option<&SiteOperation>, boot_id: &str) -> SiteHold {
    let Some(record) = record.filter(|it| !it.released) else { return SiteHold::None };
    let op = record.op.word();
    match topic_of(&record.waiting_for) {
        _ if record.go && record.boot_id == boot_id => SiteHold::Go(format!("whole-site {op} {}", record.id)),
        "" => SiteHold::Kept(format!("whole-site {op}")),
        waits => SiteHold::Kept(format!("whole-site {op} (waits for {waits})")),
    }
}

#[cfg(test)]
mod tests {
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
