//! What a person reads of requests, answers and the force file. Pure: no clock, no I/O, no task.

use topics::{DrainStatus, FORCE_FILE, NodeDrainRequest, Requester};

use super::table::Answers;
use crate::core::facts::Force;

impl Answers {
    /// The request that is shown: the one that is served while it exists, else another one that does.
    pub(crate) fn shown(&self, served: Option<&NodeDrainRequest>) -> NodeDrainRequest {
        let exists = |it: &&NodeDrainRequest| {
            !self.knows_requests() || self.requests().any(|known| known.id() == it.id())
        };
        served
            .filter(exists)
            .or_else(|| self.open().next())
            .or_else(|| self.requests().next())
            .cloned()
            .unwrap_or_default()
    }

    /// Nobody but a person with a shell waits.
    fn only_a_person_waits(&self) -> bool {
        !self.requests.is_empty() && self.requests.keys().all(|who| *who == Requester::Operator)
    }

    /// What comes after COMPLETE.
    pub(crate) fn after_complete(&self) -> &'static str {
        if !self.only_a_person_waits() {
            ""
        } else if self.given.iter().any(|it| !it.skip.is_empty()) {
            "NOT drained, pods may still run here: remove the cause, then `zedbox drain cancel` and \
             `zedbox drain request` again"
        } else {
            "work on the node; it takes pods again after `zedbox drain done`"
        }
    }

    /// What comes after a failure.
    pub(crate) fn after_failure(&self) -> &'static str {
        if self.only_a_person_waits() {
            "then ask again with `zedbox drain request`, or give up with `zedbox drain cancel`"
        } else {
            "it is requested again by itself; to go ahead without a drain: `zedbox drain force complete --for reboot \
             --reason '...'` or `--for update`"
        }
    }

    /// Why the force file does nothing, and what to do about it; empty when it does what it says.
    pub(crate) fn force_trouble(&self) -> String {
        match &self.force {
            Force::Refused(why) => format!("force file refused: {why}; correct or remove {FORCE_FILE}"),
            Force::Order(order)
                if order.status == DrainStatus::Complete && self.request_of(order.requested_by).is_none() =>
            {
                let update = order.requested_by == Requester::Update;
                let who = if update { "no update" } else { "no reboot or shutdown" };
                format!("the force file says {order}, but {who} waits; correct or remove {FORCE_FILE}")
            }
            Force::Order(_) | Force::Absent => String::new(),
        }
    }

    /// What comes of the force file as things are, in words for the history.
    pub(crate) fn effect_of_force(&self) -> String {
        match &self.force {
            Force::Absent => String::new(),
            Force::Refused(why) => format!("refused: {why}"),
            Force::Order(order) if order.status == DrainStatus::Complete => {
                match self.request_of(order.requested_by).map(|it| self.final_answer(it.id())) {
                    None => "no effect: no such request is pending".to_owned(),
                    Some(Some(answer)) if answer.status == DrainStatus::Complete => {
                        "released nothing: that request was answered already".to_owned()
                    }
                    Some(_) => "waits for this node to be known as a member of a cluster".to_owned(),
                }
            }
            Force::Order(order) if order.status == DrainStatus::NotSupported => {
                "drains are skipped while the file exists, as on a node in no cluster".to_owned()
            }
            Force::Order(order) => format!("{order} is shown while the file exists"),
        }
    }
}
