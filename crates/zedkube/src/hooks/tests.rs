//! Real programs, called, cut off, undone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use agent::{Clock, Inbox, Stopper};
use pubsub::{TopicRoot, store};
use topics::GoTime;

use super::*;

struct Device {
    root: tempfile::TempDir,
    hooks: DrainHooks,
    outbox: Outbox<Event>,
    inbox: Inbox<Event>,
    _stopper: Stopper,
}

impl Device {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let (outbox, inbox) = agent::inbox();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let (stopper, context) = AgentContext::alone(&topic_root, Clock::new(), "b1");
        let hooks = DrainHooks {
            context,
            own_node: OwnNode::default(),
            limit: Duration::from_secs(20),
            tries: (2, Duration::ZERO),
            calling: Arc::default(),
        };
        Self { root, hooks, outbox, inbox, _stopper: stopper }
    }

    /// A hook that writes down its call, and then does this.
    fn put(&self, stage: HookStage, name: &str, script: &str) -> std::path::PathBuf {
        let path = self.root.path().join(hooks::FOLDER).join(stage.folder()).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let said = self.root.path().join("said");
        store::replace(
            &path,
            format!("#!/bin/sh\necho \"{name} $1\" >> {}\n{script}\n", said.display()).as_bytes(),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    fn said(&self) -> Vec<String> {
        let path = self.root.path().join("said");
        let all = fs::read_to_string(&path).unwrap_or_default();
        if !all.is_empty() {
            fs::remove_file(path).unwrap();
        }
        all.lines().map(str::to_owned).collect()
    }

    async fn events(&mut self) -> Vec<Event> {
        let mut all = Vec::new();
        loop {
            tokio::select! {
                biased;
                event = self.inbox.recv() => all.extend(event),
                () = std::future::ready(()) => return all,
            }
        }
    }

    async fn before(&mut self) -> (bool, Vec<Event>) {
        let called = self.hooks.before_drain(7, &request(), &self.outbox).await;
        (called, self.events().await)
    }

    /// Another run of the agent in this boot, or in another one.
    fn again(&mut self, boot_id: &str) {
        self.hooks.context.boot_id = boot_id.to_owned();
        self.hooks.calling = Arc::default();
    }

    fn left(&self) -> (bool, bool) {
        let [Event::HooksLeft { in_place, after_boot }, _] = self.hooks.left() else {
            panic!("something else")
        };
        (in_place, after_boot)
    }
}

fn request() -> NodeDrainRequest {
    NodeDrainRequest {
        requested_at: GoTime::ZERO,
        requested_by: Requester::DeviceOp,
        context: "reboot".to_owned(),
    }
}

fn ends(events: &[Event]) -> Option<&Result<(), String>> {
    events.iter().find_map(|it| if let Event::Hooked(7, result) = it { Some(result) } else { None })
}

#[tokio::test]
async fn u9_without_hooks_nothing_is_said_and_nothing_is_written() {
    let mut device = Device::new();
    assert_eq!(device.before().await, (false, Vec::new()));
    assert_eq!(device.left(), (false, false));
    assert!(!device.root.path().join("persist").exists());
}

#[tokio::test]
async fn u9_each_is_called_once_and_undone_once_the_last_one_first() {
    let mut device = Device::new();
    device.put(HookStage::BeforeDrain, "10-a", "");
    device.put(HookStage::BeforeDrain, "20-b.optional", "test \"$1\" = undo");
    let (called, events) = device.before().await;
    assert!(called && ends(&events) == Some(&Ok(())), "{events:?}");
    assert_eq!(device.said(), ["10-a run", "20-b.optional run"]);
    assert!(events.iter().any(|it| matches!(it, Event::HookNotes(all) if all[0].contains("20-b.optional"))));
    // The cordon that comes next, and one after a restart, call none.
    assert_eq!(device.before().await, (false, Vec::new()));
    device.again("b1");
    assert_eq!(device.left(), (true, true));
    assert_eq!(device.before().await, (false, Vec::new()));
    device.hooks.clone().undo(device.outbox.clone()).await;
    assert!(device.events().await.contains(&Event::HooksUndone));
    assert_eq!(device.said().first().map(String::as_str), Some("20-b.optional undo"));
    assert!(!device.left().0);
    // The next drain begins with the first.
    assert!(device.before().await.0);
    assert_eq!(device.said(), ["10-a run", "20-b.optional run"]);
}

#[tokio::test]
async fn u9_one_that_fails_is_called_again_and_undone_with_those_before_it() {
    let mut device = Device::new();
    device.put(HookStage::BeforeDrain, "10-a", "");
    device.put(HookStage::BeforeDrain, "20-b", "test \"$1\" = undo || { echo no backup >&2; exit 1; }");
    device.put(HookStage::BeforeDrain, "30-c", "");
    for calls in [["10-a run", "20-b run"].as_slice(), &["20-b run"]] {
        let (_, events) = device.before().await;
        let why = ends(&events).unwrap().as_ref().unwrap_err();
        assert!(why.contains("20-b") && why.ends_with("no backup"), "{why}");
        assert_eq!(device.said(), calls);
    }
    device.hooks.clone().undo(device.outbox.clone()).await;
    assert_eq!(device.said(), ["20-b undo", "10-a undo"]);
}

#[tokio::test]
async fn u9_one_that_was_cut_off_is_known_after_a_restart_and_one_that_was_removed_is_named() {
    let mut device = Device::new();
    let first = device.put(HookStage::BeforeDrain, "10-a", "");
    device.put(HookStage::BeforeDrain, "20-b", "test \"$1\" = undo || sleep 600");
    let begun = {
        let hooks = device.hooks.clone();
        let outbox = device.outbox.clone();
        async move { hooks.before_drain(7, &request(), &outbox).await }
    };
    let said = device.root.path().join("said");
    let both = async {
        while fs::read_to_string(&said).unwrap_or_default().lines().count() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = begun => panic!("it does not end"),
        () = both => {}
    }
    assert_eq!(device.said(), ["10-a run", "20-b run"]);
    device.again("b1");
    assert!(device.left().0);
    fs::remove_file(first).unwrap();
    device.events().await;
    device.hooks.clone().undo(device.outbox.clone()).await;
    assert_eq!(device.said(), ["20-b undo"]);
    let named =
        |it: &Event| matches!(it, Event::HookNotes(all) if all.iter().any(|it| it.contains("10-a is gone")));
    assert!(device.events().await.iter().any(named));
    assert!(!device.left().0);
}

#[tokio::test]
async fn u9_after_a_boot_nothing_is_undone_and_those_for_it_are_called_once_the_last_one_first() {
    let mut device = Device::new();
    device.put(HookStage::BeforeDrain, "10-a", "");
    device.put(HookStage::AfterBoot, "10-a", "test $ZEDBOX_HOOK_OPERATION = reboot");
    device.put(
        HookStage::AfterBoot,
        "20-b",
        "test -e $ZEDBOX_HOOK_STATE/tried || { touch $ZEDBOX_HOOK_STATE/tried; exit 1; }",
    );
    assert!(device.before().await.0);
    device.said();
    device.again("b2");
    assert_eq!(device.left(), (false, true));
    device.hooks.clone().after_boot(device.outbox.clone()).await;
    assert_eq!(device.said(), ["20-b run", "20-b run", "10-a run"]);
    assert_eq!(device.left(), (false, false));
    device.hooks.clone().undo(device.outbox.clone()).await;
    assert_eq!(device.said(), [""; 0]);
}

#[tokio::test]
async fn u9_what_cannot_be_trusted_or_read_stops_the_drain_with_its_reason() {
    let mut device = Device::new();
    let path = device.put(HookStage::BeforeDrain, "10-a", "");
    let folder = path.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let (called, events) = device.before().await;
    assert!(
        called && ends(&events).unwrap().as_ref().unwrap_err().contains("written by others"),
        "{events:?}"
    );
    assert_eq!(device.said(), [""; 0]);
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    fs::create_dir_all(device.root.path().join("persist/status/zedkube")).unwrap();
    store::replace(&device.root.path().join("persist/status/zedkube/hooks.json"), b"{").unwrap();
    let (_, events) = device.before().await;
    assert!(ends(&events).unwrap().as_ref().unwrap_err().contains("remove it"), "{events:?}");
}
