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
pub(crate) mod tests;

/// In the namespace of applications.
pub const NAME: &str = "eve-kube-stats-leader";

/// Duration in a released lease.
const RELEASED: Duration = Duration::from_secs(1);

/// Changes with every write.
fn version(lease: &Lease) -> &str {
    lease.metadata.resource_version.as_deref().unwrap_or_default()
}

/// Empty for none.
fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// How long the holder is left alone after a sign of life, if given.
fn duration(lease: &Lease) -> Option<Duration> {
    let secs = lease.spec.as_ref()?.lease_duration_seconds?;
    u64::try_from(secs).ok().filter(|secs| *secs > 0).map(Duration::from_secs)
}

/// Takes, renews or releases it.
#[derive(Debug, Clone, PartialEq)]
pub struct ElectionWrite {
    /// As it was read; `None` creates it.
    pub on: Option<Box<Lease>>,
    /// Empty in a release.
    pub holder: String,
    /// How long the holder is left alone after a sign of life.
    pub lease: Duration,
}

impl ElectionWrite {
    /// The new holder, if this changes it.
    fn newcomer(&self) -> Option<&str> {
        let before = self.on.as_deref().map_or("", holder);
        (!self.is_release() && before != self.holder).then_some(&self.holder)
    }

    pub fn is_release(&self) -> bool {
        self.holder.is_empty()
    }

    /// `wall` is our wall clock: for people only, no decision uses it.
    fn object(&self, wall: Timestamp) -> Lease {
        let now = Some(MicroTime(wall));
        let whole = self.on.as_deref().cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(APP_NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let renews = holder(&whole) == self.holder;
        let changes = self.on.is_some() && self.newcomer().is_some();
        let before = whole.spec.unwrap_or_default();
        let spec = LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: Some(secs(self.lease)),
            acquire_time: before.acquire_time.filter(|_| renews).or_else(|| now.clone()),
            renew_time: now,
            lease_transitions: Some(
                before.lease_transitions.unwrap_or_default().saturating_add(changes.into()),
            ),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..whole }
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
    Read(CallId, Result<Option<Box<Lease>>, String>),
    Wrote(CallId, WriteOutcome<Lease>),
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
    /// The lease, and since when it is seen so; `None` while there is none, or nothing is known of it.
    seen: Option<(Box<Lease>, Mono)>,
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
    /// When the cluster counts as gone without another answer; `None` while it does.
    answers: Option<Mono>,
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
            leader: self.leader().to_owned(),
            answers: self.answers.is_some(),
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

    fn leader(&self) -> &str {
        self.seen.as_ref().map_or("", |(held, _)| holder(held))
    }

    fn is_ours(&self) -> bool {
        self.seen.is_some() && self.leader() == self.identity
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
            (self.leaving, self.due, self.seen) = (None, None, None);
            say!(out, warn, "leader election: lease not released, it has run out by now");
        }
        // Without a candidacy there is no look, which is no trouble.
        if self.answers.take_if(|at| now >= *at).is_some() && !self.trouble.is_empty() {
            say!(out, warn, "leader election: the cluster does not answer: {}", self.trouble);
        }
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

    fn observe(&mut self, now: Mono, found: Option<Box<Lease>>, out: &mut Vec<Effect>) {
        self.sure = true;
        self.trouble.clear();
        if self.answers.replace(now + self.times.silence).is_none() {
            say!(out, info, "leader election: the cluster answers");
        }
        self.seen = found.map(|new| {
            // No write: its time continues.
            let same = self.seen.as_ref().filter(|(old, _)| version(old) == version(&new));
            let since = same.map_or(now, |(_, since)| *since);
            (new, since)
        });
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

    /// Takes or renews it, or, where this node is no candidate, releases it.
    fn write(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let on = self.seen.as_ref().map(|(held, _)| held.clone());
        let (call, holder, lease) = if self.wanted == Some(true) {
            (LeaseCall::Hold { started: now }, self.identity.clone(), self.times.lease)
        } else {
            (LeaseCall::Release, String::new(), RELEASED)
        };
        out.push(Effect::Write(self.begin(call), Box::new(ElectionWrite { on, holder, lease })));
    }

    /// The next call, if due. A leader that is sure of its record writes at once; others read first.
    fn advance(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.call.is_some() || self.due.is_none_or(|due| now < due) {
            return;
        }
        match self.wanted {
            None => self.due = None,
            Some(false) if self.leaving.is_none() => self.due = None,
            Some(true) if self.sure && self.leads.is_some() => self.write(now, out),
            Some(false) if self.sure && self.is_ours() => self.write(now, out),
            Some(_) => out.push(Effect::Read(self.begin(LeaseCall::Read))),
        }
    }

    /// After a read: the right to write, or the wait.
    fn decide(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let ours = self.is_ours();
        let free = self.seen.as_ref().is_none_or(|(held, since)| {
            let left_alone = duration(held).unwrap_or(self.times.lease);
            ours || holder(held).is_empty() || now.since(*since) >= left_alone
        });
        match self.wanted {
            Some(false) if !ours => (self.leaving, self.due) = (None, None),
            Some(_) if free => self.write(now, out),
            Some(_) => {
                self.outdated = 0;
                self.due = Some(now + self.pause());
            }
            None => {}
        }
    }

    fn failed(&mut self, now: Mono, why: String, out: &mut Vec<Effect>) {
        if self.answers.is_none() && self.trouble.is_empty() {
            // This trouble was not logged yet.
            say!(out, warn, "leader election: the cluster does not answer: {why}");
        }
        self.trouble = why;
        self.sure = false;
        let pause = self.pause();
        // Shorter while we release.
        self.due = Some(now + if self.leaving.is_some() { pause / 10 } else { pause });
    }

    fn wrote(&mut self, now: Mono, call: LeaseCall, wrote: WriteOutcome<Lease>, out: &mut Vec<Effect>) {
        match wrote {
            WriteOutcome::Done(held) => {
                self.outdated = 0;
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
        if self.leads.replace(until).is_none() {
            say!(out, info, "leader election: this node leads lease {}", NAME);
        }
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
        [due, self.leads, given_up, self.answers].into_iter().flatten().min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}

/// `None` when there is none.
pub async fn read(cluster: &ApiClient) -> Result<Option<Box<Lease>>, Error> {
    Ok(lease::read(cluster, NAME).await?.map(Box::new))
}

/// Writes `order`; `wall` is our wall clock. No node starts to hold the lease of a cluster that lacks its
/// Node: after leaving it would report on a foreign cluster.
pub async fn write(cluster: &ApiClient, order: &ElectionWrite, wall: Timestamp) -> WriteOutcome<Lease> {
    if let Some(node) = order.newcomer()
        && let Err(error) = known(cluster, node).await
    {
        return WriteOutcome::Unknown(if error.is_not_found() {
            format!("this cluster has no node {node}, which therefore does not lead it")
        } else {
            error.advice()
        });
    }
    let verb = match &order.on {
        None => "create",
        Some(_) if order.is_release() => "release",
        Some(_) => "hold",
    };
    lease::write(cluster, NAME, verb, &order.object(wall)).await
}

async fn known(cluster: &ApiClient, node: &str) -> Result<(), Error> {
    let request = nodes::api().get(node, &GetParams::default());
    cluster.ask_within::<NodeObject>(CALL_LIMIT, &format!("look for node {node}"), request).await.map(drop)
}

#[cfg(test)]
mod call_tests {
    use serde_json::{Value, json};

    use super::*;
    use kubeapi::mock::{self, MockReply};

    const WALL: &str = "2026-03-14T09:26:53.5Z";

    fn wall() -> Timestamp {
        WALL.parse().unwrap()
    }

    fn lease(version: &str, holder: &str) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": NAME, "namespace": APP_NAMESPACE, "resourceVersion": version, "uid": "u1",
                          "labels": { "kept": "yes" } },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 300, "leaseTransitions": 4,
                      "acquireTime": "2026-03-14T08:00:00.000001Z", "renewTime": "2026-03-14T09:00:00.000002Z" },
        })
    }

    /// A write of `holder`, or a release, of the lease that `before` held.
    fn order(before: Option<(&str, &str)>, holder: &str, lease_time: Duration) -> ElectionWrite {
        let on = before.map(|(version, holder)| serde_json::from_value(lease(version, holder)).unwrap());
        ElectionWrite { on, holder: holder.to_owned(), lease: lease_time }
    }

    const LEASE_TIME: Duration = Duration::from_secs(300);

    fn node() -> MockReply {
        mock::object(&json!({ "metadata": { "name": "n1" } }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_the_cluster_does_not_know_takes_no_lease_and_keeps_none_of_another() {
        let take = order(Some(("8", "n2")), "n1", LEASE_TIME);
        let make = order(None, "n1", LEASE_TIME);
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
        let now = "2026-03-14T09:26:53.500000Z";
        let spec = |holder: &str, secs: u64, transitions: u64, acquired: &str| {
            json!({ "holderIdentity": holder, "leaseDurationSeconds": secs, "leaseTransitions": transitions,
                    "acquireTime": acquired, "renewTime": now })
        };
        let whole = |version: &str, spec: Value| {
            let mut object = lease(version, "");
            object["spec"] = spec;
            object
        };
        let created = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": NAME, "namespace": APP_NAMESPACE }, "spec": spec("n1", 300, 0, now),
        });
        let before = "2026-03-14T08:00:00.000001Z";
        let (post, put) = (format!("POST {URL}"), format!("PUT {URL}/{NAME}"));
        let table = [
            (order(None, "n1", LEASE_TIME), &post, created),
            (order(Some(("7", "n1")), "n1", LEASE_TIME), &put, whole("7", spec("n1", 300, 4, before))),
            (
                order(Some(("8", "n2")), "n1", Duration::from_millis(1_500)),
                &put,
                whole("8", spec("n1", 2, 5, now)),
            ),
            (order(Some(("9", "n1")), "", RELEASED), &put, whole("9", spec("", 1, 4, now))),
        ];
        for (order, line, body) in table {
            let newcomer = order.newcomer().is_some();
            let answers = newcomer.then(node).into_iter().chain([mock::object(&lease("10", "n1"))]).collect();
            let (cluster, calls) = mock::cluster(answers);
            let WriteOutcome::Done(now) = write(&cluster, &order, wall()).await else { panic!("{order:?}") };
            assert_eq!((version(&now), holder(&now)), ("10", "n1"));
            let mut all = calls.all();
            if newcomer {
                assert_eq!(all.remove(0).line, "GET /api/v1/nodes/n1");
            }
            let call = all.remove(0);
            assert_eq!(call.line, format!("{line}?&fieldManager=pillar-rs"));
            assert_eq!(serde_json::from_str::<Value>(&call.body).unwrap(), body, "{order:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_to_a_write_is_told_apart() {
        let create = || order(None, "n1", LEASE_TIME);
        let hold = || order(Some(("7", "n1")), "n1", LEASE_TIME);
        let table: [(ElectionWrite, MockReply, bool); 8] = [
            (create(), mock::status(409, "already exists"), true),
            (hold(), mock::status(409, "the object has been modified"), true),
            (hold(), mock::status(404, "not found"), true),
            (order(Some(("7", "n1")), "", RELEASED), mock::status(404, "not found"), true),
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
        assert_eq!((version(&held), holder(&held), duration(&held)), ("3", "n2", Some(LEASE_TIME)));
        assert_eq!(held.spec.unwrap().lease_transitions, Some(4));
        let error = read(&cluster).await.unwrap_err();
        assert!(error.line().contains("no answer within 10 s"), "{}", error.line());
    }
}
