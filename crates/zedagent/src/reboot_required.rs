//! A file by which the OS says that it wants a reboot, as Debian's `/run/reboot-required`: while it is there, the order that
//! `zedbox reboot` writes is there too, and everything follows as from a person's.
//!
//! Off without a path. Ordered once for each content of a file, so that what a person withdraws stays withdrawn, also when
//! zedagent starts again; and only in a cluster: elsewhere nothing would be drained. Not here: when the drain may start (windows, turns, pauses).

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use agent::{AgentContext, wire};
use pubsub::{FileRule, FileState, store};
use topics::{DEVICE_ORDER, DeviceOp, DeviceOrder, EdgeNodeClusterConfig, go_json};
use tracing::{info, warn};

/// Who orders it, as status and history show it.
const BY: &str = "OS";
/// The boot and the file for which a reboot was ordered: its inode and what it said.
const ORDERED: &str = "run/zedbox/reboot-required";
/// While the order waits for the device config to name a cluster, or cannot be written.
const LOOK: Duration = Duration::from_secs(5);
/// Only root's word counts.
const RULE: FileRule = FileRule { limit_bytes: 64 << 10, order: true };
const LIMIT_BYTES: u64 = RULE.limit_bytes + 4096;

/// Never ends. Dropping it leaves the order as it is.
pub(crate) async fn follow(context: AgentContext, path: PathBuf) {
    let mut file = context.topic_root.file(&path, RULE);
    let (mut wanted, mut wrong) = (None, String::new());
    loop {
        let due = wanted.is_some().then(|| context.clock.now() + LOOK);
        tokio::select! {
            state = file.next() => {
                // Where the file outlives a boot, that boot was the reboot.
                let booted = SystemTime::from(context.clock.booted_at().to_timestamp());
                let is_of_boot = file.author().is_some_and(|it| it.written >= booted);
                let inode = file.author().map_or(0, |it| it.inode);
                wanted = None;
                match state {
                    FileState::Present(text) if is_of_boot => {
                        let id = format!("{} {inode} ", context.boot_id);
                        wanted = Some([id.as_bytes(), &text].concat());
                    }
                    FileState::Present(_) => info!("{} is older than this boot: no reboot", path.display()),
                    FileState::Bad(it) => warn!("no reboot by {}: {}", path.display(), it.reason),
                    FileState::Absent => {}
                }
            }
            () = context.clock.sleep_until(due), if due.is_some() => {}
        }
        let done = match &wanted {
            Some(file) => order(&context, &path, file),
            None => withdraw(&context),
        };
        if done == Ok(true) {
            wanted = None;
        }
        let why = done.err().unwrap_or_default();
        if why != wrong && !why.is_empty() {
            warn!("the reboot that {} asks for: {why}", path.display());
        }
        wrong = why;
    }
}

fn now_ordered(context: &AgentContext) -> Result<Option<DeviceOrder>, String> {
    let bytes = store::read(&context.topic_root.path(DEVICE_ORDER), LIMIT_BYTES);
    let bytes = bytes.map_err(|it| step::chain(&it))?.unwrap_or_default();
    // What makes no sense is nobody's order; zedagent names it.
    Ok(go_json::from_slice::<DeviceOrder>(&bytes).ok().filter(|it| it.boot_id == context.boot_id))
}

/// Whether there was an order, of a person or of ours, since the file is there.
fn order(context: &AgentContext, path: &std::path::Path, file: &[u8]) -> Result<bool, String> {
    let [place, ordered] = [DEVICE_ORDER, ORDERED].map(|it| context.topic_root.path(it));
    let before = store::read(&ordered, LIMIT_BYTES).map_err(|it| step::chain(&it))?;
    if before.as_deref() == Some(file) {
        return Ok(true);
    }
    let note = || store::replace(&ordered, file).map(|()| true).map_err(|it| step::chain(&it));
    if now_ordered(context)?.is_some() {
        return note();
    }
    let config = wire::peek::<EdgeNodeClusterConfig>(&context.topic_root, "zedagent", wire::GLOBAL);
    match config.map_err(|it| step::chain(&it))?.and_then(|it| it.member()) {
        Some(true) => {}
        None => return Ok(false),
        Some(false) => {
            return Err(
                "nothing would be drained, as the device config names no cluster: zedbox setup".into()
            );
        }
    }
    let order = DeviceOrder {
        op: DeviceOp::Reboot,
        boot_id: context.boot_id.clone(),
        ordered_at: context.clock.wall(),
        reason: format!("{} is there", path.display()),
        by: BY.to_owned(),
    };
    let bytes = go_json::to_vec(&order).map_err(|it| step::chain(&it))?;
    store::replace(&place, &bytes).map_err(|it| step::chain(&it))?;
    note()
}

fn withdraw(context: &AgentContext) -> Result<bool, String> {
    let ours = now_ordered(context)?.is_some_and(|it| it.by == BY);
    for file in [DEVICE_ORDER, ORDERED].iter().skip(usize::from(!ours)) {
        store::remove(&context.topic_root.path(file)).map_err(|it| step::chain(&it))?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::Clock;
    use pubsub::TopicRoot;
    use std::fs::{File, remove_file};

    struct Node {
        root: tempfile::TempDir,
        context: AgentContext,
        _stopper: agent::Stopper,
    }

    impl Node {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let topic_root = TopicRoot::open(root.path()).unwrap();
            let (stopper, context) = AgentContext::alone(&topic_root, Clock::new(), "b1");
            Self { root, context, _stopper: stopper }
        }

        fn path(&self) -> PathBuf {
            self.root.path().join("run/reboot-required")
        }

        fn put(&self, path: &str, text: &str) {
            store::replace(&self.root.path().join(path), text.as_bytes()).unwrap();
        }

        fn member(&self, valid: bool) {
            let config =
                EdgeNodeClusterConfig { initialized: true, valid, ..EdgeNodeClusterConfig::default() };
            let bytes = go_json::to_vec(&config).unwrap();
            let path =
                wire::path::<EdgeNodeClusterConfig>(&self.context.topic_root, "zedagent", wire::GLOBAL);
            store::replace(&path, &bytes).unwrap();
        }

        fn ordered(&self) -> Option<String> {
            now_ordered(&self.context).unwrap().map(|it| it.words())
        }

        async fn later(&self) {
            self.context.clock.sleep_until(Some(self.context.clock.now() + LOOK / 5)).await;
        }

        async fn until(&self, wanted: Option<&str>) {
            while self.ordered().as_deref() != wanted {
                self.later().await;
            }
        }

        /// Until the file was looked at again and again, and nothing came of it.
        async fn stays(&self, wanted: Option<&str>) {
            for _ in 0..20 {
                self.later().await;
                assert_eq!(self.ordered().as_deref(), wanted);
            }
        }
    }

    async fn on(node: &Node, course: impl Future<Output = ()>) {
        let follow = follow(node.context.clone(), node.path());
        tokio::select! {
            () = follow => unreachable!(),
            it = tokio::time::timeout(Duration::from_mins(10), course) => it.unwrap(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn x3_a_file_of_the_os_is_an_order_to_reboot_in_a_cluster_and_is_withdrawn_with_it() {
        let node = Node::new();
        let ours = format!("operator OS: {} is there", node.path().display());
        on(&node, async {
            node.put("run/reboot-required", "*** System restart required ***\n");
            node.stays(None).await;
            node.member(true);
            node.until(Some(&ours)).await;
            remove_file(node.path()).unwrap();
            node.until(None).await;
            // A person's word goes before it, both ways.
            node.put("run/reboot-required", "again");
            node.until(Some(&ours)).await;
            store::remove(&node.root.path().join(DEVICE_ORDER)).unwrap();
            node.stays(None).await;
        })
        .await;
        // Nor does it come back when zedagent starts again, but for another file.
        on(&node, async {
            node.stays(None).await;
            remove_file(node.path()).unwrap();
            node.stays(None).await;
            node.put("run/reboot-required", "again");
            node.until(Some(&ours)).await;
            store::remove(&node.root.path().join(DEVICE_ORDER)).unwrap();
            let person = r#"{"Op":"reboot","BootID":"b1","OrderedAt":"2026-03-14T09:41:00Z","Reason":"fan","By":"root"}"#;
            node.put(DEVICE_ORDER, person);
            let person = node.ordered();
            assert_eq!(person.as_deref(), Some("operator root: fan"));
            remove_file(node.path()).unwrap();
            node.stays(person.as_deref()).await;
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn x3_no_reboot_is_ordered_by_a_file_of_an_earlier_boot_or_on_a_node_in_no_cluster() {
        let node = Node::new();
        node.member(true);
        node.put("run/reboot-required", "");
        let before = node.context.clock.booted_at().to_timestamp() - Duration::from_secs(60);
        let file = File::options().write(true).open(node.path()).unwrap();
        file.set_modified(SystemTime::from(before)).unwrap();
        on(&node, node.stays(None)).await;
        let node = Node::new();
        node.member(false);
        node.put("run/reboot-required", "");
        on(&node, node.stays(None)).await;
    }
}
