//! Values that are too long for a message, or for the file of a large member.

use proptest::prelude::*;

use topics::fit::{LARGE_BYTES, cut_text, encode};
use topics::go_json::to_vec;
use topics::{
    Answer, AppLogMark, AppLogMarks, AppLogMoment, Blocker, DeviceOpPending, DrainHistory, DrainJournal,
    DrainMarks, DrainRecord, DrainStep, ENClusterAppStatus, ForceRecord, KubeClusterInfo, KubeNodeInfo,
    KubePodInfo, KubePodNameSpaceInfo, KubeStatsPart, KubeStatsState, NodeDrainProgress, NodeDrainRequest,
    NodeLeave, OutageAnswer, OutageQuestion, Topic, go_json,
};

/// The message of a value: what `pubsub` counts, with a long topic and key.
fn message_bytes(wire: &[u8]) -> usize {
    "update   ".len() + 40 + 80 + wire.len().div_ceil(3) * 4
}

fn published<T: Topic>(value: &T) -> T {
    let disk = encode(value).unwrap();
    let wire = go_json::to_wire(&disk, &mut |_, _| Ok("/".repeat(200))).unwrap();
    let message = message_bytes(&wire);
    assert!(message <= 65_534, "{}: {message} bytes", T::NAME);
    go_json::from_slice(&disk).unwrap()
}

fn blocker(at: usize, text: &str) -> Blocker {
    Blocker {
        pod: format!("shop/web-{at:05}{text}"),
        uid: format!("uid-{at}{text}"),
        reason: text.to_owned(),
        ..Blocker::default()
    }
}

#[test]
fn k1_of_a_thousand_blockers_the_first_are_named_and_the_rest_is_counted() {
    let sentence = "PodDisruptionBudget shop/web allows no disruption: 3 of 3 pods healthy, 3 required";
    let progress = NodeDrainProgress {
        blockers: (0..1000).map(|at| blocker(at, sentence)).collect(),
        volumes: vec!["shop/data (pv pvc-1)".to_owned()],
        ..NodeDrainProgress::default()
    };
    let told = published(&progress);
    assert_eq!(told.blockers[..], progress.blockers[..told.blockers.len()]);
    assert!(told.blockers.len() > 100, "{}", told.blockers.len());
    assert_eq!(told.blockers.len() + usize::try_from(told.blockers_omitted).unwrap(), 1000);
    assert_eq!((told.volumes, told.volumes_omitted), (progress.volumes, 0));
}

#[test]
fn what_fits_is_not_touched_and_one_long_text_costs_no_item() {
    let mut progress = NodeDrainProgress {
        blockers: (0..50).map(|at| blocker(at, "held")).collect(),
        ..NodeDrainProgress::default()
    };
    assert_eq!(published(&progress), progress);
    progress.reason = "é".repeat(100_000);
    let told = published(&progress);
    assert_eq!((told.blockers, told.blockers_omitted), (progress.blockers, 0));
    assert!(told.reason.ends_with('…') && told.reason.len() > 2000, "{}", told.reason.len());
}

#[test]
fn l6_the_lists_of_a_cluster_are_cut_each_for_itself() {
    let node = |at| KubeNodeInfo {
        name: format!("node-{at:04}"),
        kubelet_version: "v1.32.1+k3s1".to_owned(),
        internal_ip: "10.244.244.102".to_owned(),
        node_id: "11111111-1111-4111-8111-111111111111".to_owned(),
        ..KubeNodeInfo::default()
    };
    let space = |at| KubePodNameSpaceInfo {
        name: format!("namespace-{at:04}"),
        pod_count: 1000,
        ..KubePodNameSpaceInfo::default()
    };
    let pod = |at| KubePodInfo { name: format!("app-{at:06}"), ..KubePodInfo::default() };
    let mut small = KubeClusterInfo {
        nodes: Some((0..100).map(node).collect()),
        pod_ns_info: Some((0..100).map(space).collect()),
        ..KubeClusterInfo::default()
    };
    let before = small.clone();
    small.fit().unwrap();
    assert_eq!(small, before);
    let mut large = KubeClusterInfo {
        nodes: Some((0..1000).map(node).collect()),
        pod_ns_info: Some((0..3).map(space).collect()),
        app_pods: Some((0..20_000).map(pod).collect()),
        ..KubeClusterInfo::default()
    };
    large.fit().unwrap();
    let nodes = large.nodes.clone().unwrap();
    assert!(nodes.len() > 100 && nodes[0].name == "node-0000", "{}", nodes.len());
    let pods = to_vec(&large.app_pods).unwrap().len();
    assert!(pods <= LARGE_BYTES && pods > LARGE_BYTES * 3 / 4, "{pods}");
    let disk = to_vec(&large).unwrap();
    let wire = go_json::to_wire(&disk, &mut |_, content| {
        assert!(content.len() < 1 << 20);
        Ok("/".repeat(200))
    });
    assert!(message_bytes(&wire.unwrap()) <= 65_534);
}

/// Letters of every cost, short and very long.
fn text() -> impl Strategy<Value = String> {
    let letter = prop::sample::select(vec!["a", "\"", "<", "\u{1}", "é", "日", "\u{2028}", "[]"]);
    (letter, prop_oneof![0..20_usize, 100..300_usize, Just(9_000)])
        .prop_map(|(letter, count)| letter.repeat(count))
}

fn count() -> impl Strategy<Value = usize> {
    prop_oneof![0..20_usize, 100..300_usize, Just(800)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn k1_any_value_of_our_topics_fits_its_message(
        long in text(), short in text(), many in count(), some in count(),
    ) {
        let texts = |count: usize, text: &str| {
            (0..count).map(|at| format!("{at}{}", cut_text(text, 500))).collect::<Vec<String>>()
        };
        let blockers: Vec<Blocker> = (0..many).map(|at| blocker(at, &cut_text(&long, 700))).collect();
        let answers = vec![Answer { context: long.clone(), skip: short.clone(), ..Answer::default() }; 3];
        let marks = DrainMarks {
            pods_ms: texts(many, &short).into_iter().map(|it| (it, 1)).collect(),
            returns: texts(some, &long).into_iter().map(|it| (it, 1)).collect(),
            claims: texts(many, &long).into_iter().collect(),
            ..DrainMarks::default()
        };
        let mut progress = NodeDrainProgress {
            context: long.clone(), blockers: blockers.clone(), volumes: texts(some, &long),
            left: texts(many, &short), skip: short.clone(), reason: long.clone(), next_step: short.clone(),
            replies: texts(some, &short).into_iter().map(|it| (it, 1)).collect(),
            repairs: texts(some, &long).into_iter().map(|it| (it, 1)).collect(),
            answers: answers.clone(), tier: long.clone(), ..NodeDrainProgress::default()
        };
        progress.gate.words = long.clone();
        progress.gate.next_step = long.clone();
        progress.gate.layer = long.clone();
        progress.gate.stale_taints = texts(some, &short);
        let told = published(&progress);
        prop_assert_eq!(told.blockers.len() + told.blockers_omitted as usize, many);
        prop_assert_eq!(told.left.len() + told.left_omitted as usize, many);
        prop_assert_eq!(told.volumes.len() + told.volumes_omitted as usize, some);
        prop_assert_eq!(told.answers.len(), 3);
        let journal = published(&DrainJournal {
            boot_id: short.clone(), context: long.clone(), skip: long.clone(), reason: short.clone(),
            left: texts(some, &long), marks: marks.clone(), answers, ..DrainJournal::default()
        });
        prop_assert_eq!(journal.left.len() + journal.left_omitted as usize, some);
        prop_assert_eq!(journal.marks.claims.len() + journal.marks.claims_omitted as usize, many);
        let leave = published(&NodeLeave {
            cluster_name: long.clone(), reason: long.clone(), next_step: short.clone(), blockers: blockers.clone(),
            passed_over: texts(some, &short), boot_id: long.clone(), marks, ..NodeLeave::default()
        });
        prop_assert_eq!(leave.blockers.len() + leave.blockers_omitted as usize, many);
        prop_assert_eq!(leave.passed_over.len() + leave.passed_over_omitted as usize, some);
        let step = DrainStep { text: long.clone(), ..DrainStep::default() };
        let record = DrainRecord {
            context: long.clone(), boot_id: short.clone(), skip: long.clone(),
            blockers: blockers.iter().take(40).cloned().collect(),
            left: texts(some.min(40), &short), steps: vec![step; some.min(40)], ..DrainRecord::default()
        };
        let forced = ForceRecord { owner: long.clone(), refused: short.clone(), effect: long.clone(),
            ..ForceRecord::default() };
        published(&DrainHistory { drains: vec![record; 10], forced: vec![forced; 8], ..DrainHistory::default() });
        let moments = vec![AppLogMoment::default(); some];
        let mark = AppLogMark { pod: long.clone(), moments, ..AppLogMark::default() };
        let marks = published(&AppLogMarks { containers: vec![mark; many.min(200)], ..AppLogMarks::default() });
        prop_assert_eq!(marks.containers.len() + marks.containers_omitted as usize, many.min(200));
        let part = KubeStatsPart { name: short.clone(), error: long.clone(), next_step: long.clone(),
            ..KubeStatsPart::default() };
        published(&KubeStatsState { parts: vec![part; 30], ..KubeStatsState::default() });
        published(&DeviceOpPending { ops_time: long.clone(), waiting_for: long.clone(), next_step: short.clone(),
            skip: long.clone(), boot_id: long.clone(), site: long.clone(), ..DeviceOpPending::default() });
        published(&OutageQuestion { op: short.clone(), held: long.clone(), next_step: long.clone(),
            ..OutageQuestion::default() });
        published(&OutageAnswer { why: long.clone(), next_step: long.clone(), ..OutageAnswer::default() });
        published(&ENClusterAppStatus { vmi_name: long.clone(), ..ENClusterAppStatus::default() });
        published(&NodeDrainRequest { context: long, ..NodeDrainRequest::default() });
    }
}
