//! Hooks that tell it elsewhere: real programs, called with what happened, and nothing waits for them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use agent::device::hooks::{FOLDER, HookStage};
use agent::{AgentContext, Clock};
use kubeapi::connect::webhook::Webhook;
use kubeapi::{NodeName, OwnNode};
use pubsub::{TopicRoot, store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use topics::{GoTime, RequestId, Requester};

use super::super::events::HOURLY;
use super::super::notices::{Notice, NoticeKind};
use super::super::notify::HookNotifier;
use super::super::{QUEUE, ReportListener};

fn notice(kind: NoticeKind, is_new: bool) -> Notice {
    let id = RequestId { by: Requester::DeviceOp, at: "2026-03-14T09:30:00Z".parse().unwrap() };
    Notice { kind, id, subject: String::new(), message: "pod shop/web-0: $(reboot)\nno".to_owned(), is_new }
}

fn notifier(topic_root: &TopicRoot, notices: &[Notice], webhook: Option<Webhook>) -> HookNotifier {
    let own_node = OwnNode::default();
    own_node.set(NodeName::parse("n1").unwrap(), "u1".to_owned());
    let (_stopper, context) = AgentContext::alone(topic_root, Clock::new(), "b1");
    let (outbox, inbox) = mpsc::channel(notices.len().max(1));
    for it in notices {
        outbox.try_send((it.clone(), "2026-03-14T09:41:00Z".parse::<GoTime>().unwrap())).unwrap();
    }
    HookNotifier::new(&context, &own_node, inbox, webhook)
}

/// What the hook `script` has written, once it was told all of `notices`.
async fn calls_of(script: &str, notices: &[Notice]) -> String {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(FOLDER).join(HookStage::Notify.folder()).join("10-mail");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let said = root.path().join("said");
    let said_in = said.display().to_string();
    store::replace(&path, format!("#!/bin/sh\nsaid={said_in}\n{script}\n").as_bytes()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    let mut notifier = notifier(&TopicRoot::open(root.path()).unwrap(), notices, None);
    notifier.limit = Duration::from_millis(500);
    notifier.run().await;
    fs::read_to_string(said).unwrap_or_default()
}

#[tokio::test]
async fn x3_a_hook_is_told_what_happened_and_nothing_that_was_found_at_the_start() {
    let script = r#"echo "$1 $ZEDBOX_HOOK_EVENT $ZEDBOX_HOOK_SEVERITY $ZEDBOX_HOOK_NODE $ZEDBOX_HOOK_OPERATION $ZEDBOX_HOOK_AT [$ZEDBOX_HOOK_MESSAGE]" >> $said"#;
    let said =
        calls_of(script, &[notice(NoticeKind::Started, false), notice(NoticeKind::Blocked, true)]).await;
    assert_eq!(
        said,
        "run DrainBlocked warning n1 device 2026-03-14T09:41:00Z [pod shop/web-0: $(reboot)\nno]\n"
    );
}

#[tokio::test]
async fn x3_a_notice_is_posted_too_and_a_gateway_that_refuses_holds_nothing_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/s3cr3t", listener.local_addr().unwrap());
    let gateway = async {
        let mut bodies = Vec::new();
        for answer in ["500 no", "200 OK"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = Vec::new();
            while !heard.ends_with(b"}") {
                heard.push(stream.read_u8().await.unwrap());
            }
            let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            let text = String::from_utf8(heard).unwrap();
            bodies.push(text.split_once("\r\n\r\n").unwrap().1.to_owned());
        }
        bodies
    };
    let root = tempfile::tempdir().unwrap();
    let kinds = [(NoticeKind::Started, false), (NoticeKind::Blocked, true), (NoticeKind::Complete, true)];
    let notices = kinds.map(|(kind, is_new)| notice(kind, is_new));
    let topic_root = TopicRoot::open(root.path()).unwrap();
    let notifier = notifier(&topic_root, &notices, Some(address.parse().unwrap()));
    let (bodies, ()) = tokio::join!(gateway, notifier.run());
    let text = |kind: &str| format!(r#"{{"text":"n1 {kind}: pod shop/web-0: $(reboot)\nno"}}"#);
    assert_eq!(bodies, [text("DrainBlocked"), text("DrainComplete")]);
}

#[test]
fn x3_what_a_gateway_that_never_answers_keeps_waiting_is_left_out_and_events_are_told_all_the_same() {
    let (hooks, waiting) = mpsc::channel(QUEUE);
    let (notices, events) = mpsc::channel(100);
    let listener = ReportListener {
        clock: Clock::new(),
        published: watch::Sender::default().subscribe(),
        totals: watch::Sender::default(),
        told: watch::Sender::default().subscribe(),
        notices: Some(notices),
        hooks,
        stalls: watch::Sender::new(false),
    };
    for _ in 0..100 {
        listener.say(notice(NoticeKind::Blocked, true), GoTime::default());
    }
    assert_eq!((waiting.len(), events.len()), (16, 100));
}

#[tokio::test]
async fn x3_one_that_fails_hangs_or_prints_megabytes_is_told_the_next_thing_all_the_same() {
    let two = [notice(NoticeKind::Blocked, true), notice(NoticeKind::Complete, true)];
    for bad in ["exit 3", "sleep 1000", "head -c 3000000 /dev/zero"] {
        let said = calls_of(&format!("echo $ZEDBOX_HOOK_EVENT >> $said; {bad}"), &two).await;
        assert_eq!(said, "DrainBlocked\nDrainComplete\n", "{bad}");
    }
}

#[tokio::test]
async fn x3_no_more_is_told_in_an_hour_than_the_events_may_be_and_ends_have_room() {
    let mut many = vec![notice(NoticeKind::Blocked, true); 2 * HOURLY];
    many.push(notice(NoticeKind::Complete, true));
    let said = calls_of("echo $ZEDBOX_HOOK_EVENT >> $said", &many).await;
    let blocked = said.lines().filter(|it| *it == "DrainBlocked").count();
    assert!(blocked < HOURLY && blocked > 0, "{blocked}");
    assert_eq!(said.lines().last(), Some("DrainComplete"));
}
