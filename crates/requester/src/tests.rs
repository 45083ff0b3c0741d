//! The table of the judgement: all ten statuses and unknown ones, with and without a request, for each kind of zedkube.

use topics::{Answer, DrainStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, Requester};

use crate::judge::{JudgeInput, judge};
use crate::{DeviceClustering, DrainJudgement, LatestAnswers, OwnRequest, ProceedReason};

const CONTEXT: &str = "image";

/// In the order of their numbers, then two unknown ones.
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

fn own(before: Option<NodeDrainStatus>) -> OwnRequest {
    OwnRequest::new(CONTEXT.to_owned(), Some(request(1).id()), &answers_of(before, None))
}

fn drained() -> ProceedReason {
    ProceedReason::Complete { skip: String::new() }
}

fn answers_of(status: Option<NodeDrainStatus>, progress: Option<NodeDrainProgress>) -> LatestAnswers {
    let mut heard = LatestAnswers::default();
    heard.status(status);
    heard.progress(progress.map(Box::new));
    heard
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

/// A clustered node with no request and no force file.
fn view(heard: &LatestAnswers) -> JudgeInput<'_> {
    JudgeInput {
        by: Requester::Update,
        own: None,
        heard,
        cluster: DeviceClustering::Clustered,
        has_to_leave: false,
        forced: None,
    }
}

fn of(status: Option<NodeDrainStatus>) -> LatestAnswers {
    answers_of(status, None)
}

fn row(of: impl Fn(DrainStatus) -> DrainJudgement) -> Vec<DrainJudgement> {
    statuses().into_iter().map(of).collect()
}

fn unanswered() -> Vec<DrainJudgement> {
    use DrainJudgement::{Silent, Stranger, Unanswered, Wait};
    let [none, cordon, drain, done] = [2, 6, 8, 9].map(|it| Unanswered(DrainStatus::from(it)));
    vec![Silent, Silent, none, Wait, Wait, Wait, cordon, Wait, drain, done, Stranger(10), Stranger(255)]
}

#[test]
fn without_a_request_only_a_node_outside_of_clusters_switches() {
    use DrainJudgement::{Ask, Open, Silent, Stranger};
    let all = [
        Requester::None,
        Requester::DeviceOp,
        Requester::Update,
        Requester::Operator,
        Requester::Stranger(7),
    ];
    for by in all {
        let clustered = row(|status| judge(view(&of(Some(said(status, by))))));
        // The other requester's drain is joined by a request (D-B3), and its COMPLETE is not ours.
        let rest = vec![Ask, Ask, Ask, Ask, Ask, Ask, Ask, Ask, Stranger(10), Stranger(255)];
        assert_eq!(clustered, [vec![Silent, Silent], rest.clone()].concat());
        let single = row(|status| {
            judge(JudgeInput { cluster: DeviceClustering::Single, ..view(&of(Some(said(status, by)))) })
        });
        assert_eq!(
            single,
            [vec![Open(ProceedReason::Early), Open(ProceedReason::NotSupported)], rest].concat()
        );
    }
    assert_eq!(judge(view(&of(None))), Silent);
    assert_eq!(judge(JudgeInput { cluster: DeviceClustering::Undecided, ..view(&of(None)) }), Silent);
    assert_eq!(
        judge(JudgeInput { cluster: DeviceClustering::Single, ..view(&of(None)) }),
        Open(ProceedReason::Early)
    );
}

/// By status, what the one who asked makes of the answer to its own request.
fn own_answers() -> Vec<DrainJudgement> {
    use DrainJudgement::{Failed, Open, Silent, Stranger, Unanswered, Wait};
    let failed = |status: DrainStatus| Failed(said(status, Requester::Update).to_string());
    let (cordon, drain) = (failed(DrainStatus::FailedCordon), failed(DrainStatus::FailedDrain));
    let (quiet, done) = (Unanswered(DrainStatus::NotRequested), Open(drained()));
    vec![Silent, Silent, quiet, Wait, Wait, Wait, cordon, Wait, drain, done, Stranger(10), Stranger(255)]
}

#[test]
fn with_a_request_only_its_own_answer_settles_it() {
    let own = own(None);
    let answered = row(|status| {
        let progress = answering(&request(1), status);
        let status = Some(said(status, Requester::Update));
        judge(JudgeInput { own: Some(&own), ..view(&answers_of(status, Some(progress))) })
    });
    assert_eq!(answered, own_answers());
}

#[test]
fn an_answer_to_another_request_settles_nothing() {
    let own = own(None);
    let device_op = NodeDrainRequest { requested_by: Requester::DeviceOp, ..request(1) };
    let person = NodeDrainRequest { requested_by: Requester::Operator, ..request(1) };
    for other in [request(2), device_op, person] {
        let row = row(|status| {
            let progress = answering(&other, status);
            let status = Some(said(status, other.requested_by));
            judge(JudgeInput { own: Some(&own), ..view(&answers_of(status, Some(progress))) })
        });
        assert_eq!(row, unanswered());
    }
}

#[test]
fn a_reference_zedkube_is_trusted_by_requester_and_order() {
    let fresh = own(None);
    let asked =
        |by| row(|status| judge(JudgeInput { own: Some(&fresh), ..view(&of(Some(said(status, by)))) }));
    assert_eq!(asked(Requester::Update), own_answers());
    assert_eq!(asked(Requester::DeviceOp), unanswered());
    assert_eq!(asked(Requester::Operator), unanswered());
    for last in [6, 8, 9].map(DrainStatus::from) {
        let stale = said(last, Requester::Update);
        let own = own(Some(stale));
        assert_eq!(
            judge(JudgeInput { own: Some(&own), ..view(&of(Some(stale))) }),
            DrainJudgement::Unanswered(last),
            "said before we asked"
        );
        let survived = OwnRequest::survived(&request(1));
        let verdict = judge(JudgeInput { own: Some(&survived), ..view(&of(Some(stale))) });
        assert_eq!(verdict, DrainJudgement::Ask, "nobody can tell which request that answered");
    }
}

#[test]
fn a_request_without_an_identity_yet_is_answered_by_nothing() {
    let own = OwnRequest::new(CONTEXT.to_owned(), None, &LatestAnswers::default());
    let progress = answering(&request(1), DrainStatus::Complete);
    let status = Some(said(DrainStatus::Complete, Requester::Update));
    let heard = answers_of(status, Some(progress));
    assert_eq!(judge(JudgeInput { own: Some(&own), ..view(&heard) }), DrainJudgement::Wait);
}

#[test]
fn the_force_file_overrides_what_is_published() {
    use DrainJudgement::{Ask, Failed, Held, Open};
    let own = own(None);
    let published = Some(said(DrainStatus::Cordoned, Requester::Update));
    let forced = |own, status| {
        let forced = said(DrainStatus::from(status), Requester::Update);
        (judge(JudgeInput { own, forced: Some(forced), ..view(&of(published)) }), forced)
    };
    for number in 1..=9 {
        let (without, forced_to) = forced(None, number);
        let (with, _) = forced(Some(&own), number);
        let expected = match number {
            1 | 9 => (Open(ProceedReason::Forced(forced_to)), Open(ProceedReason::Forced(forced_to))),
            2 => (Ask, Held(forced_to)),
            6 | 8 => {
                (Held(forced_to), Failed(format!("the force file says {forced_to}; remove or change it")))
            }
            _ => (Held(forced_to), Held(forced_to)),
        };
        assert_eq!((without, with), expected, "{number}");
    }
}

/// After answers by request, a status alone never counts, even without the file of answers. Only after both
/// were withdrawn may another zedkube publish.
#[test]
fn once_answers_name_their_request_a_status_alone_settles_nothing_until_the_publisher_has_gone() {
    let mut heard = answers_of(None, Some(NodeDrainProgress::default()));
    let own = OwnRequest::new(CONTEXT.to_owned(), Some(request(1).id()), &heard);
    let complete = Some(said(DrainStatus::Complete, Requester::Update));
    let judged = |heard: &LatestAnswers| judge(JudgeInput { own: Some(&own), ..view(heard) });
    heard.status(complete);
    heard.progress(None);
    assert_eq!(judged(&heard), DrainJudgement::Unanswered(DrainStatus::Complete));
    heard.status(None);
    heard.status(complete);
    assert_eq!(judged(&heard), DrainJudgement::Open(drained()), "a zedkube of the reference has taken over");
    // Before it is known whether there are answers, a status does not count.
    let mut unread = LatestAnswers::default();
    unread.status(complete);
    assert_eq!(judged(&unread), DrainJudgement::Unanswered(DrainStatus::Complete));
    unread.read();
    assert_eq!(judged(&unread), DrainJudgement::Open(drained()));
}

#[test]
fn a_request_that_survived_is_made_again_beside_any_final_status_without_an_identity() {
    let survived = OwnRequest::survived(&request(1));
    for by in [Requester::Update, Requester::DeviceOp, Requester::Operator] {
        for status in [6, 8, 9].map(DrainStatus::from) {
            let heard = of(Some(said(status, by)));
            assert_eq!(
                judge(JudgeInput { own: Some(&survived), ..view(&heard) }),
                DrainJudgement::Ask,
                "{status:?} {by:?}"
            );
        }
    }
}
