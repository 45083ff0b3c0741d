//! Named partitions that are unreadable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::partitions::{
    BootResult, ImageToWrite, Label, PartitionState, PartitionWork, Partitions, Percent, RecordStore,
};

use super::*;

/// Partitions that hang, or fail, until the test changes that.
struct Late {
    inner: RecordStore,
    answers: Arc<AtomicBool>,
    fails: bool,
}

impl PartitionStore for Late {
    fn read(&mut self) -> PartitionWork<Partitions> {
        self.inner.read()
    }

    fn set_state(&mut self, label: Label, state: PartitionState) -> PartitionWork<()> {
        self.inner.set_state(label, state)
    }

    fn mark_current_active(&mut self) -> PartitionWork<()> {
        self.inner.mark_current_active()
    }

    fn write_image(&mut self, label: Label, image: ImageToWrite, percent: Percent) -> PartitionWork<String> {
        self.inner.write_image(label, image, percent)
    }

    fn boot(&mut self, boot_id: &str) -> PartitionWork<BootResult> {
        if self.answers.load(Ordering::Relaxed) {
            return self.inner.boot(boot_id);
        }
        if self.fails {
            let reason = "/usr/bin/zboot curpart ended with exit status: 3".to_owned();
            return Box::pin(std::future::ready(Err(Error::Effect { doing: "keep", reason })));
        }
        Box::pin(std::future::pending())
    }
}

/// A device with an image to switch to and a drained node, whose agent restarts with unreadable partitions.
async fn with_late_partitions(fails: bool) -> (Device, Arc<AtomicBool>) {
    let mut device = Device::new();
    device.want();
    device.loaded();
    device.answer(DrainStatus::Cordoned).await;
    device.kill().await;
    let answers = Arc::new(AtomicBool::new(false));
    let (topic_root, held) = (device.topic_root.clone(), answers.clone());
    device.start_with(move || {
        let inner = RecordStore::open(&topic_root)?;
        Ok(Some(Box::new(Late { inner, answers: held.clone(), fails })))
    });
    (device, answers)
}

#[tokio::test(start_paused = true)]
async fn b2_partitions_that_hang_or_fail_hold_nothing_up_but_the_update_and_are_tried_again() {
    for (fails, why) in [(false, "no answer within 5 s"), (true, "curpart ended with exit status: 3")] {
        let (device, answers) = with_late_partitions(fails).await;
        let refused = |it: &BaseOsStatus| it.error.contains("the image partitions cannot be read");
        let status = device.until::<BaseOsStatus>("baseosmgr", KEY, refused).await;
        assert!(status.error.contains(why), "{}", status.error);
        assert_eq!((status.activated, status.state), (false, SwState::Loaded));
        // Other agents that wait for the partitions at their start continue.
        device.until_file("run/baseosmgr/ZbootStatus/restarted", "1").await;
        // Unreadable partitions are no reason to give anything up.
        let request = device.until::<NodeDrainRequest>("baseosmgr", "global", |_| true).await;
        assert!(device.file::<ZbootStatus>("IMGA").exists());
        answers.store(true, Ordering::Relaxed);
        device.until::<BaseOsStatus>("baseosmgr", KEY, |it| it.error.is_empty()).await;
        assert_eq!(device.answer(DrainStatus::Complete).await, request);
        device.until_golden::<BaseOsStatus>(KEY, "installed-updating").await;
    }
}
