//! Followers against a scripted server: what they report and what they request, on a paused clock.

use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use step::Mono;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::mock::{self, AfterLines, MockReply, RecordedCalls};
use crate::watch::{FollowNews, MARGIN, Manner, QUIET, SLOT, Update, WatchScope, follow, follow_in};

fn map(name: &str, version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": version}})
}

fn scope() -> WatchScope {
    WatchScope {
        what: "maps".to_owned(),
        path: "/api/v1/configmaps".to_owned(),
        fields: Some("metadata.name=a".to_owned()),
        labels: Some("app!=b".to_owned()),
    }
}

fn started(answers: Vec<MockReply>) -> (BoxStream<'static, Update<ConfigMap>>, RecordedCalls) {
    let (cluster, calls) = mock::cluster(answers);
    (follow(cluster, scope(), 7).boxed(), calls)
}

async fn hear(stream: &mut BoxStream<'static, Update<ConfigMap>>) -> String {
    let name = |map: ConfigMap| map.metadata.name.unwrap_or_default();
    match stream.next().await.unwrap() {
        Update::Listed(all) => {
            format!("listed {}", all.into_iter().map(name).collect::<Vec<_>>().join(" "))
        }
        Update::Put(map) => format!("put {}", name(map)),
        Update::Gone(map) => format!("gone {}", name(map)),
        Update::Trouble(error) => error.line(),
    }
}

const LIST: &str =
    "GET /api/v1/configmaps?&fieldSelector=metadata.name%3Da&labelSelector=app%21%3Db&limit=250";

fn watch_line(version: &str) -> String {
    format!(
        "GET /api/v1/configmaps?&watch=true&timeoutSeconds=30&fieldSelector=metadata.name%3Da\
         &labelSelector=app%21%3Db&allowWatchBookmarks=true&resourceVersion={version}"
    )
}

#[tokio::test(start_paused = true)]
async fn a_list_and_then_what_changes() {
    let lines = vec![
        mock::event("ADDED", &map("b", "6")),
        mock::event("MODIFIED", &map("b", "7")),
        mock::event("DELETED", &map("b", "8")),
    ];
    let (mut stream, calls) =
        started(vec![mock::list("5", &[map("a", "3")]), MockReply::Lines(lines, AfterLines::Silence)]);
    for expected in ["listed a", "put b", "put b", "gone b"] {
        assert_eq!(hear(&mut stream).await, expected);
    }
    assert_eq!(calls.lines(), [LIST.to_owned(), watch_line("5")]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_where_it_was() {
    let bookmark = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "9"}});
    let (mut stream, calls) = started(vec![
        mock::list("5", &[]),
        MockReply::Lines(vec![mock::event("ADDED", &map("b", "6"))], AfterLines::End),
        MockReply::Lines(vec![mock::event("BOOKMARK", &bookmark)], AfterLines::End),
        MockReply::Lines(vec![mock::event("ADDED", &map("c", "10"))], AfterLines::Silence),
    ]);
    for expected in ["listed ", "put b", "put c"] {
        assert_eq!(hear(&mut stream).await, expected);
    }
    assert_eq!(calls.lines(), [LIST.to_owned(), watch_line("5"), watch_line("6"), watch_line("9")]);
}

/// Its store may have been restored: what is lost is in no watch, also where its version is older, the same or newer.
#[tokio::test(start_paused = true)]
async fn t6_after_a_server_was_away_all_is_listed_again_and_one_that_is_busy_continues() {
    for version in ["4", "5", "50"] {
        let (mut stream, calls) = started(vec![
            mock::list("5", &[map("b", "5")]),
            MockReply::Lines(vec![], AfterLines::Cut),
            mock::list(version, &[map("a", "3")]),
            mock::status(429, "busy"),
            MockReply::Lines(vec![mock::event("ADDED", &map("c", "60"))], AfterLines::Silence),
        ]);
        assert_eq!(hear(&mut stream).await, "listed b");
        assert!(hear(&mut stream).await.contains("reset by peer"));
        assert_eq!(hear(&mut stream).await, "listed a", "{version}");
        assert!(hear(&mut stream).await.ends_with("429: busy"));
        assert_eq!(hear(&mut stream).await, "put c");
        let [again, busy] = [LIST.to_owned(), watch_line(version)];
        assert_eq!(calls.lines()[2..], [again, busy.clone(), busy]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_makes_no_sense_is_told_and_leads_to_a_new_list() {
    let mut odd = map("b", "6");
    odd["metadata"]["name"] = 7.into();
    let (mut stream, calls) = started(vec![
        mock::list("5", &[]),
        MockReply::Lines(vec![mock::event("ADDED", &odd)], AfterLines::Silence),
        mock::list("7", &[map("b", "7")]),
        MockReply::Lines(vec![], AfterLines::Silence),
    ]);
    assert_eq!(hear(&mut stream).await, "listed ");
    assert!(hear(&mut stream).await.contains("invalid type"));
    assert_eq!(hear(&mut stream).await, "listed b");
    assert_eq!(calls.lines(), [LIST.to_owned(), watch_line("5"), LIST.to_owned()]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_leads_to_a_new_list_however_it_is_said() {
    let gone =
        json!({"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired", "message": "old"});
    let said =
        [mock::status(410, "old"), MockReply::Lines(vec![mock::event("ERROR", &gone)], AfterLines::Silence)];
    for answer in said {
        let (mut stream, calls) = started(vec![
            mock::list("5", &[]),
            answer,
            mock::list("50", &[map("a", "40")]),
            MockReply::Lines(vec![], AfterLines::Silence),
        ]);
        assert_eq!(hear(&mut stream).await, "listed ");
        assert_eq!(hear(&mut stream).await, "listed a");
        assert_eq!(calls.lines(), [LIST.to_owned(), watch_line("5"), LIST.to_owned()]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_is_asked_anew() {
    let now = mock::clock();
    let (mut stream, calls) = started(vec![
        mock::list("5", &[]),
        MockReply::Lines(vec![], AfterLines::Silence),
        mock::list("6", &[map("a", "6")]),
    ]);
    assert_eq!(hear(&mut stream).await, "listed ");
    assert_eq!(hear(&mut stream).await, "listed a");
    assert!(now() <= Mono::START + SLOT + MARGIN + Duration::from_secs(1));
    assert_eq!(calls.lines().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_opened_is_given_up_and_asked_for_again() {
    let (mut stream, calls) = started(vec![mock::list("5", &[]), MockReply::Silence, mock::list("5", &[])]);
    assert_eq!(hear(&mut stream).await, "listed ");
    assert_eq!(hear(&mut stream).await, "watch maps: no answer within 30 s");
    assert_eq!(hear(&mut stream).await, "listed ");
    assert_eq!(calls.lines(), [LIST.to_owned(), watch_line("5"), LIST.to_owned()]);
}

#[tokio::test(start_paused = true)]
async fn d3_calls_that_fail_are_told_and_repeated_at_growing_distance() {
    let busy = MockReply::Full(429, vec![("retry-after", "20")], "busy".to_owned());
    let (mut stream, _) = started(vec![
        MockReply::Refused("refused"),
        mock::status(503, "starting"),
        busy,
        mock::list("5", &[]),
    ]);
    let now = mock::clock();
    let mut at = vec![];
    for expected in ["refused", "503: starting", "429: busy", "listed "] {
        let heard = hear(&mut stream).await;
        assert!(heard.ends_with(expected), "{heard}");
        at.push(now());
    }
    let waits: Vec<Duration> = at.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(waits[0] <= Duration::from_secs(1) && waits[0] >= Duration::from_millis(500), "{waits:?}");
    assert!(waits[1] <= Duration::from_secs(2), "{waits:?}");
    assert!(waits[2] >= Duration::from_secs(20), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_every_watch_at_once_is_not_asked_in_a_circle() {
    let mut answers = vec![mock::list("5", &[])];
    answers.extend((0..1000).map(|_| MockReply::Lines(vec![], AfterLines::End)));
    let (mut stream, calls) = started(answers);
    assert_eq!(hear(&mut stream).await, "listed ");
    assert!(timeout(Duration::from_secs(60), stream.next()).await.is_err());
    assert!(calls.lines().len() <= 122, "{}", calls.lines().len());
}

#[tokio::test(start_paused = true)]
async fn a_long_watch_without_even_a_bookmark_is_given_up_long_before_its_end() {
    let now = mock::clock();
    let (mut stream, _) = paged(vec![
        page("", &[map("a", "2")]),
        MockReply::Lines(vec![], AfterLines::Silence),
        page("", &[map("a", "1")]),
    ]);
    assert_eq!(news(&mut stream).await, "listed a");
    assert_eq!(news(&mut stream).await, "listed a");
    assert!(now() <= Mono::START + QUIET + Duration::from_secs(1), "{:?}", now());
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_in_time_and_say_nothing_are_no_sign_of_life() {
    // As of a server that was restored from a snapshot, as long as it is behind the version.
    let mut answers = vec![mock::list("500", &[])];
    let mut slots = Vec::new();
    for _ in 0..20 {
        let (slot, lines) = mpsc::unbounded_channel();
        slots.push(slot);
        answers.push(MockReply::Live(lines));
    }
    let (mut stream, calls) = started(answers);
    let ends = async {
        for slot in slots {
            sleep(Duration::from_secs(30)).await;
            drop(slot);
        }
    };
    let heard = async {
        assert_eq!(hear(&mut stream).await, "listed ");
        while calls.lines().iter().filter(|it| **it == LIST).count() < 2 {
            assert!(timeout(Duration::from_secs(1), stream.next()).await.is_err());
        }
    };
    let now = mock::clock();
    tokio::select! { () = ends => panic!("never listed again: {:?}", calls.lines()), () = heard => {} }
    assert!(now() <= Mono::START + QUIET + Duration::from_secs(2), "{:?}", now());
}

fn page(next: &str, maps: &[Value]) -> MockReply {
    mock::object(&json!({
        "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "5", "continue": next}, "items": maps,
    }))
}

fn paged(answers: Vec<MockReply>) -> (BoxStream<'static, FollowNews<ConfigMap>>, RecordedCalls) {
    let (cluster, calls) = mock::cluster(answers);
    let manner = Manner { slot: Duration::from_secs(240), page: 2, ..Manner::default() };
    let scope = WatchScope { fields: None, labels: None, ..scope() };
    (follow_in(cluster, scope, manner, 7).boxed(), calls)
}

async fn news(stream: &mut BoxStream<'static, FollowNews<ConfigMap>>) -> String {
    match stream.next().await.unwrap() {
        FollowNews::Recovered => "recovered".to_owned(),
        FollowNews::Update(heard) => hear(&mut futures::stream::iter([heard]).boxed()).await,
    }
}

const FIRST: &str = "GET /api/v1/configmaps?&limit=2";
const SECOND: &str = "GET /api/v1/configmaps?&limit=2&continue=more";

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_is_heard_as_one_and_the_watch_begins_at_the_version_of_the_first() {
    let later = json!({
        "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "9"}, "items": [map("c", "4")],
    });
    let (mut stream, calls) = paged(vec![
        page("more", &[map("a", "2"), map("b", "3")]),
        mock::object(&later),
        MockReply::Lines(vec![mock::event("ADDED", &map("d", "8"))], AfterLines::Silence),
    ]);
    assert_eq!(news(&mut stream).await, "listed a b c");
    assert_eq!(news(&mut stream).await, "put d");
    let watch =
        "GET /api/v1/configmaps?&watch=true&timeoutSeconds=240&allowWatchBookmarks=true&resourceVersion=5";
    assert_eq!(calls.lines(), [FIRST, SECOND, watch]);
}

#[tokio::test(start_paused = true)]
async fn pages_that_are_too_old_or_fail_are_asked_for_from_the_first_again() {
    for (failure, told) in [(mock::status(410, "old"), None), (mock::status(500, "no"), Some("500: no"))] {
        let (mut stream, calls) = paged(vec![
            page("more", &[map("a", "2"), map("b", "3")]),
            failure,
            page("", &[map("b", "6")]),
            MockReply::Lines(vec![], AfterLines::Silence),
        ]);
        if let Some(told) = told {
            let heard = news(&mut stream).await;
            assert!(heard.ends_with(told), "{heard}");
        }
        assert_eq!(news(&mut stream).await, "listed b");
        assert_eq!(calls.lines(), [FIRST, SECOND, FIRST]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_opens_again_after_trouble_says_so_once() {
    let (mut stream, _) = paged(vec![
        page("", &[map("a", "2")]),
        mock::status(429, "busy"),
        MockReply::Lines(vec![], AfterLines::End),
        MockReply::Lines(vec![mock::event("ADDED", &map("b", "6"))], AfterLines::Silence),
    ]);
    assert_eq!(news(&mut stream).await, "listed a");
    assert!(news(&mut stream).await.ends_with("429: busy"));
    assert_eq!(news(&mut stream).await, "recovered");
    assert_eq!(news(&mut stream).await, "put b");
}
