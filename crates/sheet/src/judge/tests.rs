//! K7: what the headline claims, over everything that can be published.

use super::*;
use serde_json::json;

use crate::{Live, OPERATOR};
use topics::{Answer, NodeDrainRequest, NodeDrainStatus, OperationPause, OutageQuestion, SkipKind};

fn now() -> GoTime {
    "2026-03-14T09:41:00Z".parse().unwrap()
}

fn asked() -> GoTime {
    "2026-03-14T09:30:00Z".parse().unwrap()
}

/// A node that is safe to work on.
fn safe() -> DrainView {
    let (requested_by, requested_at) = (Requester::Operator, asked());
    let answer = Answer { requested_by, requested_at, status: DrainStatus::Complete, ..Answer::default() };
    DrainView {
        status: Some(NodeDrainStatus { status: DrainStatus::Complete, requested_by }),
        progress: Some(NodeDrainProgress {
            requested_by,
            requested_at,
            phase: DrainPhase::Complete,
            status: DrainStatus::Complete,
            cordon: CordonOwner::Ours,
            answers: vec![answer],
            ..NodeDrainProgress::default()
        }),
        requests: [(
            OPERATOR,
            NodeDrainRequest { requested_by, requested_at, ..NodeDrainRequest::default() },
        )]
        .into(),
        live: Live { running: None, last_turn: "2026-03-14T09:40:36Z".parse().unwrap() },
        ..DrainView::default()
    }
}

/// What is changed in a safe node, the state that this gives, and how.
type Row = (&'static str, (NodeState, DrainOutcome), fn(&mut DrainView));

const UNKNOWN: (NodeState, DrainOutcome) = (NodeState::Unknown, DrainOutcome::Unknown);
const SKIPPED: (NodeState, DrainOutcome) = (NodeState::Unproved, DrainOutcome::Skipped);
const DRAINED: (NodeState, DrainOutcome) = (NodeState::Drained, DrainOutcome::Complete);

fn text(view: &DrainView) -> String {
    view.judge(now()).headline.text
}

fn own(view: &mut DrainView) -> &mut NodeDrainRequest {
    view.requests.get_mut(OPERATOR).unwrap()
}

fn reboot(view: &mut DrainView) -> &mut DeviceOpPending {
    view.pending.entry("reboot".to_owned()).or_default()
}

fn progress(view: &mut DrainView) -> &mut NodeDrainProgress {
    view.progress.as_mut().unwrap()
}

#[test]
fn k7_safe_is_only_a_node_proved_empty_under_a_cordon_for_the_request_that_exists() {
    assert_eq!(text(&safe()), "SAFE TO WORK ON: proved empty under a cordon");
    let rows: [Row; 20] = [
        ("no progress", (NodeState::Unproved, DrainOutcome::Unproved), |it| it.progress = None),
        ("another boot", UNKNOWN, |it| it.earlier_boot = true),
        ("silent for 3 min", UNKNOWN, |it| it.live.last_turn = "2026-03-14T09:37:59Z".parse().unwrap()),
        ("no status", (NodeState::UnderWay, DrainOutcome::UnderWay), |it| it.status = None),
        ("a status of before", UNKNOWN, |it| it.status = Some(NodeDrainStatus::default())),
        ("no cordon", UNKNOWN, |it| progress(it).cordon = CordonOwner::None),
        ("no answer", UNKNOWN, |it| progress(it).answers.clear()),
        ("an answer to another request", UNKNOWN, |it| progress(it).answers[0].requested_at = now()),
        ("an answer on the way", UNKNOWN, |it| progress(it).answers[0].status = DrainStatus::Cordoned),
        ("a failed answer", UNKNOWN, |it| progress(it).answers[0].status = DrainStatus::FailedDrain),
        ("a skip in the answer", SKIPPED, |it| progress(it).answers[0].skip = "no API".to_owned()),
        ("a skip beside it", SKIPPED, |it| progress(it).skip = "no API".to_owned()),
        ("a skipped phase", SKIPPED, |it| progress(it).phase = DrainPhase::Skipped),
        ("forced", (NodeState::Unproved, DrainOutcome::Forced), |it| {
            progress(it).answers[0].skip_kind = SkipKind::Forced;
        }),
        ("no request", (NodeState::Withdrawn, DrainOutcome::UnderWay), |it| it.requests.clear()),
        ("a request that cannot be read", UNKNOWN, |it| {
            it.requests.clear();
            it.blind = true;
        }),
        ("an old request that was skipped", (NodeState::Safe, DrainOutcome::Complete), |it| {
            let old =
                Answer { requested_at: now(), skip: "no API".to_owned(), ..progress(it).answers[0].clone() };
            progress(it).answers.insert(0, old);
        }),
        ("a newer request", (NodeState::Withdrawn, DrainOutcome::UnderWay), |it| {
            own(it).requested_at = now();
        }),
        ("an operation", DRAINED, |it| {
            it.pending = [("reboot".to_owned(), DeviceOpPending::default())].into();
        }),
        ("another requester", DRAINED, |it| {
            let update = NodeDrainRequest { requested_by: Requester::Update, ..own(it).clone() };
            it.requests.insert("baseosmgr", update);
        }),
    ];
    for (name, wanted, change) in rows {
        let mut view = safe();
        change(&mut view);
        let judged = view.judge(now());
        assert_eq!((judged.headline.state, judged.outcome), wanted, "{name}");
    }
    let mut view = safe();
    view.last_look = Some(OutageQuestion { op: "reboot".to_owned(), ..OutageQuestion::default() });
    assert_eq!(view.judge(now()).headline.state, NodeState::Blocked);
    view = safe();
    progress(&mut view).cordon = CordonOwner::Foreign;
    progress(&mut view).left = vec!["shop/web-0: it comes back".to_owned()];
    assert_eq!(
        text(&view),
        "SAFE TO WORK ON: proved empty under somebody else's cordon, with 1 exception by policy"
    );
}

#[test]
fn k7_what_a_pause_keeps_from_a_drained_node_is_not_said_to_go_ahead() {
    let paused = || {
        let mut view = safe();
        let (by, reason) = ("field".to_owned(), "new disk".to_owned());
        progress(&mut view).pause = OperationPause { by, reason, ..OperationPause::default() };
        reboot(&mut view).counter = 7;
        view
    };
    assert_eq!(text(&paused()), "PAUSED: reboot 7 waits; paused by field: new disk; the node is drained");
    let rows: [Row; 8] = [
        ("nothing waits", (NodeState::Safe, DrainOutcome::Complete), |it| it.pending.clear()),
        ("no pause", DRAINED, |it| progress(it).pause = OperationPause::default()),
        ("commanded", DRAINED, |it| reboot(it).state = PendingState::Commanded),
        ("begun before the pause", DRAINED, |it| reboot(it).drain_requested_at = asked()),
        ("refused after it had begun", (NodeState::Paused, DrainOutcome::Complete), |it| {
            progress(it).pause.scope = PauseScope::Controller;
            reboot(it).drain_requested_at = asked();
        }),
        ("a person's order", DRAINED, |it| reboot(it).site = "field".to_owned()),
        ("another requester", DRAINED, |it| {
            let update = NodeDrainRequest { requested_by: Requester::Update, ..own(it).clone() };
            it.requests.insert("baseosmgr", update);
        }),
        ("other requests cannot be read", DRAINED, |it| it.blind = true),
    ];
    for (name, wanted, change) in rows {
        let mut view = paused();
        change(&mut view);
        let judged = view.judge(now());
        assert_eq!((judged.headline.state, judged.outcome), wanted, "{name}");
    }
}

#[test]
fn k7_no_phase_but_complete_is_safe_or_drained_whatever_else_is_published() {
    let phases = "idle undecided checking outside-window paused waiting-for-turn running-hooks cordoning moving-machines draining \
        detaching waiting-for-storage proving retrying skipped forced failed-cordon failed-drain withdrawing after-boot leaving \
        whole-site";
    for word in phases.split_whitespace() {
        let phase: DrainPhase = serde_json::from_value(word.into()).unwrap();
        for status in 0..=10 {
            let mut view = safe();
            progress(&mut view).phase = phase;
            progress(&mut view).status = DrainStatus::from(status);
            let told = view.judge(now()).headline;
            assert!(
                !matches!(told.state, NodeState::Safe | NodeState::Drained),
                "{phase:?} {status}: {}",
                told.text
            );
        }
    }
}

#[test]
fn a_drain_for_a_reboot_is_no_leave_to_work_and_a_restart_of_k3s_no_drain() {
    let mut view = safe();
    let by = Requester::DeviceOp;
    own(&mut view).requested_by = by;
    (progress(&mut view).requested_by, progress(&mut view).answers[0].requested_by) = (by, by);
    progress(&mut view).context = "shutdown".to_owned();
    assert_eq!(text(&view), "DRAINED: shutdown goes ahead, do not work on it");
    let by = Requester::K3sUpdate;
    own(&mut view).requested_by = by;
    own(&mut view).context = topics::K3S_RESTART.to_owned();
    (progress(&mut view).requested_by, progress(&mut view).answers[0].requested_by) = (by, by);
    assert_eq!(text(&view), "WITHOUT A PROVED DRAIN: k3s restarts, the pods stay");
}

#[test]
fn u12_who_waits_for_its_turn_says_for_whom_by_the_rule_that_holds_it() {
    for (rule, nodes, rest) in [
        ("down", &["n2"][..], "n2 is down"),
        ("server", &["n2", "n3"], "n2, n3 are down"),
        ("cordoned", &["n2", "n3"], "n2, n3 are cordoned"),
        ("holder", &["n2"], "it is the turn of n2"),
        ("order", &["n2"], "n2 has an earlier place"),
        ("margin", &["n2"], "etcd needs this node for its quorum"),
        ("mode", &[], "an operation on the whole cluster is in progress"),
        ("preflight", &[], "its drain cannot start"),
        ("retry", &[], "the next attempt comes by itself"),
        ("record", &[], "the record of turns cannot be used"),
        ("api", &[], "the record of turns is being read"),
        ("not-listed", &[], "the cluster does not list this node"),
        ("some-new-rule", &["n2"], "behind n2"),
        ("", &[], "it has asked for it"),
    ] {
        let mut view = safe();
        let progress = progress(&mut view);
        progress.phase = DrainPhase::WaitingForTurn;
        progress.turn.rule = rule.to_owned();
        progress.turn.nodes = nodes.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(text(&view), format!("WAITING FOR ITS TURN: {rest}"), "{rule}");
    }
}

fn view_with(status: u8) -> DrainView {
    let status = DrainStatus::from(status);
    let requested_by = Requester::DeviceOp;
    DrainView { status: Some(NodeDrainStatus { status, requested_by }), ..DrainView::default() }
}

#[test]
fn every_status_alone_has_its_outcome() {
    // A zedkube of the reference does not say how it came to 9.
    for (statuses, outcome) in [
        (&[0, 10, 255][..], DrainOutcome::Unknown),
        (&[1, 2], DrainOutcome::Idle),
        (&[3, 4, 5, 7], DrainOutcome::UnderWay),
        (&[6, 8], DrainOutcome::Failed),
        (&[9], DrainOutcome::Unproved),
    ] {
        let found = statuses.iter().map(|it| view_with(*it).judge(now()).outcome);
        assert!(found.clone().all(|it| it == outcome), "{statuses:?}: {:?}", found.collect::<Vec<_>>());
    }
    assert_eq!(DrainView::default().judge(now()).outcome, DrainOutcome::Unknown);
}

#[test]
fn an_operation_that_waits_without_a_request_is_under_way() {
    for status in [1, 2] {
        let mut view = view_with(status);
        let op = DeviceOpPending { state: PendingState::Commanded, ..DeviceOpPending::default() };
        view.pending.insert("reboot".to_owned(), op.clone());
        assert_eq!(view.judge(now()).outcome, DrainOutcome::Idle, "{status}");
        view.pending.insert("reboot".to_owned(), DeviceOpPending { state: PendingState::Pending, ..op });
        assert_eq!(view.judge(now()).outcome, DrainOutcome::UnderWay, "{status}");
    }
}

#[test]
fn what_was_published_before_the_status_changed_says_nothing_about_now() {
    let mut view = safe();
    let drain = progress(&mut view);
    (drain.phase, drain.status) = (DrainPhase::Draining, DrainStatus::Cordoned);
    drain.counts.blocked = 1;
    for (status, outcome) in
        [(5, DrainOutcome::Blocked), (8, DrainOutcome::Failed), (9, DrainOutcome::Unproved)]
    {
        view.status = view_with(status).status;
        assert_eq!(view.judge(now()).outcome, outcome, "{status}");
    }
}

#[test]
fn anothers_complete_is_no_answer_to_this_request() {
    let mine = RequestId { by: Requester::Operator, at: asked() };
    let mut view = safe();
    assert_eq!(view.outcome_of(mine, now()), DrainOutcome::Complete);
    for (status, outcome) in
        [(DrainStatus::Cordoned, DrainOutcome::UnderWay), (DrainStatus::FailedDrain, DrainOutcome::Failed)]
    {
        progress(&mut view).answers[0].status = status;
        assert_eq!(view.outcome_of(mine, now()), outcome, "{status:?}");
    }
    progress(&mut view).answers[0] =
        Answer { status: DrainStatus::Complete, requested_by: Requester::DeviceOp, ..Answer::default() };
    assert_eq!(view.outcome_of(mine, now()), DrainOutcome::UnderWay);
}

fn rest() -> DrainView {
    let progress = NodeDrainProgress { status: DrainStatus::NotRequested, ..NodeDrainProgress::default() };
    DrainView { progress: Some(progress), ..view_with(2) }
}

#[test]
fn what_the_drain_alone_does_not_know_comes_first_with_what_to_do() {
    let trouble = |holds: &[&str], next_step: &str| {
        let it = json!({ "Path": "/run/x", "Error": "disk full", "Holds": holds, "NextStep": next_step });
        topics::AgentTrouble { troubles: vec![serde_json::from_value(it).unwrap()], more: 0 }
    };
    let mut views = [(); 4].map(|()| rest());
    views[0].others.insert("nodeagent", Live { running: Some(true), last_turn: asked() });
    views[1].troubles.insert("zedagent", trouble(&["reboot 7"], "make room"));
    views[2].troubles.insert("zedagent", trouble(&[], "make room"));
    let image = serde_json::from_value(json!({ "BaseOsVersion": "14.6.0", "Error": "404" })).unwrap();
    views[3].updates.insert("x".to_owned(), image);
    let facts = [
        ("BLOCKED: nodeagent hangs, its last turn was at 09:30:00 UTC", "`systemctl restart zedbox`; "),
        ("BLOCKED: reboot 7 waits until /run/x can be used: disk full", "make room"),
        ("IN SERVICE: no drain is requested; zedagent cannot use /run/x: disk full", "make room"),
        ("REQUESTED: OS update 14.6.0 waits: 404", "fix what is named"),
    ];
    for (view, (text, step)) in views.iter().zip(facts) {
        let judged = view.judge(now());
        assert_eq!(judged.headline.text, text);
        assert!(view.next_step(&judged, now()).starts_with(step), "{text}");
        assert_eq!(judged.outcome == DrainOutcome::Blocked, text.starts_with("BLOCKED"));
    }
    for (progress, text) in [
        (
            json!({ "Phase": "outside-window" }),
            "WAITING FOR A WINDOW: the operation waits, the windows stay closed",
        ),
        (
            json!({ "Phase": "after-boot", "Reason": "x", "Gate": { "Words": "not Ready" } }),
            "AFTER A BOOT: stays cordoned until it is healthy: not Ready",
        ),
        (json!({ "Phase": "whole-site", "Reason": "whole-site x waits" }), "WHOLE-SITE OPERATION: x waits"),
        (json!({ "Gate": { "NextStep": "start it" } }), "IN SERVICE: no drain is requested"),
    ] {
        let mut view = rest();
        view.progress = Some(NodeDrainProgress {
            status: DrainStatus::NotRequested,
            ..serde_json::from_value(progress).unwrap()
        });
        let judged = view.judge(now());
        assert_eq!(judged.headline.text, text);
        assert_eq!(view.next_step(&judged, now()) == "start it", text.starts_with("IN"));
        assert!(crate::rows(&view, &judged, now()).iter().all(|it| it.label != "reason"), "{text}");
    }
}
