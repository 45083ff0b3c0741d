//! Forecasts for small clusters, fact by fact.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::calls::volumes::AttachmentFacts;
use crate::node::cordon::tests::node;
use crate::plan::budget::BudgetFacts;
use crate::plan::budget::tests::budget;
use crate::plan::forecast::{Plan, Survey, Surveyed, forecast};
use crate::plan::held::{UnhealthyPod, UnhealthyReason};
use crate::plan::placement::{PeerNode, SchedulingNeeds};
use crate::plan::residents::{Resident, Residents};
use crate::plan::tier::Tier;
use crate::plan::tier::tests::pod;
use crate::plan::{PodFacts, PodOwner};
use crate::progress::BlockCode;
use k8s_openapi::api::core::v1::NodeSelector;
use kubeapi::nodes::CordonAnnotation;
use topics::CordonOwner;

pub(crate) fn on_node(facts: PodFacts) -> Surveyed {
    Surveyed { facts, needs: SchedulingNeeds::default(), resident: None, priority_class: String::new() }
}

/// A pod that no node but this one may take.
pub(crate) fn pinned(name: &str) -> Surveyed {
    let affinities = vec![("volume pv-1".to_owned(), NodeSelector::default())];
    Surveyed { needs: SchedulingNeeds { affinities, ..SchedulingNeeds::default() }, ..on_node(pod(name)) }
}

pub(crate) fn survey(pods: Vec<Surveyed>, budgets: Vec<BudgetFacts>) -> Survey {
    Survey {
        node: node(CordonOwner::None),
        pods,
        budgets,
        given_up_after: Duration::from_hours(24),
        hindrances: step::LiteMap::new(),
        machines: None,
        copies: Ok(step::LiteMap::new()),
        peers: vec![PeerNode { name: "n2".to_owned(), ready: true, ..PeerNode::default() }],
        residents: Residents::default(),
        findings: vec![],
        ending: BTreeSet::new(),
        attached: vec![],
        storage: None,
        versions: BTreeMap::new(),
    }
}

fn met(survey: &Survey) -> Vec<(String, BlockCode)> {
    let code = |word: &str| *BlockCode::ALL.iter().find(|it| it.text() == word).unwrap();
    let name = |pod: &str| pod.trim_start_matches("shop/").to_owned();
    forecast(survey).blockers.iter().map(|it| (name(&it.pod), code(&it.code))).collect()
}

fn held(name: &str, code: BlockCode) -> Vec<(String, BlockCode)> {
    vec![(name.to_owned(), code)]
}

fn rows(plan: &Plan) -> Vec<(&str, &str)> {
    plan.pods.iter().map(|it| (it.pod.name.as_str(), it.class.text())).collect()
}

#[test]
fn every_class_has_its_word_and_pods_stand_in_the_order_in_which_they_leave() {
    let with = |name: &str, change: fn(&mut PodFacts)| {
        let mut facts = pod(name);
        change(&mut facts);
        on_node(facts)
    };
    let pods = vec![
        with("a-mirror", |it| it.owner = PodOwner::Kubelet),
        with("b-set", |it| it.owner = PodOwner::DaemonSet),
        with("c-kept", |it| _ = it.labels.insert("app".to_owned(), "csi-attacher".to_owned())),
        with("d-storage", |it| it.tier = Tier::Storage),
        with("e-urgent", |it| it.priority = 9),
        with("f-orphan", |it| it.owner = PodOwner::VanishedDaemonSet),
        with("g-finished", |it| it.finished = true),
        with("h-going", |it| it.terminating = true),
        with("i-tolerating", |it| it.tolerates_cordon = true),
        pinned("j-pinned"),
    ];
    let plan = forecast(&survey(pods, vec![]));
    assert_eq!(
        rows(&plan),
        [
            ("f-orphan", "orphan"),
            ("g-finished", "finished"),
            ("h-going", "going"),
            ("i-tolerating", "tolerates-cordon"),
            ("j-pinned", "pinned"),
            ("e-urgent", "evict"),
            ("d-storage", "evict"),
            ("a-mirror", "keep-mirror"),
            ("b-set", "keep-daemonset"),
            ("c-kept", "keep-excluded"),
        ]
    );
    let counts = plan.counts;
    assert_eq!((counts.total, counts.leave, counts.going, counts.keep, counts.blocked), (10, 6, 1, 3, 0));
    let tiers: Vec<_> = plan.tiers.iter().map(|it| (it.tier, it.pods)).collect();
    assert_eq!(tiers, [(Tier::Application, 6), (Tier::Storage, 1)]);
    let note = |name: &str| plan.pods.iter().find(|it| it.pod.name == name).unwrap().note.as_str();
    assert_eq!(
        note("j-pinned"),
        "no other node is one of those it asks for: node n2 does not fit volume pv-1"
    );
    assert!(note("i-tolerating").contains("tolerates a cordon"));
    assert_eq!((note("e-urgent"), note("b-set")), ("", ""));
}

#[test]
fn d6_d7_a_budget_without_room_blocks_with_its_numbers_and_what_hinders_it() {
    let one = || vec![on_node(pod("a"))];
    assert_eq!(met(&survey(one(), vec![budget("web", [0, 2, 2, 3])])), held("a", BlockCode::Budget));
    assert_eq!(met(&survey(one(), vec![budget("web", [0, 3, 3, 3])])), held("a", BlockCode::BudgetStuck));
    assert_eq!(met(&survey(one(), vec![budget("web", [1, 3, 2, 3])])), []);
    let two = |first: [i32; 4]| survey(one(), vec![budget("web", first), budget("all", [1, 9, 8, 9])]);
    assert_eq!(met(&two([0, 2, 2, 3])), held("a", BlockCode::ManyBudgets));
    assert_eq!(met(&two([1, 3, 2, 3])), [], "it leaves by a claim on each");

    let mut hindered = survey(one(), vec![budget("web", [0, 2, 2, 3])]);
    let hindrance = UnhealthyPod {
        pod: "shop/b".to_owned(),
        node: String::new(),
        since: String::new(),
        why: UnhealthyReason::Unplaced("0/2 nodes are available".to_owned()),
    };
    hindered.hindrances.insert(("shop".to_owned(), "web".to_owned()), vec![hindrance]);
    let blockers = forecast(&hindered).blockers;
    assert_eq!(blockers[0].code, BlockCode::NoOtherNode);
    assert_eq!(
        blockers[0].reason,
        "pod shop/a: PodDisruptionBudget shop/web allows no disruption: 2 of 3 pods healthy, 2 required; no other node can take pod shop/b \
         (0/2 nodes are available)"
    );
}

#[test]
fn who_waits_for_a_turn_only_is_no_blocker_and_who_waits_for_a_place_that_is_not_there_is() {
    let open = || vec![budget("web", [1, 3, 2, 3])];
    let many = |make: fn(&str) -> Surveyed| ["a", "b", "c"].into_iter().map(make).collect::<Vec<_>>();
    assert_eq!(met(&survey(many(|name| on_node(pod(name))), open())), []);
    let none = [("b".to_owned(), BlockCode::NoOtherNode), ("c".to_owned(), BlockCode::NoOtherNode)];
    let stuck = survey(many(pinned), open());
    assert_eq!(met(&stuck), none, "one uses up the room, as nothing replaces it");
    assert_eq!(
        forecast(&stuck).blockers[0].reason,
        "pod shop/b will be held: PodDisruptionBudget shop/web allows 1 disruption: 3 of 3 pods healthy, 2 required; no other node can take what \
         replaces pod shop/a (node n2 does not fit volume pv-1)"
    );
    let alone = Survey { peers: vec![], ..survey(many(|name| on_node(pod(name))), open()) };
    assert_eq!(met(&alone), none);
    let roomy = survey(many(pinned), vec![budget("web", [3, 6, 3, 6])]);
    assert_eq!(met(&roomy), []);
}

#[test]
fn pods_that_the_eviction_api_lets_pass_are_no_blockers() {
    let full = |numbers| vec![budget("web", numbers)];
    let sick = || PodFacts { ready: false, ..pod("a") };
    let lenient = || BudgetFacts { lenient: true, ..budget("web", [0, 1, 2, 3]) };
    // Several: each says so by itself.
    let second = |name: &str, numbers| BudgetFacts { name: name.to_owned(), ..budget("all", numbers) };
    let (enough, short) = (|| second("enough", [0, 2, 2, 3]), second("short", [0, 1, 2, 3]));
    let elsewhere = BudgetFacts { namespace: "tools".to_owned(), ..budget("web", [0, 1, 2, 3]) };
    let many = vec![lenient(), enough(), second("open", [1, 3, 2, 3])];
    let table = [
        ("pending", PodFacts { pending: true, ..sick() }, full([0, 2, 2, 3]), None),
        ("finished", PodFacts { finished: true, ..pod("a") }, full([0, 2, 2, 3]), None),
        ("going", PodFacts { terminating: true, ..pod("a") }, full([0, 2, 2, 3]), None),
        ("enough others are healthy", sick(), full([0, 2, 2, 3]), None),
        ("too few are", sick(), full([0, 1, 2, 3]), Some(BlockCode::Budget)),
        ("lenient", sick(), vec![lenient()], None),
        ("several", sick(), many, None),
        ("one of several", sick(), vec![lenient(), enough(), short], Some(BlockCode::ManyBudgets)),
        ("Ready", pod("a"), vec![lenient(), enough()], Some(BlockCode::ManyBudgets)),
        ("of another namespace", sick(), vec![elsewhere], None),
    ];
    for (what, facts, budgets, code) in table {
        let expected = code.map(|code| held("a", code)).unwrap_or_default();
        assert_eq!(met(&survey(vec![on_node(facts)], budgets)), expected, "{what}");
    }
}

#[test]
fn k5_a_grace_period_that_passes_the_limit_of_the_drain_is_foreseen_with_what_to_type() {
    let slow = |secs| vec![on_node(PodFacts { grace: Duration::from_secs(secs), ..pod("a") })];
    assert_eq!(met(&survey(slow(86_400), vec![])), []);
    let given = survey(slow(604_800), vec![]);
    assert_eq!(met(&given), held("a", BlockCode::LongGrace));
    let plan = forecast(&given);
    assert_eq!(plan.counts.blocked, 1);
    assert_eq!(
        plan.blockers[0].reason,
        "pod shop/a may take its grace period of 604800 s to end, and the drain is given up after 86400 s"
    );
    assert!(plan.blockers[0].next_step.contains("`kubectl -n shop delete pod a --grace-period=60`"));
    let kept = |it: Surveyed| Surveyed { facts: PodFacts { owner: PodOwner::DaemonSet, ..it.facts }, ..it };
    assert_eq!(met(&survey(slow(604_800).into_iter().map(kept).collect(), vec![])), []);
}

#[test]
fn k4_a_pod_of_a_daemon_set_of_another_api_group_stays_and_is_told_so() {
    let facts =
        PodFacts { owner: PodOwner::DaemonSet, daemon_group: "apps.kruise.io".to_owned(), ..pod("a") };
    let plan = forecast(&survey(vec![on_node(facts)], vec![]));
    assert_eq!(rows(&plan), [("a", "keep-daemonset")]);
    assert_eq!(plan.pods[0].note, "made by a DaemonSet of apps.kruise.io");
}

#[test]
fn k8_a_pod_that_finds_room_on_no_single_node_is_told_so_and_blocks_nothing() {
    let there = |node: &str, cpu_milli| Resident { node: node.to_owned(), cpu_milli, ..Resident::default() };
    let big = || Surveyed { resident: Some(there("n1", 1800)), ..on_node(pod("a")) };
    let peer = |name: &str| PeerNode {
        name: name.to_owned(),
        ready: true,
        cpu_milli: Some(4000),
        ..PeerNode::default()
    };
    let pods = vec![there("n1", 1800), there("n2", 2500), there("n3", 2500)];
    let residents = Residents { pods, ..Residents::default() };
    let given = Survey { peers: vec![peer("n2"), peer("n3")], residents, ..survey(vec![big()], vec![]) };
    let plan = forecast(&given);
    assert_eq!((plan.pods[0].class.text(), plan.blockers.len()), ("evict", 0));
    assert_eq!(
        plan.pods[0].note,
        "no other node can take it: node n2 has 1500m CPU free, 1800m are requested, node n3 has 1500m CPU free, 1800m are \
         requested"
    );
}

#[test]
fn a_namespace_that_ends_holds_its_pods() {
    let mut ending = survey(vec![on_node(pod("a"))], vec![]);
    ending.ending.insert("shop".to_owned());
    assert_eq!(met(&ending), held("a", BlockCode::NamespaceEnding));
    assert_eq!(
        forecast(&ending).blockers[0].reason,
        "pod shop/a waits for the end of its namespace: namespace shop is being deleted"
    );
}

#[test]
fn the_state_of_nodes_and_volumes_is_told() {
    let claimed = PodFacts { claims: vec!["data".to_owned()], ..pod("a") };
    let attached = |claim: &str| AttachmentFacts {
        name: format!("va-{claim}"),
        volume: format!("pv-{claim}"),
        claim: ("shop".to_owned(), claim.to_owned()),
        kept_by: vec![],
    };
    let mut given = survey(vec![on_node(claimed)], vec![]);
    given.attached = vec![attached("data"), attached("other")];
    given.peers[0].unschedulable = true;
    given.node.ready = false;
    given.node.cordon = CordonOwner::Foreign;
    let plan = forecast(&given);
    assert_eq!(
        (plan.cordon, plan.volumes),
        (CordonOwner::Foreign, vec!["shop/data (pv pv-data)".to_owned()])
    );
    assert_eq!((plan.peers.len(), plan.peers[0].closed.as_str()), (1, "is cordoned"));
    assert_eq!(
        plan.notes,
        [
            "node n1 is cordoned by somebody else, and stays so after a drain",
            "node n1 is not Ready: its kubelet may end no pod",
            "no other node takes pods now",
        ]
    );
    assert_eq!(plan.pods[0].note, "no other node can take it: node n2 is cordoned");
    let requested_at = "2026-03-14T09:30:00.895807299Z".to_owned();
    let owner = CordonAnnotation { requested_by: 2, requested_at, ..CordonAnnotation::default() };
    (given.node.cordon, given.node.annotation) = (CordonOwner::Ours, Some(owner));
    given.peers.clear();
    let plan = forecast(&given);
    assert!(plan.notes[0].ends_with("for a reboot or shutdown requested 2026-03-14 09:30:00 UTC"));
    assert_eq!(plan.notes[2], "there is no other node: what is evicted runs nowhere until this one is back");
}

#[test]
fn d20_a_budget_that_a_second_copy_opens_is_no_blocker_and_the_plan_says_so_unless_no_node_can_take_it() {
    let full = || vec![budget("web", [0, 1, 1, 1])];
    let deployments = step::LiteMap::from_iter([(pod("a").pod.uid, "shop/web".to_owned())]);
    let with = |given: Survey| Survey { copies: Ok(deployments.clone()), ..given };
    let bare = survey(vec![on_node(pod("a"))], full());
    assert_eq!(met(&bare).len(), 1);
    let copied = with(survey(vec![on_node(pod("a"))], full()));
    assert_eq!(met(&copied), []);
    let note = &forecast(&copied).pods[0].note;
    assert!(
        note.contains("Deployment shop/web makes a second copy elsewhere first (surge), which opens Pod"),
        "{note}"
    );
    // Nobody can take the copy.
    let alone = Survey { peers: vec![], ..with(survey(vec![on_node(pod("a"))], full())) };
    assert_eq!(met(&alone).len(), 1);
    // Who may not read Deployments is told of it.
    let unread = Survey { copies: Err("403".to_owned()), ..survey(vec![on_node(pod("a"))], full()) };
    assert_eq!(met(&unread).len(), 1);
    assert!(forecast(&unread).notes.iter().any(|it| it.ends_with("not counted on: 403")));
}
