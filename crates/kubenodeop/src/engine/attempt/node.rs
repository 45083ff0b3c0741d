//! Our node in an attempt: kept cordoned, and told when its object is gone.
//!
//! Sources: goals D5, D18. Pure: no clock, no I/O, no task.

use step::{Mono, say};

use super::{CORDON_AGAIN, CallFailure, CallState, Effect, Engine, PLACED_BEFORE, RefusedCall};
use crate::changes::watched::NodeMark;
use crate::node::cordon::NodeFacts;
use kubeapi::reply::ReplyClass;

impl Engine {
    /// Our node as it is now.
    pub(super) fn node(&mut self, now: Mono, node: &NodeFacts, effects: &mut Vec<Effect>) {
        self.node = Some(NodeMark::from(node));
        self.node_gone = None;
        self.roster.hear_kubelet(now, node);
        if node.unschedulable {
            if !self.roster.counts_returns() {
                self.roster.count_returns(Some(now + PLACED_BEFORE));
            }
        } else {
            self.roster.count_returns(None);
            self.empty_since = None;
            if self.cordon == CallState::Idle {
                self.roster.bump();
                self.cordon = CallState::Due(now.max(self.cordon_from));
                say!(effects, warn, "node was uncordoned in mid-drain, cordoning it again");
            }
        }
    }

    pub(super) fn cordoned(&mut self, now: Mono, result: Result<bool, CallFailure>) {
        self.roster.bump();
        self.empty_since = None;
        self.cordon = CallState::Idle;
        match result {
            Ok(written) => {
                self.cordon_tries = 0;
                self.cordon_from = now + CORDON_AGAIN;
                self.recordons = self.recordons.saturating_add(u32::from(written));
                self.roster.count_returns(Some(now + PLACED_BEFORE));
                // What the watch said while the call was under way was not listened to.
                if self.look == CallState::Idle {
                    self.look = CallState::Due(now);
                }
            }
            Err(failure) => match failure.reply.class() {
                ReplyClass::Permanent | ReplyClass::Done => self.refused(now, RefusedCall::Cordon, failure),
                ReplyClass::Budget | ReplyClass::Throttle | ReplyClass::Transient | ReplyClass::Denied => {
                    self.cordon_tries = self.cordon_tries.saturating_add(1);
                    // At most 4 s, so that the cordon is back within 5 s once it can be.
                    let pause = self.pace.pause(self.cordon_tries.min(3), failure.reply.retry_after());
                    self.cordon = CallState::Due(now + pause);
                    self.trouble = Some(failure);
                }
            },
        }
    }

    /// The object of our node was deleted: it has no cordon, and nothing is proved, before the kubelet has registered it
    /// again. Told at once, as pods that take long would hide it.
    pub(super) fn node_is_gone(&mut self, failure: CallFailure) {
        self.roster.bump();
        self.empty_since = None;
        self.node_gone = Some(failure);
    }
}
