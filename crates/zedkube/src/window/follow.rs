//! Follows the clock against the windows, and the file by which a person lets one drain start outside of them.
//!
//! Not here: what is decided by it (`core::drain::gates`).

use std::time::Duration;

use agent::clock::sync;
use agent::operator::WORD;
use agent::{Clock, Tasks};
use pubsub::{FileState, TopicRoot};
use step::Mono;
use topics::{WINDOW_PASS, WindowPass, go_json};
use tracing::warn;

use super::Windows;
use crate::core::{ClosedWindow, Event, Pass};

/// How often the clock is looked at: no later a window is seen to open or close.
const LOOK: Duration = Duration::from_secs(10);
/// How often it is asked whether the clock follows a time server.
const SYNC: Duration = Duration::from_secs(60);

/// Follows both from now on. Returns what holds until the clock has been looked at: nothing is open before.
pub(crate) fn follow(
    tasks: &mut Tasks<Event>,
    topic_root: &TopicRoot,
    clock: Clock,
    windows: &Windows,
) -> Event {
    if windows.is_empty() {
        return Event::Window(None);
    }
    let first = windows.closed_by("it is being looked at");
    let (bus_of_clock, all) = (topic_root.clone(), windows.clone());
    let mut sent = Some(first.clone());
    tasks.events("follow the windows", move |outbox| async move {
        let mut boots = clock.boots();
        let mut trouble: Option<(Mono, Option<String>)> = None;
        loop {
            let now = clock.now();
            if trouble.as_ref().is_none_or(|(at, _)| now.since(*at) >= SYNC) {
                trouble = Some((now, sync::trouble(&bus_of_clock).await));
            }
            let believed = trouble.as_ref().and_then(|(_, it)| it.as_deref());
            let closed = closed(&all, clock, believed);
            if sent.as_ref() != Some(&closed) {
                sent = Some(closed.clone());
                if !outbox.send(Event::Window(closed)).await {
                    return;
                }
            }
            tokio::select! {
                () = clock.sleep_until(Some(clock.now() + LOOK)) => {}
                // One that was set is asked about at once.
                changed = boots.changed() => if changed.is_ok() { trouble = None } else { return },
            }
        }
    });
    tasks.follow_file(topic_root, topic_root.path(WINDOW_PASS), WORD, |file| {
        Some(Event::WindowPass(pass(file)))
    });
    Event::Window(first)
}

fn closed(windows: &Windows, clock: Clock, trouble: Option<&str>) -> Option<ClosedWindow> {
    match trouble {
        Some(trouble) => windows.closed_by(trouble),
        None => windows.closed(clock.wall().to_timestamp()),
    }
}

fn pass(file: FileState) -> Option<Pass> {
    match file {
        FileState::Absent => None,
        FileState::Present(bytes) => match go_json::from_slice::<WindowPass>(&bytes) {
            Ok(it) => Some(Pass { of: it.id(), by: format!("{}: {}", it.by, it.reason) }),
            Err(cause) => {
                warn!(path = WINDOW_PASS, error = %cause, "ignored, no drain starts by it; write it with `zedbox drain start-now`");
                None
            }
        },
        FileState::Bad(finding) => {
            warn!(path = WINDOW_PASS, "ignored, no drain starts by it: {}", finding.reason);
            None
        }
    }
}
