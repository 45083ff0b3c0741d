//! Whole operations of one device, from the controller's order to a schedulable node, and what must hold at
//! their end, with any number of kills.

use std::collections::BTreeSet;
use std::time::Duration;

use agent::device::MachineOperation;
use serde_json::{Value, json};
use sheet::{DrainView, Judgement};
use topics::{BaseOsStatus, DrainStatus};

use crate::{World, reboot_config};

const CONTENT: &str = "5c1f6e0a-3a5e-4a80-9d6f-2b9f5d6e7a01";
const VERSION: &str = "14.5.1-lts-kubevirt-amd64";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Story {
    Reboot,
    Update,
}

impl Story {
    pub const ALL: [Self; 2] = [Self::Reboot, Self::Update];

    /// Runs it on `world`, in which no agent runs, and fails at any difference from an undisturbed run.
    /// Agents may be killed and restarted at any time.
    pub async fn play(self, world: &mut World) {
        world.limits["zedkube"]["proof_gap_ms"] = 50.into();
        world.start_all();
        world.status(DrainStatus::NotRequested).await;
        self.ask(world);
        world.recorded_count(1).await;
        // Never early: the node is drained when the device is asked.
        assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
        assert!(world.cluster.cordoned().await);
        // With any kill: our cordon was never removed, and nothing counts as executed before the boot.
        assert_eq!(world.cluster.uncordoned(), 0, "the node was uncordoned in mid-drain");
        let counter = world.text("persist/status/rebootConfig").unwrap();
        assert!(counter.contains("\"Counter\":6,"), "executed before the boot: {counter}");
        world.reboot().await;
        world.start_all();
        self.done(world).await;
        world.status(DrainStatus::NotRequested).await;
        world.cluster.until_schedulable().await;
        assert!(world.cluster.uncordoned() > 0, "how the cordon went was not seen");
        // Never twice. A device that is asked again in the same boot, because it is still up, gets the same order.
        let recorded = world.recorded();
        let boots: BTreeSet<&str> = recorded.iter().map(|it| it.boot_id.as_str()).collect();
        assert_eq!(boots.len(), 1, "{recorded:?}");
        assert!(recorded.iter().all(|it| it.operation == MachineOperation::Reboot), "{recorded:?}");
        assert_eq!(world.cluster.evicted_twice(), [""; 0]);
    }

    fn ask(self, world: &World) {
        match self {
            Self::Reboot => world.ask_reboot(7),
            Self::Update => {
                bring_image(world);
                world.config(&with_image(reboot_config(6)));
            }
        }
    }

    async fn done(self, world: &World) {
        match self {
            Self::Reboot => world.executed(7).await,
            Self::Update => {
                world
                    .has::<BaseOsStatus>("baseosmgr", "the new image to run", |it| {
                        it.activated && it.base_os_version == VERSION
                    })
                    .await;
            }
        }
    }
}

/// volumemgr's status of a downloaded image.
pub fn bring_image(world: &World) {
    let mut tree: Value =
        serde_json::from_str(include_str!("../golden/ContentTreeStatus/loaded.json")).unwrap();
    tree["ContentID"] = CONTENT.into();
    tree["DisplayName"] = VERSION.into();
    world.put(&format!("run/volumemgr/ContentTreeStatus/{CONTENT}.json"), &tree.to_string());
}

pub fn with_image(mut config: Value) -> Value {
    config["baseos"] = json!({ "contentTreeUuid": CONTENT, "activate": true, "baseOsVersion": VERSION });
    config
}

impl World {
    /// Starts all agents; at rest, the controller orders reboot 7.
    pub async fn begin(&mut self) {
        self.start_all();
        self.status(DrainStatus::NotRequested).await;
        self.ask_reboot(7);
    }

    /// The same with a budget that blocks the drain, up to the cordon.
    pub async fn begin_blocked(&mut self) {
        self.cluster.block().await;
        self.begin().await;
        self.status(DrainStatus::Cordoned).await;
    }

    /// Waits until the sheet shows these words, and returns it.
    pub async fn until_said(&self, words: &str) -> Judgement {
        let said = async {
            loop {
                let said = DrainView::read(&self.topic_root, self.clock).judge(self.clock.wall());
                if said.headline.text.contains(words) {
                    return said;
                }
                self.clock.sleep_until(Some(self.clock.now() + Duration::from_millis(20))).await;
            }
        };
        self.patiently(words, said).await
    }
}
