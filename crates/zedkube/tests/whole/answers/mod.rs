//! Who asks, who is answered what, and what is kept of it.
//!
//! The wall clock is set by ten years while zedkube runs.
//!
//! What stands in `DrainHistory` on disk after restarts and boots, and who gave which force file.
//!
//! A person with a shell asks for a drain (`zedbox drain request`), alone and beside the others.
//!
//! Every status that zedkube writes to `/run/zedkube/NodeDrainStatus/global.json`, byte for byte, for both requesters.
//! UNKNOWN is not among them: it tells requesters to go ahead, and is never written.
//!
//! COMPLETE that is no longer so: heard of at once, drained for again under the same request.
//!
//! A request that is withdrawn, in every state: NOTREQUESTED, our cordon gone, a foreign one kept, and no eviction
//! after that.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use kubesim::ScriptedFault;
use topics::{
    DrainHistory, DrainRecord, DrainStatus, DrainStep, FORCE_FILE, GoTime, NodeDrainProgress, RequestId,
    Requester, StepWord, go_json,
};

use crate::device::{Device, US, request_file, status};

mod forced;

const YEARS_SECS: i64 = 10 * 31_557_600;

/// Fails unless `shown` is this time by the wall clock of now, within 2 s.
fn near(what: &str, shown: GoTime, right: GoTime) {
    assert!(shown.apart(right) <= Duration::from_secs(2), "{what}: {shown:?} where {right:?} is right");
}

#[tokio::test(start_paused = true)]
async fn k4_a_clock_that_is_set_in_mid_drain_puts_all_that_is_published_right_within_2_s_and_decides_nothing()
{
    let mut device = Device::idle().await;
    device.block(true);
    let asked_at = device.clock.now();
    device.ask(US, 1).await;
    device.until(DrainStatus::Cordoned, US, 1).await;
    device.pass(Duration::from_mins(10)).await;
    let before = device.progress();
    assert!(!before.blockers.is_empty(), "{before:?}");
    let lines = device.diary.times("nodedrain-step:").len();
    for off_by in [YEARS_SECS, -YEARS_SECS] {
        device.clock.jump_to_off_by(off_by);
        device.pass(Duration::from_secs(2)).await;
        let (booted, now) = (device.clock.booted_at(), device.progress());
        near("StartedAt", now.started_at, booted.plus(asked_at.since_start()));
        near("Deadline", now.deadline, before.deadline.moved(before.booted_at, booted));
        near("Since", now.blockers[0].since, before.blockers[0].since.moved(before.booted_at, booted));
        assert_eq!(
            (now.requested_at, &now.answers[0].requested_at),
            (before.requested_at, &before.requested_at)
        );
        let id = RequestId { by: US, at: now.requested_at };
        near("asked", now.asked_at(id), booted.plus(asked_at.since_start()));
        near("At", now.answers[0].at, before.answers[0].at.moved(before.booted_at, booted));
        let kept = device.text("persist/status/zedkube/DrainHistory/global.json").unwrap();
        let history: DrainHistory = go_json::from_slice(kept.as_bytes()).unwrap();
        near("a step of the history", history.drains[0].steps[0].at, booted.plus(asked_at.since_start()));
        // But for times nothing is another thing, and nothing was done.
        // The blocked pod may have been tried once more in those 2 s.
        let now = NodeDrainProgress { replies: before.replies.clone(), ..now };
        assert_eq!(now.by_clock(before.booted_at), before);
        assert_eq!(device.diary.times("nodedrain-step:").len(), lines, "{:#?}", device.diary.lines());
        assert!(device.cordoned());
    }
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
    assert_eq!(device.pods_to_leave(), [""; 0]);
}

const FILE: &str = "persist/status/zedkube/DrainHistory/global.json";

fn history(device: &Device) -> DrainHistory {
    go_json::from_slice(device.text(FILE).unwrap().as_bytes()).unwrap()
}

fn words(record: &DrainRecord) -> Vec<&'static str> {
    let word = |it: &DrainStep| serde_json::to_string(&it.step).unwrap().leak().trim_matches('"');
    record.steps.iter().map(word).collect()
}

#[tokio::test(start_paused = true)]
async fn o8_a_drain_over_a_kill_and_a_reboot_stands_there_with_its_steps() {
    let mut device = Device::idle().await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(30)).await;
    assert_eq!(words(&history(&device).drains[0]), ["taken", "api-reached", "cordoned", "attempt"]);
    device.restart().await;
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
    device.rest().await;
    let kept = history(&device);
    let all = "taken api-reached cordoned attempt restarted api-reached cordoned attempt proving complete";
    assert_eq!(words(&kept.drains[0]).join(" "), all);
    assert_eq!((kept.drains.len(), kept.drains[0].counts.blocked), (1, 0));
    let evicted = device.sim.faults().evicted().len();
    assert_eq!(usize::try_from(kept.drains[0].evicted).unwrap(), evicted, "{kept:?}");
    let shown = device.progress();
    assert_eq!((usize::try_from(shown.evicted).unwrap(), shown.counts.gone), (evicted, shown.counts.total));
    assert!(shown.reason.starts_with(&format!("drained: {evicted} pods evicted")), "{}", shown.reason);
    assert!(kept.drains[0].steps.is_sorted_by_key(|it| it.at.to_timestamp()), "{kept:?}");
    // The next boot finds it, and adds its own drain before it.
    device.kill().await;
    device.reboot();
    device.start().await;
    assert_eq!(history(&device), kept);
    device.ask(US, 2).await;
    device.kill().await;
    device.reboot();
    device.start().await;
    let after = history(&device);
    assert_eq!((after.drains.len(), &after.drains[1..]), (2, &kept.drains[..]));
    assert_eq!(after.drains[0].steps.last().unwrap().step, StepWord::Interrupted);
    assert_eq!(after.drains[0].boot_id, "b1+");
}

/// A drain that a budget holds, and then this force file.
async fn forced(put: impl FnOnce(&Device)) -> (Device, DrainHistory) {
    let mut device = Device::idle().await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(30)).await;
    device.change(put).await;
    let kept = history(&device);
    (device, kept)
}

#[tokio::test(start_paused = true)]
async fn p9_s6_the_history_names_owner_time_and_effect_of_a_force_file() {
    let (mut device, kept) = forced(|device| {
        device.write(
            "etc/passwd",
            &format!("# users\nann:x:{}:7:Ann:/:/bin/sh\n", rustix::process::geteuid().as_raw()),
        );
        device.write("tmp/order", &status(9, 2));
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_773_480_000);
        let file = std::fs::File::options().write(true).open(device.topic_root.path("tmp/order")).unwrap();
        file.set_modified(time).unwrap();
        std::fs::rename(device.topic_root.path("tmp/order"), device.topic_root.path(FORCE_FILE)).unwrap();
    })
    .await;
    let order = &kept.forced[0];
    assert_eq!((order.owner_known, order.owner_uid), (true, rustix::process::geteuid().as_raw()));
    assert_eq!(order.owner, "ann");
    assert_eq!(order.written_at.to_timestamp().as_second(), 1_773_480_000);
    assert_eq!(
        order.effect,
        "the reboot requested at 2026-03-14 09:26:54 UTC went ahead without a proved drain"
    );
    assert!(order.gone_at.is_zero() && !order.seen_at.is_zero(), "{order:?}");
    assert_eq!(words(&kept.drains[0]), ["taken", "api-reached", "cordoned", "attempt", "forced", "skipped"]);
    device.change(|device| device.remove(FORCE_FILE)).await;
    assert!(!history(&device).forced[0].gone_at.is_zero());
}

#[tokio::test(start_paused = true)]
async fn s3_p9_a_refused_force_file_stands_in_the_history_with_its_owner_and_why() {
    let (mut device, kept) = forced(|device| {
        device.write("tmp/order", &status(9, 2));
        let path = device.topic_root.path("tmp/order");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        std::fs::rename(path, device.topic_root.path(FORCE_FILE)).unwrap();
    })
    .await;
    let order = &kept.forced[0];
    assert!(
        order.refused.contains("others may write it") && order.effect.starts_with("refused"),
        "{order:?}"
    );
    assert!(order.owner_known && order.released_at.is_zero(), "{order:?}");
    assert_eq!(words(&kept.drains[0]).last(), Some(&"force-refused"));
    device.change(|device| device.write(FORCE_FILE, "{}")).await;
    let kept = history(&device);
    assert_eq!((kept.forced.len(), kept.forced[1].gone_at.is_zero()), (2, false));
    assert!(kept.forced[0].refused.contains("Status"), "{kept:?}");
    // A link is its maker's.
    device.write("tmp/order", &status(9, 2));
    device
        .change(|device| {
            std::os::unix::fs::symlink(
                device.topic_root.path("tmp/order"),
                device.topic_root.path("tmp/link"),
            )
            .unwrap();
            std::fs::rename(device.topic_root.path("tmp/link"), device.topic_root.path(FORCE_FILE)).unwrap();
        })
        .await;
    let kept = history(&device);
    assert!(kept.forced[0].owner_known && kept.forced[0].refused.contains("link"), "{kept:?}");
}

const PERSON: Requester = Requester::Operator;
const REQUEST_FILE: &str = "run/zedbox/NodeDrainRequest/global.json";

#[tokio::test(start_paused = true)]
async fn p5_one_drain_for_all_three_and_an_answer_for_each() {
    let mut device = Device::idle().await;
    device.ask_blocked(PERSON).await;
    device.ask(Requester::Update, 2).await;
    assert_eq!(device.status(), status(5, 3));
    device.ask(Requester::DeviceOp, 3).await;
    device.block(false);
    device.until(DrainStatus::Complete, Requester::Update, 1).await;
    device.pass(Duration::from_hours(1)).await;
    let expected = [(1, 1), (2, 1), (3, 4), (4, 4), (5, 4), (5, 3), (5, 2), (9, 2), (9, 3)];
    assert_eq!(device.diary.written(), expected.map(|(number, by)| status(number, by)));
    assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), 1);
    let answers: Vec<_> = device.progress().answers.iter().map(|it| (it.requested_by, it.status)).collect();
    let complete = |by| (by, DrainStatus::Complete);
    assert_eq!(answers, [Requester::DeviceOp, Requester::Update, PERSON].map(complete));
    // Whoever goes, the node stays as long as one stands.
    device.withdraw(Requester::DeviceOp).await;
    device.withdraw(Requester::Update).await;
    device.pass(Duration::from_hours(1)).await;
    assert_eq!((device.status(), device.cordoned()), (status(9, 4), true));
    device.withdraw(PERSON).await;
    // A request that is away for less than 2 s was not withdrawn.
    device.pass(Duration::from_secs(3)).await;
    assert_eq!((device.status(), device.cordoned()), (status(2, 1), false));
}

#[tokio::test(start_paused = true)]
async fn s3_a_request_that_others_may_have_written_or_that_makes_no_sense_is_refused() {
    let mut device = Device::idle().await;
    device
        .change(|device| {
            device.request(PERSON, 1);
            let file = device.topic_root.path(REQUEST_FILE);
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o666)).unwrap();
        })
        .await;
    device.change(|device| device.remove(request_file(PERSON))).await;
    device.change(|device| device.write(REQUEST_FILE, "{")).await;
    device.pass(Duration::from_hours(1)).await;
    let refused = device.diary.count("drain request refused");
    assert!(refused >= 1, "{:#?}", device.diary.lines());
    assert!(!device.diary.ever_complete());
    // The good request that follows is served, and bad bytes in its place do not take it back.
    device.ask(PERSON, 2).await;
    device.until(DrainStatus::Complete, PERSON, 1).await;
    device.change(|device| device.write(REQUEST_FILE, "{")).await;
    device.pass(Duration::from_hours(1)).await;
    assert_eq!((device.status(), device.cordoned()), (status(9, 4), true));
}

/// The life of two failed requests and a good one, as `by` sees it.
async fn life(by: Requester) -> Vec<String> {
    let mut device = Device::new().await;
    device.member(false);
    device.start().await;
    device.change(|device| device.member(true)).await;
    device.cordon_failures(10);
    device.ask(by, 1).await;
    device.until(DrainStatus::FailedCordon, by, 1).await;
    device.refusals(5);
    device.ask(by, 2).await;
    device.until(DrainStatus::FailedDrain, by, 1).await;
    device.ask(by, 3).await;
    device.until(DrainStatus::Complete, by, 1).await;
    device.withdraw(by).await;
    // A request that is away for less than 2 s was not withdrawn.
    device.pass(Duration::from_secs(3)).await;
    device.change(|device| device.member(false)).await;
    // The first step out of the cluster is announced a minute before.
    device.pass(Duration::from_mins(2)).await;
    device.diary.written()
}

#[tokio::test(start_paused = true)]
async fn every_status_is_written_with_the_number_of_its_requester() {
    for (by, number) in [(Requester::DeviceOp, 2), (Requester::Update, 3)] {
        let mut expected = vec![status(1, 1), status(2, 1)];
        expected.extend([3, 4, 6].map(|it| status(it, number)));
        expected.extend([3, 4, 5, 7, 5, 7, 5, 7, 5, 7, 5, 8].map(|it| status(it, number)));
        expected.extend([3, 4, 5, 9].map(|it| status(it, number)));
        expected.extend([status(2, 1), status(1, 1)]);
        assert_eq!(life(by).await, expected, "{by:?}");
    }
}

const ATTEMPT: &str = "nodedrain-step:drain-attempt";

async fn complete(by: Requester) -> Device {
    let mut device = Device::idle().await;
    device.ask(by, 1).await;
    device.until(DrainStatus::Complete, by, 1).await;
    // Somewhere between two looks.
    device.pass(Duration::from_secs(10)).await;
    device
}

/// Drained once more within two seconds, for the request that stands, without anybody's doing.
async fn drained_again(device: &mut Device, by: Requester) {
    device.pass(Duration::from_secs(2)).await;
    assert_eq!(device.diary.count(ATTEMPT), 2, "{:#?}", device.diary.lines());
    device.until(DrainStatus::Complete, by, 2).await;
    assert_eq!((device.pods_to_leave().len(), device.cordoned()), (0, true));
    let answers = device.progress().answers;
    assert_eq!((answers.len(), answers[0].status), (1, DrainStatus::Complete));
    device.pass(Duration::from_mins(10)).await;
    assert_eq!(device.diary.count(ATTEMPT), 2);
}

#[tokio::test(start_paused = true)]
async fn p8_an_uncordon_of_the_drained_node_is_heard_of_at_once() {
    for by in [US, Requester::Operator] {
        let mut device = complete(by).await;
        device.uncordon_by_hand();
        drained_again(&mut device, by).await;
        assert!(device.owner().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn p8_a_new_pod_on_the_drained_node_is_heard_of_at_once_and_taken_away() {
    let mut device = complete(US).await;
    device.sim.add_bare_pod("tools", "late", "n1");
    drained_again(&mut device, US).await;
}

#[tokio::test(start_paused = true)]
async fn p8_a_new_daemon_pod_on_the_drained_node_changes_nothing() {
    let mut device = complete(US).await;
    device.sim.add_daemon_set("kube-system", "late-agent");
    device.pass(Duration::from_mins(10)).await;
    assert_eq!((device.status(), device.diary.count(ATTEMPT)), (status(9, 2), 1));
}

#[tokio::test(start_paused = true)]
async fn u7_two_requests_in_one_window_cordon_once_and_evict_each_pod_once() {
    let mut device = Device::idle().await;
    let pods = device.pods_to_leave().len();
    device.ask(Requester::Update, 1).await;
    device.ask(US, 2).await;
    device.until(DrainStatus::Complete, US, 1).await;
    device.until(DrainStatus::Complete, Requester::Update, 1).await;
    let answers: Vec<_> = device.progress().answers.iter().map(|it| (it.requested_by, it.status)).collect();
    assert_eq!(answers, [(US, DrainStatus::Complete), (Requester::Update, DrainStatus::Complete)]);
    let count = |text: &str| device.diary.count(text);
    assert_eq!((count(ATTEMPT), count("nodedrain-step:drain-cordon-complete")), (1, 1));
    assert_eq!(count("eviction accepted"), pods);
}

const ALL_TRIES: u32 = 10;

/// Brings a device to a status that stays, with the request standing.
async fn device_at(state: DrainStatus, foreign: bool) -> Device {
    let mut device = Device::idle().await;
    if foreign {
        device.cordon_by_hand();
    }
    let faults = device.sim.faults();
    match state {
        // Looks of others at the node meet it too.
        DrainStatus::Starting | DrainStatus::FailedCordon => {
            let times = if state == DrainStatus::Starting { ALL_TRIES - 1 } else { u32::MAX };
            for method in ["GET", "PATCH"] {
                let failed = ScriptedFault::status(500, "InternalError");
                faults.script(method, "/api/v1/nodes/n1", times, failed);
            }
        }
        DrainStatus::Cordoned => device.block(true),
        // One more than the attempt meets: in the pause a dry run asks whether the refusal is over.
        DrainStatus::DrainRetrying => device.refusals(2),
        DrainStatus::FailedDrain => device.refusals(5),
        DrainStatus::Unknown
        | DrainStatus::NotSupported
        | DrainStatus::NotRequested
        | DrainStatus::Requested
        | DrainStatus::Complete
        | DrainStatus::Stranger(_) => {}
    }
    if state == DrainStatus::NotRequested {
        return device;
    }
    if state == DrainStatus::Requested {
        // It lasts one turn; a kill makes it stay.
        device.kill_at(" to {Requested 2}", 1);
        device.ask(US, 1).await;
        device.killed().await;
        return device;
    }
    device.ask(US, 1).await;
    device.until(state, US, 1).await;
    if state == DrainStatus::FailedCordon {
        device.sim.faults().clear();
    }
    device.rest().await;
    device
}

async fn withdrawn(state: DrainStatus, foreign: bool) {
    let told = format!("{state:?}, foreign {foreign}");
    let mut device = device_at(state, foreign).await;
    let number = state.number();
    assert_eq!(device.status(), status(number, if number == 2 { 1 } else { 2 }), "{told}");
    if state == DrainStatus::Requested {
        device.remove(request_file(US));
        device.start().await;
    } else if state != DrainStatus::NotRequested {
        device.withdraw(US).await;
        // New evictions stop within this time (D19).
        device.pass(Duration::from_secs(5)).await;
    }
    assert_eq!(device.diary.ever_complete(), state == DrainStatus::Complete, "{told}");
    let evictions = device.sim.faults().count("POST", "/eviction");
    device.block(false);
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.status(), status(2, 1), "{told}");
    assert_eq!((device.cordoned(), device.owner()), (foreign, None), "{told}");
    assert_eq!(device.sim.faults().count("POST", "/eviction"), evictions, "{told}");
    assert_eq!(device.diary.ever_complete(), state == DrainStatus::Complete, "{told}");
    // The next request finds everything as the first one did.
    device.sim.faults().clear();
    device.ask(US, 2).await;
    device.until(DrainStatus::Complete, US, if state == DrainStatus::Complete { 2 } else { 1 }).await;
    assert_eq!(device.pods_to_leave(), [""; 0], "{told}");
}

#[tokio::test(start_paused = true)]
async fn d_k6_a_request_withdrawn_in_any_state_leaves_nothing_but_a_foreign_cordon() {
    for state in [
        DrainStatus::NotRequested,
        DrainStatus::Requested,
        DrainStatus::Starting,
        DrainStatus::Cordoned,
        DrainStatus::DrainRetrying,
        DrainStatus::FailedCordon,
        DrainStatus::FailedDrain,
        DrainStatus::Complete,
    ] {
        for foreign in [false, true] {
            withdrawn(state, foreign).await;
        }
    }
}
