//! Every status that zedkube writes to `/run/zedkube/NodeDrainStatus/global.json`, byte for byte, for both
//! requesters. UNKNOWN is not among them: it tells requesters to go ahead, and is never written.

use std::time::Duration;

use topics::{DrainStatus, NodeDrainProgress, Requester, go_json};

use crate::device::{Device, status};

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

#[tokio::test(start_paused = true)]
async fn p5_of_two_requesters_each_is_told_its_own_number_of_the_one_drain() {
    let mut device = Device::idle().await;
    device.block(true);
    device.ask(Requester::Update, 1).await;
    device.until(DrainStatus::Cordoned, Requester::Update, 1).await;
    device.ask(Requester::DeviceOp, 2).await;
    device.block(false);
    device.until(DrainStatus::Complete, Requester::DeviceOp, 1).await;
    device.until(DrainStatus::Complete, Requester::Update, 1).await;
    device.pass(Duration::from_hours(1)).await;
    let expected = [(1, 1), (2, 1), (3, 3), (4, 3), (5, 3), (5, 2), (9, 2), (9, 3)];
    assert_eq!(device.diary.written(), expected.map(|(number, by)| status(number, by)));
    assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), 1);
    let progress = device.text("run/zedkube/NodeDrainProgress/global.json").unwrap();
    let progress: NodeDrainProgress = go_json::from_slice(progress.as_bytes()).unwrap();
    let answers: Vec<_> = progress.answers.iter().map(|it| (it.requested_by, it.status)).collect();
    assert_eq!(
        answers,
        [(Requester::DeviceOp, DrainStatus::Complete), (Requester::Update, DrainStatus::Complete)]
    );
}
