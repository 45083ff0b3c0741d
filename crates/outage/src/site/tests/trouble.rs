//! A restart with nodes that are silent, dead or deleted, and with a server that works for all no more.

use std::time::Duration;

use super::super::coordinate::{STAND_IN, WELL, next, stage, works_for_all};
use super::super::member::{self, SiteFacts};
use super::super::operator::{begin, pass, skip};
use super::super::record::{Ack, NodeStep, OperatorStatement, SiteKind, SitePhase, SiteRecord};
use super::restart::{ack, node, nodes, now, own, record, said, wish};
use crate::site::record::{Move, NODE_LIMIT, PhaseReadings};
use crate::turn::record::TurnRecord;
use crate::turn::rule::TurnNode;

fn site(acks: &[Ack]) -> SiteRecord {
    let mut site = now(&begin(&TurnRecord::default(), &wish(), &nodes()).unwrap());
    for it in acks {
        site.hear(it.clone());
    }
    site
}

fn all(step: &NodeStep) -> Vec<Ack> {
    ["a", "b", "t", "w1", "w2"].map(|it| ack(it, step.clone())).to_vec()
}

fn late() -> PhaseReadings {
    PhaseReadings { lasted: NODE_LIMIT, ..PhaseReadings::default() }
}

fn settled(mut site: SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> SiteRecord {
    while let Move::To(to) = next(&site, nodes, found) {
        site = *to;
        if site.phase == SitePhase::Stopped {
            break;
        }
    }
    site
}

#[test]
fn v3_no_node_is_ordered_for_a_boot_that_it_has_not_said_or_counts_as_rebooted_by_it() {
    // Silent until the restart stops; continued by a person; then its old kubelet still answers.
    let stopped = settled(site(&all(&NodeStep::Seen)[..3]), &nodes(), &late());
    assert_eq!((&stopped.phase, stopped.ack("w1")), (&SitePhase::Stopped, None), "nothing is invented");
    let again = now(&pass(&record(&stopped), &SitePhase::Stopped, None, &said()).unwrap());
    assert!(again.seen.iter().all(|it| it.step != NodeStep::Seen), "boots and leaders are asked again");
    let ordered = |site: &SiteRecord| site.seen.iter().any(|it| it.step == NodeStep::Draining);
    for boot in ["", "b0"] {
        let mut acks = all(&NodeStep::Seen);
        acks[3].boot_id = boot.to_owned();
        assert!(!ordered(&settled(site(&acks), &nodes(), &PhaseReadings::default())), "boot {boot:?}");
    }
    assert!(ordered(&settled(site(&all(&NodeStep::Seen)), &nodes(), &PhaseReadings::default())));
    // An order without a boot, of whatever version, is none.
    let foreign = site(&[Ack { boot_id: String::new(), ..ack("w1", NodeStep::Draining) }]);
    let next = member::next(&own("w1", "b1"), None, Ok(&foreign), &SiteFacts::default());
    assert_eq!(next.say.map(|it| it.step), Some(NodeStep::Seen));
}

#[test]
fn v3_another_server_does_what_the_one_that_works_for_all_leaves_undone() {
    let mut known = site(&all(&NodeStep::Seen));
    let soon = STAND_IN.saturating_sub(Duration::from_secs(1));
    let works = |node: &str, known: &SiteRecord, lasted| works_for_all(node, known, &nodes(), lasted);
    assert!(works("a", &known, Duration::ZERO) && !works("b", &known, soon));
    assert!(works("b", &known, STAND_IN) && !works("w1", &known, STAND_IN));
    let before = stage(&known, &nodes());
    // That a node waits for something else is no sign of the one that works for all.
    known.seen[3].waits = "pod shop/web-0".to_owned();
    assert_eq!(stage(&known, &nodes()), before);
    known.hear(ack("w1", NodeStep::Draining));
    assert_ne!(stage(&known, &nodes()), before, "another one has written");
    let down = SiteRecord { kind: SiteKind::Reboot, ..known };
    assert!(!works("b", &down, STAND_IN), "of a reboot of all the limits of its phases do");
}

#[test]
fn v3_where_the_only_server_goes_its_limit_ends_all_the_same() {
    let nodes = [node("a"), node("w1")];
    let mut alone = now(&begin(&TurnRecord::default(), &wish(), &nodes).unwrap());
    alone.hear(ack("w1", NodeStep::Done));
    alone.hear(ack("a", NodeStep::Going));
    assert!(works_for_all("a", &alone, &nodes, NODE_LIMIT));
    assert!(!works_for_all("w1", &alone, &nodes, NODE_LIMIT));
    assert_eq!(settled(alone, &nodes, &late()).phase, SitePhase::Stopped);
}

#[test]
fn v3_a_person_skips_a_node_that_is_dead_with_name_and_reason() {
    let mut nodes = nodes();
    nodes[3].ready = false;
    let stopped = settled(site(&all(&NodeStep::Seen)), &nodes, &late());
    assert_eq!(stopped.phase, SitePhase::Stopped);
    assert!(stopped.next.contains("--skip w1"), "{}", stopped.next);
    let why = skip(&record(&stopped), "w2", &said()).unwrap_err().to_string();
    assert!(why.contains("stopped for node w1, not w2"), "{why}");
    assert!(skip(&record(&stopped), "w9", &said()).is_err());
    let mut after = now(&skip(&record(&stopped), "w1", &said()).unwrap());
    assert_eq!((after.step("w1"), &after.phase), (Some(&NodeStep::Skipped), &SitePhase::Checking));
    let by = |it: &OperatorStatement| format!("{} by {}: {}", it.phase, it.who, it.why);
    assert!(after.seen.iter().all(|it| it.step != NodeStep::Seen), "boots and leaders are asked again");
    assert_eq!(after.passed.iter().map(by).collect::<Vec<_>>(), ["node w1 by operator: update"]);
    for it in ["a", "b", "t", "w2"] {
        after.hear(ack(it, NodeStep::Seen));
    }
    assert_eq!(settled(after.clone(), &nodes, &PhaseReadings::default()).step("w2"), Some(&NodeStep::Seen));
    let well = PhaseReadings { well: WELL, ..PhaseReadings::default() };
    assert_eq!(settled(after.clone(), &nodes, &well).step("w2"), Some(&NodeStep::Draining));
    assert!(skip(&record(&after), "w1", &said()).is_err(), "once");
    // Before its turn, by a person who knows.
    let before = now(&skip(&record(&after), "b", &said()).unwrap());
    assert_eq!(before.step("b"), Some(&NodeStep::Skipped));
}
