//! Whether this node is in its cluster, on its way out, or outside.
//!
//! What sends a node out is a positive word, after a config that said otherwise, heard in this run of the agent or kept
//! from an earlier one: our zedagent says that the device config has no cluster section, or a zedagent of the reference
//! says `Valid: false` for a while in which it fetches the device config. A file that is gone says nothing. The first
//! step is announced. Pure: no clock, no I/O, no task.

use std::sync::Arc;
use std::time::Duration;

use kubenodeop::Progress;
use kubenodeop::leave::{LeaveEnd, LeaveState};
use step::Mono;
use topics::{
    Blocker, CipherBlockStatus, ConfigGetStatus, ConfigMembership, DrainMarks, EdgeNodeClusterConfig, GoTime,
    LeavePhase, NodeLeave, cut_text as cut, number,
};

use crate::Limits;
use nodestatus::{ClusterMembership, Membership};

use crate::core::{short, shorten};
use crate::limits::{CONFIG_PATIENCE, LEAVE_UNCHANGED};

/// Longest text of the record, and most pods in it: it is on flash.
const TEXT_BYTES: usize = 480;
const BLOCKERS: usize = 16;
/// Longest encrypted token in it, and most interfaces.
const TOKEN_BYTES: usize = 8 << 10;
const INTERFACES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct LeaveRules {
    record: NodeLeave,
    /// The last config that was decided upon.
    config: Option<Arc<EdgeNodeClusterConfig>>,
    /// Whether its file is still there.
    has_config: bool,
    /// What our zedagent says of the device config.
    decision: ConfigMembership,
    fetch: Fetch,
    /// Since when there is a word that counts, and which.
    word: Option<(Mono, LeaveSignal)>,
    notice: Duration,
    boot_id: String,
    /// How the wall clock stands to the monotonic one; zero before that is known.
    booted_at: GoTime,
    /// `StartedAt` and `EndedAt` of the record are of this run, and by that clock.
    timed: (bool, bool),
}

/// Whether the device config is fetched, as ZedAgentStatus has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Fetch {
    Good,
    /// It reads as failed since then, as it does during each fetch.
    Failing(Mono),
    #[default]
    Bad,
}

#[derive(Debug)]
pub(super) enum LeaveFact {
    /// EdgeNodeClusterConfig; `None` when its file is gone.
    Config(Option<Box<EdgeNodeClusterConfig>>),
    /// ClusterDecision; unknown when its file is gone.
    Decision(ConfigMembership),
    /// `ConfigGetStatus`; `None` when ZedAgentStatus is gone.
    Fetch(Option<ConfigGetStatus>),
}

/// A positive word for leaving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaveSignal {
    /// Our zedagent has read a whole device config without a cluster section.
    Decided,
    /// A zedagent of the reference says `Valid: false`, which it says of a bad section too.
    Reference,
}

impl LeaveSignal {
    fn reason(self) -> &'static str {
        match self {
            Self::Decided => "the device config has no cluster section any more: the node leaves its cluster",
            Self::Reference => {
                "EdgeNodeClusterConfig says Valid: false while the device config is fetched: if that stays, the node \
                 leaves its cluster"
            }
        }
    }
}

impl LeaveRules {
    /// Goes on from `record` in this boot.
    pub(super) fn new(mut record: NodeLeave, limits: &Limits, boot_id: &str) -> Self {
        if record.boot_id != boot_id {
            // Points on another boot's clock mean nothing here.
            (record.boot_id, record.marks) = (String::new(), DrainMarks::default());
        }
        Self { record, notice: limits.leave_notice(), boot_id: boot_id.to_owned(), ..Self::default() }
    }

    /// Where the drain of a walk that was cut off in this boot stood.
    pub(super) fn marks(&self) -> DrainMarks {
        self.record.marks.clone()
    }

    /// What is to be kept.
    pub(super) fn record(&self) -> &NodeLeave {
        &self.record
    }

    /// Hears a fact. A config that is not decided upon says nothing, and one that is gone says no more than that.
    pub(super) fn hear(&mut self, now: Mono, fact: LeaveFact) {
        match fact {
            LeaveFact::Config(None) => self.has_config = false,
            LeaveFact::Config(Some(config)) if config.initialized => {
                (self.config, self.has_config) = (Some(config.into()), true);
            }
            LeaveFact::Config(Some(_)) => {}
            LeaveFact::Decision(decision) => self.decision = decision,
            LeaveFact::Fetch(status) => {
                self.fetch = match status {
                    Some(ConfigGetStatus::Success) => Fetch::Good,
                    Some(ConfigGetStatus::Fail) => match self.fetch {
                        Fetch::Good => Fetch::Failing(now),
                        before @ (Fetch::Failing(_) | Fetch::Bad) => before,
                    },
                    None
                    | Some(
                        ConfigGetStatus::Never
                        | ConfigGetStatus::TemporaryFail
                        | ConfigGetStatus::ReadSaved
                        | ConfigGetStatus::Stranger(_),
                    ) => Fetch::Bad,
                };
            }
        }
    }

    /// The word for leaving that is given right now, or why there is none that counts. Absence is no word, whose ever.
    fn heard_word(&self, now: Mono) -> Result<LeaveSignal, &'static str> {
        if !self.has_config {
            return Err("the file of EdgeNodeClusterConfig is gone, which says nothing; the node stays");
        }
        match (self.decision, self.fetch) {
            (ConfigMembership::NoCluster, _) => Ok(LeaveSignal::Decided),
            (ConfigMembership::Member, _) => Err(
                "EdgeNodeClusterConfig says Valid: false, but ClusterDecision says member; the node stays",
            ),
            (ConfigMembership::Unknown, Fetch::Good) => Ok(LeaveSignal::Reference),
            (ConfigMembership::Unknown, Fetch::Failing(since)) if now < since + CONFIG_PATIENCE => {
                Ok(LeaveSignal::Reference)
            }
            (ConfigMembership::Unknown, Fetch::Failing(_) | Fetch::Bad) => Err(
                "EdgeNodeClusterConfig says Valid: false, but the device config is not fetched (ConfigGetStatus in \
                 ZedAgentStatus is not 1), so this may be a bad section; the node stays",
            ),
        }
    }

    /// When the first step is taken.
    fn due(&self) -> Option<Mono> {
        self.word.map(|(since, word)| {
            since
                + match word {
                    LeaveSignal::Decided => self.notice,
                    LeaveSignal::Reference => LEAVE_UNCHANGED,
                }
        })
    }

    /// When time alone decides something.
    pub(super) fn next_wake(&self) -> Option<Mono> {
        let lost = match (self.word, self.fetch) {
            (Some((_, LeaveSignal::Reference)), Fetch::Failing(since)) => Some(since + CONFIG_PATIENCE),
            _ => None,
        };
        self.due().into_iter().chain(lost).min()
    }

    /// Draws the conclusions; `wall` is for what begins now.
    pub(super) fn settle(&mut self, now: Mono, wall: GoTime) -> ClusterMembership {
        let phase = self.record.phase;
        let membership = match self.config.clone() {
            // An order to leave that stood before is not forgotten, but nothing is done before it is heard again.
            None if phase.is_under_way() => Membership::Leaving,
            None => Membership::Undecided,
            Some(config) if config.valid => {
                self.word = None;
                self.joined(&config);
                Membership::Member
            }
            Some(_) if phase.is_under_way() => Membership::Leaving,
            Some(_) if phase.has_to_leave() => self.told_to_leave(now, wall),
            Some(_) => Membership::Outside,
        };
        if membership != Membership::Member {
            self.word = None;
        }
        let of_before = || self.record.config.clone().map(Arc::new);
        let left = if membership == Membership::Leaving { of_before() } else { None };
        // Until the first step the node lives by the config of its cluster.
        let waits = matches!(self.record.phase, LeavePhase::Unconfirmed | LeavePhase::Announced);
        let config =
            if waits && membership == Membership::Member { of_before() } else { self.config.clone() };
        ClusterMembership { membership, config, left }
    }

    /// A member hears a config that reads as one of a node in no cluster.
    fn told_to_leave(&mut self, now: Mono, wall: GoTime) -> Membership {
        let (word, before) = (self.heard_word(now), self.word);
        self.word = match (word, before) {
            (Err(_), _) => None,
            // A second word of the same kind is the same word.
            (Ok(word), Some((since, before))) if before == word => Some((since, word)),
            (Ok(word), _) => Some((now, word)),
        };
        let (due, same_word) = (self.due(), self.word == before);
        let record = &mut self.record;
        if matches!(record.phase, LeavePhase::Member) {
            record.started_at = wall;
            self.timed.0 = true;
        }
        let restore = "to keep the node: restore the cluster section of the device config before Deadline";
        let check = "if the node is to stay: check the cluster section and that zedagent runs; if it is to go: nothing, it \
                     leaves once that is confirmed";
        let (phase, reason, deadline, next_step) = match (word, due) {
            (Ok(word), Some(due)) if now < due => (LeavePhase::Announced, word.reason(), Some(due), restore),
            (Ok(word), _) => (LeavePhase::Reaching, word.reason(), None, ""),
            (Err(why), _) => (LeavePhase::Unconfirmed, why, None, check),
        };
        if same_word && (phase, reason) == (record.phase, record.reason.as_str()) {
            return Membership::Member;
        }
        record.phase = phase;
        reason.clone_into(&mut record.reason);
        record.deadline = deadline.map_or(GoTime::ZERO, |due| wall.plus(due.since(now)));
        next_step.clone_into(&mut record.next_step);
        if phase == LeavePhase::Reaching { Membership::Leaving } else { Membership::Member }
    }

    fn joined(&mut self, config: &EdgeNodeClusterConfig) {
        self.record = NodeLeave {
            phase: LeavePhase::Member,
            cluster_name: cut(&config.cluster_name, TEXT_BYTES),
            cluster_id: config.cluster_id.uuid,
            reason: "this node is in a cluster".to_owned(),
            next_step: String::new(),
            config: Some(kept(config)),
            ..NodeLeave::default()
        };
    }

    /// Whether the walk has to be under way: the order stands, and was heard in this run.
    pub(super) fn walks(&self) -> bool {
        self.record.phase.is_under_way() && self.config.as_ref().is_some_and(|it| !it.valid)
    }

    pub(super) fn walked(&mut self, now: Mono, state: &LeaveState) {
        if state.stage == LeavePhase::Draining {
            self.keep_marks(now, state.drain.as_deref());
        }
        let record = &mut self.record;
        record.phase = state.stage;
        record.passed_over = state.passed_over.iter().map(|it| cut(it, TEXT_BYTES)).collect();
        record.blockers.clear();
        record.blockers_omitted = 0;
        let (reason, next_step) = match &state.drain {
            Some(drain) if state.stage == LeavePhase::Draining => {
                let beyond = drain.blockers.len().saturating_sub(BLOCKERS);
                record.blockers_omitted = u32::try_from(beyond).unwrap_or(u32::MAX);
                let held = drain.blockers.iter().take(BLOCKERS);
                let at = |it: &Blocker| it.since.moved(GoTime::ZERO, self.booted_at);
                record.blockers = held.map(|it| Blocker { since: at(it), ..short(it) }).collect();
                let counts = &drain.counts;
                let so_far = format!("{} of {} gone", counts.gone, number(counts.total, "pod"));
                let waits = "nothing; whoever cannot wait deletes the Node object of this node by hand, from another node";
                (format!("replicas of volumes live here, the node is drained: {so_far}"), waits)
            }
            _ if state.trouble.is_empty() => {
                ("the device config says that the node is in no cluster".to_owned(), "")
            }
            _ => (state.trouble.clone(), "fix that; it is tried again"),
        };
        (record.reason, record.next_step) = (cut(&reason, TEXT_BYTES), next_step.to_owned());
    }

    /// Since when the limits of the drain run: whoever starts again in it must not start them again.
    fn keep_marks(&mut self, now: Mono, drain: Option<&Progress>) {
        let record = &mut self.record;
        record.boot_id.clone_from(&self.boot_id);
        match drain {
            Some(drain) => record.marks = drain.marks.clone(),
            None if record.marks.attempt_ms == 0 => record.marks.attempt_ms = now.as_ms(),
            None => {}
        }
        shorten(&mut record.marks);
    }

    /// What the clock shows for a point in this boot by which all times of this run are made: also while it was set
    /// already and [`LeaveRules::clock_set`] has yet to be told.
    pub(super) fn wall(&self, at: Mono) -> GoTime {
        self.booted_at.plus(at.since_start())
    }

    /// The wall clock stands so to the monotonic one from now on: times of this run follow it.
    pub(super) fn clock_set(&mut self, booted_at: GoTime) {
        let before = std::mem::replace(&mut self.booted_at, booted_at);
        if before.is_zero() {
            return;
        }
        let record = &mut self.record;
        let (started, ended) = self.timed;
        let blockers = record.blockers.iter_mut().map(|it| &mut it.since);
        let times =
            [(&mut record.started_at, started), (&mut record.ended_at, ended), (&mut record.deadline, true)];
        for time in times.into_iter().filter_map(|(time, is_ours)| is_ours.then_some(time)).chain(blockers) {
            *time = time.moved(before, booted_at);
        }
    }

    /// Hears the end of the walk.
    pub(super) fn ended(
        &mut self,
        (phase, reason): &LeaveEnd,
        passed_over: &[String],
        node: &str,
        wall: GoTime,
    ) {
        let by_hand = format!(
            "on another node of that cluster: `kubectl delete node {node}`, or {node} cannot join again"
        );
        let stays = matches!(phase, LeavePhase::NotReached | LeavePhase::Failed);
        let next_step = if stays { by_hand } else { String::new() };
        let record = &mut self.record;
        record.blockers.clear();
        record.blockers_omitted = 0;
        (record.boot_id, record.marks, record.config) = (String::new(), DrainMarks::default(), None);
        (record.phase, record.reason, record.next_step) = (*phase, cut(reason, TEXT_BYTES), next_step);
        record.passed_over = passed_over.iter().map(|it| cut(it, TEXT_BYTES)).collect();
        record.ended_at = wall;
        self.timed.1 = true;
    }
}

/// What of a config is kept: all that EdgeNodeClusterStatus needs. A token too long to be kept is left out; without it
/// the node does not reach its cluster after a power cut.
fn kept(config: &EdgeNodeClusterConfig) -> EdgeNodeClusterConfig {
    let block = &config.cipher_token;
    let fits = block.cipher_data.as_ref().is_none_or(|it| it.0.len() <= TOKEN_BYTES);
    let lb_interfaces = config.lb_interfaces.as_ref().map(|it| it.iter().take(INTERFACES).cloned().collect());
    EdgeNodeClusterConfig {
        cipher_token: if fits { block.clone() } else { CipherBlockStatus::default() },
        // The same block again.
        cipher_gzip_registration_manifest_yaml: CipherBlockStatus::default(),
        master_node_ids: None,
        lb_interfaces,
        ..config.clone()
    }
}

#[cfg(test)]
mod tests;
