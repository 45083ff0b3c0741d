//! The effect of a person's pause on an operation: one rule for zedagent, baseosmgr and the updates of k3s.
//!
//! zedkube also starts no drain, for any requester. Not here: how the pause is read (`agent::operator`).
//! Pure: no clock, no I/O, no task.

use step::{Fault, planted};
use topics::{NodeDrainStatus, OperationPause, PauseScope, Requester};

use crate::completes;

/// The origin of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Orderer {
    /// By its config.
    Controller,
    /// A person at this node.
    Person,
    /// A person, for the whole site: announced to all nodes, so no single node stops it.
    Site,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paused {
    pub waiting_for: String,
    pub next_step: &'static str,
    /// A requested drain is withdrawn.
    pub withdraws: bool,
}

/// Whether an operation waits until a person ends `pause`: ordered by `from`, its drain requested by `by`. An operation that a
/// person forces does not wait.
pub fn paused(
    pause: Option<&OperationPause>,
    (by, from): (Requester, Orderer),
    started: bool,
    forced: Option<NodeDrainStatus>,
) -> Option<Paused> {
    let pause = pause.filter(|_| !planted(Fault::Pause))?;
    if forced.is_some_and(|it| completes(it, by)) {
        return None;
    }
    let waits = match (pause.scope, from) {
        (_, Orderer::Site) | (PauseScope::Controller, Orderer::Person) => false,
        (PauseScope::Controller, Orderer::Controller) => true,
        (PauseScope::Node, Orderer::Controller | Orderer::Person) => !started,
    };
    waits.then(|| Paused {
        waiting_for: format!("a person to let it go ahead: {}", pause.words()),
        next_step: pause.next_step(),
        withdraws: started,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::DrainStatus;

    #[test]
    fn x3_a_pause_keeps_what_has_not_started_and_a_refusal_what_the_controller_has_ordered() {
        let pause = |scope| OperationPause { scope, by: "field".to_owned(), ..OperationPause::default() };
        let (node, refusal) = (pause(PauseScope::Node), pause(PauseScope::Controller));
        // Whether it waits, and whether its drain is withdrawn.
        let (goes, waits, taken_back) = (None, Some(false), Some(true));
        let table = [
            (Orderer::Controller, false, waits, waits),
            (Orderer::Controller, true, goes, taken_back),
            (Orderer::Person, false, waits, goes),
            (Orderer::Person, true, goes, goes),
            (Orderer::Site, false, goes, goes),
            (Orderer::Site, true, goes, goes),
        ];
        for (from, started, paused_then, refused_then) in table {
            let of = |pause, forced| {
                paused(pause, (Requester::DeviceOp, from), started, forced).map(|it| it.withdraws)
            };
            assert_eq!(of(Some(&node), None), paused_then, "{from:?} {started}");
            assert_eq!(of(Some(&refusal), None), refused_then, "{from:?} {started}");
            assert_eq!(of(None, None), None);
            let forced = |requested_by, status| Some(NodeDrainStatus { status, requested_by });
            for (requested_by, status, released) in [
                (Requester::DeviceOp, DrainStatus::Complete, true),
                (Requester::Update, DrainStatus::Complete, false),
                (Requester::DeviceOp, DrainStatus::Cordoned, false),
            ] {
                let then = of(Some(&refusal), forced(requested_by, status));
                assert_eq!(then, if released { None } else { refused_then }, "{requested_by:?} {status:?}");
            }
        }
    }
}
