//! The hooks that tell a person off the cluster what the Events tell on it, a mail, a lamp, a pager; and an address that it is
//! posted to.
//!
//! They are called one after another, each with a limit, at the bounded rate of the Events, and nothing waits for them.
//! What they do, and whether they fail, changes nothing but a line in the log. Not here: which programs may be called
//! (`agent::device::hooks`), and what they are called with (`notices`).

use std::time::Duration;

use agent::AgentContext;
use agent::device::hooks::{About, HookFolder, HookStage, find};
use kubeapi::OwnNode;
use kubeapi::connect::webhook::Webhook;
use tokio::sync::mpsc;
use topics::{GoTime, RequestId};
use tracing::warn;

use super::events::EventLog;
use super::notices::Notice;
use crate::hooks::operation;

/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct HookNotifier {
    context: AgentContext,
    own_node: OwnNode,
    inbox: mpsc::Receiver<(Notice, GoTime)>,
    log: EventLog,
    /// For each hook.
    pub(crate) limit: Duration,
    webhook: Option<Webhook>,
    /// What went wrong last: the same is said once.
    wrong: Vec<String>,
}

impl HookNotifier {
    pub(crate) fn new(
        context: &AgentContext,
        own_node: &OwnNode,
        inbox: mpsc::Receiver<(Notice, GoTime)>,
        webhook: Option<Webhook>,
    ) -> Self {
        let (context, own_node, log) = (context.clone(), own_node.clone(), EventLog::default());
        Self { context, own_node, inbox, log, limit: LIMIT, webhook, wrong: Vec::new() }
    }

    /// Runs until the sender is gone. Dropping it ends the hook that is running, and drops the notices that wait.
    pub(crate) async fn run(mut self) {
        while let Some((notice, at)) = self.inbox.recv().await {
            // A hook was called for what is found at the start of zedkube when it happened.
            if !notice.is_new {
                continue;
            }
            let HookFolder { hooks, refused } = match find(&self.context.topic_root, HookStage::Notify) {
                Ok(found) => found,
                Err(why) => HookFolder { refused: vec![why], ..HookFolder::default() },
            };
            let mut wrong: Vec<String> = refused.iter().map(|it| format!("not called: {it}")).collect();
            if (!hooks.is_empty() || self.webhook.is_some())
                && self.log.admits(self.context.clock.now(), notice.kind)
            {
                let about = self.about(&notice);
                let at = at.rfc3339();
                let told = [
                    ("ZEDBOX_HOOK_EVENT", notice.kind.reason()),
                    ("ZEDBOX_HOOK_SEVERITY", if notice.kind.is_warning() { "warning" } else { "normal" }),
                    ("ZEDBOX_HOOK_MESSAGE", notice.message.as_str()),
                    ("ZEDBOX_HOOK_AT", at.as_str()),
                ];
                for hook in hooks {
                    if let Err(why) = hook.notify(&self.context.topic_root, &about, &told, self.limit).await {
                        wrong.push(format!("failed, and stops nothing: {why}"));
                    }
                }
                if let Some(webhook) = &self.webhook {
                    let text = format!("{} {}: {}", about.node, notice.kind.reason(), notice.message);
                    if let Err(why) = webhook.post(&text).await {
                        wrong.push(format!("not posted to {webhook}: {why}; try `zedbox notify test`"));
                    }
                }
            }
            for why in wrong.iter().filter(|it| !self.wrong.contains(it)) {
                warn!("hooks: {why}");
            }
            self.wrong = wrong;
        }
    }

    fn about(&self, notice: &Notice) -> About {
        let is_of_drain = notice.id != RequestId::default();
        About {
            operation: operation(notice.id.by).to_owned(),
            node: self.own_node.get().map(|(node, _)| node.to_string()).unwrap_or_default(),
            request: if is_of_drain { notice.id.text() } else { String::new() },
            boot_id: self.context.boot_id.clone(),
            ..About::default()
        }
    }
}
