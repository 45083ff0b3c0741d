//! A restart of the site on this node: how its own reboot is, by the records of its agents, and whether the cluster is well
//! with a node back.
//!
//! Not here: any decision (`outage::site::restart`), and the reboot itself, which is one like any other.

use std::time::Duration;

use agent::{Clock, Station, wire};
use checks::{Finding, Severity, verify};
use kubeapi::Cluster;
use outage::site::coordinate::Found;
use outage::site::member::{Next, Own, Reboot};
use outage::site::record::{Site, SiteKind};
use outage::site::restart::is_verifying;
use step::Mono;
use topics::{
    Blocker, DeviceOp, DeviceOpPending, DrainHistory, DrainRecord, DrainStatus, PendingState, Requester,
    VerifyLayer, VerifyResult, cut_text,
};

use crate::{GLOBAL, NAME};

/// Pause between two looks at the cluster.
const AGAIN: Duration = Duration::from_secs(5);
/// Longest text about a node in the record that all nodes share.
const TEXT_BYTES: usize = 300;

/// The boot in which a node says how far it is. What it says of a step that is over is about the boot of that.
pub(super) fn boot_id(site: &Site, next: &Next, own: &Own) -> String {
    let held = site.ack(&own.node).filter(|_| site.kind == SiteKind::Restart && next.local.is_none());
    let over = held.filter(|it| it.step != outage::site::record::NodeStep::Seen);
    over.map_or_else(|| own.boot_id.clone(), |it| it.boot_id.clone())
}

/// How the reboot is that zedagent was ordered.
///
/// # Errors
/// A record cannot be read.
pub(super) fn reboot(station: &Station, site: &Site) -> Result<Reboot, String> {
    if site.kind != SiteKind::Restart {
        return Ok(Reboot::default());
    }
    let op = DeviceOp::Reboot.word();
    let pending = wire::peek::<DeviceOpPending>(&station.bus, "zedagent", op);
    let pending = pending.map_err(|why| format!("cannot read DeviceOpPending {op}: {why}"))?;
    let Some(pending) = pending else {
        return Ok(Reboot { waits: "zedagent to take the order".to_owned(), ..Reboot::default() });
    };
    let history = wire::peek::<DrainHistory>(&station.bus, NAME, GLOBAL);
    let history = history.map_err(|why| format!("cannot read DrainHistory: {why}"))?.unwrap_or_default();
    Ok(Reboot {
        commanded: pending.state == PendingState::Commanded,
        failed: failed(&pending, &history, &site.id),
        waits: cut_text(&pending.waiting_for, TEXT_BYTES),
    })
}

/// Why the drain for this operation has failed, or empty.
fn failed(pending: &DeviceOpPending, history: &DrainHistory, id: &str) -> String {
    let over = |it: &&DrainRecord| matches!(it.status, DrainStatus::FailedDrain | DrainStatus::FailedCordon);
    let of = |it: &&DrainRecord| it.requested_by == Requester::DeviceOp && it.is_of_boot(&pending.boot_id);
    let ours = |it: &&DrainRecord| it.requested_at == pending.drain_requested_at;
    let mut drains = history.drains.iter().filter(of).filter(over);
    // It is asked for again after a pause: one that was seen too late has failed all the same.
    let again = pending.site == id && pending.attempts > 1;
    let Some(drain) = (if again { drains.next() } else { drains.find(ours) }) else { return String::new() };
    if pending.state == PendingState::Commanded {
        return String::new();
    }
    let named = |it: &Blocker| {
        let known = it.reason.contains(&it.pod);
        if known { it.reason.clone() } else { format!("{}: {}", it.subject(), it.reason) }
    };
    let why = drain.blockers.first().map(named);
    let why = why.or_else(|| drain.steps.last().map(|it| it.text.clone())).unwrap_or_default();
    cut_text(&format!("its drain failed: {why}"), TEXT_BYTES)
}

/// What the looks at the cluster have shown while a node is verified.
#[derive(Debug, Default)]
pub(super) struct Verify {
    /// When the last one was, and what it has shown.
    last: Option<(Mono, Vec<String>, String)>,
    /// Since when nothing is in the way.
    well: Option<Mono>,
}

impl Verify {
    /// Looks at the cluster where that is due, and says what is known in `found`.
    pub(super) async fn look(&mut self, cluster: &Cluster, clock: Clock, site: &Site, found: &mut Found) {
        if !is_verifying(site) {
            *self = Self::default();
            return;
        }
        let now = clock.now();
        let known = self.last.take().filter(|(at, ..)| now.since(*at) < AGAIN);
        let (at, blocking, verified) = if let Some(known) = known {
            known
        } else {
            let layers = Box::pin(verify::look(cluster, || clock.wall().to_timestamp())).await;
            let (blocking, verified) = judged(&layers, site);
            (now, blocking, verified)
        };
        self.well = if blocking.is_empty() { Some(self.well.unwrap_or(at)) } else { None };
        found.well = self.well.map_or(Duration::ZERO, |since| at.since(since));
        found.blocking.clone_from(&blocking);
        found.verified.clone_from(&verified);
        self.last = Some((at, blocking, verified));
    }
}

/// What is not well, and all of it in one line. What was passed when the restart began stays passed.
fn judged(layers: &[VerifyLayer], site: &Site) -> (Vec<String>, String) {
    let is_of = |it: &Finding, layer: &str| it.code == layer && it.severity == Severity::Blocks;
    let passed = |it: &VerifyLayer| site.findings.iter().any(|of| is_of(of, &it.layer));
    let bad = |it: &&VerifyLayer| it.result >= VerifyResult::Unknown;
    let text = |it: &VerifyLayer| {
        let first = it.findings.first().map(|it| it.text.as_str()).unwrap_or_default();
        cut_text(&format!("{} {}: {first}", it.layer, it.result.text()), TEXT_BYTES)
    };
    let blocking = layers.iter().filter(|it| !passed(it)).filter(bad).map(text).collect();
    let names = |result: VerifyResult, word: &str, passes: bool| {
        let of = layers.iter().filter(|it| it.result == result && passed(it) == passes);
        let of: Vec<&str> = of.map(|it| it.layer.as_str()).collect();
        (!of.is_empty()).then(|| format!("{word}: {}", of.join(", ")))
    };
    let count = layers.iter().filter(|it| it.result == VerifyResult::Pass).count();
    let more = [
        names(VerifyResult::Warn, "warnings", false),
        names(VerifyResult::Warn, "warnings", true),
        names(VerifyResult::Fail, "failed and passed over", true),
        names(VerifyResult::Unknown, "unknown and passed over", true),
    ];
    let all: Vec<String> = [Some(format!("{count} layers pass"))].into_iter().chain(more).flatten().collect();
    (blocking, all.join("; "))
}

#[cfg(test)]
mod tests {
    use outage::site::operator::{Wish, begun};
    use outage::site::record::{Ack, NodeStep, Statement};
    use outage::turn::record::Record;
    use outage::turn::rule::NodeSeen;
    use topics::{GoTime, VerifyFinding};

    use super::*;

    fn at(secs: u64) -> GoTime {
        format!("2026-03-14T09:30:{secs:02}Z").parse().unwrap()
    }

    #[test]
    fn v3_a_drain_of_this_reboot_that_has_failed_is_named_with_its_reason() {
        let pending = DeviceOpPending {
            boot_id: "b1".to_owned(),
            drain_requested_at: at(1),
            attempts: 1,
            site: "op".to_owned(),
            ..DeviceOpPending::default()
        };
        let blocker = Blocker {
            pod: "shop/web-0".to_owned(),
            reason: "PodDisruptionBudget shop/web allows no disruption".to_owned(),
            ..Blocker::default()
        };
        let drain = DrainRecord {
            requested_by: Requester::DeviceOp,
            requested_at: at(1),
            boot_id: "b1".to_owned(),
            status: DrainStatus::FailedDrain,
            blockers: vec![blocker],
            ..DrainRecord::default()
        };
        let why = "its drain failed: pod shop/web-0: PodDisruptionBudget shop/web allows no disruption";
        let commanded = DeviceOpPending { state: PendingState::Commanded, ..pending.clone() };
        let again = DeviceOpPending { drain_requested_at: at(9), attempts: 2, ..pending.clone() };
        let of_controller = DeviceOpPending { site: String::new(), ..again.clone() };
        let with = |change: fn(&mut DrainRecord)| {
            let mut drain = drain.clone();
            change(&mut drain);
            drain
        };
        let rows = [
            (&pending, drain.clone(), why),
            (&pending, with(|it| it.status = DrainStatus::DrainRetrying), ""),
            (&pending, with(|it| it.status = DrainStatus::Complete), ""),
            (&pending, with(|it| it.requested_at = at(2)), ""),
            (&pending, with(|it| it.requested_by = Requester::Update), ""),
            (&pending, with(|it| it.boot_id = "b0".to_owned()), ""),
            // It was asked for again before anybody saw that it had failed.
            (&again, drain.clone(), why),
            (&of_controller, drain.clone(), ""),
            (&commanded, drain.clone(), ""),
        ];
        for (pending, drain, expected) in rows {
            let what = format!("{pending:?} {drain:?}");
            let history = DrainHistory { drains: vec![drain], ..DrainHistory::default() };
            assert_eq!(failed(pending, &history, "op"), expected, "{what}");
        }
    }

    fn site(findings: Vec<Finding>) -> Site {
        let wish = Wish {
            id: "op".to_owned(),
            kind: SiteKind::Restart,
            by: Statement { why: "update".to_owned(), ..Statement::default() },
            leave_machines: false,
            by_config: false,
            although_held: true,
            findings,
        };
        let node = NodeSeen { name: "n1".to_owned(), uid: "u1".to_owned(), ..NodeSeen::default() };
        begun(&Record::default(), &wish, &[node]).unwrap()
    }

    #[test]
    fn v3_a_layer_that_was_passed_when_the_restart_began_keeps_no_node_up_and_is_named() {
        let layer = |layer: &str, result| VerifyLayer {
            layer: layer.to_owned(),
            result,
            read: "3 nodes".to_owned(),
            findings: vec![VerifyFinding { text: "n2".to_owned(), result, ..VerifyFinding::default() }],
        };
        let layers = [
            layer("api", VerifyResult::Pass),
            layer("nodes", VerifyResult::Fail),
            layer("etcd", VerifyResult::Unknown),
            layer("storage", VerifyResult::Warn),
        ];
        let of = |code, severity| Finding::new(code, "before", "do").with(severity);
        let (blocking, verified) = judged(&layers, &site(vec![of("etcd", Severity::Warns)]));
        assert_eq!(blocking, ["nodes fail: n2", "etcd unknown: n2"]);
        assert_eq!(verified, "1 layers pass; warnings: storage");
        let passed = vec![of("etcd", Severity::Blocks), of("nodes", Severity::Blocks)];
        let (blocking, verified) = judged(&layers, &site(passed));
        assert_eq!(blocking, [""; 0]);
        assert_eq!(
            verified,
            "1 layers pass; warnings: storage; failed and passed over: nodes; unknown and passed over: etcd"
        );
    }

    #[test]
    fn v3_what_is_said_of_a_step_that_is_over_is_about_the_boot_of_that_step() {
        let own = Own { node: "n1".to_owned(), uid: "u1".to_owned(), boot_id: "b2".to_owned() };
        for (step, expected) in [(NodeStep::Seen, "b2"), (NodeStep::Failed, "b1"), (NodeStep::Done, "b1")] {
            let mut site = site(vec![]);
            site.hear(Ack {
                node: "n1".to_owned(),
                uid: "u1".to_owned(),
                step: step.clone(),
                boot_id: "b1".to_owned(),
                leads: false,
                waits: String::new(),
                since: String::new(),
                past: Vec::new(),
                verified: String::new(),
                rest: serde_json::Map::new(),
            });
            assert_eq!(boot_id(&site, &Next::out(), &own), expected, "{step:?}");
        }
    }
}
