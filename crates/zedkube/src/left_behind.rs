//! What drains have left behind: a node takes back what its own have asked of virtual machines and volumes once it is
//! healthy. For a node that does not come back the node that leads does it after a limit, so that no machine stays down
//! because its node died. Everything is found by marks on the objects, so a restart changes nothing.
//!
//! Not here: when that is (`core::cleanup`), the calls (`kubenodeop`).

use std::collections::BTreeSet;
use std::time::Duration;

use agent::{Clock, Outbox};
use clusterview::leader::Leadership;
use clusterview::leads_otherwise;
use kubeapi::pace::Pace;
use kubeapi::watch::jitter_seed;
use kubeapi::{ApiClient, Error, NodeName, nodes};
use kubenodeop::calls::{eviction_request, surge};
use kubenodeop::machines::undo;
use kubenodeop::storage;
use step::{LiteMap, Mono};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::core::Event;
use crate::limits::MACHINES_RESTORE;

/// A machine that is not up so long after its node has come back is named.
const UP_WITHIN: Duration = Duration::from_mins(5);
/// Between two looks at machines that are not up.
const UP_LOOK: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_secs(600);
/// The time that reading the nodes may take.
const READ: Duration = Duration::from_secs(30);

/// Since when nodes are away that have left something of a drain.
#[derive(Debug, Default)]
struct AwayNodes {
    since: LiteMap<String, Mono>,
}

impl AwayNodes {
    /// Those of `drained` that have been away for [`MACHINES_RESTORE`]; `ready` are those that are not.
    fn over(&mut self, now: Mono, drained: &BTreeSet<String>, ready: &BTreeSet<String>) -> BTreeSet<String> {
        self.since.retain(|node, _| drained.contains(node) && !ready.contains(node));
        for node in drained.difference(ready) {
            self.since.entry(node.clone()).or_insert(now);
        }
        let over = self.since.iter().filter(|(_, since)| now.since(**since) >= MACHINES_RESTORE);
        over.map(|(node, _)| node.clone()).collect()
    }
}

/// Runs until the sender of `leading` is gone. Dropping it loses nothing.
pub(crate) async fn run(cluster: ApiClient, clock: Clock, mut leading: watch::Receiver<Leadership>) {
    let (mut away, mut said) = (AwayNodes::default(), String::new());
    loop {
        let leads = leading.borrow_and_update().holds(clock.now());
        let due = leads.then(|| clock.now() + LOOK);
        if leads {
            let why = match look(&cluster, clock.now(), &mut away).await {
                Ok(()) => String::new(),
                Err(error) => error.line(),
            };
            if !why.is_empty() && why != said {
                warn!(error = why, "cannot look for what drains have left of nodes that are away");
            }
            said = why;
        }
        tokio::select! {
            known = leads_otherwise(&mut leading, clock, leads) => if !known { return },
            () = clock.sleep_until(due), if due.is_some() => {}
        }
    }
}

/// Takes back the migrations that drains of `node` have asked for, and where `requests` are set their EvictionRequests, until
/// none is left. What is in the way is sent, and tried
/// again after pauses that grow. Dropping it loses nothing.
pub(crate) async fn undo_migrations(
    cluster: &ApiClient,
    node: &NodeName,
    mut requests: bool,
    clock: Clock,
    outbox: Outbox<Event>,
) {
    let (mut pace, mut tries) = (Pace::new(jitter_seed()), 0_u32);
    loop {
        let unwithdrawn = withdraw(cluster, node, &mut requests).await;
        let failed = undo::take_back(cluster, node).await.err().as_ref().map(in_the_way).or(unwithdrawn);
        let done = failed.is_none();
        let (why, next) = failed.unwrap_or_default();
        if !outbox.send(Event::Leftovers(why, next)).await || done {
            return;
        }
        tries = tries.saturating_add(1);
        clock.sleep_until(Some(clock.now() + pace.pause(tries, None))).await;
    }
}

/// Withdraws the EvictionRequests of drains of `node` while that is `due`. What is in the way, and what a person can do; a
/// refusal for good is said once.
async fn withdraw(cluster: &ApiClient, node: &NodeName, due: &mut bool) -> Option<(String, String)> {
    if !*due {
        return None;
    }
    let failed = eviction_request::withdraw_all(cluster, node).await.err();
    *due = failed.as_ref().is_some_and(|error| !error.is_refused());
    let words =
        |it: Error| (format!("EvictionRequests are not withdrawn yet: {}", it.line()), it.next_step());
    failed.map(words)
}

/// What is in the way of virtual machines, and what a person can do.
fn in_the_way(error: &Error) -> (String, String) {
    (format!("virtual machines: {}", error.line()), undo::next_step(error))
}

/// Takes back what drains of `node` asked of machines and volumes, and starts again the machines that they stopped, until
/// nothing is left and the machines of the node are up. What is in the way is sent, and tried again after pauses that grow;
/// machines are named that have not come up in their time. Second copies of Deployments that have not come to be are given
/// up where `surges` are set, and EvictionRequests withdrawn where `requests` are. Dropping it loses nothing.
pub(crate) async fn undo_drain(
    cluster: &ApiClient,
    node: &NodeName,
    (surges, mut requests): (bool, bool),
    clock: Clock,
    outbox: Outbox<Event>,
) {
    let (mut pace, mut tries) = (Pace::new(jitter_seed()), 0_u32);
    let named_from = clock.now() + UP_WITHIN;
    // Each is done once.
    let (mut volumes_due, mut surges_due) = (true, surges);
    loop {
        let (mut whys, mut next, mut failed) = (Vec::new(), String::new(), false);
        match undo::undo_all(cluster, node).await {
            Ok(0) => {}
            Ok(later) => {
                whys.push(format!("virtual machines still to be started again: {later}"));
                "kubectl get vmi -A shows how far they are".clone_into(&mut next);
            }
            Err(error) => {
                let (why, step) = in_the_way(&error);
                whys.push(why);
                (next, failed) = (step, true);
            }
        }
        if volumes_due {
            let (volumes, done) = storage::withdraw_all(cluster, node).await;
            if !volumes.is_empty() {
                info!(%node, ?volumes, "numberOfReplicas of volumes is what it was before the drain");
            }
            volumes_due = done.is_err();
            if let Err(error) = done {
                whys.push(format!("numberOfReplicas of volumes is not reset yet: {}", error.line()));
                next = error.next_step();
            }
        }
        if surges_due {
            let (deployments, done) = surge::settle(cluster, node, true).await;
            if !deployments.is_empty() {
                info!(%node, ?deployments, "second copies that never became Ready are rolled back");
            }
            surges_due = done.is_err();
            if let Err(error) = done {
                whys.push(format!("rollouts of second copies are not rolled back yet: {}", error.line()));
                next = error.next_step();
            }
        }
        if let Some((why, step)) = withdraw(cluster, node, &mut requests).await {
            whys.push(why);
            next = step;
        }
        tries = if failed || volumes_due || surges_due || requests { tries.saturating_add(1) } else { 0 };
        let undone = whys.is_empty();
        let is_time = clock.now() >= named_from;
        let down = match undo::not_up(cluster, node).await {
            Ok(down) => down,
            // Without the right to read them there is no second try.
            Err(error) if error.is_refused() => None,
            Err(error) => {
                let (why, step) = in_the_way(&error);
                whys.push(why);
                next = step;
                Some(Vec::new())
            }
        };
        for found in checks::workloads::not_up("vmi", down.as_deref().unwrap_or_default()) {
            if is_time {
                (next, whys) = (found.next, [whys, vec![found.text]].concat());
            }
        }
        let done = undone && down.is_none_or(|it| it.is_empty() && is_time);
        if !outbox.send(Event::Leftovers(whys.join("; "), next)).await || done {
            return;
        }
        let pause = match tries {
            0 if undone => UP_LOOK,
            0 => undo::LOOKS_APART,
            tries => pace.pause(tries, None),
        };
        clock.sleep_until(Some(clock.now() + pause)).await;
    }
}

async fn look(cluster: &ApiClient, now: Mono, away: &mut AwayNodes) -> Result<(), Error> {
    // What is in the way of one does not keep the other from being done.
    let (volumes, machines) = (storage::asked_for(cluster).await, undo::stopped(cluster).await);
    let mut drained = volumes.as_ref().cloned().unwrap_or_default();
    drained.extend(machines.iter().flatten().map(|(_, node)| node.clone()));
    let mut ready = BTreeSet::new();
    if !drained.is_empty() {
        let members = nodes::members(cluster, READ).await?;
        ready = members.into_iter().filter(|it| it.facts.ready == "True").map(|it| it.name).collect();
    }
    let over = away.over(now, &drained, &ready);
    if !over.is_empty() {
        let of = |node: &str| over.contains(node);
        let started = undo::start_all(cluster, of).await;
        let (volumes, copies) = storage::take_back(cluster, of, |_| true).await;
        if !volumes.is_empty() {
            info!(nodes = ?over, ?volumes, "numberOfReplicas of volumes is what it was before the drains of nodes that are away");
        }
        started?;
        copies?;
    }
    volumes.and(machines.map(|_| ()))
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use kubesim::{ScriptedFault, Sim};
    use serde_json::{Value, json};

    use super::*;

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn only_a_node_that_is_away_for_the_whole_limit_is_over_it() {
        let at = |secs| Mono::from_start(Duration::from_secs(secs));
        let mut away = AwayNodes::default();
        let (both, one) = (names(&["n1", "n2"]), names(&["n2"]));
        assert_eq!(away.over(at(0), &both, &one), names(&[]));
        assert_eq!(away.over(at(3599), &both, &one), names(&[]));
        assert_eq!(away.over(at(3600), &both, &one), names(&["n1"]));
        // Back for a moment: its time starts again.
        assert_eq!(away.over(at(3610), &both, &both), names(&[]));
        assert_eq!(away.over(at(3620), &both, &one), names(&[]));
        assert_eq!(away.over(at(7219), &both, &one), names(&[]));
        assert_eq!(away.over(at(7220), &both, &one), names(&["n1"]));
    }

    /// n1 dies. What `left` says of what its drain has left is as before until the limit is over.
    async fn dies(sim: &Sim, refused: bool, left: impl Fn() -> Value) {
        let before = left();
        let ready = |it: &Value| it["status"]["conditions"][0]["status"] == "True";
        sim.until("nodes", |all| all.iter().all(ready)).await;
        sim.power("n1", false);
        sim.until("nodes", |all| !all.iter().all(ready)).await;
        let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
        let mut away = AwayNodes::default();
        for secs in [0, 3599, 3600] {
            assert_eq!(left(), before);
            let at = Mono::from_start(Duration::from_secs(secs));
            let looked = look(&cluster, at, &mut away).await;
            assert_eq!(looked.is_err(), refused);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_whose_node_died_is_started_again_by_who_leads_after_the_limit() {
        let sim = Sim::of_nodes(2);
        sim.add_kubevirt("v1.7.3");
        sim.add_machine("shop", "db", "Halted");
        sim.edit("kubevirt/virtualmachines", "shop", "db", |it| {
            let uid = it["metadata"]["uid"].clone();
            it["metadata"]["labels"]["pillar-rs/drain-stopped"] = "true".into();
            it["metadata"]["annotations"]["pillar-rs/drain-stopped"] =
                json!({ "id": "d", "node": "n1", "uid": uid,
                "was": { "runStrategy": "Always" }, "left": { "runStrategy": "Halted" } })
                .to_string()
                .into();
        });
        let strategy =
            || sim.get("kubevirt/virtualmachines", "shop", "db").unwrap()["spec"]["runStrategy"].clone();
        dies(&sim, false, strategy).await;
        assert_eq!(strategy(), "Always");
    }

    #[tokio::test(start_paused = true)]
    async fn d20_a_second_copy_that_a_drain_asked_for_and_that_has_not_come_to_be_is_given_up() {
        let sim = Sim::of_nodes(2);
        sim.add_deployment("shop", "solo", 1);
        sim.edit("apps/deployments", "shop", "solo", |it| {
            let record = json!({ "node": "n1", "replica_set": "solo-1", "before": null }).to_string();
            it["metadata"]["annotations"] = json!({ "pillar-rs/drain-surge-record": record });
            it["spec"]["template"]["metadata"]["annotations"] =
                json!({ "pillar-rs/drain-surge-from": "n1/solo-1" });
        });
        let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
        let (clock, (outbox, _inbox)) = (Clock::new(), agent::inbox());
        undo_drain(&cluster, &NodeName::parse("n1").unwrap(), (true, false), clock, outbox).await;
        let left = sim.get("apps/deployments", "shop", "solo").unwrap();
        assert_eq!(left["metadata"]["annotations"], json!({}), "{left}");
    }

    #[tokio::test(start_paused = true)]
    async fn j2_an_eviction_request_that_a_drain_has_left_is_withdrawn_with_or_without_the_gate() {
        for (migrations, requests, refused, tries) in
            [(true, true, 503, 2), (false, true, 503, 2), (true, true, 403, 1), (true, false, 503, 0)]
        {
            let sim = Sim::of_nodes(2);
            sim.add_eviction_requests(None, "");
            let request = json!({
                "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest",
                "metadata": {
                    "name": "pillar-rs-u", "namespace": "shop", "labels": { "pillar-rs/drain-node": "n1" },
                },
                "spec": {
                    "target": { "pod": { "name": "a", "uid": "u" } },
                    "requester": "pillar-rs.dev/drain", "intent": "Eviction",
                },
            });
            sim.apply("lifecycle/evictionrequests", request);
            sim.faults().script("DELETE", "/evictionrequests/", 1, ScriptedFault::status(refused, "Failed"));
            let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
            let (clock, (outbox, mut inbox)) = (Clock::new(), agent::inbox());
            let node = NodeName::parse("n1").unwrap();
            if migrations {
                undo_migrations(&cluster, &node, requests, clock, outbox).await;
            } else {
                undo_drain(&cluster, &node, (false, requests), clock, outbox).await;
            }
            let deleted = sim.faults().count("DELETE", "/evictionrequests/");
            assert_eq!(
                (deleted, sim.list("lifecycle/evictionrequests").len()),
                (tries, usize::from(tries < 2))
            );
            let mut said = Vec::new();
            while let Some(Event::Leftovers(why, _)) = inbox.recv().await {
                said.push(why);
            }
            let is_said = said[0].starts_with("EvictionRequests are not withdrawn yet: ");
            assert_eq!(is_said, requests, "{said:?}");
            assert_eq!(said.last().unwrap(), "");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d14_a_copy_asked_for_by_a_node_that_died_is_taken_back_by_who_leads_after_the_limit() {
        let sim = Sim::of_nodes(2);
        sim.add_longhorn("always-allow");
        // Who may not read machines can do this all the same.
        sim.add_kubevirt("v1.7.3");
        sim.faults().script("GET", "/virtualmachines", 100_000, ScriptedFault::status(403, "Forbidden"));
        let wanted = |name: &str| {
            let volume = sim.get("longhorn/volumes", "longhorn-system", name).unwrap();
            json!([
                volume["spec"]["numberOfReplicas"],
                volume["metadata"]["annotations"]["pillar-rs/last-copy"]
            ])
        };
        for (name, node) in [("pvc-1", "n1"), ("pvc-2", "n2"), ("pvc-3", "n1")] {
            sim.add_longhorn_volume("shop", name, name, &[node]);
            sim.edit("longhorn/volumes", "longhorn-system", name, |it| {
                it["spec"]["numberOfReplicas"] = 2.into();
                it["metadata"]["annotations"]["pillar-rs/last-copy"] =
                    json!({ "was": 1, "node": node }).to_string().into();
            });
        }
        // A pass alone.
        sim.edit("longhorn/volumes", "longhorn-system", "pvc-3", |it| {
            it["metadata"]["annotations"] = json!({ "pillar-rs/last-copy-pass": "n1 dead" });
        });
        let other = wanted("pvc-2");
        dies(&sim, true, || wanted("pvc-1")).await;
        assert_eq!(wanted("pvc-1"), json!([1, null]));
        assert_eq!(wanted("pvc-2"), other, "its node is not away");
        let passed = sim.get("longhorn/volumes", "longhorn-system", "pvc-3").unwrap();
        assert!(passed["metadata"]["annotations"].get("pillar-rs/last-copy-pass").is_none(), "{passed}");
    }
}
