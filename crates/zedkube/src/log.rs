//! What the core says, as lines of the log.
//!
//! Not here: when it is said (`core`). The words of the reference's lines stay as they are.

use kubenodeop::node::gate::{GateStatus, Warning};
use topics::{OutageAnswer, OutageVerdict};
use tracing::{error, info, warn};

use crate::WAIT;
use crate::core::{API_AWAY, DrainLogEvent};

#[expect(clippy::too_many_lines, reason = "one arm for each line of the log")]
pub(crate) fn say(said: &DrainLogEvent) {
    match said {
        DrainLogEvent::Changing(from, to) => {
            info!("nodedrain-step:changing publishNodeDrainStatus from {from} to {to}");
        }
        DrainLogEvent::Taken(request) => {
            info!(request = %request.id(), context = request.context, "nodedrain-step:drain-request-handle NodeDrainRequest taken");
        }
        DrainLogEvent::Starting => info!("nodedrain-step:drain-starting cordonAndDrainNode"),
        DrainLogEvent::CannotStart(why) => warn!(why, "the drain cannot start yet"),
        DrainLogEvent::Passed(what) => warn!(what, "findings of the preflight are passed by a person's word"),
        DrainLogEvent::OutsideWindow(why) => info!(why, "the drain waits for a window"),
        DrainLogEvent::Paused(why) => warn!(why, "the drain waits until a person ends the pause"),
        DrainLogEvent::WindowPassed(by) => {
            warn!(by, "the drain starts outside of its windows by a person's word");
        }
        DrainLogEvent::WaitsForTurn(why) => info!(why, "waits for its turn to be down"),
        DrainLogEvent::TurnLost(why) => {
            warn!(
                why,
                "the turn to be down is no longer ours: the drain ends, our cordon goes, and it queues again"
            );
        }
        DrainLogEvent::OutageAnswer(OutageAnswer { verdict, why, next_step, unread, .. }) => {
            if *verdict == OutageVerdict::Go && !unread {
                info!(why, "nodeagent may take the machine down");
            } else if *verdict == OutageVerdict::Go {
                warn!(why, "nodeagent may take the machine down without a word of the Lease of turns");
            } else {
                warn!(why, next_step, "nodeagent may not take the machine down now");
            }
        }
        DrainLogEvent::HookFailed((tried, of), why) => {
            warn!(tried, of, error = why, "the hooks before the drain have failed");
        }
        DrainLogEvent::CordonFailed(tried, why) => {
            warn!(tried, error = why, "nodedrain-step:drain-cordon-failure cordonNode");
        }
        DrainLogEvent::Cordoned(owner) => info!(?owner, "nodedrain-step:drain-cordon-complete cordonNode"),
        DrainLogEvent::Attempt(attempt, of) => info!(attempt, of, "nodedrain-step:drain-attempt"),
        DrainLogEvent::AttemptFailed(attempt, why) => {
            warn!(attempt, error = why, "nodedrain-step:drain-failure");
        }
        DrainLogEvent::BlockerChanged(what) => {
            info!(change = what, "a blocker has changed, the drain is tried again now");
        }
        DrainLogEvent::PauseKept(attempt, rest) => {
            info!(
                attempt,
                secs = rest.as_secs(),
                "attempt failed before zedkube restarted, waiting for the rest of the pause"
            );
        }
        DrainLogEvent::Left(what) => warn!(what, "left by policy"),
        DrainLogEvent::GivingUp(why) => error!(error = why, "nodedrain-step:drain-failure-givingup"),
        DrainLogEvent::SkipWaits(later) => {
            warn!(
                secs = later.as_secs(),
                "isExtendedKubeAPIUnreachable the Kubernetes API is away: the drain is skipped after a time by chance"
            );
        }
        DrainLogEvent::SkipRefused(why) => warn!(
            why,
            "isExtendedKubeAPIUnreachable the Kubernetes API is away, and the drain is not skipped"
        ),
        DrainLogEvent::Skipped(why) if why.starts_with(API_AWAY) => {
            warn!(why, "nodedrain-step:drain-complete drain skipped: isExtendedKubeAPIUnreachable");
        }
        DrainLogEvent::Skipped(why) => warn!(why, "nodedrain-step:drain-complete drain skipped"),
        DrainLogEvent::HeldTooLong => {
            warn!(
                path = WAIT,
                "the fault-injection file has held this drain for too long; it is complete now"
            );
        }
        DrainLogEvent::Complete(took) => {
            info!("nodedrain-step:drain-complete");
            info!("kubevirt_node_drain_completion_time_seconds:{:.6}", took.as_secs_f64());
        }
        DrainLogEvent::Withdrawn => {
            info!("all requests were withdrawn: the drain is cancelled and our cordon removed");
        }
        DrainLogEvent::Forced(order, by) => warn!("NodeDrainStatus is forced to {order} by {by}"),
        DrainLogEvent::CordonRemoved => info!("removed our own cordon"),
        DrainLogEvent::LookFailed(why) => warn!(error = why, "cannot read our Node object"),
        DrainLogEvent::Leftovers(why) => say_leftovers(why),
        DrainLogEvent::Void(why) => {
            warn!(why, "COMPLETE is void: draining again for the requests that still wait");
        }
        DrainLogEvent::NodeActivity(what) => {
            info!(change = what, "something has happened on the drained node");
        }
        DrainLogEvent::Gate(GateStatus { layer: None, words, .. }) => {
            info!("the gate after the boot is open: {words}");
        }
        DrainLogEvent::Gate(GateStatus { layer: Some(layer), words, next_step, failed: true, .. }) => {
            warn!(
                layer = layer.text(),
                next_step, "the gate after the boot has failed and is looked at again and again: {words}"
            );
        }
        DrainLogEvent::Gate(GateStatus { layer: Some(layer), words, .. }) => {
            info!(layer = layer.text(), "the gate after the boot is shut: {words}");
        }
        DrainLogEvent::Repaired(what) => warn!(what, "removed after the boot"),
        DrainLogEvent::Tainted(taints) => {
            info!(
                taints = taints.join(", "),
                "taints keep pods away from the node; those of an outage are removed once kubelet is Ready and has renewed \
                 its lease for 60 s"
            );
        }
        DrainLogEvent::RepairsAgain(words, next_step) => warn!(next_step, "{words}"),
        DrainLogEvent::GateWarning(Warning { layer, words, next_step, .. }) => {
            warn!(layer = layer.text(), next_step, "after the boot: {words}");
        }
    }
}

fn say_leftovers(why: &str) {
    if why.is_empty() {
        info!("virtual machines and volumes are as before the last drain");
    } else {
        warn!(why, "virtual machines and volumes are not all as before the last drain yet");
    }
}
