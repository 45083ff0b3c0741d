//! Sees all nodes as they really are, at every change of the cluster: on how many of them a machine or a volume for one node
//! is at work, which nodes are declared dead, and whose taint goes in which boot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use kubesim::{Sim, SimMoment};
use outage::failover::DeclaredNode;
use serde_json::Value;
use tokio::time::Instant;

#[derive(Clone)]
pub(super) struct Onlooker(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    since: Option<Instant>,
    /// By machine and volume the nodes on which it is at work.
    at_work: BTreeMap<String, BTreeSet<String>>,
    /// By node: the value of our taint.
    tainted: BTreeMap<String, String>,
    entries: Vec<DeclaredNode>,
    history: Vec<String>,
    faults: Vec<String>,
}

impl Onlooker {
    #[expect(clippy::disallowed_methods, reason = "how long it took on the paused clock, for people")]
    pub(super) fn on(sim: &Sim) -> Self {
        let it = Self(Arc::new(Mutex::new(Seen { since: Some(Instant::now()), ..Seen::default() })));
        let seen = it.clone();
        sim.onlooker(move |now| seen.0.lock().unwrap().look(now));
        it
    }

    /// What was wrong since the last call.
    pub(super) fn faults(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().faults)
    }

    /// # Panics
    /// Something was wrong: with all that has happened.
    pub(super) fn check(&self, what: &str) {
        let faults = self.faults();
        assert!(faults.is_empty(), "{what}: {faults:#?}\n{}", self.history());
    }

    pub(super) fn history(&self) -> String {
        self.0.lock().unwrap().history.join("\n")
    }

    pub(super) fn note(&self, what: &str) {
        self.0.lock().unwrap().note(what);
    }
}

impl Seen {
    fn note(&mut self, what: &str) {
        self.history.push(format!("{:>6} s: {what}", self.since.map_or(0, |it| it.elapsed().as_secs())));
    }

    fn fault(&mut self, what: String) {
        self.note(&format!("FAULT: {what}"));
        self.faults.push(what);
    }

    fn look(&mut self, now: &SimMoment<'_>) {
        let nodes: Vec<&Value> = now.list("nodes").collect();
        let mut at_work: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in &nodes {
            for thing in now.executing(node).into_iter().flat_map(exclusive) {
                at_work.entry(thing).or_default().insert(name(node));
            }
        }
        if at_work != self.at_work {
            self.note(&format!("at work: {at_work:?}"));
            let before = std::mem::replace(&mut self.at_work, at_work.clone());
            for (thing, on) in
                at_work.iter().filter(|(thing, on)| on.len() > 1 && before.get(*thing) != Some(*on))
            {
                self.fault(format!("{thing} is at work on {on:?}"));
            }
        }
        self.declared(now, &nodes);
        for node in nodes {
            let all = node["spec"]["taints"].as_array().into_iter().flatten();
            let ours = all.filter_map(|it| it["value"].as_str()).find(|it| it.starts_with("pillar-rs-"));
            let before = self.tainted.remove(&name(node));
            if let Some(mark) = ours {
                self.tainted.insert(name(node), mark.to_owned());
            }
            if before.as_deref() != ours {
                self.note(&format!("taint of {}: {before:?} -> {ours:?}", name(node)));
            }
            if let Some(mark) = before.filter(|_| ours.is_none())
                && let Some(entry) = self.entries.iter().find(|it| it.mark() == mark)
                && node["metadata"]["annotations"]["kubesim/boot"] == entry.boot_id.as_str()
            {
                self.fault(format!("{mark} is off {} in the boot that was declared dead", name(node)));
            }
        }
    }

    fn declared(&mut self, now: &SimMoment<'_>, nodes: &[&Value]) {
        let text = |it: &Value| {
            it["metadata"]["annotations"][outage::turn::record::FAILOVER].as_str().map(str::to_owned)
        };
        let text = now.list("coordination/leases").find_map(text);
        let entries: Vec<DeclaredNode> =
            text.map(|it| serde_json::from_str(&it).unwrap()).unwrap_or_default();
        if entries == self.entries {
            return;
        }
        let words: Vec<String> = entries.iter().map(DeclaredNode::words).collect();
        self.note(&format!("declared: {}", words.join(", ")));
        let others = |it: &DeclaredNode| it.passed.iter().any(|it| it == "--although-others-away");
        let before = std::mem::replace(&mut self.entries, entries.clone());
        for new in entries.iter().filter(|it| before.iter().all(|old| old.number != it.number)) {
            let open = |it: &&DeclaredNode| it.state.is_open() && it.number != new.number;
            let ready = |it: &&&Value| {
                let all = it["status"]["conditions"].as_array().into_iter().flatten();
                all.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
            };
            let ready = nodes.iter().filter(|it| name(it) != new.node).filter(ready).count();
            if let Some(other) = entries.iter().find(open).filter(|it| it.node == new.node || !others(new)) {
                self.fault(format!("{} beside {}", new.words(), other.words()));
            } else if ready * 2 <= nodes.len() && !others(new) {
                self.fault(format!("{} while {ready} of {} are Ready", new.words(), nodes.len()));
            }
        }
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// What of a running pod may be at work on one node only; each volume of these scenarios is such a one.
fn exclusive(pod: &Value) -> Vec<String> {
    let machine = pod["metadata"]["annotations"]["kubevirt.io/domain"].as_str();
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let claims = volumes.filter_map(|it| it["persistentVolumeClaim"]["claimName"].as_str());
    machine
        .map(|it| format!("machine {it}"))
        .into_iter()
        .chain(claims.map(|it| format!("volume {it}")))
        .collect()
}
