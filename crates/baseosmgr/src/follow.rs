//! Topics and files into facts.
//!
//! Not here: what follows from them. One task a topic, all owned by [`agent::Tasks`].

use agent::zboot::Label;
use agent::{Outbox, Station, Tasks, wire};
use pubsub::{Bus, Change};
use topics::{
    BaseOsConfig, ConfigGetStatus, ContentTreeStatus, EdgeNodeClusterConfig, FORCE_FILE, NodeAgentStatus,
    NodeDrainProgress, NodeDrainStatus, NodeLeave, ZbootConfig, ZedAgentStatus,
};
use tracing::{debug, warn};

use crate::core::{Event, LastBoot, Membership, Source};

/// Who publishes the drain.
const ZEDKUBE: &str = "zedkube";
/// The one key of zedkube's topics.
const GLOBAL: &str = "global";

/// Starts to follow everything that the core wants to hear.
pub(crate) fn all(tasks: &mut Tasks<Event>, station: &Station) {
    let bus = &station.bus;
    tasks.follow::<BaseOsConfig>(bus, "zedagent", |change| {
        level(change, Source::Configs, |key, value| Some(Event::Config { key, value }))
    });
    tasks.follow::<ContentTreeStatus>(bus, "volumemgr", |change| {
        level(change, Source::Trees, |key, value| Some(Event::Tree { key, value: value.map(Box::new) }))
    });
    tasks.follow::<EdgeNodeClusterConfig>(bus, "zedagent", |change| {
        level(change, Source::Cluster, |_, value| Some(Event::Cluster(membership(value.as_ref()))))
    });
    tasks.follow::<NodeLeave>(bus, ZEDKUBE, |change| {
        level(change, Source::Leave, |_, value| {
            Some(Event::HasToLeave(value.is_some_and(|it| it.phase.has_to_leave())))
        })
    });
    tasks.follow::<ZbootConfig>(bus, "nodeagent", |change| {
        level(change, Source::Test, |key, value| {
            let label: Label =
                key.parse().map_err(|reason| warn!(key, reason, "ignored a ZbootConfig")).ok()?;
            Some(Event::TestComplete { label, complete: value.is_some_and(|it| it.test_complete) })
        })
    });
    // What these two said stays true when their publisher leaves.
    tasks.follow::<NodeAgentStatus>(bus, "nodeagent", |change| {
        level(change, Source::LastBoot, |_, value| {
            let NodeAgentStatus { reboot_reason: reason, reboot_time: time, reboot_image: image, .. } =
                value?;
            Some(Event::LastBoot(LastBoot { reason, time, image }))
        })
    });
    tasks.follow::<ZedAgentStatus>(bus, "zedagent", |change| {
        level(change, Source::Fallback, |_, value| fallback_counter(&value?).map(Event::FallbackCounter))
    });
    tasks.follow_force(station, |order| Event::Forced(forced(order)));
    let bus = bus.clone();
    tasks.events("follow zedkube", move |outbox| drain(bus, outbox));
}

fn level<T>(
    change: Change<T>,
    source: Source,
    mut to_event: impl FnMut(String, Option<T>) -> Option<Event>,
) -> Option<Event> {
    match change {
        Change::Put { key, value, .. } => to_event(key, Some(value)),
        Change::Gone { key, .. } => to_event(key, None),
        Change::Synced => Some(Event::Heard(source)),
        Change::Restarted(_) | Change::Bad(_) => None,
    }
}

fn membership(config: Option<&EdgeNodeClusterConfig>) -> Membership {
    match config.and_then(EdgeNodeClusterConfig::member) {
        Some(true) => Membership::Clustered,
        Some(false) => Membership::Single,
        None => Membership::Undecided,
    }
}

/// Before zedagent has any config it publishes a zero that the controller never asked for.
fn fallback_counter(status: &ZedAgentStatus) -> Option<u32> {
    (status.config_get_status != ConfigGetStatus::Never).then_some(status.force_fallback_counter)
}

fn forced(order: Result<Option<NodeDrainStatus>, String>) -> Option<NodeDrainStatus> {
    order.unwrap_or_else(|reason| {
        // zedkube says it to people, in its log and in NodeDrainProgress.
        debug!(path = FORCE_FILE, "force file refused: {reason}");
        None
    })
}

/// Follows both topics of zedkube in one task. zedkube writes the progress before the status, and here it is
/// read after the status, so that no COMPLETE is ever heard without the answers that belong to it.
async fn drain(bus: Bus, outbox: Outbox<Event>) {
    let mut statuses = bus.subscription(&wire::name::<NodeDrainStatus>(ZEDKUBE), wire::codec());
    let mut reports = bus.subscription(&wire::name::<NodeDrainProgress>(ZEDKUBE), wire::codec());
    let mut unheard = 2;
    loop {
        let events = tokio::select! {
            biased;
            change = reports.next() => [said(change, progress), None],
            change = statuses.next() => {
                let before = match change {
                    Change::Put { .. } => wire::look::<NodeDrainProgress>(&bus, ZEDKUBE, GLOBAL).await,
                    Change::Gone { .. } | Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
                };
                [before.map(|it| progress(Some(it))), said(change, Event::Drain)]
            }
        };
        for event in events.into_iter().flatten() {
            if event == Event::Heard(Source::Drain) {
                unheard -= 1;
                if unheard > 0 {
                    continue;
                }
            }
            if !outbox.send(event).await {
                return;
            }
        }
    }
}

fn progress(value: Option<NodeDrainProgress>) -> Event {
    Event::Progress(value.map(Box::new))
}

fn said<T>(change: Change<T>, to_event: impl Fn(Option<T>) -> Event) -> Option<Event> {
    if let Change::Bad(finding) = &change {
        warn!(path = %finding.path.display(), reason = finding.reason, "ignored a bad file, the last good value stays");
    }
    level(change, Source::Drain, |key, value| (key == GLOBAL).then(|| to_event(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::turn;
    use topics::DrainStatus;

    #[test]
    fn a_zedagent_without_a_config_asks_for_no_fallback() {
        let mut status = ZedAgentStatus { force_fallback_counter: 3, ..ZedAgentStatus::default() };
        assert_eq!(fallback_counter(&status), None);
        status.config_get_status = ConfigGetStatus::ReadSaved;
        assert_eq!(fallback_counter(&status), Some(3));
    }

    #[tokio::test]
    async fn every_status_of_zedkube_is_told_right_after_the_progress_of_its_moment() {
        let root = tempfile::tempdir().unwrap();
        let bus = Bus::open(root.path()).unwrap();
        let report = NodeDrainProgress { attempt: 3, ..NodeDrainProgress::default() };
        let mut statuses = agent::publication::<NodeDrainStatus>(&bus, ZEDKUBE).unwrap();
        agent::publication::<NodeDrainProgress>(&bus, ZEDKUBE).unwrap().publish(GLOBAL, &report).unwrap();
        let (outbox, mut inbox) = turn::inbox();
        let mut tasks = Tasks::new(outbox);
        tasks.events("follow zedkube", |outbox| drain(bus.clone(), outbox));
        let mut heard = vec![];
        while heard.last() != Some(&Event::Heard(Source::Drain)) {
            heard.extend(inbox.recv().await);
        }
        assert_eq!(heard, [progress(Some(report.clone())), Event::Heard(Source::Drain)]);
        for status in [DrainStatus::Cordoned, DrainStatus::Complete] {
            let status = NodeDrainStatus { status, ..NodeDrainStatus::default() };
            statuses.publish(GLOBAL, &status).unwrap();
            assert_eq!(inbox.recv().await, Some(progress(Some(report.clone()))));
            assert_eq!(inbox.recv().await, Some(Event::Drain(Some(status))));
        }
    }
}
