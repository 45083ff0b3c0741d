//! Machines in whole attempts, until the pods' turn comes, against a small KubeVirt in the hand; also cut off after any
//! call.
//!
//! Machines that are shut down, and the last copies of their volumes.

use std::collections::BTreeMap;

use kubeapi::names::PodUid;
use kubeapi::reply::Reply;
use step::{Core, Mono};
use topics::{CordonOwner, DrainMarks, DrainPhase};

use super::super::MachinesView;
use super::super::rules::Action;
use super::*;
use crate::engine::{AttemptRules, CallFailure, Effect, Engine, Event, Limit, LimitAction};
use crate::machines::kubevirt::MachineChange;
use crate::node::cordon::tests::node;
use crate::plan::PodFacts;
use crate::plan::tier::tests::pod;
use crate::progress::{BlockCode, MachineState, Progress};
use crate::storage::{Cause, StorageView, VolumeFinding, VolumeState, finding};

const HOUR: Duration = Duration::from_secs(3600);
const WAIT: Limit = Limit { after: None, then: LimitAction::Wait };

#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Succeed,
    Fail,
    Hang,
}

/// A node with machines, a KubeVirt, and an attempt that may be cut off and begun again.
struct Bench {
    engine: Engine,
    now: Mono,
    machines: BTreeMap<PodUid, VirtualMachine>,
    manner: Manner,
    /// Migrations that were made, by machine.
    made: BTreeMap<PodUid, u32>,
    evictions: Vec<String>,
    calls: u32,
    /// The agent is killed once it has made so many calls.
    dies_at: Option<u32>,
    replies: Vec<(&'static str, Reply)>,
    backs_off: Mono,
    /// No machine is left, or the attempt has failed.
    end: Option<Result<(), String>>,
    pending: Vec<Event>,
    storage: Option<StorageView>,
    copies: Vec<(String, u32)>,
}

/// An attempt that ends within `time`.
fn attempt(now: Mono, time: Duration, last_copy: Limit) -> Engine {
    let rules = AttemptRules { last_copy, attempt: time, ..AttemptRules::default() };
    Engine::new(drain(), rules, &DrainMarks::default(), now, 1)
}

fn moving() -> Reply {
    Reply::Moving { text: "429: Eviction triggered evacuation".into() }
}

impl Bench {
    fn new(machines: Vec<VirtualMachine>) -> Self {
        let now = Mono::from_start(HOUR);
        Self {
            engine: attempt(now, HOUR * 24, WAIT),
            now,
            machines: machines.into_iter().map(|it| (it.guest.uid.clone(), it)).collect(),
            manner: Manner::Succeed,
            made: BTreeMap::new(),
            evictions: Vec::new(),
            calls: 0,
            dies_at: None,
            replies: Vec::new(),
            backs_off: now,
            end: None,
            pending: Vec::new(),
            storage: None,
            copies: Vec::new(),
        }
    }

    fn view(&self) -> MachinesView {
        let machines: Vec<VirtualMachine> = self.machines.values().cloned().collect();
        let running = machines.iter().filter(|it| it.migration.as_ref().is_some_and(Migration::runs)).count();
        MachinesView { settings: settings(), unusual: vec![], machines, running }
    }

    fn pods(&self) -> Vec<PodFacts> {
        let labels = [("kubevirt.io".to_owned(), "virt-launcher".to_owned())];
        let facts = |it: &Launcher| PodFacts {
            pod: it.pod.clone(),
            labels: labels.clone().into(),
            terminating: it.ending,
            ..pod(&it.pod.name)
        };
        self.machines.values().flat_map(|it| &it.launchers).map(facts).collect()
    }

    /// The attempt begins, and hears of the storage.
    fn begin(&mut self) {
        self.hear(Event::Storage(Ok(self.storage.clone())));
        self.hear(Event::Tick);
    }

    fn progress(&self) -> Progress {
        self.engine.progress(self.now)
    }

    fn hear(&mut self, event: Event) {
        if self.end.is_some() {
            return;
        }
        let began = self.progress().phase == DrainPhase::MovingMachines;
        for effect in self.engine.step(self.now, event) {
            match effect {
                Effect::Look { turn, storage, .. } => {
                    let storage = storage.then(|| self.storage.clone().unwrap_or_default());
                    let seen = Ok((self.pods(), node(CordonOwner::Ours), storage));
                    self.pending.push(Event::Looked { turn, seen });
                }
                Effect::LookMachines => {
                    let view = self.view();
                    self.pending.push(Event::Machines(Ok(view)));
                }
                Effect::Act(guest, action) => {
                    self.calls += 1;
                    let reply = self.act(&guest.uid, &action);
                    if self.dies_at == Some(self.calls) {
                        self.restart();
                        return;
                    }
                    self.pending.push(Event::MachineAnswered { uid: guest.uid, action, reply });
                }
                Effect::AskCopy { volume, wanted } => {
                    self.copies.push((volume.clone(), wanted));
                    self.pending.push(Event::CopyAsked { volume, result: Ok(()) });
                }
                Effect::End(end) => self.end = Some(end.map(drop).map_err(|it| it.reason)),
                Effect::Say(_) | Effect::FollowMachines(_) => {}
                Effect::Cordon
                | Effect::Surge { .. }
                | Effect::Ask(..)
                | Effect::Withdraw(_)
                | Effect::FollowBudgets(_)
                | Effect::Inspect { .. }
                | Effect::FollowVolumes(_)
                | Effect::AskRuntime => {
                    assert_ne!(self.progress().phase, DrainPhase::MovingMachines, "machines come first");
                }
            }
        }
        if began && self.end.is_none() && self.progress().phase != DrainPhase::MovingMachines {
            self.end = Some(Ok(()));
        }
    }

    fn restart(&mut self) {
        self.pending.clear();
        self.engine = attempt(self.now, HOUR * 24, WAIT);
        self.begin();
    }

    fn act(&mut self, uid: &PodUid, action: &Action) -> Reply {
        let Some(it) = self.machines.get_mut(uid) else { return Reply::NotFound { text: "404".into() } };
        match action {
            Action::Mark(asked) => it.asked = Some(asked.clone()),
            Action::Evict(pod) => {
                self.evictions.push(pod.name.clone());
                if let Some(at) = self.replies.iter().position(|(name, _)| pod.name.ends_with(name)) {
                    return self.replies.remove(at).1;
                }
                if it.strategy == EvictionStrategy::None {
                    it.launchers[0].ending = true;
                    return Reply::Done;
                }
                it.marked = true;
                return moving();
            }
            Action::ClearMark => it.marked = false,
            Action::DeleteMigration(_) => it.migration = None,
            Action::Stop(work) => {
                let MachineOwner::Machine(Some(seen)) = &mut it.owner else { panic!("{work:?}") };
                let kubeapi::machines::MachineAction::Set(strategy, mark) = &work.turn else {
                    panic!("{work:?}")
                };
                (seen.strategy, seen.mark) = (strategy.clone(), mark.clone());
                it.launchers[0].ending = true;
            }
        }
        Reply::Done
    }

    fn kubevirt(&mut self) {
        for it in self.machines.values_mut() {
            if it.launchers.iter().any(|it| it.ending) {
                it.launchers.clear();
                it.over = true;
                continue;
            }
            let next = match it.migration.as_ref().map(|it| it.phase.as_str()) {
                None if it.marked && self.now >= self.backs_off => {
                    let made = self.made.entry(it.guest.uid.clone()).or_default();
                    *made += 1;
                    it.migration = Some(Migration {
                        object: named(&format!("{}-{made}", it.guest.name)),
                        ..migration("Pending")
                    });
                    continue;
                }
                Some("Pending") => "Scheduling",
                Some("Scheduling") if self.manner != Manner::Hang => "Running",
                Some("Running") if self.manner == Manner::Succeed => {
                    (it.here, it.node, it.marked, it.migration) = (false, "n2".into(), false, None);
                    it.launchers.clear();
                    continue;
                }
                Some("Running") => {
                    let migration = it.migration.take().unwrap();
                    self.backs_off = self.now + Duration::from_secs(20);
                    it.failed.insert(0, (migration.object.uid.to_string(), "stuck".into()));
                    continue;
                }
                None | Some(_) => continue,
            };
            it.migration.as_mut().unwrap().phase = next.into();
        }
    }

    fn pass(&mut self, secs: u64) {
        for _ in 0..secs {
            if self.end.is_some() {
                return;
            }
            while !self.pending.is_empty() && self.end.is_none() {
                let event = self.pending.remove(0);
                self.hear(event);
            }
            if self.end.is_none() {
                self.kubevirt();
                self.now = self.now + Duration::from_secs(1);
                self.hear(Event::MachinesChanged(MachineChange::Look));
                self.hear(Event::Pods(self.pods()));
            }
        }
    }

    fn blockers(&self) -> Vec<(String, String)> {
        self.progress().blockers.into_iter().map(|it| (it.pod, it.code)).collect()
    }
}

#[test]
fn d12_each_machine_is_moved_by_exactly_one_migration_wherever_the_agent_is_killed() {
    let all = || {
        vec![machine("a"), machine("b"), VirtualMachine { policy: MachinePolicy::Shutdown, ..machine("c") }]
    };
    let mut whole = Bench::new(all());
    whole.begin();
    whole.pass(60);
    assert_eq!(whole.end, Some(Ok(())));
    assert!(whole.calls >= 5, "{}", whole.calls);
    for dies_at in 1..=whole.calls {
        let mut bench = Bench { dies_at: Some(dies_at), ..Bench::new(all()) };
        bench.begin();
        bench.pass(120);
        assert_eq!(bench.end, Some(Ok(())), "killed at call {dies_at}");
        assert_eq!(bench.made.values().collect::<Vec<_>>(), [&1, &1], "killed at call {dies_at}");
        let stopped = &bench.machines[&named("c").uid];
        let MachineOwner::Machine(Some(seen)) = &stopped.owner else { panic!() };
        let mark = seen.mark.as_ref().unwrap();
        assert_eq!(mark.was.run_strategy.as_deref(), Some("Always"), "killed at call {dies_at}");
        assert_eq!(seen.strategy, mark.left);
    }
    let left = whole.progress().left;
    assert_eq!(left.len(), 1);
    assert!(left[0].starts_with("virtual machine shop/c: "), "{left:?}");
}

#[test]
fn d12_one_that_fails_three_times_is_shut_down_and_no_fourth_migration_is_made() {
    let mut bench = Bench { manner: Manner::Fail, ..Bench::new(vec![machine("a")]) };
    bench.begin();
    bench.pass(200);
    assert_eq!((bench.end.clone(), bench.made.values().sum::<u32>()), (Some(Ok(())), 3));
    assert!(bench.machines.values().all(|it| !it.marked && it.migration.is_none()));
    assert_eq!(bench.evictions.len(), 1, "KubeVirt tries again by itself");
}

#[test]
fn d12_one_that_hangs_is_given_up_after_the_limit_and_held_by_its_policy() {
    let held = VirtualMachine { policy: MachinePolicy::MigrateOrHold, ..machine("a") };
    let mut bench = Bench { manner: Manner::Hang, ..Bench::new(vec![held]) };
    bench.begin();
    bench.pass(900);
    assert_eq!(bench.blockers(), []);
    bench.pass(400);
    assert_eq!(bench.end, None);
    assert_eq!(
        bench.blockers(),
        [("virtual machine shop/a".to_owned(), BlockCode::CannotMove.text().to_owned())]
    );
    assert!(bench.machines.values().all(|it| !it.marked && it.migration.is_none()));
    assert_eq!(bench.made.values().sum::<u32>(), 1);
    // A restart holds it as well, and asks for nothing.
    bench.restart();
    bench.pass(100);
    assert_eq!((bench.evictions.len(), bench.made.values().sum::<u32>()), (1, 1));
    assert_eq!(bench.blockers().len(), 1);
}

#[test]
fn an_eviction_that_fails_is_asked_again_with_pauses_and_named() {
    let down = || Reply::Unanswered { text: "500: failed calling webhook".into(), retry_after: None };
    let mut bench = Bench::new(vec![machine("a")]);
    bench.replies = (0..3).map(|_| ("a", down())).collect();
    bench.begin();
    bench.pass(3);
    assert_eq!(
        bench.blockers(),
        [("virtual machine shop/a".to_owned(), BlockCode::Webhook.text().to_owned())]
    );
    let step = bench.progress().blockers.remove(0).next_step;
    assert!(step.contains("`kubectl get pods -A -l kubevirt.io=virt-api`"), "{step}");
    bench.pass(60);
    assert_eq!((bench.end.clone(), bench.evictions.len()), (Some(Ok(())), 4));
    // Its own webhook refuses, though the condition says that it can be migrated.
    let mut refused = Bench::new(vec![machine("a")]);
    let no = || Reply::CannotMove { text: "429: not live-migratable".into() };
    refused.replies = (0..9).map(|_| ("a", no())).collect();
    refused.begin();
    refused.pass(3);
    assert_eq!(
        refused.blockers(),
        [("virtual machine shop/a".to_owned(), BlockCode::CannotMove.text().to_owned())]
    );
}

#[test]
fn without_kubevirt_no_machine_is_left_and_a_role_that_lacks_it_fails_the_attempt() {
    let failure =
        |reply: Reply| CallFailure { text: reply.text().to_owned(), next_step: String::new(), reply };
    // The pods are listed, and the first look at the machines is under way.
    let begun = || {
        let mut bench = Bench::new(vec![machine("a")]);
        bench.begin();
        let looked = bench.pending.remove(0);
        bench.hear(looked);
        bench.pending.clear();
        bench
    };
    let mut bench = begun();
    bench.hear(Event::Machines(Err(failure(Reply::NotFound { text: "404".into() }))));
    assert_eq!(bench.end, Some(Ok(())));
    let mut refused = begun();
    let forbidden = Reply::Permanent { text: "403".into(), by: kubeapi::reply::RefusedBy::Role };
    refused.hear(Event::Machines(Err(failure(forbidden))));
    assert!(matches!(&refused.end, Some(Err(reason)) if reason.contains("403")));
    let mut troubled = begun();
    let away = Reply::Transient { text: "503".into(), retry_after: None };
    troubled.hear(Event::Machines(Err(failure(away))));
    assert!(troubled.end.is_none() && !troubled.progress().trouble.is_empty());
    troubled.now = troubled.now + Duration::from_secs(2);
    troubled.hear(Event::Tick);
    troubled.pass(30);
    assert_eq!(troubled.end, Some(Ok(())));
}

#[test]
fn the_attempts_time_ends_the_stage_and_names_who_is_left() {
    let mut bench = Bench { manner: Manner::Hang, ..Bench::new(vec![machine("a")]) };
    bench.engine = attempt(bench.now, Duration::from_secs(20), WAIT);
    bench.begin();
    bench.pass(30);
    let Some(Err(reason)) = &bench.end else { panic!() };
    assert!(reason.contains("virtual machines left: shop/a"), "{reason}");
    assert_eq!(bench.progress().machines[0].state, MachineState::Moving.text());
}

#[test]
fn a_machine_that_is_paused_and_resumed_four_times_in_ten_minutes_counts_as_not_migratable() {
    let one = |paused: Option<&str>, migratable| VirtualMachine {
        paused: paused.map(str::to_owned),
        migratable,
        policy: MachinePolicy::MigrateOrHold,
        ..machine("a")
    };
    // While KubeVirt has not said whether it can be migrated.
    let mut bench = Bench::new(vec![one(None, Migratable::Unknown)]);
    bench.begin();
    bench.pass(1);
    let turn = |bench: &mut Bench, paused: Option<&str>, secs: u64| {
        bench.now = bench.now + Duration::from_secs(secs);
        bench.machines = [one(paused, Migratable::Unknown)].map(|it| (it.guest.uid.clone(), it)).into();
        bench.pass(3);
        bench.progress().machines[0].clone()
    };
    for (nth, paused) in [Some("t1"), None, Some("t2")].into_iter().enumerate() {
        assert!(!turn(&mut bench, paused, 1).reason.contains("paused and resumed"), "{nth}");
    }
    let seen = turn(&mut bench, None, 1);
    assert_eq!(seen.state, MachineState::Held.text());
    let said = "cannot move: PausedAgainAndAgain: it was paused and resumed 4 times within 600 s";
    assert!(seen.reason.contains(said), "{}", seen.reason);
    // Two at once, where it was resumed and paused again between two looks.
    turn(&mut bench, Some("t3"), 1);
    assert!(turn(&mut bench, Some("t4"), 1).reason.contains("7 times"));
    // Those of long ago do not count.
    assert!(!turn(&mut bench, Some("t4"), 601).reason.contains("paused and resumed"));
}

fn ends(policy: MachinePolicy) -> VirtualMachine {
    VirtualMachine { policy, claims: vec!["data".to_owned()], ..machine("db") }
}

fn storage(state: VolumeState) -> StorageView {
    StorageView { findings: vec![finding(state, None)], ..StorageView::default() }
}

fn is_up(bench: &Bench) -> bool {
    bench.machines.values().all(|it| it.launchers.iter().any(|it| !it.ending))
}

#[test]
fn t3_a_machine_that_is_shut_down_stays_up_until_its_volume_has_another_copy_which_is_asked_for() {
    let last = |cause| Some(storage(VolumeState::LastCopy(cause)));
    let mut bench = Bench { storage: last(Cause::Enough), ..Bench::new(vec![ends(MachinePolicy::Shutdown)]) };
    bench.begin();
    bench.pass(50);
    assert_eq!((is_up(&bench), bench.copies.as_slice()), (true, [("pvc-1".to_owned(), 1)].as_slice()));
    let text = "virtual machine shop/db is not shut down yet: volume shop/data (pvc-1): the last healthy copy is here; ";
    let blocker = bench.progress().blockers.remove(0);
    assert_eq!((blocker.code.as_str(), blocker.reason.starts_with(text)), ("copying", true), "{blocker:?}");
    bench.hear(Event::Storage(Ok(last(Cause::Rebuilding))));
    bench.pass(5000);
    assert_eq!((is_up(&bench), bench.end.clone(), bench.progress().storage.len()), (true, None, 1));
    bench.hear(Event::Storage(Ok(Some(storage(VolumeState::Safe)))));
    bench.pass(5);
    assert_eq!((bench.end.clone(), bench.copies.len()), (Some(Ok(())), 1));
    // Moved by Longhorn, or allowed to go down.
    let one = |it| Some(StorageView { findings: vec![it], ..StorageView::default() });
    let moves = one(VolumeFinding { moves: true, ..finding(VolumeState::Safe, None) });
    let mut bench = Bench { storage: moves, ..Bench::new(vec![ends(MachinePolicy::Shutdown)]) };
    bench.begin();
    bench.pass(500);
    assert_eq!((is_up(&bench), bench.end), (true, None));
    let passed = VolumeFinding { passed: "so".into(), ..finding(VolumeState::LastCopy(Cause::Enough), None) };
    let other = VirtualMachine { claims: vec!["other".to_owned()], ..ends(MachinePolicy::Shutdown) };
    let table = [
        (ends(MachinePolicy::Shutdown), one(passed)),
        (other, last(Cause::Enough)),
        (ends(MachinePolicy::Shutdown), None),
        (ends(MachinePolicy::MigrateOrShutdown), last(Cause::Enough)),
    ];
    for (machine, storage) in table {
        let mut bench = Bench { storage, ..Bench::new(vec![machine.clone()]) };
        bench.begin();
        bench.pass(20);
        assert_eq!(bench.end, Some(Ok(())), "{machine:?}");
    }
}

#[test]
fn t3_the_limit_of_last_copies_holds_for_machines_and_begins_once_nothing_else_is_waited_for() {
    for (then, up) in [(LimitAction::Wait, true), (LimitAction::GetPast, false), (LimitAction::GiveUp, true)]
    {
        let last = storage(VolumeState::LastCopy(Cause::StrictLocal));
        let two = vec![ends(MachinePolicy::Shutdown), machine("a")];
        let mut bench = Bench { storage: Some(last), manner: Manner::Hang, ..Bench::new(two) };
        bench.engine = attempt(bench.now, HOUR * 24, Limit { after: Some(Duration::from_secs(60)), then });
        bench.begin();
        bench.pass(200);
        assert_eq!((bench.end.clone(), bench.progress().marks.storage_ms), (None, 0), "{then:?}");
        bench.manner = Manner::Succeed;
        for it in bench.machines.values_mut().filter(|it| it.migration.is_some()) {
            it.migration.as_mut().unwrap().phase = "Running".into();
        }
        bench.pass(60);
        let since = bench.progress().marks.storage_ms;
        assert!(bench.end.is_none() && since > 0, "{then:?}: {:?}", bench.end);
        bench.pass(10);
        let db = &bench.machines[&named("db").uid];
        assert_eq!(!db.over, up, "{then:?}");
        assert_eq!(
            bench.progress().marks.storage_ms,
            since,
            "{then:?}: the rest of the drain counts from there"
        );
        match (then, bench.end) {
            (LimitAction::Wait, None) | (LimitAction::GetPast, Some(Ok(()))) => {}
            (LimitAction::GiveUp, Some(Err(why))) => assert_eq!(
                why,
                "60 s after everything else left, this node still has the last healthy copy of shop/data (pvc-1)"
            ),
            (_, end) => panic!("{then:?}: {end:?}"),
        }
    }
}
