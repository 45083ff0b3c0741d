//! IMGA and IMGB through a program with the arguments of the reference's `zboot`.
//!
//! | Words | Answer |
//! |---|---|
//! | `curpart` | `IMGA` or `IMGB` |
//! | `partdev LABEL`, `partdevsize LABEL` | the device, its size in bytes |
//! | `partstate LABEL` | `active`, `updating`, `inprogress` or `unused` |
//! | `set_partstate LABEL STATE` | none |
//!
//! Each call has a limit. A program that hangs, fails or answers something else is an error with its name and
//! arguments; a state counts as set once `partstate` reports it. Source: lf-edge/eve pkg/gpt-tools `zboot`,
//! pkg/pillar/zboot.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use pubsub::TopicRoot;

use super::contents;
use super::target::PartitionTarget;
use super::{
    BootResult, ImageToWrite, Label, Partition, PartitionState, PartitionStore, PartitionWork, Partitions,
    Percent, StopOnDrop, blocking, booted, refuse, settable,
};
use crate::Error;
use crate::device::program;

/// As in the reference.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct ExecStore {
    topic_root: TopicRoot,
    program: PathBuf,
}

impl ExecStore {
    pub fn new(topic_root: &TopicRoot, program: &Path) -> Self {
        Self { topic_root: topic_root.clone(), program: program.to_owned() }
    }

    async fn ask<T: FromStr<Err = String>>(&self, words: &[&str]) -> Result<T, Error> {
        let said = call(&self.program, words).await?;
        let answer = said.trim().to_owned();
        let clear = |why| wrong(&self.program, words, &format!("answered `{answer}`: {why}"));
        answer.parse().map_err(clear)
    }

    async fn now(&self) -> Result<(Partitions, [PartitionTarget; 2]), Error> {
        let current: Label = self.ask(&["curpart"]).await?;
        let (a, at) = self.partition(Label::A, current).await?;
        let (b, bt) = self.partition(Label::B, current).await?;
        Ok((Partitions { current, a, b }, [at, bt]))
    }

    async fn partition(&self, label: Label, current: Label) -> Result<(Partition, PartitionTarget), Error> {
        let PartitionDevice(path) = self.ask(&["partdev", label.word()]).await?;
        let Size(bytes) = self.ask(&["partdevsize", label.word()]).await?;
        let state: PartitionState = self.ask(&["partstate", label.word()]).await?;
        let target = PartitionTarget { path, offset: 0, bytes };
        let (topic_root, held) = (self.topic_root.clone(), target.clone());
        let contents = blocking(move || {
            if label == current {
                Ok((contents::running_version(&topic_root)?, String::new()))
            } else {
                contents::of(&topic_root, label, &held)
            }
        });
        let (short_version, content) = contents.await?;
        let partition = Partition {
            label,
            device: target.device(),
            state,
            short_version,
            long_version: String::new(),
            size_bytes: bytes,
            content,
        };
        Ok((partition, target))
    }

    async fn put(&self, label: Label, state: PartitionState) -> Result<(), Error> {
        let words = ["set_partstate", label.word(), state.word()];
        call(&self.program, &words).await?;
        let now: PartitionState = self.ask(&["partstate", label.word()]).await?;
        if now == state {
            return Ok(());
        }
        Err(wrong(&self.program, &words, &format!("succeeded, but {label} is {now}")))
    }

    async fn mark(&self) -> Result<(), Error> {
        let (now, _) = self.now().await?;
        let (running, spare) = (now.running(), now.spare());
        match running.state {
            PartitionState::Inprogress => self.put(running.label, PartitionState::Active).await?,
            PartitionState::Active => {}
            PartitionState::Updating | PartitionState::Unused => {
                return Err(refuse(format!("{} is {}, not inprogress", running.label, running.state)));
            }
        }
        self.put(spare.label, PartitionState::Unused).await
    }
}

impl PartitionStore for ExecStore {
    fn read(&mut self) -> PartitionWork<Partitions> {
        let this = self.clone();
        Box::pin(async move { this.now().await.map(|(now, _)| now) })
    }

    fn set_state(&mut self, label: Label, state: PartitionState) -> PartitionWork<()> {
        let this = self.clone();
        Box::pin(async move {
            let (now, _) = this.now().await?;
            settable(label, state, &now)?;
            this.put(label, state).await
        })
    }

    fn mark_current_active(&mut self) -> PartitionWork<()> {
        let this = self.clone();
        Box::pin(async move { this.mark().await })
    }

    fn write_image(&mut self, label: Label, image: ImageToWrite, percent: Percent) -> PartitionWork<String> {
        let this = self.clone();
        Box::pin(async move {
            let (now, [a, b]) = this.now().await?;
            settable(label, PartitionState::Unused, &now)?;
            let target = if label == Label::A { a } else { b };
            let (wanted, at) = (image.clone(), target.clone());
            let opened = blocking(move || contents::open(label, &at, &wanted, percent)).await?;
            this.put(label, PartitionState::Unused).await?;
            let topic_root = this.topic_root;
            StopOnDrop::over(move |stop| contents::write(&topic_root, (label, &target), &image, opened, stop))
                .await
        })
    }

    fn boot(&mut self, _boot_id: &str) -> PartitionWork<BootResult> {
        let this = self.clone();
        Box::pin(async move { this.now().await.map(|(now, _)| booted(&now)) })
    }
}

struct PartitionDevice(PathBuf);

impl FromStr for PartitionDevice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') && !text.contains('\n') {
            return Ok(Self(PathBuf::from(text)));
        }
        Err("an absolute path is needed".to_owned())
    }
}

struct Size(u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = text.parse().ok().filter(|bytes| *bytes > 0);
        bytes.map(Self).ok_or_else(|| "a number of bytes is needed".to_owned())
    }
}

fn wrong(program: &Path, words: &[&str], why: &str) -> Error {
    refuse(program::wrong(program, words, why))
}

async fn call(program: &Path, words: &[&str]) -> Result<String, Error> {
    program::call(program, words, LIMIT).await.map_err(refuse)
}
