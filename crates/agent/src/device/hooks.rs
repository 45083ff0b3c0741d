//! Hooks: a person's programs that are called before a drain, before a reboot, after a boot, and for notifications.
//!
//! Each stage has a folder below `/etc/zedbox/hooks`. Hooks run as root, so only files that root alone can
//! have written are called, each with a time limit; all others are named and skipped. Not here: when a stage
//! is due, and what a failure means for it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pubsub::{TopicRoot, reach, trust};
use serde::{Deserialize, Serialize};
use step::SmallSort as _;
use topics::cut_text;

use super::program;

pub const FOLDER: &str = "etc/zedbox/hooks";
const ABOVE: [&str; 2] = ["etc", "etc/zedbox"];
/// Each hook has a folder here for its own state.
const STATE: &str = "persist/status/zedbox/hooks";
/// Suffix of a hook that stops nothing when it fails.
const OPTIONAL: &str = ".optional";
const MOST: usize = 32;
const NAME_BYTES: usize = 64;
const TEXT_BYTES: usize = 400;
/// Search path of hooks; they get nothing else of the agent's environment.
const SEARCH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookStage {
    /// While the node has its turn, before its cordon.
    BeforeDrain,
    /// Before the last look at the drain, with applications down.
    BeforeReboot,
    /// Once the gate after a boot is open, in reverse order of names.
    AfterBoot,
    /// With each Event of the Node; no step waits for them, and there is nothing to undo.
    Notify,
}

impl HookStage {
    pub const fn folder(self) -> &'static str {
        match self {
            Self::BeforeDrain => "before-drain.d",
            Self::BeforeReboot => "before-reboot.d",
            Self::AfterBoot => "after-boot.d",
            Self::Notify => "notify.d",
        }
    }
}

/// First argument of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookVerb {
    Run,
    /// Undo `Run`, because the operation does not take place.
    Undo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    stage: HookStage,
    pub name: String,
    path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookFolder {
    /// In the order of calls.
    pub hooks: Vec<Hook>,
    /// Files that are not called, each with the reason and the command to type.
    pub refused: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct About {
    /// `reboot`, `shutdown`, `poweroff`, `update`, `k3s`, `operator`; empty after a boot without one.
    pub operation: String,
    pub node: String,
    /// Who requested it, and when.
    pub request: String,
    pub reason: String,
    /// How often this stage was started for this operation, from 1.
    pub attempt: u32,
    #[serde(rename = "BootID")]
    pub boot_id: String,
}

/// Errors: the folder cannot be read, its disk does not answer, or others than root may write in it: then
/// nothing in it can be trusted.
pub fn find(topic_root: &TopicRoot, stage: HookStage) -> Result<HookFolder, String> {
    let topic_root = topic_root.clone();
    let found = reach::look(&topic_root.path(FOLDER), move || find_here(&topic_root, stage));
    found.map_err(|cause| step::chain(&cause))?
}

fn find_here(topic_root: &TopicRoot, stage: HookStage) -> Result<HookFolder, String> {
    let folder = topic_root.path(FOLDER).join(stage.folder());
    let mut found = HookFolder::default();
    // Without hooks nothing is called, so the folders above do not matter.
    if fs::symlink_metadata(&folder).is_err_and(|cause| cause.kind() == io::ErrorKind::NotFound) {
        return Ok(found);
    }
    // Anyone who may write in a folder above may replace this one.
    let above = ABOVE.map(|it| topic_root.path(it));
    for dir in above.into_iter().chain([topic_root.path(FOLDER), folder.clone()]) {
        match fs::symlink_metadata(&dir) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(cause) => return Err(format!("{} cannot be read: {cause}", dir.display())),
            Ok(seen) if !seen.is_dir() => {
                return Err(format!("{} is no directory; remove it", dir.display()));
            }
            Ok(seen) => may_order(&dir, &seen)?,
        }
    }
    let unread = |cause: io::Error| format!("{} cannot be read: {cause}", folder.display());
    let mut entries =
        fs::read_dir(&folder).map_err(unread)?.collect::<Result<Vec<_>, _>>().map_err(unread)?;
    entries.order_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if found.hooks.len() == MOST {
            found.refused.push(format!("{}: more than {MOST} hooks", path.display()));
            continue;
        }
        match may_run(&path, &name) {
            Ok(()) => found.hooks.push(Hook { stage, name, path }),
            Err(why) => found.refused.push(why),
        }
    }
    if stage == HookStage::AfterBoot {
        found.hooks.reverse();
    }
    Ok(found)
}

/// Refuses what others than root, or the user of this program, can have written.
fn may_order(path: &Path, seen: &Metadata) -> Result<(), String> {
    let path = path.display();
    if let Some(owner) = trust::foreign_owner(seen) {
        return Err(format!("{path} belongs to user {owner}, not to root; chown root {path}"));
    }
    if trust::others_may_write(seen) {
        return Err(format!("{path} can be written by others than root; chmod go-w {path}"));
    }
    Ok(())
}

fn may_run(path: &Path, name: &str) -> Result<(), String> {
    let shown = path.display();
    let plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    if name.len() > NAME_BYTES || name.starts_with('.') || !name.chars().all(plain) {
        return Err(format!("{shown}: expected a name of letters, digits, - _ and ., {NAME_BYTES} at most"));
    }
    let seen = fs::symlink_metadata(path).map_err(|cause| format!("{shown} cannot be read: {cause}"))?;
    if !seen.is_file() {
        return Err(format!(
            "{shown} is no plain file (links are not followed); put the program itself there"
        ));
    }
    may_order(path, &seen)?;
    if seen.mode() & 0o111 == 0 {
        return Err(format!("{shown} is not executable; chmod u+x {shown}, or remove it"));
    }
    Ok(())
}

impl Hook {
    /// Whether its failure stops the step that follows.
    pub fn is_blocking(&self) -> bool {
        !self.name.ends_with(OPTIONAL)
    }

    /// The hook of this name, if it may still be called.
    pub fn named(topic_root: &TopicRoot, stage: HookStage, name: &str) -> Result<Self, String> {
        let found = find(topic_root, stage)?;
        let hook = found.hooks.into_iter().find(|it| it.name == name);
        hook.ok_or_else(|| {
            let path = topic_root.path(FOLDER).join(stage.folder()).join(name);
            format!("{} is gone or may not be called", path.display())
        })
    }

    /// Dropping this kills it.
    ///
    /// Errors: it cannot be run, exceeds `limit`, or fails: its name, and the end of its output.
    pub async fn call(
        &self,
        topic_root: &TopicRoot,
        verb: HookVerb,
        about: &About,
        limit: Duration,
    ) -> Result<(), String> {
        let word = match verb {
            HookVerb::Run => "run",
            HookVerb::Undo => "undo",
        };
        self.run(topic_root, word, about, &[], limit).await
    }

    /// Passes the notification in environment variables. Dropping this kills it.
    ///
    /// Errors: as [`Hook::call`].
    pub async fn notify(
        &self,
        topic_root: &TopicRoot,
        about: &About,
        told: &[(&str, &str)],
        limit: Duration,
    ) -> Result<(), String> {
        self.run(topic_root, "run", about, told, limit).await
    }

    async fn run(
        &self,
        topic_root: &TopicRoot,
        word: &str,
        about: &About,
        told: &[(&str, &str)],
        limit: Duration,
    ) -> Result<(), String> {
        let state = topic_root.path(STATE).join(self.name.trim_end_matches(OPTIONAL));
        let wrong = |why: &str| format!("hook {}/{}: {why}", self.stage.folder(), self.name);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&state)
            .map_err(|cause| wrong(&format!("{} cannot be made: {cause}", state.display())))?;
        let mut command = Command::new(&self.path);
        command.env_clear().current_dir("/").env("PATH", SEARCH).env("ZEDBOX_HOOK_STATE", &state);
        let About { operation, node, request, reason, attempt, boot_id } = about;
        command.env("ZEDBOX_HOOK_STAGE", self.stage.folder().trim_end_matches(".d")).envs([
            ("ZEDBOX_HOOK_OPERATION", plain(operation)),
            ("ZEDBOX_HOOK_NODE", plain(node)),
            ("ZEDBOX_HOOK_REQUEST", plain(request)),
            ("ZEDBOX_HOOK_REASON", plain(reason)),
            ("ZEDBOX_HOOK_ATTEMPT", attempt.to_string()),
            ("ZEDBOX_HOOK_BOOT", plain(boot_id)),
        ]);
        command.envs(told.iter().map(|(name, text)| (*name, plain(text))));
        let called = program::run(command, &[word], limit).await;
        called.map(drop).map_err(|why| format!("hook {}", short(&why)))
    }
}

/// Without NUL, as environment variables need it.
fn plain(text: &str) -> String {
    text.replace('\0', " ")
}

/// One line without control characters, cut at [`TEXT_BYTES`].
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    cut_text(&line.replace(char::is_control, " "), TEXT_BYTES)
}

#[cfg(test)]
mod tests;
