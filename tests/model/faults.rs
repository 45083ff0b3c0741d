//! Each planted fault of the reference, and the property that catches it.

use step::Fault;
use topics::{DrainStatus, PauseScope, Requester};

use super::scenarios::{Change, Scenario, order};
use super::world::Budget;

/// A fault, where it shows, and the report's words.
pub(crate) struct Planted {
    pub(crate) fault: Fault,
    pub(crate) scenario: Scenario,
    pub(crate) reported: &'static str,
}

pub(crate) fn all() -> Vec<Planted> {
    use Change::{Clustered, Detail, Fallback, Image, K3s, Operator, Pause, Reboot, Resume, Shutdown};
    let quiet = Budget::default();
    let failures = |failures| Budget { failures, ..quiet };
    let crash = Budget { crashes: 1, ..quiet };
    let base = || Scenario::quiet("planted");
    let images = || Scenario { with_images: true, ..base() };
    let with = |changes: &[Change]| Scenario { changes: changes.to_vec(), ..base() };
    let image = |changes: &[Change]| Scenario { changes: changes.to_vec(), ..images() };
    let k3s = |changes: &[Change]| Scenario { with_k3s: true, ..with(changes) };
    let undone = |budget| Scenario {
        budget: Budget { hands: 1, pods: 1, ..budget },
        going_down: true,
        ..with(&[Reboot(7)])
    };
    let shut_and_switch = [Shutdown(7), Image(true)];
    vec![
        planted(Fault::A1, with(&[Reboot(7)]), "zedagent commands reboot undrained"),
        planted(Fault::A3, with(&[Reboot(7)]).under(crash), "zedagent commands reboot undrained"),
        planted(Fault::A4Lost, with(&[Reboot(7)]).under(crash), "for ever: reboot Some(7)"),
        planted(Fault::A4NotAgain, with(&[Reboot(7)]).under(failures(2)), "for ever: reboot Some(7)"),
        planted(Fault::A5, in_test(image(&[Reboot(7)])), "zedagent commands reboot undrained"),
        planted(Fault::N1, with(&[Reboot(7), Reboot(6)]), "WaitDrainInProgress stays true"),
        planted(Fault::N3, image(&[Fallback(1)]), "baseosmgr switches undrained"),
        planted(Fault::B1, image(&[Image(true)]), "baseosmgr switches undrained"),
        planted(Fault::B2, image(&[Image(true), Image(false)]), "an image that nobody wants"),
        planted(Fault::B3, image(&shut_and_switch), "for ever: the image"),
        planted(Fault::X1, image(&shut_and_switch), "for ever: the image"),
        planted(Fault::K1, with(&[Reboot(7)]).under(failures(1)), "gives up after 1 of 2"),
        planted(Fault::K2, Scenario { away: true, ..with(&[Reboot(7)]) }, "for ever: reboot Some(7)"),
        planted(Fault::K3, with(&[Reboot(7), Operator(true)]), "two tasks"),
        planted(Fault::K5, with(&[Reboot(7), Detail]), "NOTREQUESTED is said while a request stands"),
        planted(Fault::K6, with(&[Reboot(7), Reboot(6)]), "for ever"),
        planted(Fault::K7, with(&[Reboot(7)]).under(crash), "forgotten its drain"),
        planted(Fault::K8, with(&[Reboot(7), Reboot(6)]), "our cordon is on the node"),
        planted(Fault::K9, with(&[Reboot(7)]), "goes round for ever: reboot"),
        planted(
            Fault::K13,
            Scenario {
                forces: vec![order(DrainStatus::Complete, Requester::Update)],
                budget: Budget { forces: 1, ..quiet },
                ..images()
            },
            "is taken away by DeviceOp",
        ),
        planted(
            Fault::K14,
            Scenario {
                forces: vec![order(DrainStatus::Cordoned, Requester::None)],
                budget: Budget { forces: 1, ..quiet },
                ..with(&[Reboot(7)])
            },
            "which the force file orders",
        ),
        planted(Fault::K29, with(&[Reboot(7), Reboot(6)]).under(failures(1)), "our cordon is on the node"),
        planted(
            Fault::Leaving,
            with(&[Clustered(false), Reboot(7)]).under(crash),
            "zedagent commands reboot undrained",
        ),
        planted(Fault::LastLook, undone(failures(2)), "of a node that was given back"),
        planted(Fault::CommandedOnce, undone(failures(2)), "for ever: reboot"),
        planted(Fault::NewPods, undone(quiet), "of a node that was given back"),
        planted(
            Fault::WithdrawUnasked,
            Scenario { going_down: true, ..image(&[Image(true), Image(false)]) },
            "of a node that was given back",
        ),
        planted(Fault::K3sUndrained, k3s(&[K3s(true)]).under(failures(2)), "k3s is replaced undrained"),
        planted(Fault::Pause, k3s(&[K3s(true), Pause(PauseScope::Controller)]), "although refused by field"),
        planted(
            Fault::Aging,
            Scenario { going_down: true, budget: crash, ..with(&[Reboot(7)]) },
            "forgotten its drain",
        ),
        planted(
            Fault::Pause,
            with(&[Reboot(7), Pause(PauseScope::Node), Resume]),
            "although paused by field",
        ),
    ]
}

impl Scenario {
    fn under(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }
}

fn in_test(scenario: Scenario) -> Scenario {
    let config = super::topics::Config { image: true, ..scenario.config };
    Scenario { in_test: true, config, ..scenario }
}

fn planted(fault: Fault, scenario: Scenario, reported: &'static str) -> Planted {
    Planted { fault, scenario: Scenario { fault: Some(fault), ..scenario }, reported }
}
