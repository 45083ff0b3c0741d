//! Topics and files as events.
//!
//! Not here: their consequences. One task per topic, all owned by [`agent::Tasks`].

use agent::partitions::Label;
use agent::wire::ZEDKUBE;
use agent::{AgentContext, Tasks};
use pubsub::Change;
use requester::{DeviceClustering, DrainTopicUpdate};
use topics::{
    BaseOsConfig, ConfigGetStatus, ContentTreeStatus, EdgeNodeClusterConfig, FORCE_FILE, NodeAgentStatus,
    NodeDrainStatus, NodeLeave, ZbootConfig, ZedAgentStatus,
};
use tracing::{debug, warn};

use crate::core::{Event, LastBootReport, RequiredTopic};

pub(crate) fn all(tasks: &mut Tasks<Event>, context: &AgentContext) {
    let topic_root = &context.topic_root;
    tasks.follow::<BaseOsConfig>(topic_root, "zedagent", |change| {
        level(change, RequiredTopic::Configs, |key, value| Some(Event::Config { key, value }))
    });
    tasks.follow::<ContentTreeStatus>(topic_root, "volumemgr", |change| {
        level(change, RequiredTopic::Trees, |key, value| {
            Some(Event::Tree { key, value: value.map(Box::new) })
        })
    });
    tasks.follow::<EdgeNodeClusterConfig>(topic_root, "zedagent", |change| {
        level(change, RequiredTopic::Cluster, |_, value| Some(Event::Cluster(membership(value.as_ref()))))
    });
    tasks.follow::<NodeLeave>(topic_root, ZEDKUBE, |change| {
        level(change, RequiredTopic::Leave, |_, value| {
            Some(Event::HasToLeave(value.is_some_and(|it| it.phase.has_to_leave())))
        })
    });
    tasks.follow::<ZbootConfig>(topic_root, "nodeagent", |change| {
        level(change, RequiredTopic::Test, |key, value| {
            let label: Label =
                key.parse().map_err(|reason| warn!(key, reason, "ignored a ZbootConfig")).ok()?;
            Some(Event::TestComplete { label, complete: value.is_some_and(|it| it.test_complete) })
        })
    });
    // These values stay valid when their publisher leaves.
    tasks.follow::<NodeAgentStatus>(topic_root, "nodeagent", |change| {
        level(change, RequiredTopic::LastBoot, |_, value| {
            let NodeAgentStatus { reboot_reason: reason, reboot_time: time, reboot_image: image, .. } =
                value?;
            Some(Event::LastBoot(LastBootReport { reason, time, image }))
        })
    });
    tasks.follow::<ZedAgentStatus>(topic_root, "zedagent", |change| {
        level(change, RequiredTopic::Fallback, |_, value| {
            fallback_counter(&value?).map(Event::FallbackCounter)
        })
    });
    tasks.follow_force(context, |order| Event::Forced(forced(order)));
    tasks.follow_pause(context.pauses(), Event::Pause);
    let topic_root = topic_root.clone();
    tasks.events("follow zedkube", move |outbox| {
        requester::follow(topic_root, outbox, |word| Some(of_zedkube(word)))
    });
}

fn level<T>(
    change: Change<T>,
    source: RequiredTopic,
    mut to_event: impl FnMut(String, Option<T>) -> Option<Event>,
) -> Option<Event> {
    match change {
        Change::Put { key, value, .. } => to_event(key, Some(value)),
        Change::Gone { key, .. } => to_event(key, None),
        Change::Synced => Some(Event::Heard(source)),
        Change::Restarted(_) | Change::Bad(_) => None,
    }
}

fn membership(config: Option<&EdgeNodeClusterConfig>) -> DeviceClustering {
    match config.and_then(EdgeNodeClusterConfig::member) {
        Some(true) => DeviceClustering::Clustered,
        Some(false) => DeviceClustering::Single,
        None => DeviceClustering::Undecided,
    }
}

/// Before zedagent has any config it publishes a zero that is not the controller's.
fn fallback_counter(status: &ZedAgentStatus) -> Option<u32> {
    (status.config_get_status != ConfigGetStatus::Never).then_some(status.force_fallback_counter)
}

fn forced(order: Result<Option<NodeDrainStatus>, String>) -> Option<NodeDrainStatus> {
    order.unwrap_or_else(|reason| {
        // zedkube reports it to people, in its log and in NodeDrainProgress.
        debug!(path = FORCE_FILE, "force file refused: {reason}");
        None
    })
}

fn of_zedkube(word: DrainTopicUpdate) -> Event {
    match word {
        DrainTopicUpdate::Status(status) => Event::Drain(status),
        DrainTopicUpdate::Progress(progress) => Event::Progress(progress),
        DrainTopicUpdate::Read => Event::Heard(RequiredTopic::Drain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zedagent_without_a_config_asks_for_no_fallback() {
        let mut status = ZedAgentStatus { force_fallback_counter: 3, ..ZedAgentStatus::default() };
        assert_eq!(fallback_counter(&status), None);
        status.config_get_status = ConfigGetStatus::ReadSaved;
        assert_eq!(fallback_counter(&status), Some(3));
    }
}
