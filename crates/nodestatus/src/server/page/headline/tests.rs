//! K7: what the headline claims, over everything that can be published.

use super::*;
use topics::{Answer, DeviceOpPending, NodeDrainStatus, OutageQuestion};

fn now() -> GoTime {
    "2026-03-14T09:41:00Z".parse().unwrap()
}

fn asked() -> GoTime {
    "2026-03-14T09:30:00Z".parse().unwrap()
}

fn safe() -> NodeView {
    let (requested_by, requested_at) = (Requester::Operator, asked());
    let answer = Answer { requested_by, requested_at, status: DrainStatus::Complete, ..Answer::default() };
    NodeView {
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
        requests: vec![NodeDrainRequest { requested_by, requested_at, ..NodeDrainRequest::default() }],
        silent: Some(Duration::from_secs(24)),
        ..NodeView::default()
    }
}

/// What is changed in a safe node, the state that this gives, and how.
type Row = (&'static str, NodeState, fn(&mut NodeView));

fn progress(view: &mut NodeView) -> &mut NodeDrainProgress {
    view.progress.as_mut().unwrap()
}

#[test]
fn k7_safe_is_only_a_node_proved_empty_under_a_cordon_for_the_request_that_exists() {
    assert_eq!(headline(&safe(), now()).text, "SAFE TO WORK ON: proved empty under a cordon");
    let rows: [Row; 18] = [
        ("no progress", NodeState::Unknown, |it| it.progress = None),
        ("another boot", NodeState::Unknown, |it| it.earlier_boot = true),
        ("silent for 3 min", NodeState::Unknown, |it| it.silent = Some(Duration::from_secs(181))),
        ("no status", NodeState::UnderWay, |it| it.status = None),
        ("a status of before", NodeState::UnderWay, |it| it.status = Some(NodeDrainStatus::default())),
        ("no cordon", NodeState::Unknown, |it| progress(it).cordon = CordonOwner::None),
        ("no answer", NodeState::Unknown, |it| progress(it).answers.clear()),
        ("an answer to another request", NodeState::Unknown, |it| {
            progress(it).answers[0].requested_at = now();
        }),
        ("an answer on the way", NodeState::Unknown, |it| {
            progress(it).answers[0].status = DrainStatus::Cordoned;
        }),
        ("a failed answer", NodeState::Unknown, |it| {
            progress(it).answers[0].status = DrainStatus::FailedDrain;
        }),
        ("a skip in the answer", NodeState::Unproved, |it| {
            progress(it).answers[0].skip = "no API".to_owned();
        }),
        ("a skip beside it", NodeState::Unproved, |it| progress(it).skip = "no API".to_owned()),
        ("a skipped phase", NodeState::Unproved, |it| progress(it).phase = DrainPhase::Skipped),
        ("forced", NodeState::Unproved, |it| progress(it).answers[0].forced = true),
        ("no request", NodeState::Withdrawn, |it| it.requests.clear()),
        ("a newer request", NodeState::Withdrawn, |it| it.requests[0].requested_at = now()),
        ("an operation", NodeState::Drained, |it| it.pending.push(DeviceOpPending::default())),
        ("another requester", NodeState::Drained, |it| {
            let update = NodeDrainRequest { requested_by: Requester::Update, ..it.requests[0].clone() };
            it.requests.push(update);
        }),
    ];
    for (name, state, change) in rows {
        let mut view = safe();
        change(&mut view);
        assert_eq!(headline(&view, now()).state, state, "{name}");
    }
    let mut view = safe();
    view.last_look = Some(OutageQuestion::default());
    assert_eq!(headline(&view, now()).state, NodeState::Blocked);
    view = safe();
    progress(&mut view).cordon = CordonOwner::Foreign;
    progress(&mut view).left = vec!["shop/web-0: it comes back".to_owned()];
    assert_eq!(
        headline(&view, now()).text,
        "SAFE TO WORK ON: proved empty under somebody else's cordon, with 1 exception by policy"
    );
}

#[test]
fn k7_what_a_pause_keeps_from_a_drained_node_is_not_said_to_go_ahead() {
    let paused = || {
        let mut view = safe();
        let (by, reason) = ("field".to_owned(), "new disk".to_owned());
        progress(&mut view).pause = OperationPause { by, reason, ..OperationPause::default() };
        view.pending.push(DeviceOpPending { counter: 7, ..DeviceOpPending::default() });
        view
    };
    assert_eq!(
        headline(&paused(), now()).text,
        "PAUSED: reboot 7 waits, by field: new disk; the node is drained"
    );
    let rows: [Row; 8] = [
        ("nothing waits", NodeState::Safe, |it| it.pending.clear()),
        ("no pause", NodeState::Drained, |it| progress(it).pause = OperationPause::default()),
        ("commanded", NodeState::Drained, |it| it.pending[0].state = PendingState::Commanded),
        ("begun before the pause", NodeState::Drained, |it| it.pending[0].drain_requested_at = asked()),
        ("refused after it had begun", NodeState::Paused, |it| {
            progress(it).pause.scope = PauseScope::Controller;
            it.pending[0].drain_requested_at = asked();
        }),
        ("a person's order", NodeState::Drained, |it| it.pending[0].site = "field".to_owned()),
        ("another requester", NodeState::Drained, |it| {
            let update = NodeDrainRequest { requested_by: Requester::Update, ..it.requests[0].clone() };
            it.requests.push(update);
        }),
        ("other requests cannot be read", NodeState::Drained, |it| it.blind = true),
    ];
    for (name, state, change) in rows {
        let mut view = paused();
        change(&mut view);
        assert_eq!(headline(&view, now()).state, state, "{name}");
    }
}

#[test]
fn k7_no_phase_but_complete_is_safe_or_drained_whatever_else_is_published() {
    let phases = [
        DrainPhase::Idle,
        DrainPhase::Checking,
        DrainPhase::OutsideWindow,
        DrainPhase::Paused,
        DrainPhase::WaitingForTurn,
        DrainPhase::RunningHooks,
        DrainPhase::Cordoning,
        DrainPhase::MovingMachines,
        DrainPhase::Draining,
        DrainPhase::Detaching,
        DrainPhase::WaitingForStorage,
        DrainPhase::Proving,
        DrainPhase::Retrying,
        DrainPhase::Skipped,
        DrainPhase::Forced,
        DrainPhase::FailedCordon,
        DrainPhase::FailedDrain,
        DrainPhase::Withdrawing,
        DrainPhase::AfterBoot,
        DrainPhase::Leaving,
        DrainPhase::WholeSite,
    ];
    for phase in phases {
        for status in 0..=10 {
            let mut view = safe();
            progress(&mut view).phase = phase;
            progress(&mut view).status = DrainStatus::from(status);
            let told = headline(&view, now());
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
    view.requests[0].requested_by = by;
    (progress(&mut view).requested_by, progress(&mut view).answers[0].requested_by) = (by, by);
    progress(&mut view).context = "shutdown".to_owned();
    assert_eq!(headline(&view, now()).text, "DRAINED: shutdown goes ahead, do not work on it");
    let by = Requester::K3sUpdate;
    view.requests[0].requested_by = by;
    view.requests[0].context = topics::K3S_RESTART.to_owned();
    (progress(&mut view).requested_by, progress(&mut view).answers[0].requested_by) = (by, by);
    assert_eq!(headline(&view, now()).text, "WITHOUT A PROVED DRAIN: k3s restarts, the pods stay");
}

#[test]
fn u12_who_waits_for_its_turn_says_for_whom_by_the_rule_that_holds_it() {
    for (rule, nodes, text) in [
        ("down", &["n2"][..], "n2 is down"),
        ("server", &["n2", "n3"], "n2, n3 are down"),
        ("holder", &["n2"], "n2 is down or about to be"),
        ("order", &["n2"], "n2 has an earlier place"),
        ("margin", &["n2"], "etcd needs this node for its quorum"),
        ("mode", &[], "an operation on the whole cluster is in progress"),
        ("preflight", &[], "its drain cannot start"),
        ("retry", &[], "the next attempt comes by itself"),
        ("record", &[], "the record of turns cannot be used"),
        ("api", &[], "the record of turns is not known yet"),
        ("not-listed", &[], "the cluster does not list this node"),
        ("some-new-rule", &["n2"], "behind n2"),
        ("", &[], "it has asked for it"),
    ] {
        let mut view = safe();
        let progress = progress(&mut view);
        progress.phase = DrainPhase::WaitingForTurn;
        progress.turn.rule = rule.to_owned();
        progress.turn.nodes = nodes.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(headline(&view, now()).text, format!("WAITING FOR ITS TURN: {text}"), "{rule}");
    }
}
