//! Forecasts for small clusters, fact by fact.

use std::collections::{BTreeMap, BTreeSet};

use crate::calls::volumes::AttachmentFacts;
use crate::node::cordon::Cordon;
use crate::node::cordon::tests::node;
use crate::plan::budget::BudgetFacts;
use crate::plan::budget::tests::budget;
use crate::plan::class::tests::pod;
use crate::plan::forecast::{Plan, Survey, Surveyed, forecast};
use crate::plan::placement::{Affinity, PeerNode, SchedulingNeeds, SelectorTerm};
use crate::plan::tier::Tier;
use crate::plan::unhealthy::{UnhealthyPod, UnhealthyReason};
use crate::plan::{PodFacts, PodOwner};
use crate::progress::BlockCode;
use kubeapi::nodes::CordonAnnotation;

fn on_node(facts: PodFacts) -> Surveyed {
    Surveyed {
        facts,
        needs: SchedulingNeeds::default(),
        ready: true,
        pending: false,
        priority_class: String::new(),
    }
}

/// A pod that no node but this one may take.
fn pinned(name: &str) -> Surveyed {
    let affinity = Affinity { of: "volume pv-1".to_owned(), terms: vec![SelectorTerm::default()] };
    Surveyed {
        needs: SchedulingNeeds { affinities: vec![affinity], ..SchedulingNeeds::default() },
        ..on_node(pod(name))
    }
}

fn survey(pods: Vec<Surveyed>, budgets: Vec<BudgetFacts>) -> Survey {
    Survey {
        node: node(Cordon::None),
        pods,
        budgets,
        lenient: BTreeSet::new(),
        hindrances: BTreeMap::new(),
        machines: None,
        copies: Ok(BTreeMap::new()),
        peers: vec![PeerNode { name: "n2".to_owned(), ready: true, ..PeerNode::default() }],
        findings: vec![],
        ending: BTreeSet::new(),
        attached: vec![],
        storage: None,
        versions: BTreeMap::new(),
    }
}

/// Names and codes of what blocks.
fn met(survey: &Survey) -> Vec<(String, BlockCode)> {
    forecast(survey).blockers.into_iter().map(|it| (it.subject.name().to_owned(), it.code)).collect()
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
    assert_eq!(plan.tiers, [(Tier::Application, 6), (Tier::Storage, 1)]);
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
    let pending = Surveyed { pending: true, ready: false, ..on_node(pod("a")) };
    assert_eq!(met(&survey(vec![pending], full([0, 2, 2, 3]))), []);
    let finished = on_node(PodFacts { finished: true, ..pod("a") });
    assert_eq!(met(&survey(vec![finished], full([0, 2, 2, 3]))), []);
    let going = on_node(PodFacts { terminating: true, ..pod("a") });
    assert_eq!(met(&survey(vec![going], full([0, 2, 2, 3]))), []);
    let sick = || vec![Surveyed { ready: false, ..on_node(pod("a")) }];
    assert_eq!(met(&survey(sick(), full([0, 2, 2, 3]))), [], "enough others are healthy");
    assert_eq!(met(&survey(sick(), full([0, 1, 2, 3]))), held("a", BlockCode::Budget));
    let mut lenient = survey(sick(), full([0, 1, 2, 3]));
    lenient.lenient.insert(("shop".to_owned(), "web".to_owned()));
    assert_eq!(met(&lenient), []);
    let elsewhere = BudgetFacts { namespace: "tools".to_owned(), ..budget("web", [0, 1, 2, 3]) };
    assert_eq!(met(&survey(sick(), vec![elsewhere])), []);
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
    };
    let mut given = survey(vec![on_node(claimed)], vec![]);
    given.attached = vec![attached("data"), attached("other")];
    given.peers[0].unschedulable = true;
    given.node.ready = false;
    given.node.cordon = Cordon::Foreign;
    let plan = forecast(&given);
    assert_eq!((plan.cordon, plan.volumes), ("foreign", vec!["shop/data (pv pv-data)".to_owned()]));
    assert_eq!(plan.peers, [("n2".to_owned(), "is cordoned".to_owned())]);
    assert_eq!(
        plan.notes,
        [
            "node n1 is cordoned by somebody else, and stays so after a drain",
            "node n1 is not Ready: its kubelet may end no pod",
            "no other node takes pods now",
        ]
    );
    assert_eq!(plan.pods[0].note, "no other node can take it: node n2 is cordoned");
    let owner =
        CordonAnnotation { requested_by: 2, requested_at: "t".to_owned(), ..CordonAnnotation::default() };
    given.node.cordon = Cordon::Ours(owner);
    given.peers.clear();
    let plan = forecast(&given);
    assert_eq!(plan.notes[0], "node n1 is cordoned already, for a reboot or shutdown requested t");
    assert_eq!(plan.notes[2], "there is no other node: what is evicted runs nowhere until this one is back");
}

#[test]
fn d20_a_budget_that_a_second_copy_opens_is_no_blocker_and_the_plan_says_so_unless_no_node_can_take_it() {
    let full = || vec![budget("web", [0, 1, 1, 1])];
    let with =
        |given: Survey| Survey { copies: Ok([(pod("a").pod.uid, "shop/web".to_owned())].into()), ..given };
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
