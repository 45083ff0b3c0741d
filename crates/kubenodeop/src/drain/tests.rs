//! Whole attempts against the fake cluster, on the paused clock.

use std::pin::Pin;
use std::time::Duration;

use serde_json::{Value, json};
use step::Mono;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::drain::fake::{FakeCluster, Kubelet, World, WorldChange, budget, owned, pod};
use crate::drain::{DrainOrder, drain};
use crate::engine::AttemptRules;
use crate::engine::{AttemptFailure, AttemptOutcome, DrainSuccess};
use crate::progress::Progress;
use kubeapi::ApiClient;
use kubeapi::mock::{self, MockReply, RecordedCalls};
use kubeapi::names::NodeName;
use kubeapi::nodes::CordonAnnotation;
use topics::DrainMarks;

fn order() -> DrainOrder {
    DrainOrder {
        seen: None,
        runtime: crate::RuntimeQuery::default(),
        node: NodeName::parse("n1").unwrap(),
        device_uuid: "d1".to_owned(),
        owner: CordonAnnotation {
            boot_id: "b1".to_owned(),
            requested_by: 2,
            requested_at: "t".to_owned(),
            ..CordonAnnotation::default()
        },
        rules: AttemptRules::default(),
        marks: DrainMarks::default(),
    }
}

/// One attempt under way, with what can be seen of it.
struct Attempt {
    future: Pin<Box<dyn Future<Output = AttemptOutcome> + Send>>,
    progress: watch::Receiver<Progress>,
    now: Box<dyn Fn() -> Mono>,
}

impl Attempt {
    fn start(cluster: &ApiClient) -> Self {
        Self::with(cluster, order())
    }

    fn with(cluster: &ApiClient, order: DrainOrder) -> Self {
        let (sender, progress) = watch::channel(Progress::default());
        let (cluster, clock) = (cluster.clone(), mock::clock());
        let future = async move { drain(&cluster, &order, clock, &sender).await };
        Self { future: Box::pin(future), progress, now: Box::new(mock::clock()) }
    }

    async fn until(&mut self, so: impl FnMut(&Progress) -> bool) -> Progress {
        tokio::select! {
            outcome = &mut self.future => panic!("ended too early: {outcome:?}"),
            seen = self.progress.wait_for(so) => seen.unwrap().clone(),
        }
    }

    async fn pass(&mut self, time: Duration) {
        tokio::select! {
            outcome = &mut self.future => panic!("ended too early: {outcome:?}"),
            () = sleep(time) => {}
        }
    }

    async fn drained(self) -> (u32, u32) {
        match self.future.await {
            Ok(DrainSuccess { evicted, recordons, .. }) => (evicted, recordons),
            Err(failure) => panic!("{}", failure.reason),
        }
    }
}

fn evictions(calls: &RecordedCalls) -> Vec<String> {
    let name = |line: &str| line.split('/').nth_back(1).unwrap_or_default().to_owned();
    calls.lines().iter().filter(|line| line.starts_with("POST")).map(|line| name(line)).collect()
}

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[tokio::test(start_paused = true)]
async fn everything_leaves_but_daemon_set_and_mirror_pods() {
    let mut mirror = owned("static", "Node");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let mut finished = pod("job");
    finished["status"]["phase"] = json!("Succeeded");
    let mut ending = pod("ending");
    ending["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
    let pods = vec![
        owned("web-1", "ReplicaSet"),
        owned("db-0", "StatefulSet"),
        owned("agent", "DaemonSet"),
        pod("bare"),
        mirror,
        finished,
        ending,
    ];
    let (fake, cluster, calls) = FakeCluster::new(pods);
    assert_eq!(Attempt::start(&cluster).drained().await, (4, 0));
    let mut asked = evictions(&calls);
    asked.sort_unstable();
    assert_eq!(asked, ["bare", "db-0", "job", "web-1"]);
    let names: Vec<Value> = fake.world().pods.iter().map(|pod| pod["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["agent", "static"]);
}

#[tokio::test(start_paused = true)]
async fn d5_the_proof_is_two_lists_from_the_store_a_second_apart() {
    let (_fake, cluster, calls) = FakeCluster::new(vec![]);
    let attempt = Attempt::start(&cluster);
    let outcome = attempt.future.await;
    assert_eq!(outcome, Ok(DrainSuccess { took: secs(1), evicted: 0, recordons: 0, left: vec![] }));
    let looks = calls.lines().iter().filter(|line| line.as_str() == "GET /api/v1/nodes/n1").count();
    assert_eq!(looks, 2);
    let lists: Vec<String> = calls
        .lines()
        .into_iter()
        .filter(|line| line.starts_with("GET /api/v1/pods?&fieldSelector"))
        .collect();
    assert_eq!(lists.len(), 2, "the watch begins at the first");
    assert!(
        lists.iter().all(|line| !line.contains("resourceVersion") && line.contains("spec.nodeName%3Dn1"))
    );
}

#[tokio::test(start_paused = true)]
async fn o2_a_held_pod_is_told_with_its_numbers_and_never_otherwise() {
    let (fake, cluster, _) = FakeCluster::new(vec![pod("held")]);
    fake.world().budgets.push(budget("web", 2, 2));
    let mut attempt = Attempt::start(&cluster);
    let mut told = std::collections::BTreeSet::new();
    let mut progress = attempt.progress.clone();
    let collect = async {
        loop {
            progress.changed().await.unwrap();
            told.extend(progress.borrow_and_update().blockers.iter().map(|it| it.reason.clone()));
        }
    };
    tokio::select! {
        () = attempt.pass(secs(60)) => {}
        () = collect => {}
    }
    let expected =
        "pod shop/held: PodDisruptionBudget shop/web allows no disruption: 2 of 2 pods healthy, 2 required";
    assert_eq!(told.into_iter().collect::<Vec<_>>(), [expected]);
}

#[tokio::test(start_paused = true)]
async fn d1_a_pod_that_was_put_back_under_its_name_is_another_one() {
    let (fake, cluster, calls) = FakeCluster::new(vec![owned("db-0", "StatefulSet")]);
    // While the first eviction is on its way the pod is replaced.
    let changed = "the UID in the precondition (1) does not match the UID in record (2)";
    fake.world().instead.push_back(("/eviction", mock::status(409, changed)));
    fake.world().then.push_back(("/eviction", |world| {
        let old = world.pods.remove(0);
        let mut new = old;
        new["metadata"]["uid"] = json!("second");
        world.bind(new);
    }));
    assert_eq!(Attempt::start(&cluster).drained().await, (1, 0));
    let bodies: Vec<String> =
        calls.all().into_iter().filter(|call| call.line.starts_with("POST")).map(|call| call.body).collect();
    assert_eq!(bodies.len(), 2);
    assert!(bodies[0].contains("uid-db-0") && bodies[1].contains("\"second\""), "{bodies:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_expires_or_falls_silent_costs_time_and_nothing_else() {
    let table: [(WorldChange, u64); 3] = [(World::cut, 2), (World::expire, 2), (World::fall_silent, 37)];
    for (number, (fault, limit)) in table.into_iter().enumerate() {
        let (fake, cluster, _) = FakeCluster::new(vec![pod("a")]);
        fake.world().kubelet = Kubelet::Slow;
        let mut attempt = Attempt::start(&cluster);
        attempt.until(|it| it.counts.going == 1).await;
        attempt.pass(secs(1)).await;
        fault(&mut fake.world());
        fake.world().finish();
        let begin = (attempt.now)();
        attempt.until(|it| it.counts.gone == 1).await;
        let took = (attempt.now)().since(begin);
        assert!(took <= secs(limit), "row {number}: {took:?}");
        assert_eq!(attempt.drained().await, (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn d19_dropping_the_drain_ends_every_call_and_watch() {
    let (fake, cluster, calls) = FakeCluster::new(vec![pod("a")]);
    fake.world().budgets.push(budget("web", 2, 2));
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.counts.blocked == 1).await;
    drop(attempt);
    let before = calls.lines().len();
    fake.world().count_healthy(1);
    sleep(secs(3600)).await;
    assert_eq!(calls.lines().len(), before);
    assert_eq!(fake.world().pods.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_is_drained_and_proven_though_no_watch_ever_works() {
    let (fake, cluster, _) = FakeCluster::new(vec![pod("a"), pod("b")]);
    fake.world().instead.extend((0..10_000).map(|_| ("watch=true", mock::status(410, "too old"))));
    assert_eq!(Attempt::start(&cluster).drained().await, (2, 0));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_may_not_list_pods_fails_with_the_servers_words() {
    let (cluster, _) = mock::server(|_| mock::status(403, "pods is forbidden"));
    let outcome = Attempt::start(&cluster).future.await;
    let Err(failure) = outcome else { panic!("{outcome:?}") };
    let AttemptFailure { reason, .. } = *failure;
    assert_eq!(reason, "list pods of node n1: the server answered 403: pods is forbidden");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_against_a_server_that_is_away_ends_at_its_limit_and_says_why() {
    let (cluster, _) = mock::server(|_| MockReply::Refused("connection refused"));
    let rules = AttemptRules { attempt: secs(100), ..AttemptRules::default() };
    let attempt = Attempt::with(&cluster, DrainOrder { rules, ..order() });
    let outcome = attempt.future.await;
    let Err(failure) = outcome else { panic!("{outcome:?}") };
    let AttemptFailure { reason, .. } = *failure;
    assert!(reason.starts_with("not done within 100 s") && reason.contains("connection refused"), "{reason}");
}
