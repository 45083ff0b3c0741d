//! The hooks of zedkube: which were called before a drain, in which order they are undone, and those after a boot.
//!
//! A hook is on disk before it is called, so that it is undone whatever happens then: each is called at least once, and
//! each that was called is undone at least once when the drain ends without a boot. Not here: which programs may be
//! called (`agent::device::hooks`), and when (`core::drain::gates`).
//!
//! Which hooks were called, on disk.

use std::sync::Arc;
use std::time::Duration;

use agent::device::hooks::{self, About, Hook, HookFolder, HookStage, HookVerb};
use agent::{AgentContext, Outbox};
use kubeapi::OwnNode;
use pubsub::{TopicRoot, reach, store};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use topics::{NodeDrainRequest, Requester, cut_text};
use tracing::{info, warn};

use crate::core::{Event, RunId};
use crate::limits::HOOK_LIMIT;
use crate::work::TaskContext;

#[cfg(test)]
mod tests;

/// How often an undo is tried, and the pause in between. Nothing else is held up by one that cannot be done.
const UNDO: (u32, Duration) = (3, Duration::from_secs(30));

/// Calls hooks, one at a time.
#[derive(Clone)]
pub(crate) struct DrainHooks {
    context: AgentContext,
    own_node: OwnNode,
    limit: Duration,
    /// Tries of those after a boot, and the pause in between: as of a drain.
    tries: (u32, Duration),
    /// Who calls hooks holds it.
    calling: Arc<Mutex<()>>,
}

impl DrainHooks {
    pub(crate) fn new(context: &AgentContext, work: &TaskContext) -> Self {
        Self {
            context: context.clone(),
            own_node: work.own_node.clone(),
            limit: HOOK_LIMIT,
            tries: (work.limits.drain_tries, work.limits.drain_retry()),
            calling: Arc::default(),
        }
    }

    /// What an earlier run left.
    pub(crate) fn left(&self) -> [Event; 2] {
        let record = HookRecord::read(&self.context.topic_root).unwrap_or_else(|why| {
            warn!("which hooks were called is not known, none is undone: {why}");
            HookRecord::default()
        });
        let boot = &self.context.boot_id;
        let in_place = record.is_of(boot) && !record.called.is_empty();
        let folder = self.context.topic_root.path(hooks::FOLDER);
        let are_there = reach::look(&folder.clone(), move || folder.exists()).unwrap_or(true);
        let after_boot = record.after_boot != *boot && are_there;
        [Event::HooksLeft { in_place, after_boot }, Event::HookNotes(record.notes)]
    }

    /// Calls those hooks before a drain that were not called yet. False when there was nothing to call: then nothing
    /// was sent. Dropping it ends the one that is running.
    pub(crate) async fn before_drain(
        &self,
        run: RunId,
        request: &NodeDrainRequest,
        outbox: &Outbox<Event>,
    ) -> bool {
        let mut said = false;
        let calling = if let Ok(calling) = self.calling.try_lock() {
            calling
        } else {
            said = true;
            let first = "others are called, or undone, first".to_owned();
            if !outbox.send(Event::Hooking(run, first)).await {
                return true;
            }
            self.calling.lock().await
        };
        let result = self.call_all(run, request, &mut said, outbox).await;
        drop(calling);
        if let Err(why) = &result
            && !said
        {
            // That they cannot even be looked at stops the drain as well.
            outbox.send(Event::Hooking(run, why.clone())).await;
            said = true;
        }
        if said {
            outbox.send(Event::Hooked(run, result)).await;
        }
        said
    }

    async fn call_all(
        &self,
        run: RunId,
        request: &NodeDrainRequest,
        said: &mut bool,
        outbox: &Outbox<Event>,
    ) -> Result<(), String> {
        let topic_root = &self.context.topic_root;
        let HookFolder { hooks, refused } = hooks::find(topic_root, HookStage::BeforeDrain)?;
        // A record that cannot be read stops no node without hooks.
        if hooks.is_empty() && refused.is_empty() {
            return Ok(());
        }
        let mut record = HookRecord::read(topic_root)?;
        if record.is_of(&self.context.boot_id) && record.complete {
            return Ok(());
        }
        record.begin(self.about(request));
        self.note(&mut record, refused.into_iter().map(|it| format!("not called: {it}")), outbox).await;
        for hook in hooks {
            if record.has_done(&hook.name) {
                continue;
            }
            *said = true;
            record.calls(&hook.name);
            record.write(topic_root)?;
            outbox.send(Event::Hooking(run, format!("hook {} is running", hook.name))).await;
            info!(hook = hook.name, "calls a hook before the drain");
            if let Err(why) = hook.call(topic_root, HookVerb::Run, &record.about, self.limit).await {
                if hook.is_blocking() {
                    record.write(topic_root)?;
                    return Err(why);
                }
                self.note(&mut record, [format!("failed, and stops nothing: {why}")], outbox).await;
            }
            record.done(&hook.name);
            record.write(topic_root)?;
        }
        record.complete = true;
        record.write(topic_root)
    }

    /// Undoes what was called before a drain, the last one first.
    pub(crate) async fn undo(self, outbox: Outbox<Event>) {
        let calling = self.calling.lock().await;
        if let Err(why) = self.undo_all(&outbox).await {
            warn!("hooks before the drain are not undone: {why}");
        }
        // While nobody else may call: what is called next is in place again.
        outbox.send(Event::HooksUndone).await;
        drop(calling);
    }

    async fn undo_all(&self, outbox: &Outbox<Event>) -> Result<(), String> {
        let topic_root = &self.context.topic_root;
        let mut record = HookRecord::read(topic_root)?;
        if !record.is_of(&self.context.boot_id) {
            return Ok(());
        }
        record.complete = false;
        while let Some(name) = record.undoes_last() {
            record.write(topic_root)?;
            if let Err(why) = self.undo_one(&name, &record.about).await {
                self.note(&mut record, [format!("not undone: {why}")], outbox).await;
            }
            record.called.pop();
        }
        record.write(topic_root)
    }

    async fn undo_one(&self, name: &str, about: &About) -> Result<(), String> {
        let (tries, pause) = UNDO;
        let mut count = 1;
        loop {
            info!(hook = name, "undoes a hook, as the drain has ended without a boot");
            let hook = Hook::named(&self.context.topic_root, HookStage::BeforeDrain, name)?;
            let Err(why) = hook.call(&self.context.topic_root, HookVerb::Undo, about, self.limit).await
            else {
                return Ok(());
            };
            if count == tries {
                return Err(why);
            }
            count += 1;
            self.sleep(pause).await;
        }
    }

    /// Calls the hooks that come after a boot, the last name first. A blocking one that fails is tried again as a drain is;
    /// those after it wait for it.
    pub(crate) async fn after_boot(self, outbox: Outbox<Event>) {
        let (tries, pause) = self.tries;
        let mut done = Vec::new();
        for tried in 1..=tries {
            let result = {
                let _calling = self.calling.lock().await;
                self.call_after_boot(tried, &mut done, &outbox).await
            };
            let Err(why) = result else { return };
            let then = if tried < tries { "is tried again" } else { "is given up, with those after it" };
            warn!(tried, of = tries, "a hook after the boot {then}: {why}");
            let calling = self.calling.lock().await;
            if let Ok(mut record) = HookRecord::read(&self.context.topic_root) {
                self.note(&mut record, [format!("{then}: {why}")], &outbox).await;
                if tried == tries {
                    record.after_boot.clone_from(&self.context.boot_id);
                }
                if let Err(why) = record.write(&self.context.topic_root) {
                    warn!("{why}");
                }
            }
            drop(calling);
            if tried < tries {
                self.sleep(pause).await;
            }
        }
    }

    async fn call_after_boot(
        &self,
        attempt: u32,
        done: &mut Vec<String>,
        outbox: &Outbox<Event>,
    ) -> Result<(), String> {
        let topic_root = &self.context.topic_root;
        let mut record = HookRecord::read(topic_root)?;
        let HookFolder { hooks, refused } = hooks::find(topic_root, HookStage::AfterBoot)?;
        if !record.is_of(&self.context.boot_id) {
            // What was called before the boot ends with it.
            record.notes.clear();
            record.called.clear();
        }
        self.note(&mut record, refused.into_iter().map(|it| format!("not called: {it}")), outbox).await;
        let about = About {
            attempt,
            boot_id: self.context.boot_id.clone(),
            node: self.node(),
            ..record.about.clone()
        };
        for hook in hooks {
            if done.contains(&hook.name) {
                continue;
            }
            info!(hook = hook.name, "calls a hook after the boot");
            match hook.call(topic_root, HookVerb::Run, &about, self.limit).await {
                Ok(()) => {}
                Err(why) if hook.is_blocking() => return Err(why),
                Err(why) => {
                    self.note(&mut record, [format!("failed, and stops nothing: {why}")], outbox).await;
                }
            }
            done.push(hook.name);
        }
        record.after_boot.clone_from(&self.context.boot_id);
        record.write(topic_root)
    }

    /// Keeps what a reader has to know, says it, and shows it.
    async fn note(
        &self,
        record: &mut HookRecord,
        notes: impl IntoIterator<Item = String>,
        outbox: &Outbox<Event>,
    ) {
        let mut new = false;
        for note in notes {
            if !record.notes.contains(&note) {
                warn!("hooks: {note}");
                record.note(&note);
                new = true;
            }
        }
        if new {
            outbox.send(Event::HookNotes(record.notes.clone())).await;
        }
    }

    fn about(&self, request: &NodeDrainRequest) -> About {
        let by = request.requested_by;
        let operation = if by == Requester::DeviceOp { request.context.as_str() } else { operation(by) };
        About {
            operation: operation.to_owned(),
            node: self.node(),
            request: request.id().text(),
            reason: request.context.clone(),
            attempt: 0,
            boot_id: self.context.boot_id.clone(),
        }
    }

    fn node(&self) -> String {
        self.own_node.get().map(|(node, _)| node.to_string()).unwrap_or_default()
    }

    async fn sleep(&self, pause: Duration) {
        let clock = self.context.clock;
        clock.sleep_until(Some(clock.now() + pause)).await;
    }
}

/// The word for an operation of `by`; a device has several, which the context of its request names.
pub(crate) const fn operation(by: Requester) -> &'static str {
    match by {
        Requester::DeviceOp => "device",
        Requester::Update => "update",
        Requester::K3sUpdate => "k3s",
        Requester::Operator => "operator",
        Requester::NodeMaintenance => "maintenance",
        Requester::None | Requester::Unset | Requester::Stranger(_) => "",
    }
}

/// Under the root. It outlives a boot, of which the hooks after it learn what it was for.
const PATH: &str = "persist/status/zedkube/hooks.json";
const LIMIT_BYTES: u64 = 64 << 10;
/// Notes that are kept, the newest, and the longest one.
const NOTES: usize = 8;
const NOTE_BYTES: usize = 400;
/// Longest text of a request.
const TEXT_BYTES: usize = 400;

/// What is known of the hooks before a drain, and of those after a boot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct HookRecord {
    /// What those before a drain were called for, in which boot, and how often they were begun.
    #[serde(flatten)]
    about: About,
    called: Vec<Called>,
    /// None is left to be called.
    complete: bool,
    /// The boot after which those after a boot were called.
    after_boot: String,
    /// What a reader has to know.
    notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Called {
    name: String,
    /// It has ended well, or its failure stops nothing.
    done: bool,
}

impl HookRecord {
    /// The one that was called last, and that counts as called no longer: its undo may be cut off.
    fn undoes_last(&mut self) -> Option<String> {
        let last = self.called.last_mut()?;
        last.done = false;
        Some(last.name.clone())
    }

    /// What was kept; nothing where there is no file.
    fn read(topic_root: &TopicRoot) -> Result<Self, String> {
        let wrong = |why: String| format!("the record of hooks /{PATH} cannot be read: {why}; remove it");
        match store::read(&topic_root.path(PATH), LIMIT_BYTES) {
            Ok(None) => Ok(Self::default()),
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).map_err(|cause| wrong(cause.to_string())),
            Err(cause) => Err(wrong(step::chain(&cause))),
        }
    }

    fn write(&self, topic_root: &TopicRoot) -> Result<(), String> {
        let wrong = |why: String| format!("the record of hooks /{PATH} cannot be written: {why}");
        let bytes = serde_json::to_vec(self).map_err(|cause| wrong(cause.to_string()))?;
        store::replace(&topic_root.path(PATH), &bytes).map_err(|cause| wrong(step::chain(&cause)))
    }

    fn is_of(&self, boot_id: &str) -> bool {
        self.about.boot_id == boot_id
    }

    /// They are begun, for the first time in this boot or once more.
    fn begin(&mut self, about: About) {
        if !self.is_of(&about.boot_id) || self.called.is_empty() {
            let after_boot = std::mem::take(&mut self.after_boot);
            *self = Self { after_boot, ..Self::default() };
        }
        let cut = |text: &str| cut_text(text, TEXT_BYTES);
        let (operation, reason) = (cut(&about.operation), cut(&about.reason));
        self.about = About { operation, reason, attempt: self.about.attempt + 1, ..about };
    }

    fn has_done(&self, name: &str) -> bool {
        self.called.iter().any(|it| it.name == name && it.done)
    }

    fn calls(&mut self, name: &str) {
        if !self.called.iter().any(|it| it.name == name) {
            self.called.push(Called { name: name.to_owned(), done: false });
        }
    }

    fn done(&mut self, name: &str) {
        for it in self.called.iter_mut().filter(|it| it.name == name) {
            it.done = true;
        }
    }

    fn note(&mut self, note: &str) {
        self.notes.push(cut_text(note, NOTE_BYTES));
        let over = self.notes.len().saturating_sub(NOTES);
        self.notes.drain(..over);
    }
}
