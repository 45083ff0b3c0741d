//! Whether this node is in its cluster, on its way out, or outside.
//!
//! What sends a node out is a config that says so after one that said otherwise, heard in this run of the agent or
//! kept from an earlier one. A config that is gone counts as such only after a while: that file is never removed
//! by zedagent, and a Node object is not deleted for a moment without it.
//! Pure: no clock, no I/O, no task.

use std::sync::Arc;
use std::time::Duration;

use kubeops::leave::{End, Stage, State};
use kubeops::{Marks, Progress};
use step::Mono;
use topics::{
    CipherBlockStatus, DrainMarks, EdgeNodeClusterConfig, GoTime, LeavePhase, NodeLeave, cut_text as cut,
};

use crate::core::{Membership, blocker, kept_marks, marks, ms, short, shorten};

/// Longest text of the record, and most pods in it: it is on flash.
const TEXT_BYTES: usize = 480;
const BLOCKERS: usize = 16;
/// Longest encrypted token in it, and most interfaces.
const TOKEN_BYTES: usize = 8 << 10;
const INTERFACES: usize = 16;

/// How this node stands to its cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Standing {
    /// In, on its way out, or outside.
    pub(crate) membership: Membership,
    /// The last config that was decided upon.
    pub(crate) config: Option<Arc<EdgeNodeClusterConfig>>,
    /// On the way out, the config of the cluster that is being left.
    pub(crate) left: Option<Arc<EdgeNodeClusterConfig>>,
}

/// What is known.
#[derive(Debug)]
pub(super) struct Rules {
    record: NodeLeave,
    config: Option<Arc<EdgeNodeClusterConfig>>,
    gone_at: Option<Mono>,
    patience: Duration,
    boot_id: String,
}

impl Rules {
    /// Goes on from `record` in this boot. A config may be gone for `patience`.
    pub(super) fn new(mut record: NodeLeave, patience: Duration, boot_id: &str) -> Self {
        if record.boot_id != boot_id {
            // Points on another boot's clock mean nothing here.
            (record.boot_id, record.marks) = (String::new(), DrainMarks::default());
        }
        Self { record, config: None, gone_at: None, patience, boot_id: boot_id.to_owned() }
    }

    /// Where the drain of a walk that was cut off in this boot stood.
    pub(super) fn marks(&self) -> Marks {
        marks(&self.record.marks)
    }

    /// What is to be kept.
    pub(super) fn record(&self) -> &NodeLeave {
        &self.record
    }

    /// Hears a config. One that is not decided upon says nothing.
    pub(super) fn config(&mut self, config: EdgeNodeClusterConfig) {
        if config.initialized {
            self.config = Some(Arc::new(config));
            self.gone_at = None;
        }
    }

    /// Hears that there is no config any more.
    pub(super) fn gone(&mut self, now: Mono) {
        self.gone_at.get_or_insert(now);
    }

    /// When time alone decides something.
    pub(super) fn next_wake(&self) -> Option<Mono> {
        self.gone_at.map(|at| at + self.patience)
    }

    /// Draws the conclusions; `wall` is for what begins now.
    pub(super) fn settle(&mut self, now: Mono, wall: GoTime) -> Standing {
        if self.next_wake().is_some_and(|at| now >= at) {
            self.gone_at = None;
            self.config = Some(Arc::new(EdgeNodeClusterConfig {
                initialized: true,
                ..EdgeNodeClusterConfig::default()
            }));
        }
        let phase = self.record.phase;
        let membership = match &self.config {
            // An order to leave that stood before is not forgotten, but nothing is done before it is heard again.
            None if phase.is_under_way() => Membership::Leaving,
            None => Membership::Undecided,
            Some(config) if config.valid => {
                self.joined(&Arc::clone(config));
                Membership::Member
            }
            Some(_) if phase == LeavePhase::Member => {
                self.record.phase = LeavePhase::Reaching;
                self.record.started_at = wall;
                "the config says that this node is in no cluster any more"
                    .clone_into(&mut self.record.reason);
                "nothing".clone_into(&mut self.record.next_step);
                Membership::Leaving
            }
            Some(_) if phase.is_under_way() => Membership::Leaving,
            Some(_) => Membership::Outside,
        };
        let left = self.record.config.as_ref().filter(|_| membership == Membership::Leaving);
        Standing { membership, config: self.config.clone(), left: left.cloned().map(Arc::new) }
    }

    fn joined(&mut self, config: &EdgeNodeClusterConfig) {
        self.record = NodeLeave {
            phase: LeavePhase::Member,
            cluster_name: cut(&config.cluster_name, TEXT_BYTES),
            cluster_id: config.cluster_id.uuid,
            reason: "this node is in a cluster".to_owned(),
            next_step: "nothing".to_owned(),
            config: Some(kept(config)),
            ..NodeLeave::default()
        };
    }

    /// Whether the walk has to be under way: the order stands, and was heard in this run.
    pub(super) fn walks(&self) -> bool {
        self.record.phase.is_under_way() && self.config.as_ref().is_some_and(|it| !it.valid)
    }

    /// Whether this is another step than the one that is kept.
    pub(super) fn is_other_step(&self, stage: Stage) -> bool {
        self.record.phase != phase(stage)
    }

    /// Hears how far the walk is `now`; `wall` turns points of its clock into times.
    pub(super) fn walked(&mut self, now: Mono, state: &State, wall: impl Fn(Mono) -> GoTime) {
        if state.stage == Stage::Draining {
            self.keep_marks(now, state.drain.as_deref());
        }
        let record = &mut self.record;
        record.phase = phase(state.stage);
        record.passed_over = state.passed_over.iter().map(|it| cut(it, TEXT_BYTES)).collect();
        record.blockers.clear();
        record.blockers_omitted = 0;
        let waits =
            "nothing; whoever cannot wait deletes the Node object of this node by hand, from another node";
        let (reason, next_step) = match (state.stage, &state.drain) {
            (Stage::Draining, Some(drain)) => {
                let beyond = drain.blockers.len().saturating_sub(BLOCKERS);
                record.blockers_omitted = u32::try_from(beyond).unwrap_or(u32::MAX);
                let held = drain.blockers.iter().take(BLOCKERS);
                record.blockers = held.map(|it| short(&blocker(it, wall(it.since)))).collect();
                let counts = &drain.counts;
                let so_far = format!("{} of {} pods have left", counts.gone, counts.total);
                (format!("replicas of volumes live here, the node is drained: {so_far}"), waits)
            }
            (step, _) if state.trouble.is_empty() => (doing(step).to_owned(), "nothing"),
            (step, _) => (format!("{}: {}", doing(step), state.trouble), "mend that; it is tried again"),
        };
        (record.reason, record.next_step) = (cut(&reason, TEXT_BYTES), next_step.to_owned());
    }

    /// Since when the limits of the drain run: whoever starts anew in it must not start them anew (goals D15).
    fn keep_marks(&mut self, now: Mono, drain: Option<&Progress>) {
        let record = &mut self.record;
        record.boot_id.clone_from(&self.boot_id);
        match drain {
            Some(drain) => record.marks = kept_marks(&drain.marks),
            None if record.marks.attempt_ms == 0 => record.marks.attempt_ms = ms(now),
            None => {}
        }
        shorten(&mut record.marks);
    }

    /// Hears the end of the walk.
    pub(super) fn ended(&mut self, end: &End, passed_over: &[String], node: &str, wall: GoTime) {
        let by_hand = format!(
            "on another node of that cluster: `kubectl delete node {node}`, or {node} cannot join again"
        );
        let (phase, reason, next_step) = match end {
            End::Left => (LeavePhase::Left, "its Node object is deleted".to_owned(), "nothing".to_owned()),
            End::Gone => (
                LeavePhase::Left,
                "its Node object had been deleted already".to_owned(),
                "nothing".to_owned(),
            ),
            End::Alone => (
                LeavePhase::Alone,
                "it is the only node that its cluster's API knows: there is nothing to leave".to_owned(),
                "nothing".to_owned(),
            ),
            End::NotOurs(why) => {
                (LeavePhase::Failed, format!("its Node object is not touched: {why}"), by_hand)
            }
            End::NotReached(why) => {
                (LeavePhase::NotReached, format!("its cluster was out of reach: {why}"), by_hand)
            }
            End::Stays(why) => {
                (LeavePhase::Failed, format!("its Node object could not be deleted: {why}"), by_hand)
            }
        };
        let record = &mut self.record;
        record.blockers.clear();
        record.blockers_omitted = 0;
        (record.boot_id, record.marks, record.config) = (String::new(), DrainMarks::default(), None);
        (record.phase, record.reason, record.next_step) = (phase, cut(&reason, TEXT_BYTES), next_step);
        record.passed_over = passed_over.iter().map(|it| cut(it, TEXT_BYTES)).collect();
        record.ended_at = wall;
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

fn phase(stage: Stage) -> LeavePhase {
    match stage {
        Stage::Reaching => LeavePhase::Reaching,
        Stage::Cordoning => LeavePhase::Cordoning,
        Stage::RemovingApps => LeavePhase::RemovingApps,
        Stage::CheckingReplicas => LeavePhase::CheckingReplicas,
        Stage::Draining => LeavePhase::Draining,
        Stage::Deleting => LeavePhase::Deleting,
    }
}

fn doing(stage: Stage) -> &'static str {
    match stage {
        Stage::Reaching => "looks for the cluster that is to be left",
        Stage::Cordoning => "makes the node unschedulable",
        Stage::RemovingApps => "deletes the pods of applications",
        Stage::CheckingReplicas => "looks for replicas of volumes on this node",
        Stage::Draining => "replicas of volumes live here, the node is drained",
        Stage::Deleting => "deletes the Node object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::GoUuid;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn at(secs: u64) -> Mono {
        Mono::from_start(Duration::from_secs(secs))
    }

    fn wall() -> GoTime {
        "2026-03-14T09:26:53Z".parse().unwrap()
    }

    fn config(valid: bool) -> EdgeNodeClusterConfig {
        EdgeNodeClusterConfig { initialized: true, valid, cluster_name: "c".into(), ..Default::default() }
    }

    fn kept(phase: LeavePhase) -> Rules {
        Rules::new(NodeLeave { phase, ..NodeLeave::default() }, PATIENCE, "b1")
    }

    fn standing(rules: &mut Rules, secs: u64) -> Membership {
        rules.settle(at(secs), wall()).membership
    }

    #[test]
    fn a_member_whose_config_says_otherwise_leaves_and_is_outside_when_it_has_left() {
        let mut rules = kept(LeavePhase::Outside);
        assert_eq!((standing(&mut rules, 0), rules.walks()), (Membership::Undecided, false));
        rules.config(EdgeNodeClusterConfig::default());
        assert_eq!(standing(&mut rules, 0), Membership::Undecided, "not decided upon");
        rules.config(config(true));
        assert_eq!((standing(&mut rules, 0), rules.walks()), (Membership::Member, false));
        // As after a restart of zedagent: what stood stands (D-A12).
        rules.config(EdgeNodeClusterConfig::default());
        assert_eq!((standing(&mut rules, 0), rules.walks()), (Membership::Member, false));
        rules.config(config(false));
        assert_eq!((standing(&mut rules, 1), rules.walks()), (Membership::Leaving, true));
        assert_eq!((rules.record().phase, rules.record().started_at), (LeavePhase::Reaching, wall()));
        assert_eq!(rules.record().cluster_name, "c", "which cluster is left stays known");
        rules.ended(&End::Left, &["x".repeat(1000)], "n1", wall());
        assert_eq!((standing(&mut rules, 2), rules.walks()), (Membership::Outside, false));
        assert!(rules.record().passed_over[0].len() < 500, "the record is on flash");
        rules.config(config(true));
        assert_eq!(standing(&mut rules, 3), Membership::Member);
        assert_eq!(rules.record().ended_at, GoTime::ZERO, "what was before is not told of another cluster");
    }

    #[test]
    fn what_an_earlier_run_left_decides_what_a_config_means() {
        for (phase, before, after) in [
            (LeavePhase::Outside, Membership::Undecided, Membership::Outside),
            (LeavePhase::Member, Membership::Undecided, Membership::Leaving),
            (LeavePhase::Draining, Membership::Leaving, Membership::Leaving),
            (LeavePhase::Left, Membership::Undecided, Membership::Outside),
            (LeavePhase::NotReached, Membership::Undecided, Membership::Outside),
        ] {
            let mut rules = kept(phase);
            assert_eq!((standing(&mut rules, 0), rules.walks()), (before, false), "{phase:?}");
            rules.config(config(false));
            let walks = after == Membership::Leaving;
            assert_eq!((standing(&mut rules, 0), rules.walks()), (after, walks), "{phase:?}");
        }
    }

    #[test]
    fn a_config_that_says_member_again_ends_the_leave() {
        let mut rules = kept(LeavePhase::Cordoning);
        rules.config(config(false));
        assert_eq!((standing(&mut rules, 0), rules.walks()), (Membership::Leaving, true));
        rules.config(config(true));
        assert_eq!((standing(&mut rules, 1), rules.walks()), (Membership::Member, false));
    }

    #[test]
    fn a_config_that_is_gone_for_a_moment_changes_nothing() {
        let mut rules = kept(LeavePhase::Outside);
        rules.gone(at(0));
        assert_eq!(standing(&mut rules, 0), Membership::Undecided);
        rules.config(config(true));
        assert_eq!((standing(&mut rules, 70), rules.next_wake()), (Membership::Member, None));
        rules.gone(at(100));
        rules.gone(at(130));
        assert_eq!((standing(&mut rules, 159), rules.next_wake()), (Membership::Member, Some(at(160))));
        assert_eq!((standing(&mut rules, 160), rules.walks()), (Membership::Leaving, true));
    }

    #[test]
    fn each_end_is_told_with_what_a_person_can_do() {
        let why = || "x".to_owned();
        for (end, phase, by_hand) in [
            (End::Left, LeavePhase::Left, false),
            (End::Gone, LeavePhase::Left, false),
            (End::Alone, LeavePhase::Alone, false),
            (End::NotOurs(why()), LeavePhase::Failed, true),
            (End::NotReached(why()), LeavePhase::NotReached, true),
            (End::Stays(why()), LeavePhase::Failed, true),
        ] {
            let mut rules = kept(LeavePhase::Deleting);
            rules.ended(&end, &[], "n1", wall());
            let record = rules.record();
            assert_eq!((record.phase, record.ended_at), (phase, wall()), "{end:?}");
            assert_eq!(record.next_step.contains("kubectl delete node n1"), by_hand, "{end:?}");
            assert_eq!(record.cluster_id, GoUuid::default());
        }
    }
}
