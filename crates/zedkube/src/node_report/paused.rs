//! What of a person's pause is said to the cluster: that it began, that it is still there after long, that it ended.
//!
//! A pause waits for a person alone; so that none is forgotten, it is said again as often as `again` passes. Pure: no
//! clock, no I/O, no task.

use std::time::Duration;

use step::Mono;
use topics::{OperationPause, PauseScope};

use super::notices::NoticeKind;

/// Remembers what was said of the pause.
#[derive(Debug, Clone, Default)]
pub(crate) struct PauseTeller {
    /// Between two words on one that stays; zero for never.
    again: Duration,
    pause: OperationPause,
    said: Option<Mono>,
}

impl PauseTeller {
    pub(crate) fn new(again: Duration) -> Self {
        Self { again, ..Self::default() }
    }

    /// When time alone brings the next word.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.said.filter(|_| !self.again.is_zero()).map(|at| at + self.again)
    }

    /// What is to be said at `now`, with its subject and its sentence.
    pub(crate) fn step(&mut self, now: Mono, pause: &OperationPause) -> Option<(NoticeKind, String, String)> {
        let subject = pause.since.to_string();
        let what = match pause.scope {
            PauseScope::Node => "no operation starts on this node",
            PauseScope::Controller => "what the controller orders of this node waits",
        };
        let words = format!("{what}: {}; {}", pause.words(), pause.next_step());
        if self.pause != *pause {
            let ended = std::mem::replace(&mut self.pause, pause.clone());
            self.said = pause.is_set().then_some(now);
            return Some(if pause.is_set() {
                (NoticeKind::Paused, subject, words)
            } else {
                let words = format!("operations may start again: no longer {}", ended.words());
                (NoticeKind::Resumed, ended.since.to_string(), words)
            });
        }
        if self.due().is_none_or(|at| now < at) {
            return None;
        }
        self.said = Some(now);
        Some((NoticeKind::StillPaused, subject, format!("still {words}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x3_a_pause_is_said_once_and_one_that_is_forgotten_again_and_again() {
        let at = |secs| Mono::from_start(Duration::from_secs(secs));
        let mut teller = PauseTeller::new(Duration::from_secs(100));
        let none = OperationPause::default();
        let pause = OperationPause { by: "field".into(), reason: "new disk".into(), ..none.clone() };
        let mut kinds = Vec::new();
        for (secs, pause) in [
            (0, &none),
            (1, &pause),
            (50, &pause),
            (101, &pause),
            (102, &pause),
            (250, &pause),
            (251, &none),
            (900, &none),
        ] {
            kinds.extend(
                teller.step(at(secs), pause).map(|(kind, _, words)| (secs, kind, words.contains("new disk"))),
            );
        }
        assert_eq!(
            kinds,
            [
                (1, NoticeKind::Paused, true),
                (101, NoticeKind::StillPaused, true),
                (250, NoticeKind::StillPaused, true),
                (251, NoticeKind::Resumed, true)
            ]
        );
        assert_eq!(teller.due(), None);
        let mut silent = PauseTeller::new(Duration::ZERO);
        assert!(silent.step(at(0), &pause).is_some() && silent.step(at(1_000_000), &pause).is_none());
    }
}
