//! Every reply to an eviction on a real connection: what the whole drain of a node makes of it.
//!
//! A node has two pods. The first eviction of one of them meets the reply, and nothing else does. Time is the real
//! one; the tests wait for ends and look at the order of what happened.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::stage::order::{DEVICE, clock, order};
use crate::wire::{How, Meanwhile, Script, Wire, answer};
use futures::future::join_all;
use kube::client::Body;
use kube::{Client, Config};
use kubeapi::ApiClient;
use kubenodeop::{AttemptOutcome, AttemptRules, BlockCode, Progress, drain};
use kubesim::{Sim, SimConfig};
use serde_json::{Value, json};
use tokio::sync::watch;
use topics::Blocker;

/// The pod that meets the reply, and the one that does not.
const POD: &str = "asked";
const OTHER: &str = "other";
const TWO_BUDGETS: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

/// What is done to the cluster before the answer is given.
type Change = fn(&Sim);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It is never asked again.
    Over,
    /// It is asked again, and leaves.
    Again,
    /// It is given up, and the attempt fails and names it.
    GivenUp,
}

/// A reply, and what must follow from it.
struct Row {
    name: &'static str,
    how: How,
    meanwhile: Meanwhile,
    code: Option<BlockCode>,
    wait: Option<Duration>,
    then: Then,
}

impl Row {
    fn new(name: &'static str, how: How, code: Option<BlockCode>, then: Then) -> Self {
        Self { name, how, meanwhile: Box::new(|| ()), code, wait: None, then }
    }

    /// One that holds the pod, and passes.
    fn passing(name: &'static str, how: How, code: BlockCode) -> Self {
        Self::new(name, how, Some(code), Then::Again)
    }

    fn after(self, secs: u64) -> Self {
        Self { wait: Some(Duration::from_secs(secs)), ..self }
    }
}

fn status(code: u16, headers: &str, body: &Value) -> How {
    let mut status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code });
    for (member, value) in body.as_object().unwrap() {
        status[member] = value.clone();
    }
    answer(code, headers, "application/json", &status.to_string())
}

fn with_cause(code: u16, reason: &str, cause: &str) -> How {
    let causes = json!([{ "reason": cause, "message": "the cause" }]);
    status(code, "", &json!({ "reason": reason, "message": "no", "details": { "causes": causes } }))
}

/// A cluster of two nodes with both pods on the first, which is cordoned.
async fn cluster() -> Sim {
    let ten = Duration::from_millis(10);
    let sim = Sim::new(SimConfig { start_time: ten, stop_time: ten, ..SimConfig::default() });
    sim.add_node("n1", DEVICE);
    sim.add_node("n2", "uuid-2");
    sim.add_bare_pod("shop", POD, "n1");
    sim.add_bare_pod("shop", OTHER, "n1");
    sim.until("pods", |pods| pods.iter().all(|pod| pod["status"]["conditions"][0]["status"] == "True")).await;
    sim.edit("nodes", "", "n1", |node| node["spec"]["unschedulable"] = true.into());
    sim
}

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().unwrap()
}

/// A cluster by a kubeconfig, as the agents have it.
fn by_kubeconfig(address: SocketAddr, folder: &tempfile::TempDir) -> ApiClient {
    let file = folder.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster: {{server: \
         \"http://{address}\"}}\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\nusers:\n- name: u\n  \
         user: {{}}\n"
    );
    std::fs::File::create(&file).unwrap().write_all(text.as_bytes()).unwrap();
    ApiClient::from_kubeconfig(file)
}

/// Empties n1 of `cluster`; how it ended, and the codes of what held the pod.
async fn emptied(cluster: &ApiClient) -> (AttemptOutcome, BTreeSet<String>) {
    // The limit turns what would never end into a failure.
    let order = order(AttemptRules {
        proof_gap: Duration::from_millis(20),
        attempt: Duration::from_secs(60),
        ..AttemptRules::default()
    });
    let (sender, mut told) = watch::channel(Progress::default());
    let drained = drain(cluster, &order, clock(), &sender);
    tokio::pin!(drained);
    let mut codes = BTreeSet::new();
    let mut note = |blockers: &[Blocker]| {
        for held in blockers {
            assert!(held.pod.ends_with(&format!("/{POD}")), "{held:?}");
            codes.insert(held.code.clone());
        }
    };
    let outcome = loop {
        note(&told.borrow_and_update().blockers);
        tokio::select! {
            biased;
            changed = told.changed() => changed.unwrap(),
            outcome = &mut drained => break outcome,
        }
    };
    if let Err(failure) = &outcome {
        note(&failure.blockers);
    }
    (outcome, codes)
}

fn names_on(sim: &Sim, node: &str) -> Vec<String> {
    let pods = sim.list("pods");
    let here = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node);
    here.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

async fn check(sim: Sim, row: Row) {
    let Row { name, how, meanwhile, code, wait, then } = row;
    let server = sim.serve().await.unwrap();
    let silent = matches!(how, How::Silence);
    let script = Script::new(&format!("/pods/{POD}/eviction"), how, meanwhile, wait);
    let wire = Wire::to(address(&server.url()), Arc::clone(&script)).await;
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = by_kubeconfig(wire.address, &folder);
    if silent {
        // Long enough for a server that answers, and the test need not wait for half a minute.
        cluster = cluster.with_call_limit(Duration::from_secs(2));
    }
    let uid = sim.get("pods", "shop", POD).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let (outcome, codes) = emptied(&cluster).await;
    expect(name, &sim, then, code, &outcome, &codes);
    let asked = script.asked();
    assert!(asked.iter().all(|it| it.body.contains(&uid)), "{name}: another pod was asked for: {asked:?}");
    match then {
        Then::Over | Then::GivenUp => assert_eq!(asked.len(), 1, "{name}: {asked:?}"),
        Then::Again => assert!(asked.len() >= 2, "{name}: {asked:?}"),
    }
    if code == Some(BlockCode::ManyBudgets) {
        let methods: Vec<&str> = asked.iter().map(|it| it.method.as_str()).collect();
        assert_eq!(methods.last(), Some(&"DELETE"), "{name}: the server evicts no such pod: {methods:?}");
    }
    assert!(!script.was_asked_early(), "{name}: {asked:?}");
}

fn expect(
    name: &str,
    sim: &Sim,
    then: Then,
    code: Option<BlockCode>,
    outcome: &AttemptOutcome,
    codes: &BTreeSet<String>,
) {
    // Who is held by budgets follows them, and nobody else does; it is told a little later, if it still holds then.
    let by_budget = matches!(code, Some(BlockCode::Budget | BlockCode::ManyBudgets));
    let followed = sim.faults().count("GET", "/poddisruptionbudgets") > 0;
    assert_eq!(followed, by_budget, "{name}: {codes:?}");
    if by_budget {
        assert!(codes.iter().all(|it| it.contains("budget")), "{name}: {codes:?}");
    } else {
        assert_eq!(*codes, code.iter().map(|it| it.text().to_owned()).collect(), "{name}: {outcome:?}");
    }
    match (then, outcome) {
        (Then::GivenUp, Err(failure)) => {
            let reason = &failure.reason;
            assert!(reason.contains(&format!("shop/{POD}")), "{name}: {reason}");
            assert!(!reason.contains(&format!("shop/{OTHER}")), "{name}: {reason}");
            assert_eq!(names_on(sim, "n1"), [POD], "{name}: the other pod leaves all the same");
        }
        (Then::Over | Then::Again, Ok(_)) => {
            assert_eq!(names_on(sim, "n1"), Vec::<String>::new(), "{name}");
        }
        (_, outcome) => unreachable!("{name}: {outcome:?}"),
    }
}

async fn check_all(rows: Vec<Row>) {
    join_all(rows.into_iter().map(|row| async { check(cluster().await, row).await })).await;
}

/// The same pod again as another one, on the other node.
fn replaced(sim: &Sim) {
    assert!(sim.remove("pods", "shop", POD));
    sim.add_bare_pod("shop", POD, "n2");
}

#[tokio::test]
async fn d2_success_and_pods_that_are_no_longer_there_are_done() {
    let ending = |sim: &Sim| {
        let now = json!("2025-01-01T00:00:00Z");
        assert!(sim.edit("pods", "shop", POD, |pod| pod["metadata"]["deletionTimestamp"] = now));
    };
    let vanished = |sim: &Sim| assert!(sim.remove("pods", "shop", POD));
    let not_found = json!({ "reason": "NotFound", "message": "pods \"asked\" not found" });
    let other_uid = json!({ "reason": "Conflict", "message":
        "Operation cannot be fulfilled on Pod \"asked\": the UID in the precondition (1) does not match the UID in \
         record (2). The object might have been deleted and then recreated" });
    let rows: [(&'static str, How, Change); 4] = [
        ("201", status(201, "", &json!({ "status": "Success" })), ending),
        ("200 with a body that is no JSON", answer(200, "", "text/plain", "fine"), ending),
        ("404", status(404, "", &not_found), vanished),
        ("409 on the UID", status(409, "", &other_uid), replaced),
    ];
    join_all(rows.into_iter().map(|(name, how, change)| async move {
        let sim = cluster().await;
        let there = sim.clone();
        let row = Row::new(name, how, None, Then::Over);
        check(sim.clone(), Row { meanwhile: Box::new(move || change(&there)), ..row }).await;
        let elsewhere = names_on(&sim, "n2");
        assert_eq!(elsewhere.len(), usize::from(name.starts_with("409")), "{name}: {elsewhere:?}");
    }))
    .await;
}

#[tokio::test]
async fn d2_what_passes_is_asked_again_until_the_pod_leaves() {
    let conflict = json!({ "reason": "Conflict", "message": "the object has been modified" });
    let half =
        "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"kind\":";
    let html = "<html><body><h1>504 Gateway Time-out</h1></body></html>";
    let say = |code, message: &str| status(code, "", &json!({ "message": message }));
    let passing = |name, how| Row::passing(name, how, BlockCode::ApiTrouble);
    check_all(vec![
        passing("409 on the version", status(409, "", &conflict)),
        passing("500", say(500, "etcdserver: leader changed")),
        passing("503", say(503, "the server is currently unable to handle the request")),
        passing("504 of a proxy", answer(504, "", "text/html", html)),
        passing("the end in the middle of an answer", How::SayAndClose(half.to_owned())),
        passing("the end before an answer", How::SayAndClose(String::new())),
        passing("a reset", How::Reset),
        passing("silence", How::Silence),
    ])
    .await;
}

#[tokio::test]
async fn d2_budgets_load_admission_and_ending_namespaces_hold_a_pod_and_do_not_end_it() {
    let said = |message: &str| json!({ "message": message });
    let denied = said("admission webhook \"guard.example.com\" denied the request: not now");
    let policy = said(
        "pods \"asked\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no",
    );
    check_all(vec![
        Row::passing("a webhook's 400", status(400, "", &denied), BlockCode::Webhook),
        Row::passing("a webhook's 404", status(404, "", &denied), BlockCode::Webhook),
        Row::passing("a policy", status(422, "", &policy), BlockCode::Admission),
        Row::passing(
            "429 of a budget",
            with_cause(429, "TooManyRequests", "DisruptionBudget"),
            BlockCode::Budget,
        ),
        Row::passing(
            "429 without a cause",
            status(429, "", &said("too many requests")),
            BlockCode::Throttled,
        ),
        Row::passing(
            "403 of an ending namespace",
            with_cause(403, "Forbidden", "NamespaceTerminating"),
            BlockCode::NamespaceEnding,
        ),
    ])
    .await;
}

#[tokio::test]
async fn d2_two_budgets_hold_a_pod_until_both_have_been_claimed() {
    let sim = cluster().await;
    for name in ["first", "second"] {
        sim.add_budget("shop", name, POD, &json!({ "minAvailable": 0 }));
    }
    let two = status(500, "", &json!({ "message": TWO_BUDGETS }));
    let row = Row::passing("500 for two budgets", two, BlockCode::ManyBudgets);
    check(sim.clone(), row).await;
    // A claim on each; one that met a change of the budget's status is made again.
    for name in ["first", "second"] {
        assert!(sim.faults().count("PUT", &format!("/poddisruptionbudgets/{name}/status")) > 0, "{name}");
    }
}

#[tokio::test]
async fn d2_only_what_a_person_must_mend_ends_a_pod_and_its_drain_fails_with_its_name() {
    let refused = json!({ "reason": "Forbidden", "message": "pods \"asked\" is forbidden: User \"u\" cannot create resource" });
    let unknown = json!({ "reason": "Unauthorized", "message": "Unauthorized" });
    check_all(vec![
        Row::new("401", status(401, "", &unknown), Some(BlockCode::Unauthorized), Then::GivenUp),
        Row::new("403", status(403, "", &refused), Some(BlockCode::Refused), Then::GivenUp),
    ])
    .await;
}

#[tokio::test]
async fn d3_no_pod_is_asked_again_before_the_time_that_the_server_named() {
    let busy = json!({ "message": "too many requests" });
    let starting = json!({ "message": "starting", "details": { "retryAfterSeconds": 3 } });
    check_all(vec![
        Row::passing("429 with the header", status(429, "retry-after: 3\r\n", &busy), BlockCode::Throttled)
            .after(3),
        Row::passing(
            "429 with the header and no Status",
            answer(429, "Retry-After: 3\r\n", "text/plain", "Too many requests, please try again later."),
            BlockCode::Throttled,
        )
        .after(3),
        Row::passing("503 with it in the Status", status(503, "", &starting), BlockCode::ApiTrouble).after(3),
    ])
    .await;
}

#[tokio::test]
async fn d2_a_refused_connection_passes() {
    let sim = cluster().await;
    let server = sim.serve().await.unwrap();
    // A port that nobody listens on, as its listener is gone.
    let nobody = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let client = |url: String| {
        let mut config = Config::new(url.parse().unwrap());
        config.default_retry = false;
        Client::try_from(config).unwrap()
    };
    let (there, gone) = (client(server.url()), client(format!("http://{nobody}")));
    let refused = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&refused);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_it = request.uri().path().ends_with(&format!("/pods/{POD}/eviction"));
        let to = if is_it && !seen.swap(true, Ordering::SeqCst) { gone.clone() } else { there.clone() };
        async move { to.send(request).await }
    });
    let (outcome, codes) = emptied(&ApiClient::from_client(Client::new(service, "default"))).await;
    assert!(refused.load(Ordering::SeqCst));
    expect("refused", &sim, Then::Again, Some(BlockCode::ApiTrouble), &outcome, &codes);
    assert_eq!(sim.faults().count("POST", &format!("/pods/{POD}/eviction")), 1);
}
