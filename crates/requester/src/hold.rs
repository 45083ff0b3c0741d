//! An operation that waits for its drain: its request, what was heard of it, and when it is requested again.
//!
//! The same for zedagent, baseosmgr and the updates of k3s. Not here: what is wanted, how a request gets to disk.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::{FailurePause, Mono};
use topics::{GoTime, NodeDrainRequest, NodeDrainStatus, OperationPause, Requester};

use crate::answers::{LatestAnswers, OwnRequest};
use crate::judge::{DeviceClustering, DrainJudgement, JudgeInput, UNKNOWN_WAIT, completes, judge};
use crate::pause::{Orderer, Paused, paused};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Hold {
    by: Requester,
    /// The first pause after a failed drain, and the longest.
    pauses: (Duration, Duration),
    pub own: Option<OwnRequest>,
    pub heard: LatestAnswers,
    pub cluster: DeviceClustering,
    pub has_to_leave: bool,
    pub forced: Option<NodeDrainStatus>,
    /// A person's pause on this node.
    pub pause: Option<OperationPause>,
    /// Of what, and until when no drain for it is requested.
    pub failure: Option<FailurePause<String>>,
}

/// How long a word of zedkube is waited for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ZedkubeSilence {
    pub until: Mono,
    clustered: bool,
}

impl ZedkubeSilence {
    pub fn new(now: Mono) -> Self {
        Self { until: now + UNKNOWN_WAIT, clustered: false }
    }

    /// To be called after each fact. A zedkube that falls silent later gets its time again, from when that is heard.
    pub fn settle(&mut self, now: Mono, heard: &LatestAnswers) {
        let clustered = heard.is_clustered();
        if std::mem::replace(&mut self.clustered, clustered) || clustered {
            self.until = now + UNKNOWN_WAIT;
        }
    }
}

impl Hold {
    /// Continues with the request of an earlier run.
    pub fn new(by: Requester, pauses: (Duration, Duration), request: Option<&NodeDrainRequest>) -> Self {
        Self { by, pauses, own: request.map(OwnRequest::survived), ..Self::default() }
    }

    /// To be called after each fact.
    pub fn settle(&mut self) {
        if let Some(own) = &mut self.own {
            own.hear(&self.heard);
        }
    }

    /// The judgement on an operation, for which our request counts where `counts` says so.
    pub fn verdict(&self, counts: impl Fn(&OwnRequest) -> bool) -> DrainJudgement {
        judge(JudgeInput {
            by: self.by,
            own: self.own.as_ref().filter(|own| counts(own)),
            heard: &self.heard,
            cluster: self.cluster,
            has_to_leave: self.has_to_leave,
            forced: self.forced,
        })
    }

    /// A request at which zedkube works again may fail once more.
    pub fn judged(&mut self, counts: impl Fn(&OwnRequest) -> bool, verdict: &DrainJudgement) {
        if let Some(own) = self.own.as_mut().filter(|own| counts(own)) {
            own.failed &= *verdict != DrainJudgement::Wait;
        }
    }

    /// Both.
    pub fn judge(&mut self, counts: impl Fn(&OwnRequest) -> bool) -> DrainJudgement {
        let verdict = self.verdict(&counts);
        self.judged(counts, &verdict);
        verdict
    }

    /// Whether a person's pause keeps the operation waiting that was ordered by `from` and has `own`; a failed request
    /// is then withdrawn as well.
    pub fn paused(&self, own: Option<&OwnRequest>, from: Orderer) -> Option<Paused> {
        let failed = own.is_some_and(|own| own.failed);
        let started = own.is_some() && !failed;
        let paused = paused(self.pause.as_ref(), (self.by, from), started, self.forced)?;
        Some(Paused { withdraws: paused.withdraws || failed, ..paused })
    }

    /// A new request of now, in place of the one before.
    pub fn request(&mut self, requested_at: GoTime, context: String) -> NodeDrainRequest {
        let request = NodeDrainRequest { requested_at, requested_by: self.by, context };
        self.own = Some(OwnRequest::new(request.context.clone(), Some(request.id()), &self.heard));
        request
    }

    /// The drain for our request failed; `None` when that was counted. The failed request stays until the next one:
    /// zedkube drains for it again by itself once the cause has ended, and nodeagent continues waiting.
    pub fn fail(&mut self, now: Mono, reason: &str) -> Option<&FailurePause<String>> {
        let own = self.own.as_mut().filter(|own| !own.failed)?;
        own.failed = true;
        let of = own.context.clone();
        Some(self.count_failure(now, of, reason))
    }

    pub fn count_failure(&mut self, now: Mono, of: String, reason: &str) -> &FailurePause<String> {
        let last = self.failure.take();
        self.failure.insert(FailurePause::grow(last, of, reason.to_owned(), now, self.pauses))
    }

    /// When a drain for `of` may be requested, if that is not yet.
    pub fn rests(&self, now: Mono, of: &String) -> Option<Mono> {
        FailurePause::holds(self.failure.as_ref(), of, now)
    }

    /// Whether there was a request, which is to be withdrawn.
    pub fn withdraw(&mut self) -> bool {
        self.own.take().is_some()
    }

    /// Whether the force file may be taken away by the operation that has begun: it has ordered that one, and zedkube has
    /// answered by it. Earlier, [`undone`](crate::undone) would find the node not drained, and no order.
    pub fn is_used(&self) -> bool {
        let ordered = self.forced.is_some_and(|it| completes(it, self.by));
        ordered && self.own.as_ref().is_none_or(|own| self.heard.has_forced(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p6_the_pause_doubles_from_30_s_to_30_min_and_begins_again_for_something_else() {
        let pauses = (Duration::from_secs(30), Duration::from_mins(30));
        let mut hold = Hold::new(Requester::DeviceOp, pauses, None);
        let mut fail = |of: &str| {
            hold.request(GoTime::ZERO, of.to_owned());
            hold.fail(Mono::START, "a budget").unwrap().wait_secs
        };
        assert_eq!([(); 8].map(|()| fail("reboot")), [30, 60, 120, 240, 480, 960, 1800, 1800]);
        assert_eq!(fail("shutdown"), 30);
        assert_eq!(hold.fail(Mono::START, "a budget"), None, "it counts once");
    }
}
