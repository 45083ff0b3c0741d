//! Tests of the core on virtual time.
//!
//! Pure: no clock, no I/O, no task.

mod faults;
mod rules;
mod site;

use std::time::Duration;

use step::{Core as _, Inserted as _, Mono};
use topics::{
    Answer, DeviceOp, DeviceOpPending, DeviceOpsCmd, DrainStatus, GoTime, NodeAgentStatus, NodeDrainProgress,
    NodeDrainRequest, NodeDrainStatus, PendingState, RequestId, Requester, SkipKind,
};

use super::{DesiredDevice, Effect, Event, SavedDeviceOps, SiteOrder, Zedagent};
use crate::limits::Limits;

const T0: Mono = Mono::from_start(Duration::from_secs(100));

fn wall() -> GoTime {
    "2026-03-14T09:26:53Z".parse().unwrap()
}

fn command(counter: u32) -> DeviceOpsCmd {
    DeviceOpsCmd { counter, desired_state: true, ops_time: String::new() }
}

/// Counter 6 of both operations was carried out.
fn found(boot: &str) -> SavedDeviceOps {
    let counters = [DeviceOp::Reboot, DeviceOp::Shutdown].map(|op| (op, command(6))).into_iter().collect();
    SavedDeviceOps { counters, boot_id: boot.into(), ..SavedDeviceOps::default() }
}

fn new(found: SavedDeviceOps) -> (Zedagent, Vec<Effect>) {
    Zedagent::new(&Limits::default(), found, T0, wall().minus(T0.since_start()))
}

/// Beside an idle zedkube, without an order of a person.
fn start(found: SavedDeviceOps) -> (Zedagent, Vec<Effect>) {
    let (mut core, mut effects) = new(found);
    effects.extend(core.step(T0, status(2, 1)));
    core.step(T0, Event::Person(None));
    (core, effects)
}

/// The config of a clustered node wants these.
fn wants(counters: impl IntoIterator<Item = (DeviceOp, u32)>) -> Event {
    let commands = counters.into_iter().map(|(op, counter)| (op, command(counter))).into_lite();
    Event::Config(DesiredDevice { commands, clustered: true, ..DesiredDevice::default() })
}

fn config(reboot: u32, shutdown: u32) -> Event {
    wants([(DeviceOp::Reboot, reboot), (DeviceOp::Shutdown, shutdown)])
}

/// The same of a node in no cluster.
fn single(event: Event) -> Event {
    let Event::Config(wanted) = event else { panic!("no config: {event:?}") };
    Event::Config(DesiredDevice { clustered: false, ..wanted })
}

fn status(number: u8, by: u8) -> Event {
    Event::Drain(Some(NodeDrainStatus { status: number.into(), requested_by: by.into() }))
}

fn answer(request: &NodeDrainRequest, number: u8) -> Event {
    answer_as(request.id(), number, |_| {})
}

fn answer_as(id: RequestId, number: u8, change: impl FnOnce(&mut Answer)) -> Event {
    let (requested_by, requested_at) = (id.by, id.at);
    let mut answer = Answer { requested_by, requested_at, status: number.into(), ..Answer::default() };
    change(&mut answer);
    let progress = NodeDrainProgress { answers: vec![answer], ..NodeDrainProgress::default() };
    Event::Progress(Some(Box::new(progress)))
}

fn forced(requested_by: Requester) -> Event {
    Event::Forced(Some(NodeDrainStatus { status: DrainStatus::Complete, requested_by }))
}

/// What nodeagent says, changed from nothing.
fn nodeagent(change: impl FnOnce(&mut NodeAgentStatus)) -> Event {
    let mut status = NodeAgentStatus::default();
    change(&mut status);
    Event::Nodeagent(Box::new(status))
}

/// The machine is going down by nodeagent, or is not.
fn goes(device_reboot: bool) -> Event {
    nodeagent(|it| it.device_reboot = device_reboot)
}

fn request(effects: &[Effect]) -> Option<NodeDrainRequest> {
    effects.iter().find_map(|it| if let Effect::Request(request) = it { Some(request.clone()) } else { None })
}

fn asks(effects: &[Effect]) -> bool {
    request(effects).is_some()
}

/// The last record of an operation.
fn journal(effects: &[Effect]) -> DeviceOpPending {
    let of = |it: &Effect| if let Effect::Journal(pending) = it { Some(pending.clone()) } else { None };
    effects.iter().rev().find_map(of).unwrap_or_else(|| panic!("nothing is recorded: {effects:?}"))
}

/// An operation as an earlier run left it.
fn left(op: DeviceOp, state: PendingState, boot_id: &str, site: &str) -> DeviceOpPending {
    let (boot_id, site) = (boot_id.to_owned(), site.to_owned());
    DeviceOpPending { op, state, boot_id, site, ..DeviceOpPending::default() }
}
