//! What is said of a drain, and how often; in `sent`, that the API server has it.

mod notify;
mod sent;

use std::collections::BTreeMap;
use std::time::Duration;

use kubeapi::NodeName;
use nodestatus::Totals;
use step::Mono;
use topics::{
    Answer, Blocker, CordonOwner, DrainPhase, DrainStatus, GoTime, Headline, NodeDrainProgress, NodeState,
    PodCounts, RequestId, Requester, SkipKind, TurnShown,
};

use super::announcer::Announcer;
use super::condition::{NodeCourse, lifecycle, shown};
use super::events::{EventLog, HOURLY, name};
use super::notices::{Notice, NoticeKind};
use super::totals;

const STALL: Duration = Duration::from_mins(10);
const BOOT: &str = "b1";

fn at(secs: u64) -> GoTime {
    "2026-03-14T09:26:53Z".parse::<GoTime>().unwrap().plus(Duration::from_secs(secs))
}

fn mono(secs: u64) -> Mono {
    Mono::from_start(Duration::from_secs(secs))
}

fn progress(phase: DrainPhase, status: DrainStatus) -> NodeDrainProgress {
    NodeDrainProgress {
        requested_by: Requester::DeviceOp,
        requested_at: at(1),
        context: "reboot".to_owned(),
        phase,
        status,
        started_at: at(2),
        reason: "why".to_owned(),
        next_step: "do this".to_owned(),
        boot_id: BOOT.to_owned(),
        ..NodeDrainProgress::default()
    }
}

fn answer(skip_kind: SkipKind, skip: &str) -> Vec<Answer> {
    vec![Answer {
        requested_by: Requester::DeviceOp,
        requested_at: at(1),
        context: "reboot".to_owned(),
        status: DrainStatus::Complete,
        skip: skip.to_owned(),
        skip_kind,
        at: at(9),
    }]
}

fn blocked(pod: &str) -> NodeDrainProgress {
    let blocker = Blocker {
        pod: pod.to_owned(),
        code: "budget".to_owned(),
        reason: "PodDisruptionBudget shop/web allows no disruption".to_owned(),
        next_step: "add a replica".to_owned(),
        ..Blocker::default()
    };
    NodeDrainProgress {
        blockers: vec![blocker],
        cordon: CordonOwner::Ours,
        ..progress(DrainPhase::Draining, DrainStatus::Cordoned)
    }
}

fn waiting(rule: &str) -> NodeDrainProgress {
    let turn = TurnShown { rule: rule.to_owned(), ..TurnShown::default() };
    NodeDrainProgress { turn, ..progress(DrainPhase::WaitingForTurn, DrainStatus::Starting) }
}

fn idle() -> NodeDrainProgress {
    NodeDrainProgress {
        status: DrainStatus::NotRequested,
        boot_id: BOOT.to_owned(),
        ..NodeDrainProgress::default()
    }
}

/// The reasons that are said of these, one after another. Our cordon goes where it was there and the node is idle.
fn said(course: &[(u64, NodeDrainProgress)]) -> Vec<&'static str> {
    let (mut announcer, mut ours, mut uncordons) = (Announcer::new(STALL, Duration::ZERO), false, 0);
    let all = course.iter().flat_map(|(secs, it)| {
        uncordons += u32::from(ours && it.phase == DrainPhase::Idle);
        ours = it.cordon == CordonOwner::Ours;
        announcer.step(mono(*secs), it, uncordons)
    });
    all.map(|it| it.kind.reason()).collect()
}

/// What is published in this state.
fn state(words: &str) -> NodeDrainProgress {
    let ours = |it| NodeDrainProgress { cordon: CordonOwner::Ours, ..it };
    let ended = |phase, status, answers| ours(NodeDrainProgress { answers, ..progress(phase, status) });
    let done = |phase, kind, skip| ended(phase, DrainStatus::Complete, answer(kind, skip));
    match words.split_once(' ').unwrap_or((words, "")) {
        ("idle", _) => idle(),
        ("checking", _) => progress(DrainPhase::Checking, DrainStatus::Requested),
        ("cordoning", _) => progress(DrainPhase::Cordoning, DrainStatus::Starting),
        ("draining", _) => ours(progress(DrainPhase::Draining, DrainStatus::Cordoned)),
        ("uncordoned", _) => progress(DrainPhase::Draining, DrainStatus::Cordoned),
        ("blocked", pod) => blocked(pod),
        ("unread", _) => {
            let (requested_by, requested_at) = (Requester::None, GoTime::ZERO);
            NodeDrainProgress { requested_by, requested_at, ..blocked("shop/a") }
        }
        ("waits", rule) => waiting(rule),
        ("outside", _) => progress(DrainPhase::OutsideWindow, DrainStatus::Starting),
        ("complete", _) => done(DrainPhase::Complete, SkipKind::None, ""),
        ("skipped", _) => done(DrainPhase::Skipped, SkipKind::ApiUnreachable, "the API was away"),
        ("forced", _) => done(DrainPhase::Complete, SkipKind::Forced, "forced by root"),
        ("failed", _) => ended(DrainPhase::FailedDrain, DrainStatus::FailedDrain, vec![]),
        ("no-cordon", _) => ended(DrainPhase::FailedCordon, DrainStatus::FailedCordon, vec![]),
        ("withdrawing", _) => ours(NodeDrainProgress { phase: DrainPhase::Withdrawing, ..idle() }),
        ("after-boot", _) => ours(NodeDrainProgress { phase: DrainPhase::AfterBoot, ..idle() }),
        other => panic!("{other:?}"),
    }
}

/// Each course with its states by the second, and the reasons of what is said of it.
const COURSES: &str = "
    idle: 0 idle, 9 idle; -
    a good drain: 0 idle, 1 checking, 2 cordoning, 3 draining, 4 complete, 5 complete; DrainStarted DrainComplete
    blocked for a while, then by another pod, then free: 0 blocked shop/a, 1 blocked shop/a, 5 blocked shop/a, \
        6 blocked shop/b, 20 blocked shop/b, 30 blocked shop/b, 31 draining; DrainStarted DrainBlocked DrainBlocked
    blocked for moments only: 0 blocked shop/a, 4 draining, 5 blocked shop/a, 8 draining; DrainStarted
    its turn: 0 waits down, 5 waits down, 60 waits down, 61 draining; DrainWaitingForTurn DrainStarted
    the first turn of a cluster: 0 waits reading, 5 waits reading, 11 draining; DrainStarted
    cannot start: 0 waits preflight, 5 waits preflight; DrainBlocked
    a window: 0 outside, 5 outside; DrainWaitingForWindow
    skipped: 0 idle, 1 skipped; DrainSkipped
    forced: 0 draining, 1 forced; DrainStarted DrainForced
    failed, and again: 0 draining, 1 failed, 2 failed, 3 no-cordon; DrainStarted DrainFailed DrainFailed
    withdrawn: 0 draining, 1 withdrawing, 2 idle; DrainStarted DrainWithdrawn Uncordoned
    after a boot: 0 after-boot, 9 idle, 10 idle; Uncordoned
    found in mid-drain, before the request was read: 0 unread, 9 draining; DrainStarted
    uncordoned by somebody in mid-drain, and cordoned again: 0 draining, 1 uncordoned, 2 draining; DrainStarted
";

#[test]
fn o3_what_is_said_of_each_course_of_a_drain() {
    for row in COURSES.trim().lines().map(str::trim) {
        let (course, expected) = row.split_once(": ").unwrap().1.split_once("; ").unwrap();
        let course = course.split(", ").map(|step| {
            let (at, words) = step.split_once(' ').unwrap();
            (at.parse().unwrap(), state(words))
        });
        let said = said(&course.collect::<Vec<_>>());
        let said = if said.is_empty() { "-".to_owned() } else { said.join(" ") };
        assert_eq!(said, expected, "{row}");
    }
}

#[test]
fn o3_the_words_name_what_happened_and_what_to_do() {
    let mut announcer = Announcer::new(STALL, Duration::ZERO);
    let mut all = announcer.step(mono(0), &blocked("shop/a"), 0);
    all.extend(announcer.step(mono(5), &blocked("shop/a"), 0));
    let text: Vec<&str> = all.iter().map(|it| it.message.as_str()).collect();
    let expected = [
        "the drain for a reboot begins",
        "the drain for a reboot is blocked: [budget] pod shop/a: PodDisruptionBudget shop/web allows no disruption; \
         add a replica",
    ];
    assert_eq!(text, expected);
    // No text is longer than the API server takes.
    let mut long = progress(DrainPhase::FailedDrain, DrainStatus::FailedDrain);
    long.reason = "x".repeat(5000);
    let said = announcer.step(mono(6), &long, 0);
    assert!(said.iter().all(|it| it.message.len() <= 1024), "{said:?}");
}

#[test]
fn o7_a_drain_without_any_progress_is_warned_of_once_until_something_changes() {
    let gone = |gone| NodeDrainProgress {
        counts: PodCounts { total: 3, gone, waiting: 3 - gone, ..PodCounts::default() },
        blockers: Vec::new(),
        ..blocked("")
    };
    let mut announcer = Announcer::new(STALL, Duration::ZERO);
    announcer.step(mono(0), &gone(0), 0);
    assert_eq!(announcer.due(), Some(mono(600)));
    assert_eq!(announcer.step(mono(500), &gone(1), 0), []);
    // Words and times that change are no progress.
    let words = NodeDrainProgress { reason: "other words".to_owned(), estimate: at(9), ..gone(1) };
    assert_eq!(announcer.step(mono(1099), &words, 0), []);
    assert_eq!(announcer.due(), Some(mono(1100)));
    let said = announcer.step(mono(1100), &gone(1), 0);
    assert_eq!(said.iter().map(|it| it.kind).collect::<Vec<_>>(), [NoticeKind::Stalled]);
    assert_eq!(said[0].message, "no progress for 10 min: why; do this");
    assert!(announcer.is_stalled());
    assert_eq!((announcer.step(mono(90_000), &gone(1), 0), announcer.due()), (vec![], None));
    assert_eq!(announcer.step(mono(90_001), &gone(2), 0), []);
    assert!(!announcer.is_stalled());
    assert_eq!(announcer.step(mono(90_601), &gone(2), 0).len(), 1);
    // Never for a state that ends or waits for a known time, nor with the limit 0.
    for phase in [DrainPhase::Idle, DrainPhase::Complete, DrainPhase::OutsideWindow, DrainPhase::FailedDrain]
    {
        let mut announcer = Announcer::new(STALL, Duration::ZERO);
        let it = progress(phase, DrainStatus::Cordoned);
        announcer.step(mono(0), &it, 0);
        announcer.step(mono(10), &it, 0);
        assert_eq!(announcer.step(mono(90_000), &it, 0), [], "{phase:?}");
    }
    let mut never = Announcer::new(Duration::ZERO, Duration::ZERO);
    never.step(mono(0), &gone(0), 0);
    assert_eq!((never.due(), never.step(mono(90_000), &gone(0), 0)), (None, vec![]));
}

#[test]
fn o3_so_many_events_an_hour_and_room_is_kept_for_ends() {
    let mut log = EventLog::default();
    let admitted = |log: &mut EventLog, secs, kind| (0..100).filter(|_| log.admits(mono(secs), kind)).count();
    assert_eq!(admitted(&mut log, 0, NoticeKind::Blocked), HOURLY - 10);
    assert_eq!(admitted(&mut log, 1800, NoticeKind::Complete), 10);
    assert_eq!(admitted(&mut log, 3599, NoticeKind::Complete), 0);
    assert_eq!(admitted(&mut log, 3600, NoticeKind::Blocked), HOURLY - 20);
}

#[test]
fn o3_the_same_thing_has_one_name_and_another_thing_another() {
    let node = NodeName::parse("n1").unwrap();
    let notice = |kind, secs, subject: &str| Notice {
        kind,
        id: RequestId { by: Requester::DeviceOp, at: at(secs) },
        subject: subject.to_owned(),
        message: "m".to_owned(),
        is_new: true,
    };
    let first = name(&node, BOOT, &notice(NoticeKind::Blocked, 1, "a"));
    assert!(first.starts_with("n1.") && first.len() == 19, "{first}");
    let other_words =
        Notice { message: "other".to_owned(), is_new: false, ..notice(NoticeKind::Blocked, 1, "a") };
    assert_eq!(name(&node, BOOT, &other_words), first);
    for (boot, other) in [
        (BOOT, notice(NoticeKind::Blocked, 1, "b")),
        (BOOT, notice(NoticeKind::Blocked, 2, "a")),
        (BOOT, notice(NoticeKind::Stalled, 1, "a")),
        ("b2", notice(NoticeKind::Blocked, 1, "a")),
    ] {
        assert_ne!(name(&node, boot, &other), first);
    }
    let long = NodeName::parse(&format!("{}.{}", "n".repeat(229), "m".repeat(23))).unwrap();
    let long = name(&long, BOOT, &notice(NoticeKind::Blocked, 1, "a"));
    assert!(long.len() <= 253 && !long.contains(".."), "{long}");
}

#[test]
fn k12_the_event_of_a_drain_counts_its_exceptions_and_says_of_none_that_it_is_left_in_place() {
    for (left, omitted, end) in [
        (0, 0, "left to evict"),
        (1, 0, "left to evict, with 1 exception by policy"),
        (2, 3, "left to evict, with 5 exceptions by policy"),
    ] {
        let done = NodeDrainProgress {
            left: vec!["shop/web-0: it left without a second copy".to_owned(); left],
            left_omitted: omitted,
            ..progress(DrainPhase::Complete, DrainStatus::Complete)
        };
        let mut announcer = Announcer::new(STALL, Duration::ZERO);
        announcer.step(mono(0), &blocked("shop/a"), 0);
        let all = announcer.step(mono(1), &done, 0);
        assert!(all.len() == 1 && all[0].message.ends_with(end), "{all:?}");
    }
}

#[test]
fn o3_the_condition_is_true_of_a_node_that_is_proved_empty_alone() {
    for (state, proved, status, reason) in [
        (NodeState::Safe, true, "True", "SafeToWorkOn"),
        (NodeState::Drained, true, "True", "Drained"),
        (NodeState::UnderWay, true, "True", "Draining"),
        (NodeState::Blocked, true, "True", "Blocked"),
        (NodeState::Blocked, false, "False", "Blocked"),
        (NodeState::UnderWay, false, "False", "Draining"),
        (NodeState::Unproved, false, "False", "NotProved"),
        (NodeState::Unproved, true, "False", "NotProved"),
        (NodeState::Unknown, false, "Unknown", "Unknown"),
        (NodeState::InService, false, "False", "InService"),
        (NodeState::AfterBoot, false, "False", "AfterBoot"),
    ] {
        let headline = Headline { state, text: format!("{}: so", state.words()) };
        let shown = shown(&headline, "do this", proved, false);
        assert_eq!((shown.status, shown.reason), (status, reason), "{state:?}");
        assert!(shown.message.starts_with(&headline.text) && shown.state == headline.text);
    }
    let headline = Headline { state: NodeState::Blocked, text: "BLOCKED: so".to_owned() };
    let stalled = shown(&headline, "do this", false, true);
    assert_eq!((stalled.status, stalled.reason), ("False", "Stalled"));
    assert_eq!(stalled.message, "BLOCKED: so; do this; no progress for long");
}

#[test]
fn o4_totals_count_what_happened_and_not_what_an_earlier_run_has_counted() {
    let mut totals = Totals::default();
    let with = |evicted, budget: u32, attempt| NodeDrainProgress {
        evicted,
        attempt,
        replies: BTreeMap::from([("budget".to_owned(), budget)]),
        ..progress(DrainPhase::Draining, DrainStatus::Cordoned)
    };
    let mut announcer = Announcer::new(STALL, Duration::ZERO);
    let mut before: Option<NodeDrainProgress> = None;
    let end = NodeDrainProgress {
        answers: answer(SkipKind::None, ""),
        evicted: 9,
        ..progress(DrainPhase::Complete, DrainStatus::Complete)
    };
    for it in [with(5, 2, 1), with(7, 4, 1), with(8, 1, 2), end.clone(), end.clone()] {
        let said = announcer.step(mono(0), &it, 0);
        totals::add(&mut totals, before.as_ref(), &it, &said, at(62));
        before = Some(it);
    }
    let mut expected = Totals::default();
    expected.ended("complete");
    (expected.evictions, expected.drain_seconds) = (4, 60);
    expected.reply("budget", 3);
    assert_eq!(totals, expected);
    // Found at its end by the next run.
    let mut next = Totals::default();
    totals::add(&mut next, None, &end, &Announcer::new(STALL, Duration::ZERO).step(mono(0), &end, 0), at(90));
    assert_eq!(next, Totals::default());
}

#[test]
fn j1_the_conditions_of_kubernetes_follow_the_state_and_work_is_in_progress_only_on_a_node_that_is_empty() {
    let course = NodeCourse::default();
    let wanted = NodeCourse { wanted: true, ..course };
    let cordoned = NodeCourse { cordoned: true, ..wanted };
    let drained = NodeCourse { drained: true, ..cordoned };
    let down = |it: NodeCourse| NodeCourse { goes_down: true, ..it };
    // In progress, drained, planned, maintained: T, F or U.
    let rows = [
        (NodeState::InService, course, "FFFF NotRequested"),
        (NodeState::Cordoned, course, "FFFF NotRequested"),
        (NodeState::Paused, course, "FFFF NotRequested"),
        (NodeState::Paused, wanted, "FFTF AdminRequested"),
        (NodeState::WaitingForWindow, wanted, "FFTF MaintenanceWindow"),
        (NodeState::WaitingForTurn, wanted, "FFTF WaitingForTurn"),
        (NodeState::WaitingForApi, wanted, "FFTF AdminRequested"),
        (NodeState::UnderWay, cordoned, "TFTF AdminRequested"),
        (NodeState::Blocked, cordoned, "TFTF DrainBlocked"),
        (NodeState::Failed, wanted, "FFTF AdminRequested"),
        (NodeState::UnderWay, drained, "FTTT DrainCompleted"),
        (NodeState::Blocked, drained, "FTTT DrainCompleted"),
        (NodeState::Drained, drained, "FTTT DrainCompleted"),
        (NodeState::Safe, drained, "FTTT DrainCompleted"),
        (NodeState::Unproved, cordoned, "FFTF NotProved"),
        (NodeState::Drained, down(drained), "TTFT NodeShutdown"),
        (NodeState::Unproved, down(cordoned), "TFFF NodeShutdown"),
        (NodeState::AfterBoot, NodeCourse { cordoned: true, ..course }, "FFFT AfterBoot"),
        (NodeState::WholeSite, cordoned, "TFTF AdminRequested"),
        (NodeState::Unknown, cordoned, "UUUU Unknown"),
    ];
    for (state, course, expected) in rows {
        let (statuses, why) = lifecycle(state, course);
        let found: String = statuses.iter().map(|it| &it[..1]).collect();
        assert_eq!(format!("{found} {}", why.text()), expected, "{state:?} {course:?}");
    }
}
