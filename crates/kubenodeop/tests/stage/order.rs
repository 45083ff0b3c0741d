//! What is ordered: to empty n1, in the name of one request, on the test's clock.

use kubeapi::NodeName;
use kubenodeop::{AttemptRules, CordonAnnotation, DrainOrder};
use step::Mono;
use tokio::time::Instant;
use topics::DrainMarks;

pub(crate) const DEVICE: &str = "uuid-1";

#[expect(clippy::disallowed_methods, reason = "a test is its own door to the clock")]
pub(crate) fn clock() -> impl Fn() -> Mono + Send {
    let start = Instant::now();
    move || Mono::from_start(start.elapsed())
}

pub(crate) fn n1() -> NodeName {
    NodeName::parse("n1").unwrap()
}

pub(crate) fn owner() -> CordonAnnotation {
    CordonAnnotation {
        boot_id: "b1".to_owned(),
        requested_by: 2,
        requested_at: "2025-01-01T00:00:00Z".to_owned(),
        ..CordonAnnotation::default()
    }
}

/// The first attempt to empty n1.
pub(crate) fn order(rules: AttemptRules) -> DrainOrder {
    let runtime = kubenodeop::RuntimeQuery::default();
    DrainOrder {
        runtime,
        node: n1(),
        device_uuid: DEVICE.to_owned(),
        owner: owner(),
        rules,
        marks: DrainMarks::default(),
        seen: None,
    }
}
