//! The limit of a whole drain, over its attempts, the pauses between them and restarts of this agent in the same boot.
//!
//! Not here: the other limits (kubenodeop). Source: goals D15.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::listed;
use kubenodeop::{Progress, VOLUMES_LIMIT, VolumeAction};
use step::Mono;
use topics::{DrainStatus, RunningLimit};

use super::life::{Drain, DrainStepOutcome};
use super::run::{DrainEnd, DrainRun};
use crate::core::context::NodeContext;
use crate::core::facts::{Effect, say_given_up};
use crate::limits::{Limits, volume_action};

impl Drain {
    /// When the first attempt of the drain that is under way began.
    fn began(&self) -> Option<Mono> {
        match &self.run {
            DrainRun::Draining { now: pods, .. } | DrainRun::Retrying { last: pods, .. } => {
                Mono::of_ms(pods.marks.drain_ms)
            }
            // It is proved.
            DrainRun::Holding { .. } | DrainRun::Idle | DrainRun::Ended(_) => None,
            DrainRun::Taken { .. }
            | DrainRun::OutsideWindow
            | DrainRun::Probing { .. }
            | DrainRun::Waiting { .. }
            | DrainRun::Hooks { .. }
            | DrainRun::Cordoning { .. }
            | DrainRun::Entering { .. }
            | DrainRun::Confirming { .. } => {
                self.resume.as_ref().and_then(|it| Mono::of_ms(it.marks.drain_ms))
            }
        }
    }

    /// Since when the limit runs, and when it is over.
    fn drain_limit(&self, node: &NodeContext) -> Option<(Mono, Mono)> {
        let after = Some(node.limits.drain_limit()).filter(|it| !it.is_zero())?;
        self.began().map(|since| (since, since + after))
    }

    /// When the drain fails on it.
    pub(super) fn gives_up_at(&self, node: &NodeContext) -> Option<Mono> {
        Some(self.drain_limit(node)?.1)
    }

    /// Fails where that is over: whatever is under way ends, and no other attempt follows.
    pub(super) fn over_limit(
        &mut self,
        now: Mono,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        self.gives_up_at(node).filter(|until| now >= *until)?;
        let (attempt, last, why) = if let DrainRun::Retrying { attempt, last, reason, .. } = &self.run {
            (*attempt, last.clone(), reason.clone())
        } else if let DrainRun::Draining { attempt, now: last, .. } = &self.run {
            (*attempt, last.clone(), self.why_left(last))
        } else {
            let resume = self.resume.as_ref()?;
            let last = Progress { marks: resume.marks.clone(), ..Progress::default() };
            (resume.attempt, Box::new(last), "it could not be continued after a restart".to_owned())
        };
        let secs = node.limits.drain_limit().as_secs();
        let reason = format!("not done within {secs} s, the limit for the whole drain: {why}");
        say_given_up(&reason, out);
        let serves = self.serves.take();
        super::attempts::add_left(&mut self.left, &last.left);
        self.end(Some(DrainEnd::FailedDrain { attempt, reason, last }), out);
        self.serves = serves;
        Some(DrainStepOutcome::Failed(DrainStatus::FailedDrain))
    }

    fn why_left(&self, now: &Progress) -> String {
        let blockers: Vec<String> = now.blockers.iter().map(|it| it.reason.clone()).collect();
        if !blockers.is_empty() {
            return listed(&blockers, "; ");
        }
        if !now.volumes.is_empty() {
            return format!("still attached: {}", listed(&now.volumes, ", "));
        }
        let counts = self.counts();
        format!("{} of {} pods gone", counts.gone, counts.total)
    }

    /// When the attempt fails on volumes that it waits for, if it does.
    pub(super) fn volumes_end(&self, node: &NodeContext) -> Option<Mono> {
        let DrainRun::Draining { now, .. } = &self.run else { return None };
        let fails = waits(now, &node.limits).filter(|(.., then)| *then == VolumeAction::GiveUp);
        fails.map(|(_, (_, until), _)| until).min()
    }

    /// The limits that run, for a reader.
    pub(super) fn running_limits(&self, node: &NodeContext) -> Vec<RunningLimit> {
        let shown = |of: &str, (since, until): (Mono, Mono), then: VolumeAction| RunningLimit {
            of: of.to_owned(),
            since: node.wall(since),
            until: node.wall(until),
            then: volume_action(then).to_owned(),
        };
        let limits = &node.limits;
        let gives_up = VolumeAction::GiveUp;
        let drain = self.drain_limit(node).map(|it| shown("drain", it, gives_up));
        let mut all: Vec<RunningLimit> = drain.into_iter().collect();
        if let DrainRun::Draining { deadline, now, .. } = &self.run {
            let attempt = Mono::of_ms(now.marks.attempt_ms).map(|since| (since, *deadline));
            all.extend(attempt.map(|it| shown("attempt", it, gives_up)));
            all.extend(waits(now, limits).map(|(of, when, then)| shown(of, when, then)));
        }
        all
    }
}

/// What of volumes is waited for, since when and until when, and what is done then.
fn waits(
    now: &Progress,
    limits: &Limits,
) -> impl Iterator<Item = (&'static str, (Mono, Mono), VolumeAction)> + use<> {
    let of = |name, since_ms: u64, after: Option<Duration>, then| {
        let since = Mono::of_ms(since_ms)?;
        Some((name, (since, since + after?), then))
    };
    let volumes = of("volumes", now.marks.volumes_ms, Some(VOLUMES_LIMIT), VolumeAction::GoOn);
    let last_copy = limits.rules(Duration::ZERO).last_copy;
    volumes.into_iter().chain(of("last-copies", now.marks.storage_ms, last_copy.after, last_copy.then))
}
