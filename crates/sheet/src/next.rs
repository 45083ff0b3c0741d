//! What a person can do first. Pure: no clock, no I/O, no task.

use topics::{DrainPhase, GoTime, NodeDrainProgress, NodeState, OperationPause};

use crate::judge::Judgement;
use crate::outcome::DrainOutcome;
use crate::view::DrainView;

/// What a person does who wants to work on a node that is in service.
const TO_WORK: &str = "Nothing to do. To work on this node: `sudo zedbox drain --reason TEXT --wait`";
const TO_KNOW: &str = "if this stays for a minute, look on the node whether zedkube runs: `systemctl status zedbox`; `journalctl -u zedbox -n 20`";
const TO_KEEP_OFF: &str = "do not work on the node: it takes pods again";
const TO_KEEP_AWAY: &str = "leave the node alone: it goes down by itself";
const TO_TAKE_CARE: &str = "do not work on the node: pods may still run on it";
const TO_UPDATE: &str = "fix what is named, at the controller or on this node (`journalctl -u zedbox -n 30`); it is tried again by itself";
const TO_START: &str = "start zedkube, as no drain continues without it: `systemctl restart zedbox`; where it ends again, `zedbox check \
     /etc/zedbox/zedbox.toml` and `journalctl -u zedbox -n 20` say why";

impl DrainView {
    /// What to do first about `judged`, or empty.
    pub fn next_step(&self, judged: &Judgement, now: GoTime) -> String {
        if let Some((agent, _)) = self.hung(now) {
            return format!(
                "`systemctl restart zedbox`; what {agent} did last: `journalctl -u zedbox -n 30`"
            );
        }
        let state = judged.headline.state;
        // What zedkube says after its COMPLETE is only for whoever may work on the node now (K7).
        let is_over = |it: &&NodeDrainProgress| it.phase == DrainPhase::Complete && state != NodeState::Safe;
        let progress = self.agreed().filter(|it| !is_over(it));
        let of_blocker = progress.and_then(|it| it.blockers.first()).map(|it| it.next_step.as_str());
        let waiting = self.pending.values().map(|it| it.next_step.as_str());
        // zedkube says it too, a moment later.
        let waiting = waiting.chain(self.pause().map(OperationPause::next_step));
        let steps = [
            self.holding().map(|it| it.next_step.as_str()),
            self.last_look.as_ref().map(|it| it.next_step.as_str()),
            progress.map(|it| it.next_step.as_str()),
            of_blocker,
        ];
        let gate = progress.map(|it| it.gate.next_step.as_str());
        let ill = self.ill().map(|it| it.2).into_iter().chain(gate).filter(|_| state == NodeState::InService);
        let known = steps.into_iter().flatten().chain(waiting).chain(ill).find(|it| !it.is_empty());
        let of_update = self.pending.is_empty() && self.requests.is_empty();
        let of_state = [
            (NodeState::Unknown, TO_KNOW),
            (NodeState::InService, TO_WORK),
            (NodeState::Requested, if of_update { TO_UPDATE } else { "" }),
            (NodeState::Withdrawn, TO_KEEP_OFF),
            (NodeState::Drained, TO_KEEP_AWAY),
            (NodeState::Unproved, TO_TAKE_CARE),
        ];
        let of_state = || of_state.iter().find(|(it, _)| *it == state).map_or("", |(_, step)| step);
        let step = known.unwrap_or_else(of_state);
        match (self.live.is_dead() && judged.outcome != DrainOutcome::Complete, known) {
            (true, Some(known)) => format!("{TO_START}; then, as it recorded: {known}"),
            (true, None) => TO_START.to_owned(),
            (false, _) => step.to_owned(),
        }
    }
}
