//! The Kubernetes API is lost in the middle of a drain: since when it is silent, and whether the rest of the drain may be
//! skipped for that.
//!
//! Off by default. Nothing is skipped on a server, for a person, or while a machine or the last copy of data is at stake
//! or may be. Not here: an API that is away before a drain has begun. Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::Remaining;
use step::Mono;
use topics::{DrainStake, PodCounts, Requester};

use super::life::{Drain, DrainStepOutcome};
use super::run::{DrainRun, Silence};
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::facts::{Effect, UnansweredCall};

/// What is known not to be there.
pub(super) const NONE: &str = "none";
/// The role of a node without control plane and etcd.
pub(super) const WORKER: &str = "worker";
/// A restart may hide a break: this run of the agent has to find the API silent for so long by itself.
const OWN: Duration = Duration::from_secs(60);

/// What decides whether the rest of a drain is skipped.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lost<'a> {
    /// Silence of this length is enough; zero for never.
    limit: Duration,
    /// How long the API has been silent without a break, restarts of this agent included.
    silent: Duration,
    /// How long in this run of the agent.
    silent_here: Duration,
    /// A person with a shell waits for the drain.
    by_person: bool,
    stake: &'a DrainStake,
}

/// Whether it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApiLostDecision {
    /// Nobody has asked for that.
    Off,
    /// Never, for this reason.
    Never(String),
    /// Not yet.
    NotYet,
    /// Now.
    Skip,
}

impl Lost<'_> {
    pub(super) fn verdict(&self) -> ApiLostDecision {
        if self.limit == Duration::ZERO {
            return ApiLostDecision::Off;
        }
        let DrainStake { role, machine, volume } = self.stake;
        let never = |why: &str| ApiLostDecision::Never(why.to_owned());
        if self.by_person {
            return never("a person has requested this drain");
        }
        match role.as_str() {
            WORKER => {}
            "server" => return never("this node has the control plane or etcd"),
            _ => return never("the role of this node is not known"),
        }
        match machine.as_str() {
            NONE => {}
            "" => return never("it is not known whether virtual machines still run here"),
            pod => {
                return ApiLostDecision::Never(format!("the virtual machine of pod {pod} still runs here"));
            }
        }
        match volume.as_str() {
            NONE => {}
            "" => return never("it is not known whether last replicas of Longhorn volumes are here"),
            name => {
                return ApiLostDecision::Never(format!(
                    "the last healthy replica of Longhorn volume {name} is here"
                ));
            }
        }
        if self.silent < self.limit || self.silent_here < OWN.min(self.limit) {
            return ApiLostDecision::NotYet;
        }
        ApiLostDecision::Skip
    }
}

/// Whether a drain may be skipped in the middle of it at all.
pub(super) fn may_be_skipped(node: &NodeContext) -> bool {
    node.limits.api_lost_skip() > Duration::ZERO
}

impl Drain {
    /// The API has answered, or nobody asks it any more.
    pub(super) fn api_answers(&mut self) {
        (self.silence, self.silent_since) = (None, None);
    }

    /// Hears whether it has answered in the middle of a drain, in this run of the agent or in the one before it.
    pub(crate) fn api_silent(
        &mut self,
        now: Mono,
        away: Option<Box<UnansweredCall>>,
        answers: &Answers,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        let amid = matches!(self.run, DrainRun::Draining { .. }) || self.resume.is_some();
        let Some(last) = away.filter(|_| amid) else {
            self.api_answers();
            return None;
        };
        self.silent_since.get_or_insert(last.asked);
        self.silence = Some(match self.silence.take() {
            Some(before) => Silence { until: now, tries: before.tries.saturating_add(1), last, ..before },
            None => Silence { since: last.asked, until: now, tries: 1, last },
        });
        self.skip_lost(now, answers, node, out)
    }

    /// Hears of a volume whose last healthy replica is here.
    pub(crate) fn last_replica(&mut self, volume: String) {
        self.stake.volume = volume;
    }

    /// What an attempt knows of node and pods; what is not known yet is what was known before.
    pub(super) fn remaining(&mut self, node: &NodeContext) {
        let known = self.run.pods().and_then(|it| it.remaining.clone());
        if let Some(Remaining { server, machine }) = known.filter(|_| may_be_skipped(node)) {
            (if server { "server" } else { WORKER }).clone_into(&mut self.stake.role);
            self.stake.machine = machine.unwrap_or_else(|| NONE.to_owned());
        }
    }

    fn lost(&self, now: Mono, answers: &Answers, node: &NodeContext) -> Lost<'_> {
        let long = |since: Option<Mono>| since.map(|at| now.since(at)).unwrap_or_default();
        Lost {
            limit: node.limits.api_lost_skip(),
            silent: long(self.silent_since),
            silent_here: long(self.silence.as_ref().map(|it| it.since)),
            by_person: answers.open().any(|it| it.requested_by == Requester::Operator),
            stake: &self.stake,
        }
    }

    fn skip_lost(
        &mut self,
        now: Mono,
        answers: &Answers,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        if self.lost(now, answers, node).verdict() != ApiLostDecision::Skip {
            return None;
        }
        let (since, silence) = (self.silent_since?, self.silence.as_ref()?);
        let PodCounts { total, gone, .. } = self.counts();
        let skip = format!(
            "the Kubernetes API was lost in the middle of the drain: no answer for {} s, since {}; {gone} of {total} \
             pods were gone: {}",
            now.since(since).as_secs(),
            node.wall(since).shown(),
            silence.last.why
        );
        self.end(None, out);
        Some(self.skip(skip, out))
    }

    /// What a person reads: why it waits, and what can be done.
    pub(super) fn silence_words(
        &self,
        silence: &Silence,
        answers: &Answers,
        node: &NodeContext,
    ) -> (String, String) {
        let Silence { since, until, tries, last } = silence;
        let since = self.silent_since.unwrap_or(*since);
        let PodCounts { total, gone, .. } = self.counts();
        let force = self.force_words(answers);
        let UnansweredCall { address, why, .. } = &**last;
        let reason = format!(
            "no answer from the Kubernetes API at {address} since {}, for {} s, tried {tries} times: {why}; {gone} of \
             {total} pods were gone then",
            node.wall(since).shown(),
            until.since(since).as_secs(),
        );
        let next_step = format!(
            "check the network and the cluster software of this node: `systemctl status k3s`; the drain continues \
             by itself once the API answers, until Deadline{}; {force}",
            self.skip_words(answers, node)
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

    /// What becomes of a drain in whose middle the API stays silent; empty where nobody has asked for a skip.
    pub(super) fn skip_words(&self, answers: &Answers, node: &NodeContext) -> String {
        let secs = node.limits.api_lost_skip().as_secs();
        match self.lost(Mono::START, answers, node).verdict() {
            ApiLostDecision::Off => String::new(),
            ApiLostDecision::Never(why) => format!("; its rest is not skipped: {why}"),
            ApiLostDecision::NotYet | ApiLostDecision::Skip => {
                format!("; its rest is skipped after {secs} s without an answer")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_drain_is_skipped_only_when_nothing_speaks_against_it() {
        const LONG: u64 = 3600;
        let secs = Duration::from_secs;
        let stake = |role: &str, machine: &str, volume: &str| DrainStake {
            role: role.to_owned(),
            machine: machine.to_owned(),
            volume: volume.to_owned(),
        };
        let idle = stake("worker", "none", "none");
        let machine = stake("worker", "apps/virt-launcher-x", "none");
        let replica = stake("worker", "none", "pvc-1");
        // Limit, silent, silent in this run, a person waits, what is at stake; a word of the verdict.
        let table = [
            (0, LONG, LONG, false, idle.clone(), "Off"),
            (LONG, LONG, LONG, false, idle.clone(), "Skip"),
            (LONG, LONG - 1, LONG - 1, false, idle.clone(), "NotYet"),
            (LONG, LONG, 59, false, idle.clone(), "NotYet"),
            (LONG, LONG, 60, false, idle.clone(), "Skip"),
            (30, 30, 30, false, idle.clone(), "Skip"),
            (LONG, LONG, LONG, true, idle, "a person"),
            (LONG, LONG, LONG, false, stake("server", "none", "none"), "control plane"),
            (LONG, LONG, LONG, false, stake("", "none", "none"), "role of this node"),
            (LONG, LONG, LONG, false, stake("other", "none", "none"), "role of this node"),
            (LONG, LONG, LONG, false, machine, "apps/virt-launcher-x still runs"),
            (LONG, LONG, LONG, false, stake("worker", "", "none"), "not known whether virtual machines"),
            (LONG, LONG, LONG, false, replica, "pvc-1 is here"),
            (LONG, LONG, LONG, false, stake("worker", "none", ""), "not known whether last replicas"),
        ];
        for (limit, silent, silent_here, by_person, stake, expected) in table {
            let (limit, silent, silent_here) = (secs(limit), secs(silent), secs(silent_here));
            let lost = Lost { limit, silent, silent_here, by_person, stake: &stake };
            let verdict = lost.verdict();
            assert!(format!("{verdict:?}").contains(expected), "{lost:?}: {verdict:?}");
        }
    }
}
