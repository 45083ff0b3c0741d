//! The table of the gate: all ten statuses and strangers, with and without a request, for each kind of zedkube.

use topics::{Answer, DrainStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, Requester};

use crate::core::gate::{Own, Verdict, View, gate};
use crate::core::{Membership, Why};

use super::world::drained;

const CONTEXT: &str = "image";

/// All ten statuses in the order of their numbers, then two strangers.
fn statuses() -> Vec<DrainStatus> {
    (0..=10).chain([255]).map(DrainStatus::from).collect()
}

fn request(secs: u32) -> NodeDrainRequest {
    NodeDrainRequest {
        requested_at: format!("2026-03-14T09:30:{secs:02}Z").parse().unwrap(),
        requested_by: Requester::Update,
        context: CONTEXT.to_owned(),
    }
}

fn own(before: Option<NodeDrainStatus>) -> Own {
    let mut own = Own::new(1, CONTEXT.to_owned(), before);
    own.id = Some(request(1).id());
    own
}

fn said(status: DrainStatus, requested_by: Requester) -> NodeDrainStatus {
    NodeDrainStatus { status, requested_by }
}

fn answering(request: &NodeDrainRequest, status: DrainStatus) -> NodeDrainProgress {
    let answer = Answer {
        requested_by: request.requested_by,
        requested_at: request.requested_at,
        status,
        ..Answer::default()
    };
    NodeDrainProgress { answers: vec![answer], ..NodeDrainProgress::default() }
}

/// A clustered node with no request, no progress and no force file.
fn view(status: Option<NodeDrainStatus>) -> View<'static> {
    View {
        own: None,
        status,
        progress: None,
        progress_seen: false,
        cluster: Membership::Clustered,
        has_to_leave: false,
        forced: None,
    }
}

fn row(of: impl Fn(DrainStatus) -> Verdict) -> Vec<Verdict> {
    statuses().into_iter().map(of).collect()
}

#[test]
fn without_a_request_only_a_node_outside_of_clusters_switches() {
    use Verdict::{Ask, Open, Silent, Stranger};
    let all = [
        Requester::None,
        Requester::DeviceOp,
        Requester::Update,
        Requester::Operator,
        Requester::Stranger(7),
    ];
    for by in all {
        let clustered = row(|status| gate(view(Some(said(status, by)))));
        // A drain of the other requester is joined by asking (D-B3), and its COMPLETE is not ours.
        let rest = vec![Ask, Ask, Ask, Ask, Ask, Ask, Ask, Ask, Stranger(10), Stranger(255)];
        assert_eq!(clustered, [vec![Silent, Silent], rest.clone()].concat());
        let single = row(|status| gate(View { cluster: Membership::Single, ..view(Some(said(status, by))) }));
        assert_eq!(single, [vec![Open(Why::Early), Open(Why::NotSupported)], rest].concat());
    }
    assert_eq!(gate(view(None)), Silent);
    assert_eq!(gate(View { cluster: Membership::Undecided, ..view(None) }), Silent);
    assert_eq!(gate(View { cluster: Membership::Single, ..view(None) }), Open(Why::Early));
}

#[test]
fn with_a_request_only_its_own_answer_settles_it() {
    use Verdict::{Failed, Open, Silent, Stranger, Unanswered, Wait};
    let own = own(None);
    let answered = row(|status| {
        let progress = answering(&request(1), status);
        let status = Some(said(status, Requester::Update));
        gate(View { own: Some(&own), progress: Some(&progress), progress_seen: true, ..view(status) })
    });
    let failed = |status: DrainStatus| Failed(said(status, Requester::Update).to_string());
    let expected = vec![
        Silent,
        Silent,
        Unanswered(DrainStatus::NotRequested),
        Wait,
        Wait,
        Wait,
        failed(DrainStatus::FailedCordon),
        Wait,
        failed(DrainStatus::FailedDrain),
        Open(drained()),
        Stranger(10),
        Stranger(255),
    ];
    assert_eq!(answered, expected);
}

#[test]
fn an_answer_to_another_request_settles_nothing() {
    use Verdict::{Silent, Stranger, Unanswered, Wait};
    let own = own(None);
    let device_op = NodeDrainRequest { requested_by: Requester::DeviceOp, ..request(1) };
    let person = NodeDrainRequest { requested_by: Requester::Operator, ..request(1) };
    for other in [request(2), device_op, person] {
        let row = row(|status| {
            let progress = answering(&other, status);
            let status = Some(said(status, other.requested_by));
            gate(View { own: Some(&own), progress: Some(&progress), progress_seen: true, ..view(status) })
        });
        let quiet = |number: u8| Unanswered(DrainStatus::from(number));
        let expected = vec![
            Silent,
            Silent,
            quiet(2),
            Wait,
            Wait,
            Wait,
            quiet(6),
            Wait,
            quiet(8),
            quiet(9),
            Stranger(10),
            Stranger(255),
        ];
        assert_eq!(row, expected);
    }
}

#[test]
fn a_reference_zedkube_is_trusted_by_requester_and_order() {
    use Verdict::{Failed, Open, Silent, Stranger, Unanswered, Wait};
    let fresh = own(None);
    let asked = |by| row(|status| gate(View { own: Some(&fresh), ..view(Some(said(status, by))) }));
    let failed = |status: DrainStatus| Failed(said(status, Requester::Update).to_string());
    let quiet = |number: u8| Unanswered(DrainStatus::from(number));
    let ours = vec![
        Silent,
        Silent,
        quiet(2),
        Wait,
        Wait,
        Wait,
        failed(DrainStatus::FailedCordon),
        Wait,
        failed(DrainStatus::FailedDrain),
        Open(drained()),
        Stranger(10),
        Stranger(255),
    ];
    assert_eq!(asked(Requester::Update), ours);
    let others = vec![
        Silent,
        Silent,
        quiet(2),
        Wait,
        Wait,
        Wait,
        quiet(6),
        Wait,
        quiet(8),
        quiet(9),
        Stranger(10),
        Stranger(255),
    ];
    assert_eq!(asked(Requester::DeviceOp), others);
    assert_eq!(asked(Requester::Operator), others);
    for last in [6, 8, 9].map(DrainStatus::from) {
        let stale = said(last, Requester::Update);
        let own = own(Some(stale));
        assert_eq!(
            gate(View { own: Some(&own), ..view(Some(stale)) }),
            Unanswered(last),
            "said before we asked"
        );
        let survived = Own::survived(&request(1));
        let verdict = gate(View { own: Some(&survived), ..view(Some(stale)) });
        assert_eq!(verdict, Verdict::Ask, "nobody can tell which request that answered");
    }
}

#[test]
fn a_request_without_an_identity_yet_is_answered_by_nothing() {
    let own = Own::new(1, CONTEXT.to_owned(), None);
    let progress = answering(&request(1), DrainStatus::Complete);
    let status = Some(said(DrainStatus::Complete, Requester::Update));
    let view = View { own: Some(&own), progress: Some(&progress), progress_seen: true, ..view(status) };
    assert_eq!(gate(view), Verdict::Wait);
}

#[test]
fn the_force_file_overrides_what_is_published() {
    use Verdict::{Ask, Failed, Held, Open};
    let own = own(None);
    let published = Some(said(DrainStatus::Cordoned, Requester::Update));
    let forced = |own, status| {
        let forced = said(DrainStatus::from(status), Requester::Update);
        (gate(View { own, forced: Some(forced), ..view(published) }), forced)
    };
    for number in 1..=9 {
        let (without, forced_to) = forced(None, number);
        let (with, _) = forced(Some(&own), number);
        let expected = match number {
            1 | 9 => (Open(Why::Forced(forced_to)), Open(Why::Forced(forced_to))),
            2 => (Ask, Held(forced_to)),
            6 | 8 => {
                (Held(forced_to), Failed(format!("the force file says {forced_to}; remove or change it")))
            }
            _ => (Held(forced_to), Held(forced_to)),
        };
        assert_eq!((without, with), expected, "{number}");
    }
}
