//! Election of one node by a Lease, compatible with candidates that run client-go.
//!
//! A holder leads from the start of its last successful write for the renew deadline: until then no other candidate
//! can have seen its record unchanged for the whole lease. Others are judged in the same way, by how long *we* have
//! seen no write: no wall clocks are compared. Every write names the version that was read, so that of two writers
//! one wins, replaces the whole spec and keeps the rest of the object. Every call has a deadline; a dropped call may
//! have been carried out. Not here: what the leader does, whether this node may be a candidate (`leader`). Sources:
//! client-go's packages `leaderelection` and `resourcelock` (rules, not code).

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::GetParams;
use kubeapi::lease::{self, CALL_LIMIT};
use kubeapi::names::APP_NAMESPACE;
use kubeapi::slim::NodeObject;
use kubeapi::{ApiClient, Error, nodes};
use step::{CallId, Core, Dice, LogMessage, Mono, WriteOutcome, say};

#[cfg(test)]
mod tests;

/// In the namespace of applications.
pub const NAME: &str = "eve-kube-stats-leader";

/// Duration in a released lease.
const RELEASED_SECS: i32 = 1;

#[derive(Debug, Clone, PartialEq)]
pub struct LeaseSnapshot {
    object: Lease,
}

impl LeaseSnapshot {
    pub fn new(object: Lease) -> Self {
        Self { object }
    }

    /// Changes with every write.
    pub fn version(&self) -> &str {
        self.object.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.object.spec.as_ref()
    }

    /// Empty for none.
    pub fn holder(&self) -> &str {
        self.spec().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
    }

    /// How long the holder is left alone after a sign of life, if given.
    pub fn duration(&self) -> Option<Duration> {
        let secs = self.spec()?.lease_duration_seconds?;
        u64::try_from(secs).ok().filter(|secs| *secs > 0).map(Duration::from_secs)
    }

    /// Number of changes of holder.
    pub fn transitions(&self) -> i32 {
        self.spec().and_then(|spec| spec.lease_transitions).unwrap_or_default()
    }

    /// With all unread members.
    pub fn object(&self) -> &Lease {
        &self.object
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum ElectionWrite {
    /// Create it, held by us.
    Create {
        identity: String,
        lease: Duration,
    },
    /// Take or renew it.
    Hold {
        on: Box<LeaseSnapshot>,
        identity: String,
        lease: Duration,
    },
    Release {
        on: Box<LeaseSnapshot>,
    },
}

impl ElectionWrite {
    /// The new holder, if this changes it.
    pub fn newcomer(&self) -> Option<&str> {
        match self {
            Self::Create { identity, .. } => Some(identity),
            Self::Hold { on, identity, .. } => (on.holder() != identity).then_some(identity),
            Self::Release { .. } => None,
        }
    }

    /// `wall` is our wall clock: for people only, no decision uses it.
    pub fn object(&self, wall: Timestamp) -> Lease {
        let now = Some(MicroTime(wall));
        match self {
            Self::Create { identity, lease } => Lease {
                metadata: ObjectMeta {
                    name: Some(NAME.to_owned()),
                    namespace: Some(APP_NAMESPACE.to_owned()),
                    ..ObjectMeta::default()
                },
                spec: Some(LeaseSpec {
                    holder_identity: Some(identity.clone()),
                    lease_duration_seconds: Some(secs(*lease)),
                    acquire_time: now.clone(),
                    renew_time: now,
                    lease_transitions: Some(0),
                    ..LeaseSpec::default()
                }),
            },
            Self::Hold { on, identity, lease } => {
                let ours = on.holder() == identity;
                let acquired = on.spec().and_then(|spec| spec.acquire_time.clone()).filter(|_| ours);
                let changes = i32::from(!ours);
                let spec = LeaseSpec {
                    holder_identity: Some(identity.clone()),
                    lease_duration_seconds: Some(secs(*lease)),
                    acquire_time: acquired.or_else(|| now.clone()),
                    renew_time: now,
                    lease_transitions: Some(on.transitions().saturating_add(changes)),
                    ..LeaseSpec::default()
                };
                Lease { spec: Some(spec), ..on.object.clone() }
            }
            Self::Release { on } => {
                let spec = LeaseSpec {
                    holder_identity: Some(String::new()),
                    lease_duration_seconds: Some(RELEASED_SECS),
                    acquire_time: now.clone(),
                    renew_time: now,
                    lease_transitions: Some(on.transitions()),
                    ..LeaseSpec::default()
                };
                Lease { spec: Some(spec), ..on.object.clone() }
            }
        }
    }
}

/// Rounded up, at least one.
fn secs(time: Duration) -> i32 {
    let whole = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    i32::try_from(whole.max(1)).unwrap_or(i32::MAX)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElectionTimes {
    lease: Duration,
    renew: Duration,
    retry: Duration,
    silence: Duration,
}

impl ElectionTimes {
    /// `lease`: how long a holder is left alone after a sign of life. `renew`: how long it leads after its
    /// last write; at most four fifths of `lease`, as it has to end first. `retry`: pause between looks, with
    /// up to a fifth of jitter, and between failed tries. `silence`: the cluster counts as gone without a
    /// successful look for so long.
    pub fn new(lease: Duration, renew: Duration, retry: Duration, silence: Duration) -> Self {
        Self { lease, renew: renew.min(lease * 4 / 5), retry, silence }
    }

    /// Pause between renewals: four of them fit into the time that a holder leads without one.
    fn rest(&self) -> Duration {
        self.retry.max(self.renew / 4)
    }
}

impl Default for ElectionTimes {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self::new(secs(300), secs(180), secs(15), secs(300))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Whether this node is a candidate. Before the first one, nothing is done.
    Wanted(bool),
    /// Answer to [`Effect::Read`]: the lease, `None` when there is none, or an error.
    Read(CallId, Result<Option<Box<LeaseSnapshot>>, String>),
    Wrote(CallId, WriteOutcome<LeaseSnapshot>),
    Tick,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Read(CallId),
    Write(CallId, Box<ElectionWrite>),
    Say(LogMessage),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ElectionState {
    /// Until when we certainly lead, if we do.
    pub leads: Option<Mono>,
    /// The last known holder; empty for none.
    pub leader: String,
    pub answers: bool,
    /// We are no candidate, and know of no record of ours in the lease.
    pub clear: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
enum KnownLease {
    #[default]
    Unknown,
    Absent,
    /// Seen since then.
    There(Box<LeaseSnapshot>, Mono),
}

/// A call under way, and its start.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LeaseCall {
    Read,
    Hold { started: Mono },
    Release,
}

/// The election from one candidate's view.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Election {
    times: ElectionTimes,
    identity: String,
    wanted: Option<bool>,
    seen: KnownLease,
    /// Our own record is known from an answer: it may be renewed without a read.
    sure: bool,
    leads: Option<Mono>,
    calls: CallId,
    call: Option<LeaseCall>,
    /// Consecutive writes that lost a race.
    outdated: u32,
    /// The next call, while none is under way.
    due: Option<Mono>,
    /// Since when we try to release the lease.
    leaving: Option<Mono>,
    answered: Option<Mono>,
    answers: bool,
    trouble: String,
    dice: Dice,
}

impl Election {
    /// An idle candidate. `chance` differs between candidates.
    pub fn new(times: ElectionTimes, identity: impl Into<String>, chance: u64) -> Self {
        Self { times, identity: identity.into(), dice: Dice::new(chance), ..Self::default() }
    }

    pub fn state(&self) -> ElectionState {
        let holding = matches!(self.call, Some(LeaseCall::Hold { .. }));
        ElectionState {
            leads: self.leads,
            leader: match &self.seen {
                KnownLease::There(held, _) => held.holder().to_owned(),
                KnownLease::Unknown | KnownLease::Absent => String::new(),
            },
            answers: self.answers,
            clear: self.wanted != Some(true) && !holding && !self.is_ours(),
        }
    }

    pub fn leads(&self, now: Mono) -> bool {
        self.leads.is_some_and(|until| now < until)
    }

    /// Pause between looks, with jitter so that candidates do not ask together.
    fn pause(&mut self) -> Duration {
        let thousandth = u32::try_from(self.dice.draw() % 1_000).unwrap_or_default();
        self.times.retry + self.times.retry * thousandth / 5_000
    }

    fn is_ours(&self) -> bool {
        matches!(&self.seen, KnownLease::There(held, _) if held.holder() == self.identity)
    }

    fn lose(&mut self, why: &'static str, out: &mut Vec<Effect>) {
        if self.leads.take().is_some() {
            say!(out, warn, "leader election: this node leads no longer: {why}");
        }
    }

    /// Ends what has expired. First in each step, as the process may have been suspended.
    fn expire(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.leads.is_some_and(|until| now >= until) {
            self.lose("the lease was not renewed within the renew deadline", out);
        }
        if self.leaving.is_some_and(|since| now >= since + self.times.lease) {
            // Expired for all others by now.
            self.leaving = None;
            self.due = None;
            self.seen = KnownLease::Unknown;
            say!(out, warn, "leader election: lease not released, it has run out by now");
        }
        if self.answers && self.silent_at().is_some_and(|at| now >= at) {
            self.answers = false;
            // Without a candidacy there is no look, which is no trouble.
            if !self.trouble.is_empty() {
                say!(out, warn, "leader election: the cluster does not answer: {}", self.trouble);
            }
        }
    }

    fn silent_at(&self) -> Option<Mono> {
        self.answered.map(|at| at + self.times.silence)
    }

    fn want(&mut self, now: Mono, wanted: bool, out: &mut Vec<Effect>) {
        if self.wanted == Some(wanted) {
            return;
        }
        self.wanted = Some(wanted);
        self.due = Some(now);
        self.leaving = (!wanted).then_some(now);
        if !wanted {
            self.lose("this node is no candidate any more", out);
        }
    }

    fn observe(&mut self, now: Mono, found: Option<Box<LeaseSnapshot>>, out: &mut Vec<Effect>) {
        self.answered = Some(now);
        self.trouble.clear();
        if !self.answers {
            self.answers = true;
            say!(out, info, "leader election: the cluster answers");
        }
        self.seen = match (std::mem::replace(&mut self.seen, KnownLease::Unknown), found) {
            (_, None) => KnownLease::Absent,
            // No write: its time continues.
            (KnownLease::There(old, since), Some(new)) if old.version() == new.version() => {
                KnownLease::There(new, since)
            }
            (_, Some(new)) => KnownLease::There(new, now),
        };
        if !self.is_ours() {
            self.lose("somebody else holds the lease", out);
        }
    }

    fn begin(&mut self, call: LeaseCall) -> CallId {
        self.calls += 1;
        self.call = Some(call);
        self.due = None;
        self.calls
    }

    fn look(&mut self, out: &mut Vec<Effect>) {
        let id = self.begin(LeaseCall::Read);
        out.push(Effect::Read(id));
    }

    fn write(&mut self, call: LeaseCall, order: ElectionWrite, out: &mut Vec<Effect>) {
        let id = self.begin(call);
        out.push(Effect::Write(id, Box::new(order)));
    }

    fn hold(&mut self, now: Mono, on: Option<Box<LeaseSnapshot>>, out: &mut Vec<Effect>) {
        let (identity, lease) = (self.identity.clone(), self.times.lease);
        let order = match on {
            Some(on) => ElectionWrite::Hold { on, identity, lease },
            None => ElectionWrite::Create { identity, lease },
        };
        self.write(LeaseCall::Hold { started: now }, order, out);
    }

    /// The next call, if due. A leader that is sure of its record writes at once; others read first.
    fn advance(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.call.is_some() || self.due.is_none_or(|due| now < due) {
            return;
        }
        match (&self.seen, self.wanted) {
            (_, None) => self.due = None,
            (_, Some(false)) if self.leaving.is_none() => self.due = None,
            (KnownLease::There(held, _), Some(true)) if self.sure && self.leads.is_some() => {
                let on = Some(held.clone());
                self.hold(now, on, out);
            }
            (KnownLease::There(held, _), Some(false)) if self.sure && held.holder() == self.identity => {
                let order = ElectionWrite::Release { on: held.clone() };
                self.write(LeaseCall::Release, order, out);
            }
            (_, Some(_)) => self.look(out),
        }
    }

    /// After a read: the right to write, or the wait.
    fn decide(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let ours = self.is_ours();
        match (&self.seen, self.wanted) {
            (KnownLease::There(held, _), Some(false)) if ours => {
                let order = ElectionWrite::Release { on: held.clone() };
                self.write(LeaseCall::Release, order, out);
            }
            (_, Some(false)) => {
                self.leaving = None;
                self.due = None;
            }
            (KnownLease::Absent, Some(true)) => self.hold(now, None, out),
            (KnownLease::There(held, since), Some(true)) => {
                let left_alone = held.duration().unwrap_or(self.times.lease);
                let free = ours || held.holder().is_empty() || now.since(*since) >= left_alone;
                if free {
                    let on = Some(held.clone());
                    self.hold(now, on, out);
                } else {
                    self.outdated = 0;
                    self.due = Some(now + self.pause());
                }
            }
            (KnownLease::Unknown, Some(true)) | (_, None) => {}
        }
    }

    fn failed(&mut self, now: Mono, why: String, out: &mut Vec<Effect>) {
        if !self.answers && self.trouble.is_empty() {
            // This trouble was not logged yet.
            say!(out, warn, "leader election: the cluster does not answer: {why}");
        }
        self.trouble = why;
        self.sure = false;
        let pause = self.pause();
        // Shorter while we release.
        self.due = Some(now + if self.leaving.is_some() { pause / 10 } else { pause });
    }

    fn wrote(
        &mut self,
        now: Mono,
        call: LeaseCall,
        wrote: WriteOutcome<LeaseSnapshot>,
        out: &mut Vec<Effect>,
    ) {
        match wrote {
            WriteOutcome::Done(held) => {
                self.outdated = 0;
                self.sure = true;
                self.observe(now, Some(held), out);
                match call {
                    LeaseCall::Hold { started } => self.held(now, started, out),
                    LeaseCall::Release | LeaseCall::Read => {
                        self.leaving = None;
                        self.due = (self.wanted == Some(true)).then_some(now);
                        say!(out, info, "leader election: lease released");
                    }
                }
            }
            WriteOutcome::Outdated => {
                self.sure = false;
                self.outdated += 1;
                // After a lost race, read at once; after several, with a pause.
                self.due = Some(if self.outdated > 1 { now + self.pause() } else { now });
            }
            WriteOutcome::Unknown(why) => self.failed(now, why, out),
        }
    }

    /// The lease is ours by a write begun at `started`.
    fn held(&mut self, now: Mono, started: Mono, out: &mut Vec<Effect>) {
        let until = started + self.times.renew;
        if self.wanted != Some(true) || now >= until {
            self.due = Some(now);
            return;
        }
        if self.leads.is_none() {
            say!(out, info, "leader election: this node leads lease {}", NAME);
        }
        self.leads = Some(until);
        self.due = Some(now + self.times.rest());
    }
}

impl Core for Election {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.expire(now, &mut out);
        match (event, self.call) {
            (Event::Wanted(wanted), _) => self.want(now, wanted, &mut out),
            (Event::Read(id, read), Some(LeaseCall::Read)) if id == self.calls => {
                self.call = None;
                match read {
                    Ok(found) => {
                        self.sure = true;
                        self.observe(now, found, &mut out);
                        self.decide(now, &mut out);
                    }
                    Err(why) => self.failed(now, why, &mut out),
                }
            }
            (Event::Wrote(id, wrote), Some(call @ (LeaseCall::Hold { .. } | LeaseCall::Release)))
                if id == self.calls =>
            {
                self.call = None;
                self.wrote(now, call, wrote, &mut out);
            }
            (Event::Read(..) | Event::Wrote(..) | Event::Tick, _) => {}
        }
        self.advance(now, &mut out);
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        let due = self.due.filter(|_| self.call.is_none());
        let given_up = self.leaving.map(|since| since + self.times.lease);
        let silent = self.silent_at().filter(|_| self.answers);
        [due, self.leads, given_up, silent].into_iter().flatten().min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}

/// `None` when there is none.
pub async fn read(cluster: &ApiClient) -> Result<Option<Box<LeaseSnapshot>>, Error> {
    Ok(lease::read(cluster, NAME).await?.map(|lease| Box::new(LeaseSnapshot::new(lease))))
}

/// Writes `order`; `wall` is our wall clock. No node starts to hold the lease of a cluster that lacks its
/// Node: after leaving it would report on a foreign cluster.
pub async fn write(
    cluster: &ApiClient,
    order: &ElectionWrite,
    wall: Timestamp,
) -> WriteOutcome<LeaseSnapshot> {
    if let Some(node) = order.newcomer()
        && let Err(error) = known(cluster, node).await
    {
        return WriteOutcome::Unknown(if error.is_not_found() {
            format!("this cluster has no node {node}, which therefore does not lead it")
        } else {
            error.advice()
        });
    }
    let verb = match order {
        ElectionWrite::Create { .. } => "create",
        ElectionWrite::Hold { .. } => "hold",
        ElectionWrite::Release { .. } => "release",
    };
    lease::write(cluster, NAME, verb, &order.object(wall))
        .await
        .read(|lease| Ok(Box::new(LeaseSnapshot::new(lease))))
}

async fn known(cluster: &ApiClient, node: &str) -> Result<(), Error> {
    let request = nodes::api().get(node, &GetParams::default());
    cluster.ask_within::<NodeObject>(CALL_LIMIT, &format!("look for node {node}"), request).await.map(drop)
}

#[cfg(test)]
mod call_tests {
    use std::time::Duration;

    use kubeapi::names::APP_NAMESPACE;
    use serde_json::json;

    use super::*;
    use kubeapi::mock::{self, MockReply};

    const WALL: &str = "2026-03-14T09:26:53.5Z";

    fn wall() -> Timestamp {
        WALL.parse().unwrap()
    }

    fn lease(version: &str, holder: &str) -> serde_json::Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": NAME, "namespace": APP_NAMESPACE, "resourceVersion": version, "uid": "u1",
                          "labels": { "kept": "yes" } },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 300, "leaseTransitions": 4,
                      "acquireTime": "2026-03-14T08:00:00.000001Z", "renewTime": "2026-03-14T09:00:00.000002Z" },
        })
    }

    fn held(version: &str, holder: &str) -> Box<LeaseSnapshot> {
        Box::new(LeaseSnapshot::new(serde_json::from_value(lease(version, holder)).unwrap()))
    }

    fn node() -> MockReply {
        mock::object(&json!({ "metadata": { "name": "n1" } }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_the_cluster_does_not_know_takes_no_lease_and_keeps_none_of_another() {
        let lease_time = Duration::from_secs(300);
        let take = ElectionWrite::Hold { on: held("8", "n2"), identity: "n1".to_owned(), lease: lease_time };
        let make = ElectionWrite::Create { identity: "n1".to_owned(), lease: lease_time };
        for (order, answer, says) in [
            (&take, mock::status(404, "nodes \"n1\" not found"), "has no node n1"),
            (&make, mock::status(404, "nodes \"n1\" not found"), "has no node n1"),
            (&take, mock::status(503, "busy"), "look for node n1"),
        ] {
            let (cluster, calls) = mock::cluster(vec![answer]);
            let WriteOutcome::Unknown(why) = write(&cluster, order, wall()).await else {
                panic!("{order:?}")
            };
            assert!(why.contains(says), "{why}");
            assert_eq!(calls.lines(), ["GET /api/v1/nodes/n1"], "nothing is written");
        }
    }

    const URL: &str = "/apis/coordination.k8s.io/v1/namespaces/eve-kube-app/leases";

    #[tokio::test(start_paused = true)]
    async fn l1_each_write_is_the_one_of_client_go() {
        let lease_time = Duration::from_secs(300);
        let identity = "n1".to_owned();
        let now = "2026-03-14T09:26:53.500000Z";
        let whole = |version: &str, spec: serde_json::Value| {
            let mut object = lease(version, "");
            object["spec"] = spec;
            object
        };
        let table = [
            (
                ElectionWrite::Create { identity: identity.clone(), lease: lease_time },
                format!("POST {URL}?&fieldManager=pillar-rs"),
                json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": { "name": NAME, "namespace": APP_NAMESPACE },
                    "spec": { "holderIdentity": "n1", "leaseDurationSeconds": 300, "leaseTransitions": 0,
                              "acquireTime": now, "renewTime": now },
                }),
            ),
            (
                ElectionWrite::Hold { on: held("7", "n1"), identity: identity.clone(), lease: lease_time },
                format!("PUT {URL}/{NAME}?&fieldManager=pillar-rs"),
                whole(
                    "7",
                    json!({ "holderIdentity": "n1", "leaseDurationSeconds": 300, "leaseTransitions": 4,
                            "acquireTime": "2026-03-14T08:00:00.000001Z", "renewTime": now }),
                ),
            ),
            (
                ElectionWrite::Hold { on: held("8", "n2"), identity, lease: Duration::from_millis(1_500) },
                format!("PUT {URL}/{NAME}?&fieldManager=pillar-rs"),
                whole(
                    "8",
                    json!({ "holderIdentity": "n1", "leaseDurationSeconds": 2, "leaseTransitions": 5,
                            "acquireTime": now, "renewTime": now }),
                ),
            ),
            (
                ElectionWrite::Release { on: held("9", "n1") },
                format!("PUT {URL}/{NAME}?&fieldManager=pillar-rs"),
                whole(
                    "9",
                    json!({ "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4,
                            "acquireTime": now, "renewTime": now }),
                ),
            ),
        ];
        for (order, line, body) in table {
            let newcomer = order.newcomer().is_some();
            let answers = newcomer.then(node).into_iter().chain([mock::object(&lease("10", "n1"))]).collect();
            let (cluster, calls) = mock::cluster(answers);
            let WriteOutcome::Done(now) = write(&cluster, &order, wall()).await else { panic!("{order:?}") };
            assert_eq!((now.version(), now.holder()), ("10", "n1"));
            let mut all = calls.all();
            if newcomer {
                assert_eq!(all.remove(0).line, "GET /api/v1/nodes/n1");
            }
            let call = all.remove(0);
            assert_eq!(call.line, line);
            assert_eq!(serde_json::from_str::<serde_json::Value>(&call.body).unwrap(), body, "{order:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_to_a_write_is_told_apart() {
        let create = || ElectionWrite::Create { identity: "n1".to_owned(), lease: Duration::from_secs(300) };
        let hold = || ElectionWrite::Hold {
            on: held("7", "n1"),
            identity: "n1".to_owned(),
            lease: Duration::from_secs(300),
        };
        let table: [(ElectionWrite, MockReply, bool); 8] = [
            (create(), mock::status(409, "already exists"), true),
            (hold(), mock::status(409, "the object has been modified"), true),
            (hold(), mock::status(404, "not found"), true),
            (ElectionWrite::Release { on: held("7", "n1") }, mock::status(404, "not found"), true),
            (create(), mock::status(404, "namespaces \"eve-kube-app\" not found"), false),
            (hold(), mock::status(403, "forbidden"), false),
            (hold(), mock::status(503, "busy"), false),
            (hold(), MockReply::Silence, false),
        ];
        for (number, (order, answer, outdated)) in table.into_iter().enumerate() {
            let answers = order.newcomer().map(|_| node()).into_iter().chain([answer]).collect();
            let (cluster, _) = mock::cluster(answers);
            match write(&cluster, &order, wall()).await {
                WriteOutcome::Outdated => assert!(outdated, "row {number}"),
                WriteOutcome::Unknown(why) => {
                    assert!(!outdated && why.contains("lease eve-kube-app/"), "{why}");
                }
                WriteOutcome::Done(_) => panic!("row {number}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_lease_is_an_answer_and_silence_is_none() {
        let (cluster, calls) =
            mock::cluster(vec![mock::status(404, "not found"), mock::object(&lease("3", "n2"))]);
        assert_eq!(read(&cluster).await.unwrap(), None);
        assert_eq!(calls.lines(), [format!("GET {URL}/{NAME}")]);
        let held = read(&cluster).await.unwrap().unwrap();
        assert_eq!((held.version(), held.holder(), held.transitions()), ("3", "n2", 4));
        assert_eq!(held.duration(), Some(Duration::from_secs(300)));
        let error = read(&cluster).await.unwrap_err();
        assert!(error.line().contains("no answer within 10 s"), "{}", error.line());
    }
}
