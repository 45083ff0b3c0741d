//! A person with a shell asks for a drain (`zedbox drain`), alone and beside the others.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use topics::{DrainStatus, Requester};

use crate::device::{Device, request_file, status};

const US: Requester = Requester::Operator;
const FILE: &str = "run/zedbox/NodeDrainRequest/global.json";

#[tokio::test(start_paused = true)]
async fn p5_one_drain_for_all_three_and_an_answer_for_each() {
    let mut device = Device::idle().await;
    device.ask_blocked(US).await;
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
    assert_eq!(answers, [Requester::DeviceOp, Requester::Update, US].map(complete));
    // Whoever goes, the node stays as long as one stands.
    device.withdraw(Requester::DeviceOp).await;
    device.withdraw(Requester::Update).await;
    device.pass(Duration::from_hours(1)).await;
    assert_eq!((device.status(), device.cordoned()), (status(9, 4), true));
    device.withdraw(US).await;
    // A request that is away for less than 2 s was not withdrawn.
    device.pass(Duration::from_secs(3)).await;
    assert_eq!((device.status(), device.cordoned()), (status(2, 1), false));
}

#[tokio::test(start_paused = true)]
async fn s3_a_request_that_others_may_have_written_or_that_makes_no_sense_is_refused() {
    let mut device = Device::idle().await;
    device
        .change(|device| {
            device.request(US, 1);
            let file = device.topic_root.path(FILE);
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o666)).unwrap();
        })
        .await;
    device.change(|device| device.remove(request_file(US))).await;
    device.change(|device| device.write(FILE, "{")).await;
    device.pass(Duration::from_hours(1)).await;
    let refused = device.diary.count("drain request refused");
    assert!(refused >= 1, "{:#?}", device.diary.lines());
    assert!(!device.diary.ever_complete());
    // The good request that follows is served, and bad bytes in its place do not take it back.
    device.ask(US, 2).await;
    device.until(DrainStatus::Complete, US, 1).await;
    device.change(|device| device.write(FILE, "{")).await;
    device.pass(Duration::from_hours(1)).await;
    assert_eq!((device.status(), device.cordoned()), (status(9, 4), true));
}
