//! Which words send a node out of its cluster, and when.

use super::*;
use topics::GoUuid;

fn at(secs: u64) -> Mono {
    Mono::from_start(Duration::from_secs(secs))
}

fn wall() -> GoTime {
    "2026-03-14T09:26:53Z".parse().unwrap()
}

fn config(valid: bool) -> EdgeNodeClusterConfig {
    EdgeNodeClusterConfig { initialized: true, valid, cluster_name: "c".into(), ..Default::default() }
}

fn kept(phase: LeavePhase) -> LeaveRules {
    LeaveRules::new(NodeLeave { phase, ..NodeLeave::default() }, &Limits::default(), "b1")
}

fn hears(rules: &mut LeaveRules, secs: u64, config: EdgeNodeClusterConfig) {
    rules.hear(at(secs), LeaveFact::Config(Some(Box::new(config))));
}

/// Our zedagent says that the config has no cluster section.
fn decided(rules: &mut LeaveRules, secs: u64) {
    rules.hear(at(secs), LeaveFact::Decision(ConfigMembership::NoCluster));
    hears(rules, secs, config(false));
}

fn settled(rules: &mut LeaveRules, secs: u64) -> Membership {
    rules.settle(at(secs), wall()).membership
}

fn phase(rules: &mut LeaveRules, secs: u64) -> LeavePhase {
    settled(rules, secs);
    rules.record().phase
}

/// A member whose record says so, that hears it again.
fn member() -> LeaveRules {
    let mut rules = kept(LeavePhase::Member);
    hears(&mut rules, 0, config(true));
    assert_eq!(settled(&mut rules, 0), Membership::Member);
    rules
}

#[test]
fn a_member_whose_config_says_otherwise_leaves_a_minute_later_and_is_outside_when_it_has_left() {
    let mut rules = kept(LeavePhase::Outside);
    assert_eq!((settled(&mut rules, 0), rules.walks()), (Membership::Undecided, false));
    hears(&mut rules, 0, EdgeNodeClusterConfig::default());
    assert_eq!(settled(&mut rules, 0), Membership::Undecided, "not decided upon");
    hears(&mut rules, 0, config(true));
    assert_eq!((settled(&mut rules, 0), rules.walks()), (Membership::Member, false));
    // As after a restart of zedagent: what stood stands (D-A12).
    hears(&mut rules, 0, EdgeNodeClusterConfig::default());
    assert_eq!((settled(&mut rules, 0), rules.walks()), (Membership::Member, false));
    decided(&mut rules, 1);
    let announced = rules.settle(at(1), wall());
    assert_eq!((announced.membership, rules.walks()), (Membership::Member, false));
    assert_eq!(announced.config.unwrap().cluster_name, "c", "it lives by the config of its cluster");
    let record = rules.record();
    assert_eq!((record.phase, record.started_at), (LeavePhase::Announced, wall()));
    assert_eq!(record.deadline, wall().plus(Duration::from_secs(60)));
    assert_eq!((rules.next_wake(), settled(&mut rules, 60)), (Some(at(61)), Membership::Member));
    assert_eq!((settled(&mut rules, 61), rules.walks()), (Membership::Leaving, true));
    assert_eq!((rules.record().phase, rules.record().deadline), (LeavePhase::Reaching, GoTime::ZERO));
    assert_eq!(rules.record().cluster_name, "c", "which cluster is left stays known");
    rules.ended(
        &(LeavePhase::Left, "its Node object is deleted".to_owned()),
        &["x".repeat(1000)],
        "n1",
        wall(),
    );
    assert_eq!((settled(&mut rules, 62), rules.walks()), (Membership::Outside, false));
    assert!(rules.record().passed_over[0].len() < 500, "the record is on flash");
    hears(&mut rules, 63, config(true));
    assert_eq!(settled(&mut rules, 63), Membership::Member);
    assert_eq!(rules.record().ended_at, GoTime::ZERO, "what was before is not shown for another cluster");
}

#[test]
fn what_an_earlier_run_left_decides_what_a_config_means() {
    for (phase, before, heard, later) in [
        (LeavePhase::Outside, Membership::Undecided, Membership::Outside, Membership::Outside),
        (LeavePhase::Member, Membership::Undecided, Membership::Member, Membership::Leaving),
        (LeavePhase::Unconfirmed, Membership::Undecided, Membership::Member, Membership::Leaving),
        (LeavePhase::Announced, Membership::Undecided, Membership::Member, Membership::Leaving),
        (LeavePhase::Draining, Membership::Leaving, Membership::Leaving, Membership::Leaving),
        (LeavePhase::Left, Membership::Undecided, Membership::Outside, Membership::Outside),
        (LeavePhase::NotReached, Membership::Undecided, Membership::Outside, Membership::Outside),
    ] {
        let mut rules = kept(phase);
        assert_eq!((settled(&mut rules, 0), rules.walks()), (before, false), "{phase:?}");
        decided(&mut rules, 100);
        let walks = heard == Membership::Leaving;
        assert_eq!((settled(&mut rules, 100), rules.walks()), (heard, walks), "{phase:?}");
        let walks = later == Membership::Leaving;
        assert_eq!((settled(&mut rules, 160), rules.walks()), (later, walks), "{phase:?}");
    }
}

#[test]
fn a_config_that_says_member_again_ends_the_leave_and_calls_an_announced_one_off() {
    for before in [LeavePhase::Announced, LeavePhase::Cordoning] {
        let mut rules = kept(before);
        decided(&mut rules, 0);
        assert_eq!((phase(&mut rules, 0), rules.walks()), (before, before == LeavePhase::Cordoning));
        hears(&mut rules, 59, config(true));
        assert_eq!((settled(&mut rules, 59), rules.walks()), (Membership::Member, false));
        assert_eq!((settled(&mut rules, 6000), rules.next_wake()), (Membership::Member, None));
        assert_eq!((rules.record().phase, rules.record().deadline), (LeavePhase::Member, GoTime::ZERO));
    }
}

#[test]
fn a_file_that_is_gone_is_no_word_for_leaving_and_takes_an_announced_one_back() {
    let gone = |rules: &mut LeaveRules, secs| {
        rules.hear(at(secs), LeaveFact::Config(None));
        rules.hear(at(secs), LeaveFact::Decision(ConfigMembership::Unknown));
        rules.hear(at(secs), LeaveFact::Fetch(None));
    };
    let mut rules = kept(LeavePhase::Member);
    gone(&mut rules, 0);
    assert_eq!(settled(&mut rules, 9000), Membership::Undecided);
    let mut rules = member();
    gone(&mut rules, 1);
    assert_eq!((settled(&mut rules, 9000), rules.next_wake()), (Membership::Member, None));
    decided(&mut rules, 9000);
    assert_eq!(phase(&mut rules, 9059), LeavePhase::Announced);
    gone(&mut rules, 9059);
    assert_eq!((phase(&mut rules, 9059), rules.next_wake()), (LeavePhase::Unconfirmed, None));
    assert_eq!(settled(&mut rules, 19_000), Membership::Member);
    // It is announced again, for a whole minute.
    decided(&mut rules, 19_000);
    assert_eq!(phase(&mut rules, 19_000), LeavePhase::Announced);
    assert_eq!(rules.next_wake(), Some(at(19_060)));
}

#[test]
fn a_zedagent_of_the_reference_is_believed_after_ten_minutes_of_good_fetches_and_never_before() {
    use ConfigGetStatus::{Fail, Never, ReadSaved, Success, TemporaryFail};
    let fetch = |rules: &mut LeaveRules, secs, status| rules.hear(at(secs), LeaveFact::Fetch(Some(status)));
    let mut rules = member();
    hears(&mut rules, 0, config(false));
    assert_eq!(phase(&mut rules, 0), LeavePhase::Unconfirmed, "nothing is known of the fetches");
    for bad in [Never, Fail, TemporaryFail, ReadSaved, ConfigGetStatus::Stranger(9)] {
        fetch(&mut rules, 0, bad);
        assert_eq!(
            (phase(&mut rules, 50_000), rules.next_wake()),
            (LeavePhase::Unconfirmed, None),
            "{bad:?}"
        );
    }
    fetch(&mut rules, 50_000, Success);
    assert_eq!(phase(&mut rules, 50_000), LeavePhase::Announced);
    assert_eq!(rules.record().deadline, wall().plus(Duration::from_mins(10)));
    // Each fetch reads as failed for a moment (D-A10).
    fetch(&mut rules, 50_100, Fail);
    assert_eq!((phase(&mut rules, 50_399), rules.next_wake()), (LeavePhase::Announced, Some(at(50_400))));
    fetch(&mut rules, 50_399, Success);
    assert_eq!((phase(&mut rules, 50_599), rules.next_wake()), (LeavePhase::Announced, Some(at(50_600))));
    // One that stays failed does not count, and the ten minutes begin again after it.
    fetch(&mut rules, 50_599, TemporaryFail);
    assert_eq!(phase(&mut rules, 50_600), LeavePhase::Unconfirmed);
    fetch(&mut rules, 50_700, Success);
    assert_eq!((phase(&mut rules, 50_700), rules.next_wake()), (LeavePhase::Announced, Some(at(51_300))));
    assert_eq!(phase(&mut rules, 51_299), LeavePhase::Announced);
    // A short `Valid: false`, as of a bad section, is over by then.
    hears(&mut rules, 51_299, config(true));
    assert_eq!(settled(&mut rules, 51_300), Membership::Member);
    hears(&mut rules, 52_000, config(false));
    settled(&mut rules, 52_000);
    assert_eq!(
        (settled(&mut rules, 52_599), settled(&mut rules, 52_600)),
        (Membership::Member, Membership::Leaving)
    );
}

#[test]
fn a_decision_that_says_member_outweighs_a_config_that_is_not_valid() {
    let mut rules = member();
    rules.hear(at(0), LeaveFact::Decision(ConfigMembership::Member));
    rules.hear(at(0), LeaveFact::Fetch(Some(ConfigGetStatus::Success)));
    hears(&mut rules, 0, config(false));
    assert_eq!((phase(&mut rules, 0), rules.next_wake()), (LeavePhase::Unconfirmed, None));
    assert_eq!(settled(&mut rules, 90_000), Membership::Member);
}

#[test]
fn each_end_is_told_with_what_a_person_can_do() {
    for (phase, by_hand) in [
        (LeavePhase::Left, false),
        (LeavePhase::Alone, false),
        (LeavePhase::Failed, true),
        (LeavePhase::NotReached, true),
    ] {
        let mut rules = kept(LeavePhase::Deleting);
        rules.ended(&(phase, "x".to_owned()), &[], "n1", wall());
        let record = rules.record();
        assert_eq!((record.phase, record.reason.as_str(), record.ended_at), (phase, "x", wall()));
        assert_eq!(record.next_step.contains("kubectl delete node n1"), by_hand, "{phase:?}");
        assert_eq!(record.cluster_id, GoUuid::default());
    }
}
