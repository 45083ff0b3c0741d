//! The hooks before a reboot: called once the applications are down, before the sync of the disks and the last look.
//!
//! A failed blocking one is tried again, with those after it, until the core's limit; a person may remove it
//! meanwhile. After a restart of this agent they are called again: each at least once. There is nothing to
//! undo: once the applications are down, the operation is not withdrawn.

use agent::device::hooks::{About, HookFolder, HookStage, HookVerb, find};
use agent::{AgentContext, Outbox, Troubles};
use pubsub::TopicRoot;
use tracing::{info, warn};

use crate::Limits;
use crate::core::Event;

/// Name of its trouble.
pub(crate) const WHAT: &str = "hooks before the reboot";
/// Whether there is any hook, or any refused file.
pub(crate) fn are_there(topic_root: &TopicRoot) -> bool {
    find(topic_root, HookStage::BeforeReboot).map_or(true, |it| it != HookFolder::default())
}

pub(crate) struct RebootHooks {
    context: AgentContext,
    troubles: Troubles,
    limits: Limits,
    done: Vec<String>,
}

impl RebootHooks {
    pub(crate) fn new(context: &AgentContext, troubles: &Troubles, limits: Limits) -> Self {
        Self { context: context.clone(), troubles: troubles.clone(), limits, done: Vec::new() }
    }

    /// Runs them until all are done. Dropping it kills the running one.
    pub(crate) async fn call(mut self, about: About, outbox: Outbox<Event>) {
        if !outbox.send(Event::Hooking(String::new())).await {
            return;
        }
        for attempt in 1.. {
            let Err(trouble) = self.call_all(&About { attempt, ..about.clone() }).await else { break };
            self.troubles.say(WHAT, trouble.clone(), "fix its cause, or remove that hook; it is called again until the limit of all of them, 30 min by default".to_owned());
            if !outbox.send(Event::Hooking(trouble)).await {
                return;
            }
            self.context
                .clock
                .sleep_until(Some(self.context.clock.now() + self.limits.refused_retry()))
                .await;
        }
        outbox.send(Event::Hooked).await;
    }

    async fn call_all(&mut self, about: &About) -> Result<(), String> {
        let topic_root = &self.context.topic_root;
        let HookFolder { hooks, refused } = find(topic_root, HookStage::BeforeReboot)?;
        for why in refused {
            warn!("hooks: not called: {why}");
        }
        for hook in hooks {
            if self.done.contains(&hook.name) {
                continue;
            }
            info!(hook = hook.name, "calls a hook before the reboot");
            match hook.call(topic_root, HookVerb::Run, about, self.limits.hook_limit()).await {
                Ok(()) => {}
                Err(why) if hook.is_blocking() => return Err(why),
                Err(why) => warn!("hooks: failed, and stops nothing: {why}"),
            }
            self.done.push(hook.name);
        }
        Ok(())
    }
}
