//! The explored scenarios: start, wishes, and amount of trouble.

use step::Fault;
use topics::{CordonOwner, DrainStatus, NodeDrainStatus, PauseScope, Requester};

use super::topics::Config;
use super::world::Budget;

/// One change of wishes; each comes at most once, in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    Reboot(u32),
    Shutdown(u32),
    Image(bool),
    Clustered(bool),
    Fallback(u32),
    /// The new version of k3s is wanted, or the old one.
    K3s(bool),
    Detail,
    Operator(bool),
    Pause(PauseScope),
    Resume,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) config: Config,
    /// Exploration starts before any agent does; else all agents run and are at rest.
    pub(crate) from_boot: bool,
    /// It starts when nodeagent has begun the first change, and the machine is about to go down.
    pub(crate) going_down: bool,
    pub(crate) with_images: bool,
    pub(crate) with_k3s: bool,
    /// The new image runs already, and is in test.
    pub(crate) in_test: bool,
    pub(crate) cordon: CordonOwner,
    /// There is no Kubernetes API at any time.
    pub(crate) away: bool,
    pub(crate) fault: Option<Fault>,
    pub(crate) changes: Vec<Change>,
    pub(crate) forces: Vec<NodeDrainStatus>,
    pub(crate) budget: Budget,
    /// Agents may end within their effects, not only between steps.
    pub(crate) within_steps: bool,
    pub(crate) kube: zedkube::Limits,
    /// zedkube's facts about the cluster, where nodes take turns.
    pub(crate) learned: Option<zedkube::core::Learned>,
}

impl Scenario {
    /// A clustered node at rest, without wishes or trouble.
    pub(crate) fn quiet(name: &'static str) -> Self {
        // Few tries, so that failures occur; each value is published at once.
        let kube = zedkube::Limits {
            take_turns: false,
            // Tested beside the core.
            preflight: false,
            cordon_tries: 2,
            drain_tries: 2,
            drain_gap_ms: 0,
            progress_gap_ms: 0,
            marks_gap_ms: 0,
            ..zedkube::Limits::default()
        };
        Self {
            name,
            config: Config { reboot: Some(6), shutdown: Some(6), clustered: true, ..Config::default() },
            kube,
            ..Self::default()
        }
    }
}

pub(crate) fn order(status: DrainStatus, requested_by: Requester) -> NodeDrainStatus {
    NodeDrainStatus { status, requested_by }
}

pub(crate) fn all() -> Vec<Scenario> {
    wanted().into_iter().chain(undone()).chain(paused()).chain(updated()).collect()
}

/// A device's wishes, with trouble.
fn wanted() -> Vec<Scenario> {
    use Change::{Clustered, Detail, Fallback, Image, Operator, Reboot, Shutdown};
    use DrainStatus::{Complete, NotSupported, Unknown};
    let quiet = Budget::default();
    vec![
        Scenario {
            changes: vec![Reboot(7)],
            budget: Budget { crashes: 1, failures: 1, ..quiet },
            within_steps: true,
            ..Scenario::quiet("a reboot; an agent ends within a step, a task fails")
        },
        Scenario {
            changes: vec![Reboot(7)],
            budget: Budget { cuts: 1, refusals: 1, ..quiet },
            ..Scenario::quiet("a reboot; the power goes, the device refuses")
        },
        Scenario {
            changes: vec![Reboot(7), Reboot(6), Shutdown(7)],
            budget: Budget { failures: 1, ..quiet },
            ..Scenario::quiet("a reboot that is withdrawn, and a shutdown")
        },
        Scenario {
            changes: vec![Reboot(7), Clustered(false), Clustered(true)],
            budget: Budget { crashes: 1, ..quiet },
            ..Scenario::quiet("the cluster is left and joined in the middle of a drain")
        },
        Scenario {
            changes: vec![Clustered(false), Reboot(7), Image(true)],
            with_images: true,
            budget: Budget { cuts: 1, crashes: 1, ..quiet },
            ..Scenario::quiet(
                "a reboot and an image while the cluster is left; an agent ends, the power goes",
            )
        },
        Scenario {
            changes: vec![Reboot(7)],
            forces: vec![
                order(Complete, Requester::DeviceOp),
                order(Complete, Requester::Update),
                order(NotSupported, Requester::None),
                order(Unknown, Requester::None),
            ],
            budget: Budget { forces: 1, unforces: 1, hands: 1, ..quiet },
            ..Scenario::quiet("a reboot, force files, a person at the cordon")
        },
        Scenario {
            changes: vec![Reboot(7)],
            from_boot: true,
            ..Scenario::quiet("a reboot that is wanted while the agents start")
        },
        Scenario {
            changes: vec![Reboot(7), Image(true)],
            with_images: true,
            ..Scenario::quiet("a reboot and an image")
        },
        Scenario {
            changes: vec![Image(true), Image(false), Fallback(1)],
            with_images: true,
            budget: Budget { crashes: 1, failures: 1, ..quiet },
            ..Scenario::quiet("an image that is withdrawn, and a fallback; an agent ends, a task fails")
        },
        Scenario {
            changes: vec![Reboot(7), Operator(true), Operator(false), Detail],
            budget: Budget { crashes: 1, failures: 1, ..quiet },
            ..Scenario::quiet("a person requests a drain and withdraws it beside a reboot")
        },
        Scenario {
            changes: vec![Reboot(7), Shutdown(7)],
            with_images: true,
            in_test: true,
            config: Config { image: true, ..Scenario::quiet("").config },
            budget: Budget { crashes: 1, cuts: 1, ..quiet },
            ..Scenario::quiet("a reboot and a shutdown while an image is in test")
        },
        Scenario {
            changes: vec![Reboot(7)],
            from_boot: true,
            cordon: CordonOwner::Ours,
            budget: Budget { failures: 2, cuts: 1, hands: 1, ..quiet },
            ..Scenario::quiet("a cordon of an earlier boot, and the power goes again")
        },
        Scenario {
            changes: vec![Reboot(7), Image(true)],
            away: true,
            with_images: true,
            budget: Budget { crashes: 1, ..quiet },
            ..Scenario::quiet("there is no Kubernetes API")
        },
        Scenario {
            changes: vec![Image(true), Clustered(false)],
            forces: vec![order(Complete, Requester::Update)],
            with_images: true,
            budget: Budget { forces: 1, ..quiet },
            ..Scenario::quiet("an image, a force file, the cluster is left")
        },
    ]
}

fn undone() -> Vec<Scenario> {
    use Change::{Image, Reboot};
    let quiet = Budget::default();
    vec![
        Scenario {
            changes: vec![Reboot(7)],
            budget: Budget { hands: 1, pods: 1, ..quiet },
            ..Scenario::quiet("a reboot, somebody undoes its drain")
        },
        Scenario {
            changes: vec![Reboot(7), Image(true)],
            going_down: true,
            with_images: true,
            budget: Budget { crashes: 1, hands: 1, pods: 1, failures: 2, ..quiet },
            ..Scenario::quiet(
                "the machine is about to restart, and somebody undoes the drain, which then fails",
            )
        },
        Scenario {
            changes: vec![Image(true), Image(false)],
            going_down: true,
            with_images: true,
            budget: Budget { crashes: 1, hands: 1, failures: 2, ..quiet },
            ..Scenario::quiet("the machine is about to restart for an image, which is withdrawn or undone")
        },
    ]
}

fn paused() -> Vec<Scenario> {
    use Change::{Image, Pause, Reboot, Resume};
    vec![Scenario {
        changes: vec![Reboot(7), Image(true), Pause(PauseScope::Node), Pause(PauseScope::Controller), Resume],
        with_images: true,
        budget: Budget { crashes: 1, ..Budget::default() },
        ..Scenario::quiet("a reboot and an image, a person pauses them; an agent ends")
    }]
}

fn updated() -> Vec<Scenario> {
    use Change::{K3s, Pause, Reboot, Resume};
    let with_k3s = |name| Scenario { with_k3s: true, ..Scenario::quiet(name) };
    vec![
        Scenario {
            changes: vec![K3s(true), Reboot(7), K3s(false)],
            budget: Budget { crashes: 1, failures: 1, ..Budget::default() },
            ..with_k3s("k3s is updated, and set back, beside a reboot; an agent ends, a task fails")
        },
        Scenario {
            changes: vec![K3s(true), Pause(PauseScope::Node), Resume],
            budget: Budget { cuts: 1, hands: 1, ..Budget::default() },
            ..with_k3s("k3s is updated, a person pauses it and undoes its drain; the power goes")
        },
    ]
}
