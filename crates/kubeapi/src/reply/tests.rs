//! Answers, and what each means.

use serde_json::Value;

use super::*;
use crate::mock::{self, MockReply};

fn answer(code: u16, message: &str) -> ApiAnswer {
    ApiAnswer { code, message: message.to_owned(), ..ApiAnswer::default() }
}

fn with_cause(code: u16, reason: &str, message: &str) -> ApiAnswer {
    ApiAnswer { causes: vec![(reason.to_owned(), message.to_owned())], ..answer(code, "refused") }
}

#[test]
fn every_reply_of_d2_takes_its_class() {
    let two =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let ending =
        "pods \"a\" is forbidden: unable to create new content in namespace x because it is being terminated";
    let of_kind = |kind: &str| ApiAnswer { kind: kind.to_owned(), ..answer(403, "allowed is negative") };
    let by_code = |codes: &[u16], class| codes.iter().map(|code| (answer(*code, ""), class)).collect();
    let table: [Vec<(ApiAnswer, ReplyClass)>; 4] = [
        by_code(&[200, 201], ReplyClass::Done),
        by_code(&[408, 502, 503, 504], ReplyClass::Transient),
        by_code(&[400, 405, 422, 302], ReplyClass::Permanent),
        vec![
            (answer(404, "pods \"a\" not found"), ReplyClass::Done),
            (
                answer(409, "the UID in the precondition (1) does not match the UID in record (2)"),
                ReplyClass::Done,
            ),
            (
                answer(409, "Precondition failed: UID in precondition: 1, UID in object meta: 2"),
                ReplyClass::Done,
            ),
            (answer(409, "the object has been modified"), ReplyClass::Transient),
            (answer(410, "too old resource version: 1 (2)"), ReplyClass::Transient),
            (
                with_cause(429, "DisruptionBudget", "The disruption budget b needs 2 healthy pods"),
                ReplyClass::Budget,
            ),
            (
                answer(429, "Cannot evict pod as it would violate the pod's disruption budget."),
                ReplyClass::Budget,
            ),
            (with_cause(403, "DisruptionBudgetNegativeAllowedDisruptions", "negative"), ReplyClass::Budget),
            (with_cause(403, "DisruptionBudgetTooManyDisruptedPods", "map too big"), ReplyClass::Budget),
            (of_kind("poddisruptionbudget"), ReplyClass::Budget),
            (of_kind("poddisruptionbudgets"), ReplyClass::Permanent),
            (answer(429, "too many requests"), ReplyClass::Throttle),
            (
                with_cause(403, "NamespaceTerminating", "namespace x is being terminated"),
                ReplyClass::Transient,
            ),
            (answer(403, ending), ReplyClass::Transient),
            (answer(403, "pods \"a\" is forbidden"), ReplyClass::Permanent),
            (answer(403, "Forbidden"), ReplyClass::Permanent),
            (answer(500, two), ReplyClass::Budget),
            (answer(500, "etcdserver: request timed out"), ReplyClass::Transient),
            (answer(401, "Unauthorized"), ReplyClass::Permanent),
        ],
    ];
    for (given, class) in table.into_iter().flatten() {
        assert_eq!(classify(&given).class(), class, "{given:?}");
    }
}

#[test]
fn each_refusal_of_kubevirt_is_told_from_load_and_from_a_budget() {
    let denied = |text: &str| {
        let name = "virt-launcher-eviction-interceptor.kubevirt.io";
        classify(&answer(429, &format!("admission webhook \"{name}\" denied the request: {text}"))).word()
    };
    let rows = [
        ("VMI db is configured with an eviction strategy but is not live-migratable", "cannot-move"),
        ("Eviction triggered evacuation of VMI \"shop/db\"", "moving"),
        ("Evacuation in progress: Eviction triggered evacuation of VMI \"shop/db\"", "moving"),
        ("Eviction request for target Pod", "moving"),
        ("kubevirt failed getting the vmi: timeout", "api-trouble"),
    ];
    for (text, word) in rows {
        assert_eq!(denied(text), word, "{text}");
    }
    let hotplug = "admission webhook \"hotplug-pod-eviction-interceptor.kubevirt.io\" denied the request: cannot \
        evict hotplug pod: hp-volume-x associated with running vmi: db in namespace shop";
    assert_eq!(classify(&answer(429, hotplug)).word(), "moving");
    let other = "admission webhook \"own.example\" denied the request: not now";
    assert_eq!(classify(&answer(429, other)).word(), "denied");
}

#[test]
fn the_time_to_wait_comes_through_whatever_caused_it() {
    let wait = Some(Duration::from_secs(10));
    let throttled = ApiAnswer { retry_after: wait, ..answer(429, "busy") };
    let budget = ApiAnswer { retry_after: wait, ..with_cause(429, "DisruptionBudget", "b") };
    let starting = ApiAnswer { retry_after: wait, ..answer(503, "starting") };
    for given in [throttled, budget, starting] {
        assert_eq!(classify(&given).retry_after(), wait, "{given:?}");
    }
    assert_eq!(classify(&answer(429, "busy")).retry_after(), None);
}

#[test]
fn the_cause_is_part_of_what_is_said() {
    let given = ApiAnswer {
        reason: "TooManyRequests".to_owned(),
        ..with_cause(
            429,
            "DisruptionBudget",
            "The disruption budget web needs 2 healthy pods and has 2 currently",
        )
    };
    assert_eq!(
        classify(&given).text(),
        "429 TooManyRequests: refused: The disruption budget web needs 2 healthy pods and has 2 currently"
    );
}

#[test]
fn throttling_is_never_taken_for_an_unreachable_api() {
    let table = [
        (200, Reach::Reachable),
        (401, Reach::Reachable),
        (403, Reach::Reachable),
        (404, Reach::Reachable),
        (429, Reach::Throttled),
        (408, Reach::Unreachable),
        (500, Reach::Unreachable),
        (503, Reach::Unreachable),
        (504, Reach::Unreachable),
    ];
    for (code, expected) in table {
        assert_eq!(reach(&answer(code, "")), expected, "{code}");
    }
}

/// What real components answered, each row with its component and version.
const ANSWERS: &str = include_str!("../../../../tests/golden/answers.json");

#[tokio::test]
async fn t14_what_real_servers_answered_is_classed_by_who_says_it_whatever_the_code() {
    let rows: Vec<Value> = serde_json::from_str(ANSWERS).unwrap();
    assert!(rows.len() > 20, "{}", rows.len());
    for row in rows {
        let mut status = row["Status"].clone();
        (status["kind"], status["code"]) = ("Status".into(), row["Code"].clone());
        let code = u16::try_from(row["Code"].as_u64().unwrap()).unwrap();
        let headers = if row["RetryAfter"].is_null() { vec![] } else { vec![("retry-after", "10")] };
        let (cluster, _) = mock::cluster(vec![MockReply::Full(code, headers, status.to_string())]);
        let request = kube::core::Request::new("/api/v1/pods").get("a", &kube::api::GetParams::default());
        let error = cluster.order("ask", request).await.unwrap_err();
        let reply = error.reply();
        assert_eq!(reply.word(), row["Reply"], "{row}");
        let word = |by: &dyn std::fmt::Debug| format!("{by:?}").to_lowercase();
        let by = if let Reply::Denied { by, .. } = &reply {
            word(by)
        } else if let Reply::Permanent { by, .. } = &reply {
            word(by)
        } else {
            String::new()
        };
        assert_eq!(by, row["By"].as_str().unwrap_or_default(), "{row}");
        assert_eq!(reply.retry_after().map(|it| it.as_secs()), row["RetryAfter"].as_u64(), "{row}");
        let (denied, next) = (matches!(reply, Reply::Denied { .. }), error.next_step());
        assert_eq!(denied, next.contains("admission"), "{row}: {next}");
        assert_eq!(row["By"] == "role", next.contains("zedbox role"), "{row}: {next}");
        assert_eq!(row["Name"] == "etcd-full", next.contains("defrag"), "{row}: {next}");
    }
}

#[test]
fn what_the_server_has_to_ask_and_is_not_there_is_told_from_trouble_of_the_server() {
    let away =
        "Internal error occurred: failed calling webhook \"v.example\": failed to call webhook: no endpoints";
    let rows = [
        (500, away, true),
        (500, "Internal error occurred: etcdserver: leader changed", false),
        (503, "service unavailable\n", true),
        (503, "error trying to reach service: dial tcp 10.0.0.1:443: connect: connection refused", true),
        (503, "the server is currently unable to handle the request", false),
    ];
    for (code, message, expected) in rows {
        let reply = classify(&answer(code, message));
        assert_eq!(matches!(reply, Reply::Unanswered { .. }), expected, "{message}");
        assert_eq!((reply.class(), reply.word()), (ReplyClass::Transient, "api-trouble"), "{message}");
    }
}
