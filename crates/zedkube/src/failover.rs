//! Reports nodes that are silent, and brings to its end what a person has declared of one.
//!
//! At rest it watches the leases of the kubelets, and reads more only where one is not renewed or a node is declared dead. After
//! an API that fails all begins again: what was not seen was not silent. The command that declares a node writes the taint; if it is
//! killed in between, the first server by name continues, and after a while any other. Not here: what is
//! judged (`outage::failover`), what hangs on a node (`kubenodeop::plan::failover`).

use std::collections::BTreeSet;
use std::time::Duration;

use ::outage::calls::{self, Newest, NodeListing, Pulses};
use ::outage::failover::silence::{self, Heard, NodeSilence, SilentNode};
use ::outage::failover::{DeclaredNode, FailoverState, act, calls as failover_calls, record};
use ::outage::operator;
use ::outage::turn::pulses::Pulse;
use ::outage::turn::record::TurnRecord;
use ::outage::turn::rule::TurnNode;

use kubeapi::{NodeName, listed};
use kubenodeop::plan::failover::{HungWork, hung, now as placed};
use nodestatus::ClusterMembership;
use step::{Inserted as _, LiteMap, Mono};
use tokio::sync::watch;
use topics::HeldWork;
use tracing::{info, warn};

use crate::BesideDrain;
use crate::outage::Hears;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(10);
/// How long an entry stays with the command that declared it, and with the first server.
const TAKE_OVER: [Duration; 2] = [Duration::from_secs(20), Duration::from_mins(3)];
/// What runs nowhere else so long after the taint is named.
const MOVES_WITHIN: Duration = Duration::from_mins(2);
/// So long after an entry is withdrawn its taint may still be written, by somebody who is slow.
const LATE: Duration = Duration::from_mins(1);
/// What is known of each node: the troubles that begin with this.
const NODE: &str = "node ";

/// What is the matter with nodes, for Events and hooks: the newest sentence of each.
pub(crate) type Told = LiteMap<String, (NodeSilence, String)>;

/// What it is made of.
#[derive(Clone)]
pub(crate) struct FailoverDuty {
    pub(crate) beside: BesideDrain,
    /// At which agents of nodes answer each other.
    pub(crate) port: u16,
    pub(crate) lease: Newest,
    pub(crate) hears: watch::Sender<Hears>,
    pub(crate) told: watch::Sender<Told>,
}

/// What one run has seen.
#[derive(Default)]
struct Seen {
    pulses: Pulses,
    /// Since when the kubelet of a boot that is to be dead renews its lease, and reports no more.
    renewed: LiteMap<String, Mono>,
    /// What fails, so that it is reported once.
    failures: BTreeSet<String>,
    /// What hangs on a node that is silent.
    hung: LiteMap<String, HungWork>,
    /// Since when an entry is open, has its taint, or is over.
    entries: LiteMap<(u32, bool, bool), Mono>,
}

/// An entry at a step of it.
fn step_of(entry: &DeclaredNode) -> (u32, bool, bool) {
    (entry.number, entry.state.is_open(), entry.state.is_tainted())
}

impl Seen {
    /// Whether an entry has to be followed that is open, or may have its taint after its end.
    fn follows(&mut self, record: &TurnRecord, now: Mono) -> bool {
        self.entries.retain(|known, _| record.failovers.iter().any(|it| step_of(it) == *known));
        let of = |it| now.since(*self.entries.entry(step_of(it)).or_insert(now));
        let lasted: Vec<_> = record.failovers.iter().map(of).collect();
        let is_late = |it: &DeclaredNode, lasted| it.state == FailoverState::Withdrawn && lasted < LATE;
        record.failovers.iter().zip(lasted).any(|(it, lasted)| it.state.is_open() || is_late(it, lasted))
    }

    /// Warns of it, if it is new.
    fn failed(&mut self, what: String) {
        if !self.failures.contains(&what) {
            warn!("{what}");
            self.failures.insert(what);
        }
    }
}

impl FailoverDuty {
    /// Runs until the sender of the membership is gone. Dropping it loses what was seen of the leases.
    pub(crate) async fn run(mut self) {
        let (mut seen, mut lost) = (Seen::default(), None);
        let mut renewals = calls::renewals(&self.beside.cluster);
        loop {
            if self.beside.members.wait_for(ClusterMembership::is_in).await.is_err() {
                return;
            }
            if let Ok((own, _)) = self.beside.own_node.get()
                && let Err(why) = match lost.clone() {
                    Some(why) => Err(why),
                    None => self.look(&own, renewals.known(), &mut seen).await,
                }
            {
                seen.pulses = Pulses::default();
                self.hears.send_if_modified(|held| step::update(held, Hears::default()));
                self.tell(&[], &Seen::default(), false);
                seen.failed(format!("cannot look for nodes that are silent: {why}"));
            }
            let next = self.beside.context.clock.now() + LOOK;
            loop {
                tokio::select! {
                    () = self.beside.context.clock.sleep_until(Some(next)) => break,
                    Ok(()) = self.lease.changed() => {
                        self.lease.borrow_and_update();
                        break;
                    }
                    heard = renewals.changed() => lost = heard.err().map(|it| it.line()),
                }
            }
        }
    }

    async fn look(
        &self,
        own: &NodeName,
        renewals: Option<&LiteMap<String, String>>,
        seen: &mut Seen,
    ) -> Result<(), String> {
        let record = calls::record(self.lease.borrow().as_ref()).cloned().unwrap_or_default();
        let now = self.beside.context.clock.now();
        seen.pulses.take(now, renewals.into_iter().flatten().map(|(node, at)| (node.clone(), at.clone())));
        if !seen.follows(&record, now) && !seen.pulses.any_still(now) {
            self.hears.send_if_modified(|held| step::update(held, Hears::default()));
            self.tell(&[], &Seen::default(), true);
            seen.failures.clear();
            return Ok(());
        }
        let looked = calls::look(&self.beside.cluster, own, &mut seen.pulses, now).await;
        let NodeListing { nodes, servers, .. } = looked.map_err(|it| it.to_string())?;
        let open = record::standing(&record, &nodes);
        let silent = silence::still(own.as_str(), &nodes, &record)?;
        let asked: Vec<_> = nodes
            .iter()
            .filter(|it| {
                silent.iter().any(|node| node.name == it.name) || open.iter().any(|entry| it.is_of(entry))
            })
            .collect();
        let heard = failover_calls::heard(own.as_str(), &asked, &servers, self.port).await;
        let of_us = |(node, all): (&String, &Heard)| Some((node.clone(), *all.get(own.as_str())?));
        let answers: Hears = heard.iter().filter_map(of_us).into_map();
        self.hears.send_if_modified(|held| step::update(held, answers));
        let mut told = silence::told(&nodes, &record, &silent, &heard);
        seen.renewed.retain(|node, _| told.iter().any(|it| it.is_renewed_only() && it.node.name == *node));
        for it in told.iter_mut().filter(|it| it.is_renewed_only()) {
            // That comes a moment before the report of another boot.
            if now.since(*seen.renewed.entry(it.node.name.clone()).or_insert(now)) < LOOK {
                it.silence = NodeSilence::Declared;
            }
        }
        seen.hung.retain(|node, _| told.iter().any(|it| it.node.name == *node));
        for it in told.iter().filter(|it| it.silence == NodeSilence::Silent) {
            let name = &it.node.name;
            if !seen.hung.contains_key(name)
                && let Ok(node) = NodeName::parse(name)
            {
                // That it is silent is reported all the same.
                match Box::pin(hung(&self.beside.cluster, &node)).await {
                    Ok(found) => drop(seen.hung.insert(name.clone(), found)),
                    Err(error) => {
                        seen.failed(format!("what hangs on node {name} is not known: {}", error.line()));
                    }
                }
            }
        }
        self.tell(&told, seen, is_first(own, &nodes));
        for entry in &open {
            let is_heard = heard.get(&entry.node).is_some_and(|it| it.values().any(|answers| *answers));
            // What is seen of it stays: the next look tries again.
            if let Err(error) = self.act(own, entry, &nodes, is_heard, seen).await {
                seen.failed(format!("cannot take the next step for {}: {error}", entry.words()));
            }
        }
        Ok(())
    }

    /// Reports what is so now, and ends what was so before; Events and hooks by `one` node of all.
    fn tell(&self, silent: &[SilentNode], seen: &Seen, one: bool) {
        let mut told = Told::new();
        for it in silent {
            let name = &it.node.name;
            let hung = seen.hung.get(name).filter(|_| it.silence == NodeSilence::Silent);
            let error = it.words() + &hanging(hung);
            self.beside.troubles.say(format!("{NODE}{name}"), error.clone(), it.next_step());
            told.insert(name.clone(), (it.silence, error));
        }
        let still: Vec<String> = told.keys().map(|it| format!("{NODE}{it}")).collect();
        self.beside.troubles.only(NODE, &still);
        if one {
            self.told.send_if_modified(|held| step::update(held, told));
        }
    }

    /// Brings `entry` one step on where that is ours to do.
    async fn act(
        &self,
        own: &NodeName,
        entry: &DeclaredNode,
        nodes: &[TurnNode],
        is_heard: bool,
        seen: &mut Seen,
    ) -> Result<(), String> {
        let now = self.beside.context.clock.now();
        let lasted = seen.entries.get(&step_of(entry)).map_or(Duration::ZERO, |since| now.since(*since));
        let takes_over = if is_first(own, nodes) { TAKE_OVER[0] } else { TAKE_OVER[1] };
        // One whose Node was deleted has no lease.
        let is_seen =
            seen.pulses.of(now, &entry.node) != Pulse::Unknown || !nodes.iter().any(|it| it.is_of(entry));
        if lasted < takes_over && (entry.state == FailoverState::Declared || takes_over == TAKE_OVER[1])
            || !is_seen
        {
            return Ok(());
        }
        let wall = self.beside.context.clock.wall().to_timestamp();
        let advanced = act::advance(&self.beside.cluster, wall, entry, nodes, is_heard).await;
        if let Some(state) = advanced.map_err(|it| it.to_string())? {
            info!(
                node = entry.node,
                number = entry.number,
                state = state.text(),
                "a node that was declared dead"
            );
            return Ok(());
        }
        let is_all = entry.work.iter().all(|it| !it.on.is_empty());
        if !entry.state.is_tainted() || is_all && entry.state == FailoverState::Moved {
            return Ok(());
        }
        let found =
            placed(&self.beside.cluster, &entry.node, &entry.work).await.map_err(|error| error.line())?;
        let timed = |(new, old): (HeldWork, &HeldWork)| match (new.on.is_empty(), old.on.is_empty()) {
            (false, true) => HeldWork { after_secs: lasted.as_secs(), ..new },
            _ => new,
        };
        let work: Vec<HeldWork> = found.into_iter().zip(&entry.work).map(timed).collect();
        let over = work.iter().all(|it| !it.on.is_empty()) || lasted >= MOVES_WITHIN;
        let state = if over { FailoverState::Moved } else { entry.state.clone() };
        let is_news = |(new, old): (&HeldWork, &HeldWork)| new.on != old.on || over && new.waits != old.waits;
        if state == entry.state && !work.iter().zip(&entry.work).any(is_news) {
            return Ok(());
        }
        let edit = |record: &TurnRecord| {
            Ok(record::edited(record, entry, |it| (it.state, it.work) = (state.clone(), work.clone())))
        };
        operator::change(&self.beside.cluster, wall, edit).await.map(drop).map_err(|it| it.to_string())
    }
}

/// Whether we are the first of the servers that are there, or of all nodes where there is no server.
fn is_first(own: &NodeName, nodes: &[TurnNode]) -> bool {
    let servers = nodes.iter().any(|it| it.server || it.etcd);
    let there = nodes.iter().filter(|it| it.ready && it.pulse != Pulse::Still);
    let may = there.filter(|it| !servers || it.server || it.etcd);
    may.map(|it| it.name.as_str()).min() == Some(own.as_str())
}

/// What hangs on it, and what of that would not run elsewhere.
fn hanging(hung: Option<&HungWork>) -> String {
    let Some(HungWork { work, lone }) = hung.filter(|it| !it.work.is_empty()) else { return String::new() };
    let part = |words: &str, all: Vec<String>| {
        if all.is_empty() { String::new() } else { format!("; {words}: {}", listed(&all, ", ")) }
    };
    let waits = work.iter().filter(|it| !it.waits.is_empty()).map(|it| format!("{it} ({})", it.waits));
    let on = part("on it", work.iter().map(ToString::to_string).collect());
    let lone = part("volumes without a good copy elsewhere", lone.clone());
    format!("{on}{}{lone}", part("not elsewhere", waits.collect()))
}
