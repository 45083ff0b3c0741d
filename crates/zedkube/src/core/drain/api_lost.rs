//! The Kubernetes API is lost in the middle of a drain: the drain waits for it, and says since when it is silent.
//!
//! Not here: an API that is away before a drain has begun. Pure: no clock, no I/O, no task.

use step::Mono;
use topics::{PodCounts, Requester};

use super::life::Drain;
use super::run::{DrainRun, Silence};
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::facts::UnansweredCall;

impl Drain {
    /// Hears whether the API has answered in the middle of a drain, in this run of the agent or in the one before it.
    pub(crate) fn api_silent(&mut self, now: Mono, away: Option<Box<UnansweredCall>>) {
        let amid = matches!(self.run, DrainRun::Draining { .. }) || self.resume.is_some();
        self.silence = away.filter(|_| amid).map(|last| match self.silence.take() {
            Some(before) => Silence { until: now, tries: before.tries.saturating_add(1), last, ..before },
            None => Silence { since: last.asked, until: now, tries: 1, last },
        });
    }

    /// What a person reads: why it waits, and what can be done.
    pub(super) fn silence_words(
        &self,
        silence: &Silence,
        answers: &Answers,
        node: &NodeContext,
    ) -> (String, String) {
        let Silence { since, until, tries, last } = silence;
        let PodCounts { total, gone, .. } = self.counts();
        let force = self.force_words(answers);
        let UnansweredCall { address, why, .. } = &**last;
        let reason = format!(
            "no answer from the Kubernetes API at {address} since {}, for {} s, tried {tries} times: {why}; {gone} of \
             {total} pods were gone then",
            node.wall(*since).shown(),
            until.since(*since).as_secs(),
        );
        let next_step = format!(
            "check the network and the cluster software of this node: `systemctl status k3s`; the drain continues \
             by itself once the API answers, until Deadline; {force}"
        );
        (reason, next_step)
    }

    /// What a person can type who does not want to wait.
    pub(super) fn force_words(&self, answers: &Answers) -> &'static str {
        match answers.shown(self.serves.as_ref()).requested_by {
            Requester::Operator => "`zedbox drain cancel` withdraws your request",
            Requester::K3sUpdate => {
                "k3s.version and k3s.config.override as before in the device config withdraw it"
            }
            Requester::Update => {
                "`zedbox drain force complete --for update --reason '...'` lets the update go ahead without the rest of the drain"
            }
            Requester::DeviceOp | Requester::Unset | Requester::None | Requester::Stranger(_) => {
                "`zedbox drain force complete --for reboot --reason '...'` lets the operation go ahead without the rest of the drain"
            }
        }
    }
}
