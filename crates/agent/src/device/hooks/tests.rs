//! Which files are called, and that whatever a hook does ends within its limit.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Instant;

use pubsub::store;

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

struct Device {
    root: tempfile::TempDir,
    topic_root: TopicRoot,
}

impl Device {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        Self { root, topic_root }
    }

    fn path(&self, stage: HookStage, name: &str) -> PathBuf {
        self.root.path().join(FOLDER).join(stage.folder()).join(name)
    }

    fn put(&self, stage: HookStage, name: &str, script: &str) -> PathBuf {
        let path = self.path(stage, name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        store::replace(&path, format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    fn names(&self, stage: HookStage) -> Vec<String> {
        find(&self.topic_root, stage).unwrap().hooks.into_iter().map(|it| it.name).collect()
    }

    fn hook(&self, name: &str) -> Hook {
        Hook::named(&self.topic_root, HookStage::BeforeDrain, name).unwrap()
    }

    async fn call(&self, name: &str, limit: Duration) -> Result<(), String> {
        self.hook(name).call(&self.topic_root, HookVerb::Run, &About::default(), limit).await
    }
}

#[test]
fn u9_hooks_are_called_by_name_and_after_a_boot_the_other_way_round() {
    let device = Device::new();
    for stage in [HookStage::BeforeDrain, HookStage::BeforeReboot, HookStage::AfterBoot] {
        assert_eq!(device.names(stage), [""; 0], "no folder is no hook");
        for name in ["30-c", "10-a", "20-b.optional"] {
            device.put(stage, name, "true");
        }
    }
    assert_eq!(device.names(HookStage::BeforeDrain), ["10-a", "20-b.optional", "30-c"]);
    assert_eq!(device.names(HookStage::BeforeReboot), ["10-a", "20-b.optional", "30-c"]);
    assert_eq!(device.names(HookStage::AfterBoot), ["30-c", "20-b.optional", "10-a"]);
    assert!(device.hook("10-a").is_blocking() && !device.hook("20-b.optional").is_blocking());
}

#[test]
fn u9_what_others_than_root_may_have_written_is_refused_by_name_and_the_rest_is_called() {
    let device = Device::new();
    let stage = HookStage::BeforeDrain;
    let mode = |name: &str, mode: u32| {
        let path = device.put(stage, name, "true");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    device.put(stage, "10-good", "true");
    mode("20-group", 0o770);
    mode("30-world", 0o702);
    mode("40-no-program", 0o600);
    symlink(device.path(stage, "10-good"), device.path(stage, "50-link")).unwrap();
    fs::create_dir(device.path(stage, "60-folder")).unwrap();
    device.put(stage, ".hidden", "true");
    device.put(stage, "70 blank", "true");
    let found = find(&device.topic_root, stage).unwrap();
    assert_eq!(device.names(stage), ["10-good"]);
    for (name, why) in [
        ("20-group", "chmod go-w"),
        ("30-world", "chmod go-w"),
        ("40-no-program", "chmod u+x"),
        ("50-link", "links are not followed"),
        ("60-folder", "no plain file"),
        (".hidden", "expected a name"),
        ("70 blank", "expected a name"),
    ] {
        assert!(
            found.refused.iter().any(|it| it.contains(name) && it.contains(why)),
            "{name}: {:?}",
            found.refused
        );
    }
    assert_eq!(found.refused.len(), 7);
    // Gone, it is not called, and no other takes its place.
    fs::remove_file(device.path(stage, "10-good")).unwrap();
    let gone = Hook::named(&device.topic_root, stage, "10-good").unwrap_err();
    assert!(gone.contains("10-good is gone"), "{gone}");
}

#[test]
fn u9_a_hook_of_another_user_is_refused() {
    let device = Device::new();
    let path = device.put(HookStage::BeforeDrain, "10-theirs", "true");
    if std::os::unix::fs::chown(&path, Some(1234), None).is_err() {
        writeln!(io::stderr(), "skipped: only root may give a file away").unwrap();
        return;
    }
    let found = find(&device.topic_root, HookStage::BeforeDrain).unwrap();
    assert_eq!(found.hooks, []);
    assert!(found.refused[0].contains("belongs to user 1234"), "{:?}", found.refused);
}

#[test]
fn u9_a_folder_that_others_may_write_or_that_is_a_link_is_an_error_not_an_empty_one() {
    let device = Device::new();
    device.put(HookStage::BeforeDrain, "10-good", "true");
    let folder = device.root.path().join(FOLDER).join("before-drain.d");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = find(&device.topic_root, HookStage::BeforeDrain).unwrap_err();
    assert!(refused.contains("before-drain.d can be written by others than root"), "{refused}");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    for above in ["etc", "etc/zedbox", FOLDER] {
        let path = device.root.path().join(above);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o775)).unwrap();
        let refused = find(&device.topic_root, HookStage::BeforeDrain).unwrap_err();
        assert!(refused.contains(&format!("{above} can be written by others than root")), "{refused}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(find(&device.topic_root, HookStage::BeforeDrain).unwrap().hooks.len(), 1);
    let elsewhere = device.root.path().join("elsewhere");
    fs::rename(&folder, &elsewhere).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    let refused = find(&device.topic_root, HookStage::BeforeDrain).unwrap_err();
    assert!(refused.contains("before-drain.d is no directory"), "{refused}");
}

#[tokio::test]
async fn u9_a_hook_knows_what_it_is_called_for_and_nothing_of_the_agents_environment() {
    let device = Device::new();
    device.put(
        HookStage::BeforeDrain,
        "10-env",
        "echo \"$1 $(pwd)\" > $ZEDBOX_HOOK_STATE/said; env >> $ZEDBOX_HOOK_STATE/said",
    );
    let about = About {
        operation: "reboot".into(),
        node: "n1".into(),
        request: "DeviceOp 2026-03-14T09:08:00Z".into(),
        reason: "a\0b\nc".into(),
        attempt: 2,
        boot_id: "b1".into(),
    };
    device.hook("10-env").call(&device.topic_root, HookVerb::Undo, &about, LIMIT).await.unwrap();
    let state = device.root.path().join(STATE).join("10-env");
    let said = fs::read_to_string(state.join("said")).unwrap();
    for line in [
        "undo /",
        "ZEDBOX_HOOK_STAGE=before-drain",
        "ZEDBOX_HOOK_OPERATION=reboot",
        "ZEDBOX_HOOK_NODE=n1",
        "ZEDBOX_HOOK_REQUEST=DeviceOp 2026-03-14T09:08:00Z",
        "ZEDBOX_HOOK_REASON=a b",
        "ZEDBOX_HOOK_ATTEMPT=2",
        "ZEDBOX_HOOK_BOOT=b1",
    ] {
        assert!(said.lines().any(|it| it == line), "{line}: {said}");
    }
    assert!(!said.contains("CARGO"), "{said}");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn u9_a_hook_that_fails_says_why_and_one_that_prints_megabytes_harms_nobody() {
    let device = Device::new();
    device.put(HookStage::BeforeDrain, "10-fails", "echo 'no backup since Monday' >&2; exit 3");
    let why = device.call("10-fails", LIMIT).await.unwrap_err();
    assert!(why.starts_with("hook ") && why.contains("10-fails run ended with exit status: 3"), "{why}");
    assert!(why.contains("no backup since Monday"), "{why}");
    device.put(HookStage::BeforeDrain, "20-says", "echo 'nobody is home'; exit 1");
    let why = device.call("20-says", LIMIT).await.unwrap_err();
    assert!(why.ends_with("nobody is home"), "{why}");
    let megabytes = "head -c 3000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' y >&2";
    device.put(HookStage::BeforeDrain, "30-loud", megabytes);
    device.call("30-loud", LIMIT).await.unwrap();
    device.put(HookStage::BeforeDrain, "40-loud", &format!("{megabytes}; exit 1"));
    let why = device.call("40-loud", LIMIT).await.unwrap_err();
    assert!(why.len() < 600 && why.contains("exit status: 1: yyy"), "{why}");
    let path = device.put(HookStage::BeforeDrain, "50-none", "");
    store::replace(&path, b"#!/no/such/shell\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    let why = device.call("50-none", LIMIT).await.unwrap_err();
    assert!(why.contains("cannot be run"), "{why}");
}

#[tokio::test]
async fn u9_a_hook_that_was_just_written_is_tried_again_until_nobody_holds_it_open() {
    let device = Device::new();
    let path = device.put(HookStage::BeforeDrain, "10-new", "exit 0");
    let mut writing = Some(fs::OpenOptions::new().append(true).open(&path).unwrap());
    let let_go = async {
        tokio::task::yield_now().await;
        writing.take();
    };
    let (done, ()) = tokio::join!(device.call("10-new", LIMIT), let_go);
    done.unwrap();
}

#[tokio::test]
async fn u9_a_hook_that_hangs_is_ended_by_its_limit_with_all_that_it_has_started() {
    let device = Device::new();
    let pids = device.root.path().join("pids");
    let script =
        format!("echo $$ >> {0}; (echo $$; exec sleep 600) & echo $! >> {0}; sleep 600", pids.display());
    device.put(HookStage::BeforeDrain, "10-hangs", &script);
    #[expect(clippy::disallowed_methods, reason = "the hook is real, and so is its time")]
    let begun = Instant::now();
    let why = device.call("10-hangs", Duration::from_secs(1)).await.unwrap_err();
    assert!(why.contains("did not end within 1 s and was killed"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    // All of them were sent a signal by now; on a busy machine it takes effect a little later.
    for pid in fs::read_to_string(pids).unwrap().lines() {
        let is_left = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !(stat.is_empty() || stat.contains(" Z ") || stat.contains(" X "))
        };
        let gone = async {
            while is_left() {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(5), gone).await.is_ok(), "{pid} is left");
    }
}
