//! The look before a drain: everything in one report, which is published, and what of it stops the drain.
//!
//! The first look of a run asks for everything; a later one only for what stopped it. Not here: what is found
//! (`checks`, `kubenodeop::preflight`), and what follows (`core::drain::gates`).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::operator::WORD;
use agent::wire::GLOBAL;
use agent::{AgentContext, Error, Outbox, Troubles, outlet, publication};
use checks::cluster::{self, ClusterSource};
use checks::local::{self, Host, SERVERS};
use checks::{Finding, Severity, blocking, settled};
use kubeapi::reply::Reach;
use kubeapi::slim::NodeObject;
use kubeapi::{ApiClient, OwnNode};
use kubenodeop::PreflightError;
use outage::calls::Newest;
use pubsub::{FileState, TopicRoot};
use step::{Inserted as _, LiteMap};
use tokio::sync::watch;
use topics::{Blocker, DrainFinding, DrainPreflight, PASS_FILE, PreflightPass};
use tracing::warn;

use crate::NAME;
use crate::core::{Event, RunId, StartObstacle};
use crate::limits::Limits;

/// Folders whose disks must have room: the agents' files, and those of k3s and the kubelet.
const DISKS: [&str; 3] = ["persist", "var/lib/rancher", "var/lib/kubelet"];

/// What something was found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PreflightPart {
    Pods,
    Machine,
    Cluster(ClusterSource),
    /// Who else is down.
    Turns,
}

/// What the looks of one run have found.
#[derive(Debug, Default)]
struct PreflightRun {
    run: RunId,
    blockers: Vec<Blocker>,
    found: LiteMap<PreflightPart, Vec<Finding>>,
}

/// Looks, and remembers what was found.
#[derive(Clone)]
pub(crate) struct PreflightRunner {
    context: AgentContext,
    limits: Limits,
    /// The Lease of turns, as it was seen last.
    lease: Newest,
    seen: Arc<Mutex<PreflightRun>>,
    report: Arc<watch::Sender<Option<DrainPreflight>>>,
}

impl PreflightRunner {
    pub(crate) fn new(context: AgentContext, limits: Limits, lease: Newest) -> Self {
        Self { context, limits, lease, seen: Arc::default(), report: Arc::default() }
    }

    pub(crate) fn report(&self) -> watch::Receiver<Option<DrainPreflight>> {
        self.report.subscribe()
    }

    /// One look for the run; it ends with what the core hears of it. Dropping it loses nothing.
    pub(crate) async fn look(self, cluster: ApiClient, own_node: OwnNode, run: RunId, outbox: Outbox<Event>) {
        let (found, passed) = match Box::pin(self.find(&cluster, &own_node, run)).await {
            Ok(seen) => self.judge(seen).await,
            Err(hindered) => (Err(hindered), String::new()),
        };
        if found.as_ref().is_ok_and(Vec::is_empty)
            && !passed.is_empty()
            && !outbox.send(Event::Passed(run, passed)).await
        {
            return;
        }
        outbox.send(Event::Preflighted(run, found)).await;
    }

    async fn find(
        &self,
        cluster: &ApiClient,
        own_node: &OwnNode,
        run: RunId,
    ) -> Result<PreflightRun, StartObstacle> {
        let mut seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        if seen.run != run {
            seen = PreflightRun { run, ..PreflightRun::default() };
        }
        let (node, uuid) = own_node.get().map_err(|why| StartObstacle {
            why,
            next_step: "check the device's name in the config".to_owned(),
            away: false,
            of_node: true,
        })?;
        // Nodes are read once, and each part judges them by itself.
        let cluster = &cluster.clone().reading_once(NodeObject::url_path(None));
        let stops = |found: &[Finding]| found.iter().any(|it| self.stops(it));
        let due = |part: PreflightPart| seen.found.get(&part).is_none_or(|it| stops(it));
        let sources: BTreeSet<ClusterSource> =
            ClusterSource::ALL.into_iter().filter(|it| due(PreflightPart::Cluster(*it))).into_set();
        let (pods, machine) =
            (due(PreflightPart::Pods) || !seen.blockers.is_empty(), due(PreflightPart::Machine));
        let turns = self.limits.take_turns && due(PreflightPart::Turns);
        if pods {
            let (now, rules) = (self.context.clock.now(), self.limits.rules(Duration::MAX));
            let looked = kubenodeop::preflight(cluster, &node, &uuid, &rules, now).await;
            let looked = looked.map_err(|refusal| obstacle(&refusal))?;
            let before = std::mem::replace(&mut seen.blockers, looked.blockers);
            for it in &mut seen.blockers {
                // One that was found before is no new one.
                let held = before.iter().find(|held| (&held.uid, &held.code) == (&it.uid, &it.code));
                it.since = held.map_or(it.since, |held| held.since);
            }
            seen.found.insert(PreflightPart::Pods, looked.findings);
        }
        if turns {
            let lease = self.lease.borrow().clone();
            let mut found = outage::findings::look(cluster, lease, node.as_str()).await;
            found.extend(outage::findings::lead(cluster, self.limits.server_port).await);
            seen.found.insert(PreflightPart::Turns, found);
        }
        let clock = self.context.clock;
        let own = || clock.wall().to_timestamp();
        let of_cluster = cluster::drain(cluster, node.as_str(), &sources, own).await;
        let of_cluster =
            of_cluster.into_iter().map(|(source, found)| (PreflightPart::Cluster(source), found));
        of_cluster.insert_into(&mut seen.found);
        if machine {
            let (machine, now) = (machine_of(self.context.topic_root.root(), cluster), own());
            seen.found.insert(PreflightPart::Machine, local::looked(machine, now).await);
        }
        Ok(seen)
    }

    fn stops(&self, it: &Finding) -> bool {
        it.clone().settled(&self.limits.preflight_stops).severity == Severity::Blocks
    }

    /// Publishes the report and keeps what was seen; what the core hears, and what is passed by whom.
    async fn judge(&self, seen: PreflightRun) -> (Result<Vec<Blocker>, StartObstacle>, String) {
        let all: Vec<Finding> = seen.found.values().flatten().cloned().collect();
        let all = settled(all, &self.limits.preflight_stops);
        let pass = pass(&self.context.topic_root).await.unwrap_or_else(|why| {
            warn!(path = PASS_FILE, "ignored, no finding is passed: {why}");
            PreflightPass::default()
        });
        let stopping = blocking(&all, &pass.codes);
        let found = match stopping.first() {
            // A pod that cannot leave is shown with its code.
            Some(first) if seen.blockers.is_empty() => {
                let more = match stopping.len() - 1 {
                    0 => String::new(),
                    more => format!(" (and {more} more: zedbox plan)"),
                };
                let why = format!("[{}] {}{more}", first.code, first.text);
                let next_step = format!(
                    "{}; or have it pass: `zedbox go --past preflight:{} --reason TEXT`",
                    first.next, first.code
                );
                Err(StartObstacle { why, next_step, away: false, of_node: false })
            }
            Some(_) | None => Ok(seen.blockers.clone()),
        };
        let findings: Vec<DrainFinding> = all.iter().map(|it| shown(it, &pass)).collect();
        let of_pass = findings.iter().filter(|it| !it.passed_by.is_empty()).map(|it| it.code.as_str());
        let codes: Vec<&str> = of_pass.into_set().into_iter().collect();
        let passed = if codes.is_empty() {
            String::new()
        } else {
            format!("{} by {}: {}", codes.join(", "), pass.by, pass.reason)
        };
        let at = self.context.clock.wall();
        self.report.send_if_modified(|held| {
            let other = held.as_ref().is_none_or(|it| it.findings != findings);
            if other {
                *held = Some(DrainPreflight { at, findings, left_out: 0 });
            }
            other
        });
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        (found, passed)
    }
}

/// Keeps the newest report as a topic, until `context` says stop.
pub(crate) async fn publish(
    context: &AgentContext,
    troubles: &Troubles,
    mut report: watch::Receiver<Option<DrainPreflight>>,
) -> Result<(), Error> {
    let open = || publication::<DrainPreflight>(&context.topic_root, NAME);
    let Some(mut topic) = outlet::started(context, troubles, open).await? else { return Ok(()) };
    let mut stop = context.stop.clone();
    loop {
        let newest = report.borrow_and_update().clone();
        if let Some(newest) = newest
            && let Err(error) = topic.publish(GLOBAL, &newest)
        {
            warn!(error = %step::chain(&error), "cannot publish what the preflight has found");
        }
        tokio::select! {
            changed = report.changed() => if changed.is_err() { return Ok(()) },
            () = stop.stopped() => return Ok(()),
        }
    }
}

fn obstacle(refusal: &PreflightError) -> StartObstacle {
    let error = refusal.error();
    StartObstacle {
        why: error.line(),
        next_step: error.next_step(),
        away: error.reach() != Reach::Reachable,
        of_node: matches!(refusal, PreflightError::Node(_)),
    }
}

/// A finding as it is published, with who has it pass and why.
pub fn shown(it: &Finding, pass: &PreflightPass) -> DrainFinding {
    let passed = it.severity == Severity::Blocks && pass.codes.contains(&it.code);
    DrainFinding {
        code: it.code.clone(),
        severity: it.severity.text().to_owned(),
        text: it.text.clone(),
        next_step: it.next.clone(),
        passed_by: if passed { format!("{}: {}", pass.by, pass.reason) } else { String::new() },
    }
}

/// What is looked at of the machine whose files are below `root`.
pub fn machine_of(root: &Path, cluster: &ApiClient) -> Host {
    let api = cluster.address();
    let api = api.strip_prefix("https://").map(|it| it.split('/').next().unwrap_or(it).to_owned());
    let named = |(what, at): (&str, &str)| (what.to_owned(), at.to_owned());
    let servers = api.map(|it| ("API server".to_owned(), it)).into_iter().chain(SERVERS.map(named));
    let own = cluster.credential().transpose().map(|it| (cluster.via(), it));
    Host { root: root.to_owned(), servers: servers.collect(), own, disks: DISKS.map(str::to_owned).to_vec() }
}

/// What a person has the preflight pass.
/// Errors: the order may not be believed, or makes no sense: why.
pub async fn pass(topic_root: &TopicRoot) -> Result<PreflightPass, String> {
    match topic_root.file(topic_root.path(PASS_FILE), WORD).next().await {
        FileState::Absent => Ok(PreflightPass::default()),
        FileState::Present(bytes) => PreflightPass::read(&bytes),
        FileState::Bad(finding) => Err(finding.reason),
    }
}
