//! The explored plans of a site: wishes, and amount of trouble.

use step::Fault;
use topics::{DrainStatus, Requester};
use zedkube::core::Learned;

use super::world::{Site, Trouble};
use crate::scenarios::{Change, Scenario, order};
use crate::world::Budget;

/// State of the first device at the start; the others wait for their turn then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Rest,
    Draining,
    /// In a new boot, before its gate opens.
    Back,
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    /// Wishes of each device, with its own trouble.
    pub(crate) wants: Vec<(Vec<Change>, Budget)>,
    /// Number of servers, the first devices.
    pub(crate) servers: usize,
    /// The server whose machine has a witness too, a vote without a node.
    pub(crate) witness: Option<usize>,
    pub(crate) limit: usize,
    pub(crate) trouble: Trouble,
    pub(crate) from: From,
    pub(crate) fault: Option<Fault>,
}

impl Plan {
    /// Devices that are all ordered to reboot, without trouble.
    pub(crate) fn of(name: &'static str, devices: usize) -> Self {
        let wants = (0..devices).map(|_| (vec![Change::Reboot(7)], Budget::default())).collect();
        let (trouble, from, fault) = (Trouble::default(), From::Rest, None);
        Self { name, wants, servers: 0, witness: None, limit: 1, trouble, from, fault }
    }

    pub(crate) fn each(self, budget: Budget) -> Self {
        Self { wants: self.wants.into_iter().map(|(changes, _)| (changes, budget)).collect(), ..self }
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = Scenario> + '_ {
        self.wants.iter().enumerate().map(|(nth, (changes, budget))| {
            let mut device = Scenario::quiet(self.name);
            (device.kube.take_turns, device.kube.preflight) = (true, true);
            device.with_images = changes.iter().any(|it| matches!(it, Change::Image(_)));
            let others = (0..self.servers).filter(|it| *it != nth).map(Site::name).collect();
            let learned = Learned {
                server: nth < self.servers,
                alone: false,
                servers: others,
                volume: "none".to_owned(),
                addresses: Vec::new(),
            };
            Scenario {
                changes: changes.clone(),
                forces: vec![order(DrainStatus::Complete, Requester::DeviceOp)],
                budget: *budget,
                fault: self.fault,
                learned: Some(learned),
                ..device
            }
        })
    }
}

pub(crate) fn all() -> Vec<Plan> {
    use Change::{Image, Operator, Reboot};
    let (quiet, calm) = (Budget::default(), Trouble::default());
    let calls = Trouble { lost: 2, slow: 2, ..calm };
    vec![
        Plan { trouble: calls, ..Plan::of("two workers; answers are lost or late", 2) },
        Plan { trouble: Trouble { slow: 1, ..calm }, ..Plan::of("two workers; agents end, tasks fail", 2) }
            .each(Budget { crashes: 2, failures: 1, ..quiet }),
        Plan {
            trouble: Trouble { parted: 1, ..calm },
            ..Plan::of("two workers; the power goes, the API is not reached", 2)
        }
        .each(Budget { cuts: 1, ..quiet }),
        Plan {
            servers: 1,
            trouble: Trouble { deletions: 1, slow: 1, ..calm },
            ..Plan::of("a server and a worker; the Lease is deleted, drains are undone", 2)
        }
        .each(Budget { hands: 1, pods: 1, ..quiet }),
        Plan {
            servers: 2,
            trouble: Trouble { restores: 1, slow: 1, ..calm },
            ..Plan::of("two servers; the Lease is restored, drains are undone", 2)
        }
        .each(Budget { hands: 1, cuts: 1, ..quiet }),
        Plan {
            wants: vec![
                (vec![Reboot(7)], Budget { crashes: 1, ..quiet }),
                (vec![Reboot(7)], Budget { crashes: 1, forces: 1, ..quiet }),
            ],
            trouble: Trouble { releases: 1, slow: 1, ..calm },
            ..Plan::of("two workers; an operator releases a turn, or forces", 2)
        },
        Plan {
            wants: vec![
                (vec![Reboot(7), Reboot(6)], quiet),
                (vec![Image(true)], quiet),
                (vec![Operator(true), Operator(false), Reboot(7)], quiet),
            ],
            trouble: Trouble { lost: 1, ..calm },
            ..Plan::of("three workers: a reboot that is withdrawn, an image, a person's drain", 3)
        },
        Plan {
            servers: 3,
            trouble: Trouble { lost: 1, slow: 1, parted: 1, ..calm },
            ..Plan::of("three servers with etcd; the power goes, a device refuses", 3)
        }
        .each(Budget { cuts: 1, refusals: 1, ..quiet }),
        Plan {
            servers: 2,
            witness: Some(0),
            trouble: Trouble { lost: 1, slow: 1, parted: 1, ..calm },
            ..Plan::of("two servers with etcd, a witness with the first; the power goes, agents end", 2)
        }
        .each(Budget { cuts: 1, crashes: 1, ..quiet }),
        Plan {
            servers: 2,
            limit: 2,
            trouble: Trouble { lost: 1, slow: 1, deletions: 1, ..calm },
            ..Plan::of("two servers and a worker, two at once; agents end, the Lease is deleted", 3)
        }
        .each(Budget { crashes: 1, ..quiet }),
        Plan {
            servers: 1,
            trouble: Trouble { restores: 1, deletions: 1, parted: 1, ..calm },
            ..Plan::of("a server and two workers; the Lease is restored and deleted, all kinds of trouble", 3)
        }
        .each(Budget { crashes: 1, cuts: 1, failures: 1, hands: 1, ..quiet }),
    ]
}

/// Each planted fault of a turn, its plan, and the report's words.
pub(crate) fn faults() -> Vec<(Plan, &'static str)> {
    let (quiet, calm) = (Budget::default(), Trouble::default());
    let planted = |fault, from, trouble, budget| {
        let mut plan = Plan { fault: Some(fault), from, trouble, ..Plan::of("planted", 2) };
        plan.wants[0].1 = budget;
        plan
    };
    let hands = Budget { hands: 1, ..quiet };
    let released = Trouble { releases: 1, ..calm };
    let together = "are out together";
    vec![
        (planted(Fault::TurnExpiry, From::Back, calm, hands), together),
        (planted(Fault::TurnGate, From::Back, calm, hands), together),
        (planted(Fault::TurnLastLook, From::Rest, released, quiet), together),
        (planted(Fault::TurnFence, From::Draining, Trouble { restores: 1, ..calm }, hands), together),
        (
            planted(Fault::TurnPreflight, From::Rest, calm, quiet),
            "into the queue before its preflight is clean",
        ),
        (planted(Fault::LastLook, From::Rest, released, quiet), "of a node that was given back"),
    ]
}
