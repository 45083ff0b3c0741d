//! The words of the command, and the way of a value from a file to the topic.

use std::time::Duration;

use agent::Clock;

use super::*;

const NOW: &str = "2026-03-14T09:26:53Z";

fn value(words: [&str; 5]) -> Result<Handed, String> {
    let [device, component, status, version, error] = words;
    UpdateStatusArgs { device, component, status, version, error }.value(NOW.parse().unwrap())
}

#[test]
fn e4_the_words_say_the_references_values() {
    let number = |words| value(words).map(|it| it.map(|it| (it.component.number(), it.status.number())));
    for (nth, component) in
        ["other", "containerd", "k3s", "multus", "kubevirt", "cdi", "longhorn"].iter().enumerate()
    {
        let found = number(["n1", component, "completed", "5", ""]).unwrap().unwrap();
        assert_eq!((usize::from(found.0), found.1), (nth, 5), "{component}");
    }
    let statuses = ["other", "download", "download_failed", "in_progress", "failed", "completed"];
    for (nth, status) in statuses.iter().enumerate() {
        let found = number(["n1", "k3s", status, "5", ""]).unwrap().unwrap();
        assert_eq!((found.0, usize::from(found.1)), (2, nth), "{status}");
    }
    assert_eq!(value(["n1", "other", "other", "5", ""]), Ok(None));
    for bad in ["", "five", "5.0", "4294967296", "2147483648"] {
        assert!(value(["n1", "k3s", "completed", bad, ""]).is_err(), "{bad}");
    }
    let version =
        |text| value(["n1", "k3s", "completed", text, ""]).unwrap().unwrap().destination_kube_update_version;
    assert_eq!((version("2147483647"), version("-1")), (2_147_483_647, u32::MAX));
    // An error is for a failure alone; without one it is the whole command.
    let completed = value(["n1", "k3s", "completed", "5", "bad"]).unwrap().unwrap();
    assert_eq!((completed.error.as_str(), completed.error_time), ("", GoTime::ZERO));
    let failed = |error| value(["n1", "k3s", "failed", "5", error]).unwrap().unwrap();
    let (given, made) = (failed("no room"), failed(""));
    assert_eq!((given.error.as_str(), given.error_severity.number()), ("no room", 3));
    assert_eq!(given.error_time, NOW.parse().unwrap());
    assert_eq!(made.error, "pubKubeClusterUpdateStatus n1 k3s failed 5 ");
    let path = format!(
        "{}/../../tests/golden/KubeClusterUpdateStatus/k3s-inprogress.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let in_progress = value(["node-1", "k3s", "in_progress", "5", ""]).unwrap().unwrap();
    assert_eq!(go_json::to_vec(&in_progress).unwrap(), std::fs::read(path).unwrap());
}

/// A root, and the duty that runs in it for as long as `course` lasts.
async fn published(root: &Path, course: impl AsyncFnOnce(&Path)) {
    let topic_root = TopicRoot::open(root).unwrap();
    let (_stopper, context) = AgentContext::alone(&topic_root, Clock::new(), "b1");
    let troubles = Troubles::open(&topic_root, context.clock, NAME);
    tokio::select! {
        it = run(&context, &troubles) => panic!("it has ended: {it:?}"),
        () = course(root) => {}
    }
}

async fn until(what: &str, is: impl Fn() -> bool) {
    for _ in 0..2000 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("waited for {what}");
}

fn file(root: &Path) -> PathBuf {
    root.join("persist/status/zedagent/KubeClusterUpdateStatus/global.json")
}

fn component(root: &Path) -> Option<u8> {
    let bytes = std::fs::read(file(root)).ok()?;
    Some(go_json::from_slice::<KubeClusterUpdateStatus>(&bytes).unwrap().component.number())
}

#[tokio::test]
async fn e4_two_commands_at_once_both_succeed_and_all_is_published_in_its_order() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    // While no agent runs.
    let at_once: Vec<_> = (0..8)
        .map(|_| {
            let (root, value) = (root.to_owned(), value(["n1", "k3s", "download", "5", ""]).unwrap());
            std::thread::spawn(move || hand_over(&root, &value))
        })
        .collect();
    let mut paths: Vec<PathBuf> = at_once.into_iter().map(|it| it.join().unwrap().unwrap()).collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 8, "each has a file of its own");
    hand_over(root, &value(["n1", "cdi", "completed", "5", ""]).unwrap()).unwrap();
    let folder = name().dir(root);
    published(root, async |root| {
        until("the last one", || component(root) == Some(5)).await;
        until("no file", || numbers(&folder).unwrap().is_empty()).await;
        hand_over(root, &value(["n1", "longhorn", "completed", "5", ""]).unwrap()).unwrap();
        until("the next one", || component(root) == Some(6)).await;
        // What is no status is removed, and holds up nothing.
        store::create(&folder.join("0000000001.json"), b"{").unwrap();
        hand_over(root, &value(["n1", "k3s", "completed", "5", ""]).unwrap()).unwrap();
        until("the one after it", || component(root) == Some(2)).await;
    })
    .await;
    assert_eq!(component(root), Some(2), "it stays when the agent ends");
    hand_over(root, &value(["n1", "x", "x", "5", ""]).unwrap()).unwrap();
    published(root, async |root| until("nothing", || !file(root).exists()).await).await;
}

#[tokio::test]
async fn what_is_too_long_is_cut_and_what_cannot_be_published_holds_up_nothing() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    // Control characters have six bytes each in the file.
    let long = "\u{1}".repeat(TEXT_BYTES - 1) + &"é".repeat(70_000);
    let shortened = value([&long, "k3s", "failed", "5", &long]).unwrap().unwrap();
    assert_eq!((shortened.current_node.len(), shortened.error.len()), (TEXT_BYTES - 1, TEXT_BYTES - 1));
    let whole = value(["n1", &long, "failed", "5", ""]).unwrap().unwrap();
    assert!(whole.error.len() <= TEXT_BYTES && whole.error.starts_with(COMMAND));
    let folder = name().dir(root);
    std::fs::create_dir_all(folder.join("0000000001.json/in")).unwrap();
    let too_long = KubeClusterUpdateStatus { error: "x".repeat(60 << 10), ..shortened.clone() };
    for other in [Some(too_long), None, Some(shortened)] {
        hand_over(root, &other).unwrap();
    }
    store::replace(&folder.join("0000000005.json"), &vec![b' '; 65 << 10]).unwrap();
    published(root, async |root| {
        until("what fits", || component(root) == Some(2)).await;
        until("the directory alone", || numbers(&folder).unwrap().len() == 1).await;
        hand_over(root, &value(["n1", "cdi", "completed", "5", ""]).unwrap()).unwrap();
        until("the next one", || component(root) == Some(5)).await;
    })
    .await;
    assert!(folder.join("0000000001.json/in").is_dir());
}

#[tokio::test]
async fn a_backlog_is_published_one_by_one_and_others_run_in_between() {
    let root = tempfile::tempdir().unwrap();
    let folder = name().dir(root.path());
    for _ in 0..20 {
        hand_over(root.path(), &value(["n1", "k3s", "download", "5", ""]).unwrap()).unwrap();
    }
    published(root.path(), async |_| {
        let mut held = 20;
        while held > 0 {
            let now = numbers(&folder).unwrap().len();
            // Who of two is polled first is left to chance.
            assert!(now + 2 >= held, "{held}, then {now}");
            held = now;
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[test]
fn values_that_nobody_fetches_are_limited() {
    let root = tempfile::tempdir().unwrap();
    let folder = name().dir(root.path());
    std::fs::create_dir_all(&folder).unwrap();
    for number in 1..=MOST {
        std::fs::File::create(folder.join(format!("{number:0DIGITS$}.json"))).unwrap();
    }
    let refused = hand_over(root.path(), &None).unwrap_err();
    assert!(refused.contains("is zedkube running?"), "{refused}");
}
