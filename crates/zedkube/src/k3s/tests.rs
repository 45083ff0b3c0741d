//! The rules of k3s updates against a drain half, a kube container and a disk in memory. Pure: no clock, no I/O, no task.

use std::time::Duration;

use requester::{DeviceClustering, DrainTopicUpdate};
use step::{Core as _, Mono};
use topics::{
    Answer, DrainStatus, GoTime, K3S_RESTART, K3sStage, K3sUpdate, NodeDrainProgress, NodeDrainRequest,
    NodeDrainStatus, OperationPause, PauseScope, Requester, TurnShown,
};

use super::rules::{DesiredK3s, Override};
use super::rules::{Effect, Event, K3s, SavedK3sUpdate};

const T0: Mono = Mono::from_start(Duration::from_secs(100));

/// What outlives an agent, and what of it a boot.
#[derive(Debug, Clone, Default)]
struct Disk {
    version: String,
    on_boot: bool,
    file: Override,
    record: Option<K3sUpdate>,
    request: Option<NodeDrainRequest>,
}

#[derive(Default)]
struct Bench {
    core: K3s,
    now: Mono,
    boot: u32,
    disk: Disk,
    wanted: DesiredK3s,
    last: Vec<Effect>,
    /// Performs so many more effects, then the agent is gone.
    fuse: usize,
    gate: bool,
    look: Option<u64>,
    /// The request that was answered COMPLETE, and whether after a drain.
    earned: Option<(NodeDrainRequest, bool)>,
    kubelet: String,
}

fn booted_at() -> GoTime {
    "2026-03-14T09:25:13Z".parse().unwrap()
}

fn want(version: &str, file: &str) -> DesiredK3s {
    DesiredK3s { version: Some(version.to_owned()), file: Some(Override(file.into())), on_boot: None }
}

impl Bench {
    /// A node of a cluster that runs `v1`, as `KubeConfig` says.
    fn new() -> Self {
        let disk = Disk { version: "v1".to_owned(), ..Disk::default() };
        let kubelet = "v1".to_owned();
        let mut bench = Self { now: T0, disk, fuse: usize::MAX, kubelet, ..Self::default() };
        bench.start();
        bench
    }

    /// The agent starts with what is on disk, and hears what there is to hear.
    fn start(&mut self) {
        let found = SavedK3sUpdate {
            version: self.disk.version.clone(),
            on_boot: self.disk.on_boot,
            record: self.disk.record.clone(),
            request: self.disk.request.clone(),
            pause: None,
            boot_id: format!("b{}", self.boot),
            booted_at: booted_at(),
        };
        (self.gate, self.look) = (false, None);
        let (core, first) = K3s::new(found, self.now);
        self.core = core;
        self.perform(first);
        self.hear(Event::Member(DeviceClustering::Clustered, false));
        self.hear(Event::Drain(DrainTopicUpdate::Status(Some(NodeDrainStatus {
            status: DrainStatus::NotRequested,
            requested_by: Requester::None,
        }))));
        self.hear(Event::Drain(DrainTopicUpdate::Progress(Some(Box::default()))));
        self.hear(Event::Drain(DrainTopicUpdate::Read));
        let wanted = self.wanted.clone();
        self.hear(Event::Wanted(wanted));
        if self.earned.is_some() && self.disk.request.is_some() {
            self.answer(DrainStatus::Complete);
        }
    }

    fn power_cut(&mut self) {
        self.boot += 1;
        (self.disk.request, self.earned) = (None, None);
        self.now = self.now + Duration::from_secs(300);
        // The kube container reads it at its start.
        self.kubelet.clone_from(&self.disk.version);
    }

    fn hear(&mut self, event: Event) {
        let effects = self.core.step(self.now, event);
        self.perform(effects);
    }

    fn wants(&mut self, wanted: DesiredK3s) {
        self.wanted = wanted.clone();
        self.hear(Event::Wanted(wanted));
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        self.last.clone_from(&effects);
        for effect in effects {
            let Some(left) = self.fuse.checked_sub(1) else { return };
            self.fuse = left;
            match effect {
                Effect::Journal(record) => self.disk.record = Some(*record),
                Effect::Forget => self.disk.record = None,
                Effect::Request(request) => self.disk.request = Some(request),
                Effect::Withdraw => (self.disk.request, self.earned) = (None, None),
                Effect::Version(version) => {
                    let record = self.disk.record.clone().unwrap();
                    assert_eq!((record.stage, &record.to), (K3sStage::Applied, &version), "recorded first");
                    assert!(self.may(true) || version == self.kubelet, "{version} before its drain");
                    assert_ne!(version, self.disk.version, "E6: an equal value");
                    self.disk.version = version;
                }
                Effect::File(file) => {
                    assert!(self.may(false), "before its turn");
                    self.disk.file = file;
                }
                Effect::ReadFile => {
                    let file = self.disk.file.clone();
                    self.hear(Event::File(Some(file)));
                }
                Effect::Look(number) => self.look = Some(number),
                Effect::Gate(on) => self.gate = on,
                Effect::OnBoot(on_boot) => self.disk.on_boot = on_boot,
                Effect::Say(_) => {}
            }
        }
    }

    /// Whether the standing request was answered, after a drain where that is needed.
    fn may(&self, drained: bool) -> bool {
        self.earned.as_ref().is_some_and(|(request, done)| {
            self.disk.request.as_ref().is_some_and(|it| it.id() == request.id()) && (*done || !drained)
        })
    }

    fn answer(&mut self, status: DrainStatus) {
        let request = self.disk.request.clone().unwrap();
        let alone = request.is_turn_alone();
        let skip = if alone { "a turn is all that it needs" } else { "" }.to_owned();
        if status == DrainStatus::Complete {
            self.earned = Some((request.clone(), !alone));
        }
        let (requested_by, requested_at) = (request.requested_by, request.requested_at);
        let answer = Answer { requested_by, requested_at, status, skip, ..Answer::default() };
        let fence = u32::from(status == DrainStatus::Complete);
        let turn = TurnShown { fence, ..TurnShown::default() };
        let progress = NodeDrainProgress { answers: vec![answer], turn, ..NodeDrainProgress::default() };
        self.hear(Event::Drain(DrainTopicUpdate::Progress(Some(Box::new(progress)))));
        self.hear(Event::Drain(DrainTopicUpdate::Status(Some(NodeDrainStatus { status, requested_by }))));
    }

    fn report(&mut self) {
        let number = self.look.take().expect("no look was asked for");
        let kubelet = self.kubelet.clone();
        self.hear(Event::Reported(number, Ok(kubelet)));
    }

    fn has(&self, is: impl Fn(&Effect) -> bool) -> bool {
        self.last.iter().any(is)
    }

    fn stage(&self) -> Option<K3sStage> {
        self.disk.record.as_ref().map(|it| it.stage)
    }

    fn wait(&mut self) {
        self.now = self.core.next_wake().expect("the core waits for nothing");
        self.hear(Event::Tick);
    }

    /// Everything goes well from here on, until nothing happens any more. The end of the agent is a start of it.
    fn settle(&mut self, power: bool) {
        for _ in 0..200 {
            if self.fuse == 0 {
                self.fuse = usize::MAX;
                if power {
                    self.power_cut();
                }
                self.start();
            } else if self.look.is_some() {
                self.report();
            } else if self.disk.request.is_some() && !self.may(true) && !self.may(false) {
                self.answer(DrainStatus::Complete);
            } else if self.kubelet != self.disk.version {
                self.kubelet.clone_from(&self.disk.version);
            } else if self.gate && self.stage() == Some(K3sStage::Applied) {
                self.hear(Event::Gate(None));
            } else if self.core.next_wake().is_some() {
                self.wait();
            } else {
                return;
            }
        }
        panic!("never at rest: {:?}", self.disk);
    }
}

/// A node for which `v2` is wanted, and whose request stands.
fn held() -> Bench {
    let mut bench = Bench::new();
    bench.wants(want("v2", ""));
    bench.report();
    assert_eq!(bench.stage(), Some(K3sStage::Waiting));
    assert!(bench.disk.request.is_some());
    bench
}

fn applied() -> Bench {
    let mut bench = held();
    bench.answer(DrainStatus::Complete);
    assert_eq!((bench.stage(), bench.disk.version.as_str()), (Some(K3sStage::Applied), "v2"));
    bench
}

#[test]
fn u7_e6_another_version_is_held_back_until_the_answer_to_its_own_request() {
    let mut bench = held();
    let request = bench.disk.request.clone().unwrap();
    assert_eq!((request.requested_by, request.context.as_str()), (Requester::K3sUpdate, "k3s v2"));
    for status in [DrainStatus::Requested, DrainStatus::Cordoned, DrainStatus::DrainRetrying] {
        bench.answer(status);
        assert_eq!(bench.disk.version, "v1", "{status:?}");
    }
    // Somebody else's COMPLETE is none.
    let said = NodeDrainStatus { status: DrainStatus::Complete, requested_by: Requester::DeviceOp };
    bench.hear(Event::Drain(DrainTopicUpdate::Status(Some(said))));
    assert_eq!(bench.disk.version, "v1");
    bench.answer(DrainStatus::Complete);
    assert_eq!(bench.disk.version, "v2");
    // The turn stays until the kubelet reports it and the gate is open.
    bench.report();
    assert!(!bench.gate && bench.disk.request.is_some());
    bench.kubelet = "v2".to_owned();
    bench.wait();
    bench.report();
    assert!(bench.gate && bench.disk.request.is_some());
    bench.hear(Event::Gate(Some("the node is not Ready".to_owned())));
    assert!(bench.disk.record.as_ref().unwrap().waiting_for.contains("not Ready"));
    bench.hear(Event::Gate(None));
    assert_eq!((bench.stage(), bench.disk.request.clone()), (Some(K3sStage::Done), None));
}

#[test]
fn e6_nothing_is_published_before_the_config_was_heard_nor_what_is_equal_nor_what_runs_already() {
    let mut bench = Bench::new();
    assert_eq!(bench.core.next_wake(), None);
    bench.wants(want("v1", ""));
    assert!(bench.disk.record.is_none() && bench.disk.request.is_none() && bench.look.is_none());
    // What the kubelet reports already restarts nothing: no turn is taken for it.
    bench.kubelet = "v2".to_owned();
    bench.wants(want("v2", ""));
    bench.report();
    assert_eq!((bench.disk.version.as_str(), bench.disk.request.clone()), ("v2", None));
    bench.settle(false);
    assert_eq!(bench.stage(), Some(K3sStage::Done));
}

#[test]
fn a_wish_that_is_taken_back_before_the_drain_is_complete_leaves_nothing() {
    let mut bench = held();
    bench.answer(DrainStatus::Cordoned);
    bench.wants(want("v1", ""));
    assert_eq!((bench.disk.request.clone(), bench.stage(), bench.disk.version.as_str()), (None, None, "v1"));
    bench.settle(false);
    assert_eq!(bench.core.next_wake(), None);
}

#[test]
fn another_wish_under_way_continues_under_the_same_request_and_after_it_was_applied_in_the_same_turn() {
    let mut bench = held();
    let first = bench.disk.request.clone().unwrap();
    bench.answer(DrainStatus::Cordoned);
    bench.wants(want("v3", ""));
    bench.report();
    let again = bench.disk.request.clone().unwrap();
    assert_eq!((again.id(), again.context.as_str()), (first.id(), "k3s v3"));
    bench.answer(DrainStatus::Complete);
    assert_eq!(bench.disk.version, "v3");
    bench.wants(want("v4", ""));
    bench.look = bench.look.or(Some(0));
    bench.report();
    assert_eq!((bench.disk.version.as_str(), bench.disk.request.clone()), ("v4", Some(again)));
    bench.settle(false);
    assert_eq!((bench.stage(), bench.disk.request.clone()), (Some(K3sStage::Done), None));
}

#[test]
fn an_override_file_waits_for_a_turn_alone_and_a_version_beside_it_for_the_drain() {
    let mut bench = Bench::new();
    bench.wants(want("v1", "debug: true"));
    assert!(bench.look.is_none(), "no version tells it");
    assert_eq!(bench.disk.request.as_ref().unwrap().context, K3S_RESTART);
    assert_eq!(bench.disk.file, Override::default());
    bench.answer(DrainStatus::Complete);
    assert_eq!((bench.disk.file.0.as_slice(), bench.disk.version.as_str()), (&b"debug: true"[..], "v1"));
    // The kube container has a minute to notice; then the gate is watched.
    bench.report();
    assert!(!bench.gate);
    while !bench.gate {
        bench.wait();
        if bench.look.is_some() {
            bench.report();
        }
    }
    assert_eq!(bench.now.since(T0), Duration::from_secs(60));
    // What was answered for a turn is no answer to a drain.
    let alone = bench.disk.request.clone().unwrap();
    bench.wants(want("v2", "debug: true"));
    bench.report();
    assert_eq!(bench.disk.version, "v1");
    assert_ne!(bench.disk.request.clone().unwrap().context, alone.context);
    bench.settle(false);
    assert_eq!((bench.disk.version.as_str(), bench.stage()), ("v2", Some(K3sStage::Done)));
    assert_eq!(bench.disk.request, None);
}

/// The kube container does nothing until the update counts as failed.
fn failed() -> Bench {
    let mut bench = applied();
    while bench.stage() == Some(K3sStage::Applied) {
        if bench.look.is_some() {
            bench.report();
        } else {
            bench.wait();
        }
    }
    bench
}

#[test]
fn a_version_that_is_not_reported_in_time_keeps_the_turn_and_says_what_to_type() {
    let mut bench = failed();
    assert_eq!(bench.now.since(T0), Duration::from_mins(30));
    let record = bench.disk.record.clone().unwrap();
    assert_eq!(record.stage, K3sStage::Failed);
    assert!(record.waiting_for.contains("to report v2, it reports v1"), "{}", record.waiting_for);
    assert!(record.next_step.contains("k3s.version back to `v1`"), "{}", record.next_step);
    assert!(record.next_step.contains("once this node is healthy"), "{}", record.next_step);
    assert!(bench.disk.request.is_some(), "the turn stays");
    // Set back, nothing has to restart: it is over at once.
    bench.look = None;
    bench.wants(want("v1", ""));
    bench.settle(false);
    assert_eq!((bench.disk.version.as_str(), bench.stage()), ("v1", Some(K3sStage::Done)));
    assert_eq!(bench.disk.request, None);

    // It may come late.
    let mut bench = failed();
    bench.kubelet = "v2".to_owned();
    bench.wait();
    bench.report();
    bench.hear(Event::Gate(None));
    assert_eq!((bench.stage(), bench.disk.request.clone()), (Some(K3sStage::Done), None));

    // Somebody takes the turn away: no other one is asked for.
    let mut bench = failed();
    let turn = TurnShown { rule: "retry".into(), ..TurnShown::default() };
    let progress = NodeDrainProgress { turn, ..NodeDrainProgress::default() };
    bench.hear(Event::Drain(DrainTopicUpdate::Progress(Some(Box::new(progress)))));
    assert!(bench.has(|it| *it == Effect::Withdraw));
    let record = bench.disk.record.clone().unwrap();
    assert!(record.released && !record.is_under_way());
}

#[test]
fn a_failed_drain_is_asked_for_again_after_a_pause_that_grows_and_counts_once() {
    let mut bench = held();
    for secs in [30, 60, 120] {
        let first = bench.disk.request.clone().unwrap();
        bench.answer(DrainStatus::FailedDrain);
        bench.answer(DrainStatus::FailedDrain);
        assert_eq!(bench.disk.request, Some(first.clone()), "zedkube drains for it once the cause has ended");
        let from = bench.now;
        while bench.disk.request == Some(first.clone()) {
            bench.wait();
        }
        assert_eq!(bench.now.since(from), Duration::from_secs(secs));
        assert_ne!(bench.disk.request.clone().unwrap().id(), first.id());
    }
    assert_eq!(bench.disk.record.as_ref().unwrap().attempts, 4);
}

#[test]
fn r3_whatever_is_cut_off_at_any_write_comes_to_its_end_and_nothing_is_published_before_its_answer() {
    for power in [false, true] {
        for nth in 1..40 {
            let mut bench = Bench::new();
            bench.fuse = nth;
            bench.wants(want("v2", "debug: true"));
            bench.settle(power);
            bench.fuse = usize::MAX;
            let Disk { version, file, record, request, on_boot: _ } = bench.disk.clone();
            assert_eq!((version.as_str(), file.0.as_slice()), ("v2", &b"debug: true"[..]), "{nth} {power}");
            assert_eq!(request, None, "{nth} {power}");
            assert!(record.is_none_or(|it| it.stage == K3sStage::Done), "{nth} {power}");
        }
    }
}

#[test]
fn a_boot_in_the_middle_keeps_the_turn_of_before_and_asks_for_no_other() {
    let mut bench = applied();
    bench.power_cut();
    bench.kubelet = "v1".to_owned();
    bench.start();
    assert!(bench.disk.record.as_ref().unwrap().is_under_way() && bench.disk.request.is_none());
    bench.report();
    assert_eq!(bench.disk.request, None);
    bench.settle(false);
    assert_eq!(bench.stage(), Some(K3sStage::Done));
}

#[test]
fn e6_whether_machines_are_moved_back_is_published_at_once_and_never_when_it_is_so_already() {
    let boot = |on_boot| DesiredK3s { on_boot, ..want("v1", "") };
    let mut bench = Bench::new();
    bench.wants(boot(Some(false)));
    assert!(!bench.has(|it| matches!(it, Effect::OnBoot(_))), "it is so already");
    bench.wants(boot(Some(true)));
    assert!(bench.disk.on_boot && bench.disk.request.is_none(), "nothing is drained for it");
    bench.start();
    bench.wants(boot(Some(true)));
    assert!(!bench.has(|it| matches!(it, Effect::OnBoot(_))), "nor after a restart");
    bench.wants(boot(None));
    assert!(bench.disk.on_boot, "a config that does not say changes nothing");
    bench.wants(boot(Some(false)));
    assert!(!bench.disk.on_boot);
}

#[test]
fn x3_an_update_that_is_not_applied_waits_for_the_end_of_a_pause_and_a_refusal_takes_its_request_back() {
    let said = |scope| {
        let (by, reason) = ("field".into(), "new disk".into());
        Event::Pause(Some(OperationPause { scope, by, reason, ..OperationPause::default() }))
    };
    let mut bench = Bench::new();
    bench.hear(said(PauseScope::Node));
    bench.wants(want("v1", "debug: true"));
    assert_eq!(bench.disk.request, None);
    let record = bench.disk.record.clone().unwrap();
    assert!(record.waiting_for.contains("by field: new disk") && record.next_step.contains("zedbox resume"));
    bench.hear(Event::Pause(None));
    assert!(bench.disk.request.is_some());
    bench.hear(said(PauseScope::Node));
    assert!(bench.disk.request.is_some(), "it has started");
    bench.hear(said(PauseScope::Controller));
    assert_eq!((bench.disk.request.clone(), bench.stage()), (None, Some(K3sStage::Waiting)));
}
