//! Every status that zedkube writes to `/run/zedkube/NodeDrainStatus/global.json`, byte for byte, for both
//! requesters. UNKNOWN is not among them: it tells requesters to go ahead, and is never written.

use std::time::Duration;

use topics::{DrainStatus, Requester};

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
