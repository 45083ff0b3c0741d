//! A restart of the site on this node: how its own reboot is, by the records of its agents, and whether the cluster is well
//! with a node back.
//!
//! Not here: any decision (`outage::site::coordinate`), and the reboot itself, which is one like any other.

use std::time::Duration;

use agent::{AgentContext, Clock, wire};
use checks::{Severity, verify};
use kubeapi::ApiClient;
use outage::site::member::Reboot;
use outage::site::record::{NodeStep, PhaseReadings, SiteKind, SiteRecord};
use step::Mono;
use topics::{
    Blocker, DeviceOp, DeviceOpPending, DrainHistory, DrainRecord, DrainStatus, PendingState, Requester,
    SiteOperation, VerifyFinding, VerifyLayer, VerifyResult, cut_text,
};

use crate::{GLOBAL, NAME};

/// Longest text about a node in the record that all nodes share.
const TEXT_BYTES: usize = 300;

/// What a drain of the history is known by.
fn identity(drain: &DrainRecord) -> String {
    format!("{} {} {}", drain.requested_by.number(), drain.requested_at.rfc3339(), drain.ended_at.rfc3339())
}

/// How the reboot is that zedagent was ordered. Files that cannot be read are named, and leave the step of this node as it is.
/// `before`, which is kept for the next look, is the newest drain that was over before the order: it and those before it are no
/// failure of this order, also where the controller's own request is the one that is drained for.
pub(super) fn ordered(
    context: &AgentContext,
    site: &SiteRecord,
    (own, record): (&str, Option<&SiteOperation>),
    before: &mut String,
) -> Reboot {
    if site.kind != SiteKind::Restart {
        return Reboot::default();
    }
    let ordered = record.filter(|it| it.id == site.id && it.step == NodeStep::Draining.text());
    let (root, op) = (&context.topic_root, DeviceOp::Reboot.word());
    let mut read = || {
        let history = wire::peek::<DrainHistory>(root, NAME, GLOBAL);
        let history = history.map_err(|why| format!("cannot read DrainHistory: {why}"))?.unwrap_or_default();
        let history = since(before, history, ordered);
        let pending = wire::peek::<DeviceOpPending>(root, "zedagent", op);
        let pending = pending.map_err(|why| format!("cannot read DeviceOpPending {op}: {why}"))?;
        let Some(pending) = pending else {
            return Ok(Reboot { waits: "zedagent to take the order".to_owned(), ..Reboot::default() });
        };
        Ok(Reboot {
            commanded: pending.state == PendingState::Commanded,
            failed: failed(&pending, &history, &site.id),
            waits: cut_text(&pending.waiting_for, TEXT_BYTES),
            ..Reboot::default()
        })
    };
    let reboot = read().unwrap_or_else(|waits: String| Reboot {
        commanded: site.step(own) == Some(&NodeStep::Going),
        waits,
        ..Reboot::default()
    });
    Reboot { drains_before: before.clone(), ..reboot }
}

/// The history since this node was ordered it, newest first.
fn since(before: &mut String, mut history: DrainHistory, ordered: Option<&SiteOperation>) -> DrainHistory {
    let newest = || history.drains.iter().find(|it| !it.is_open()).map(identity);
    *before = ordered.map_or_else(|| newest().unwrap_or_default(), |it| it.drains_before.clone());
    let known = history.drains.iter().position(|it| identity(it) == *before);
    history.drains.truncate(known.unwrap_or(history.drains.len()));
    history
}

/// Why the drain for this operation has failed, or empty.
fn failed(pending: &DeviceOpPending, history: &DrainHistory, id: &str) -> String {
    let over = |it: &&DrainRecord| matches!(it.status, DrainStatus::FailedDrain | DrainStatus::FailedCordon);
    let of = |it: &&DrainRecord| it.requested_by == Requester::DeviceOp && it.is_of_boot(&pending.boot_id);
    let ours = |it: &&DrainRecord| it.requested_at == pending.drain_requested_at;
    let mut drains = history.drains.iter().filter(of).filter(over);
    // It is asked for again after a wait: one that was seen too late has failed all the same.
    let again = pending.site == id && pending.attempts > 1;
    let drain = if again { drains.next() } else { drains.find(ours) };
    let Some(drain) = drain.filter(|_| pending.state != PendingState::Commanded) else {
        return String::new();
    };
    let why = drain.blockers.first().map(Blocker::sentence);
    let why = why.or_else(|| drain.steps.last().map(|it| it.text.clone())).unwrap_or_default();
    cut_text(&format!("its drain failed: {why}"), TEXT_BYTES)
}

/// How the cluster is now; `well` is since when nothing is in the way.
pub(super) async fn look(
    cluster: &ApiClient,
    clock: Clock,
    site: &SiteRecord,
    well: &mut Option<Mono>,
) -> PhaseReadings {
    let now = clock.now();
    let found = judged(&Box::pin(verify::look(cluster, || clock.wall().to_timestamp())).await, site);
    let is_well = found.blocking.is_empty() && found.rebuilding.is_empty();
    *well = well.filter(|_| is_well).or(is_well.then_some(now));
    PhaseReadings { well: well.map_or(Duration::ZERO, |since| now.since(since)), ..found }
}

/// What is not well. What was passed when the restart began stays passed, as the same text; what is new does not.
fn judged(layers: &[VerifyLayer], site: &SiteRecord) -> PhaseReadings {
    let passed = |it: &VerifyFinding| {
        site.findings.iter().any(|of| of.severity == Severity::Blocks && of.text == it.text)
    };
    let new = |holds: fn(&VerifyLayer, &VerifyFinding) -> bool| -> Vec<String> {
        let all = layers.iter().flat_map(|layer| layer.findings.iter().map(move |it| (layer, it)));
        let found = all.filter(|(layer, it)| holds(layer, it) && !passed(it));
        let text = |layer: &VerifyLayer, it: &VerifyFinding| {
            cut_text(&format!("{} {}: {}", layer.layer, it.result.text(), it.text), TEXT_BYTES)
        };
        found.map(|(layer, it)| text(layer, it)).collect()
    };
    // A copy that is missing is a warning while the cluster stands; the next node may hold the last one.
    let degraded = |layer: &VerifyLayer, it: &VerifyFinding| {
        layer.layer == "storage" && it.result == VerifyResult::Warn && checks::storage::is_unhealthy(&it.text)
    };
    let blocking = new(|_, it| it.result >= VerifyResult::Unknown);
    PhaseReadings { blocking, rebuilding: new(degraded), ..PhaseReadings::default() }
}

#[cfg(test)]
mod tests {
    use checks::Finding;
    use outage::site::operator::{begin, current};
    use outage::site::record::OperatorStatement;
    use outage::turn::record::TurnRecord;
    use outage::turn::rule::TurnNode;
    use topics::GoTime;

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
            ended_at: at(10),
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
            // What had failed before the order, as before a stop, is no failure of it, also after a start of zedkube.
            let mut before = String::new();
            assert_eq!(since(&mut before, history.clone(), None).drains, []);
            let record = SiteOperation { drains_before: before, ..SiteOperation::default() };
            let again = |history| since(&mut String::new(), history, Some(&record));
            assert_eq!(failed(pending, &again(history.clone()), "op"), "", "{what}");
            let next = DrainRecord { ended_at: at(20), attempts: 9, ..history.drains[0].clone() };
            let drains = vec![next, history.drains[0].clone()];
            let both = DrainHistory { drains, ..DrainHistory::default() };
            assert_eq!(failed(pending, &again(both), "op"), expected, "{what}");
        }
    }

    fn site(findings: Vec<Finding>) -> SiteRecord {
        let by = OperatorStatement { why: "update".to_owned(), ..OperatorStatement::default() };
        let wish = SiteRecord { kind: SiteKind::Restart, by, findings, ..SiteRecord::default() };
        let node = TurnNode { name: "n1".to_owned(), uid: "u1".to_owned(), ..TurnNode::default() };
        current(&begin(&TurnRecord::default(), &wish, &[node]).unwrap()).unwrap().unwrap()
    }

    #[test]
    fn v3_what_was_passed_as_the_restart_began_is_passed_by_its_text_and_what_is_new_keeps_the_next_node_up()
    {
        let layer = |layer: &str, result, text: &str| VerifyLayer {
            layer: layer.to_owned(),
            result,
            read: "3 nodes".to_owned(),
            findings: vec![VerifyFinding { text: text.to_owned(), result, ..VerifyFinding::default() }],
        };
        let degraded = "volumes that are not healthy: pvc-1: degraded";
        let layers = [
            VerifyLayer { findings: vec![], ..layer("api", VerifyResult::Pass, "") },
            layer("nodes", VerifyResult::Fail, "n2"),
            layer("etcd", VerifyResult::Unknown, "n3"),
            layer("storage", VerifyResult::Warn, degraded),
            layer("clock", VerifyResult::Warn, "drifts"),
        ];
        let of = |code: &str, text: &str| Finding::new(code, text, "do");
        // A finding of the checks before it of the same name, another text of the layer, and a warning pass nothing.
        let other = vec![
            of("nodes", "n9"),
            of("etcd", "no snapshot"),
            of("etcd", "n3").with(Severity::Warns),
            of("volumes", "volumes that are not healthy: pvc-0: degraded"),
        ];
        let found = judged(&layers, &site(other));
        assert_eq!(found.blocking, ["nodes fail: n2", "etcd unknown: n3"]);
        assert_eq!(found.rebuilding, [format!("storage warn: {degraded}")]);
        let found =
            judged(&layers, &site(vec![of("nodes", "n2"), of("etcd", "n3"), of("volumes", degraded)]));
        assert_eq!((found.blocking.len(), found.rebuilding.len()), (0, 0));
    }
}
