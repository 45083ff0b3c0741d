//! COMPLETE that is no longer so: heard of at once, drained for again under the same request (goals P8).

use std::time::Duration;

use topics::{DrainStatus, Requester};

use crate::device::{Device, US, status};

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
