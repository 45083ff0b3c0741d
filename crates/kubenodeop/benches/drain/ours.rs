//! Ours: the drain of this crate with its own rules, its proof included.

use std::path::Path;

use kubeapi::{ApiClient, NodeName};
use kubenodeop::{AttemptRules, CordonAnnotation, DrainOrder, DrainSuccess, Progress};
use step::Mono;
use tokio::sync::watch;

use crate::case::{Case, DEVICE, NODE};
use crate::floor::now;
use crate::server::took;
use topics::DrainMarks;

pub(crate) async fn drain(case: Case, file: &Path) {
    let begin = now();
    let cluster = ApiClient::from_kubeconfig(file);
    let order = DrainOrder {
        seen: None,
        runtime: kubenodeop::RuntimeQuery::default(),
        node: NodeName::parse(NODE).unwrap(),
        device_uuid: DEVICE.to_owned(),
        owner: CordonAnnotation {
            boot_id: "bench".to_owned(),
            requested_by: 2,
            requested_at: "2025-01-01T00:00:00Z".to_owned(),
            ..CordonAnnotation::default()
        },
        rules: AttemptRules::default(),
        marks: DrainMarks::default(),
    };
    // Somebody reads what is said, as zedkube does.
    let (progress, newest) = watch::channel(Progress::default());
    let clock = move || Mono::from_start(begin.elapsed());
    let outcome = kubenodeop::drain(&cluster, &order, clock, &progress).await;
    let time = begin.elapsed();
    let Ok(DrainSuccess { evicted, .. }) = outcome else { unreachable!("{outcome:?}") };
    assert_eq!(usize::try_from(evicted).unwrap(), case.pods);
    assert_eq!(newest.borrow().evicted, evicted);
    took(time);
}
