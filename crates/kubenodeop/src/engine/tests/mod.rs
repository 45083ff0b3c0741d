//! An attempt against answers from the hand, with the time in the hand: the bench.

mod any_end;
mod blockers;
mod containers;
mod ends;
mod holds;
mod limits;
mod pods;
mod proof;
mod responders;
mod sticky;
mod storage;
mod surge;
mod tiers;
mod two_budgets;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use step::{Core, Mono};

use super::{
    AttemptFailure, AttemptOutcome, AttemptRules, CallFailure, DrainSuccess, Effect, Engine, Event, Limit,
    LimitAction,
};
use crate::calls::remove::RemovalCall;
use crate::calls::surge::SurgeAnswer;
use crate::calls::volumes::{AttachmentFacts, ClaimName};
use crate::changes::watched::{PermanentRefusal, RefusedCall};
use crate::machines::rules::DrainIdentity;
use crate::node::cordon::NodeFacts;
use crate::node::cordon::tests::node as of_cordon;
use crate::plan::budget::tests::budget as numbered;
use crate::plan::budget::{BudgetFacts, GuardedPod};
use crate::plan::held::{Inspected, UnhealthyPod, UnhealthyReason};
use crate::plan::tier::Tier;
use crate::plan::tier::tests::pod;
use crate::plan::{PodFacts, PodOwner};
use crate::progress::{BlockCode, Progress};
use crate::storage::StorageView;
use kubeapi::names::{PodRef, PodUid};
use kubeapi::reply::{DeniedBy, RefusedBy, Reply};
use topics::{Blocker, CordonOwner, DrainMarks, DrainPhase, GoTime};

fn node(open: bool) -> NodeFacts {
    of_cordon(if open { CordonOwner::None } else { CordonOwner::Ours })
}

/// What is left in place, without the reasons.
fn what(left: &[String]) -> Vec<String> {
    left.iter().map(|it| it.split_once(": ").unwrap().0.to_owned()).collect()
}

/// As blockers have their times.
fn stamp(at: Mono) -> GoTime {
    GoTime::ZERO.plus(at.since_start())
}

fn budget_reply() -> Reply {
    Reply::Budget { text: "429: needs 2".to_owned(), retry_after: None }
}

fn transient() -> Reply {
    Reply::Transient { text: "503".to_owned(), retry_after: None }
}

fn permanent() -> Reply {
    Reply::Permanent { text: "403 Forbidden".to_owned(), by: RefusedBy::Role }
}

fn failed(reply: Reply) -> CallFailure {
    CallFailure { text: format!("call: {}", reply.text()), next_step: "do something".to_owned(), reply }
}

fn budgets(allowed: i32) -> Event {
    all_budgets(&[budget("web", allowed, 2 + allowed, 2, 3)])
}

/// A budget with these numbers, `web` selecting all pods.
fn budget(name: &str, allowed: i32, healthy: i32, desired: i32, expected: i32) -> BudgetFacts {
    let selector = Some(pod("x").labels.into_iter().collect());
    BudgetFacts { selector, ..numbered(name, [allowed, healthy, desired, expected]) }
}

fn all_budgets(budgets: &[BudgetFacts]) -> Event {
    Event::Budgets { namespace: "shop".to_owned(), budgets: budgets.to_vec() }
}

fn many_budgets() -> Reply {
    Reply::ManyBudgets { text: "500: more than one PodDisruptionBudget".to_owned() }
}

fn unhealthy(found: Vec<UnhealthyPod>) -> Event {
    let found = Ok(Inspected { hindrances: found, ready: None });
    Event::Inspected { namespace: "shop".to_owned(), budget: "web".to_owned(), found }
}

/// An engine with a clock, the pods as the server has them, and what was asked when.
#[derive(Default)]
struct Bench {
    engine: Engine,
    now: Mono,
    there: Vec<PodFacts>,
    open: bool,
    evictions: Vec<(Mono, PodRef)>,
    looks: Vec<Mono>,
    removals: Vec<(Mono, PodRef)>,
    requests: Vec<(Mono, PodRef)>,
    withdrawals: Vec<(Mono, PodRef)>,
    surges: Vec<(PodFacts, Option<Duration>)>,
    deletions: Vec<(Mono, PodRef)>,
    inspections: Vec<(Mono, String)>,
    volumes: Vec<BTreeSet<ClaimName>>,
    cordons: Vec<Mono>,
    copies: Vec<(Mono, String, u32)>,
    runtime_asked: Vec<Mono>,
    follows: Vec<String>,
    said: Vec<String>,
    flying: BTreeSet<PodUid>,
    most_flying: usize,
    asked: Vec<u64>,
    guarded: BTreeSet<u64>,
    /// The storage as the server has it, `None` without any.
    storage: Option<StorageView>,
    end: Option<AttemptOutcome>,
}

impl Bench {
    fn new(there: Vec<PodFacts>) -> Self {
        Self::with(there, AttemptRules::default(), &DrainMarks::default())
    }

    fn with(there: Vec<PodFacts>, rules: AttemptRules, marks: &DrainMarks) -> Self {
        let now = Mono::from_start(Duration::from_secs(1000));
        let engine = Engine::new(DrainIdentity::default(), rules, marks, now, 7);
        Self { engine, now, there, ..Self::default() }
    }

    fn hear(&mut self, event: Event) {
        if let Event::Evicted { uid, .. } | Event::Unrequested { uid, .. } | Event::Surged { uid, .. } =
            &event
        {
            self.flying.remove(uid);
        }
        for effect in self.engine.step(self.now, event) {
            assert_eq!(self.end, None, "nothing is asked after the end");
            match effect {
                Effect::Look { turn, storage, .. } => {
                    self.looks.push(self.now);
                    self.asked.push(turn);
                    self.guarded.extend(storage.then_some(turn));
                }
                Effect::Ask(way, GuardedPod { pod, .. }) => {
                    self.flies(&pod);
                    let calls = match way {
                        RemovalCall::Evict => &mut self.evictions,
                        RemovalCall::Request => &mut self.requests,
                        RemovalCall::Remove => &mut self.removals,
                        RemovalCall::Delete => &mut self.deletions,
                    };
                    calls.push((self.now, pod));
                }
                Effect::Withdraw(pod) => self.withdrawals.push((self.now, pod)),
                Effect::Surge { pod, over } => {
                    self.flies(&pod.pod);
                    self.surges.push((pod, over));
                }
                Effect::Cordon => self.cordons.push(self.now),
                Effect::FollowBudgets(namespace) => self.follows.push(namespace),
                Effect::Inspect { namespace, budget, .. } => {
                    self.inspections.push((self.now, format!("{namespace}/{budget}")));
                }
                Effect::AskCopy { volume, wanted } => self.copies.push((self.now, volume, wanted)),
                Effect::FollowVolumes(claims) => self.volumes.push(claims),
                // There is no KubeVirt.
                Effect::LookMachines => {
                    let reply = Reply::NotFound { text: "404".to_owned() };
                    self.hear(Event::Machines(Err(failed(reply))));
                }
                Effect::FollowMachines(_) => {}
                Effect::Act(..) => panic!("no machine was shown"),
                Effect::AskRuntime => self.runtime_asked.push(self.now),
                Effect::Say(message) => self.said.push(message.text),
                Effect::End(outcome) => self.end = Some(outcome),
            }
        }
    }

    fn flies(&mut self, pod: &PodRef) {
        assert!(self.flying.insert(pod.uid.clone()), "one call for {pod} at a time");
        self.most_flying = self.most_flying.max(self.flying.len());
    }

    /// Answers every look that is open with the server's state.
    fn look(&mut self) {
        for turn in std::mem::take(&mut self.asked) {
            let storage = self.storage.clone().filter(|_| self.guarded.contains(&turn));
            let seen = Ok((self.there.clone(), node(self.open), storage));
            self.hear(Event::Looked { turn, seen });
        }
    }

    fn reply(&mut self, name: &str, reply: Reply) {
        self.hear(Event::Evicted { uid: pod(name).pod.uid, reply });
    }

    fn leave(&mut self, name: &str) {
        self.reply(name, Reply::Done);
        self.there.retain(|facts| facts.pod.name != name);
        self.hear(Event::PodGone(pod(name).pod.uid));
    }

    /// Lets time pass, waking the engine when it asks for it.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..10_000 {
            match self.engine.next_wake() {
                Some(at) if at <= until => {
                    self.now = self.now.max(at);
                    self.hear(Event::Tick);
                    if self.end.is_some() {
                        return;
                    }
                }
                Some(_) | None => {
                    self.now = until;
                    return;
                }
            }
        }
        panic!("the engine is awake in a circle");
    }

    fn started(there: Vec<PodFacts>) -> Self {
        Self::by(there, AttemptRules::default())
    }

    fn by(there: Vec<PodFacts>, rules: AttemptRules) -> Self {
        Self::on_from(there, rules, &DrainMarks::default())
    }

    /// Started, where an attempt was cut off.
    fn on_from(there: Vec<PodFacts>, rules: AttemptRules, marks: &DrainMarks) -> Self {
        let mut bench = Self::with(there, rules, marks);
        bench.hear(Event::Storage(Ok(None)));
        bench.hear(Event::Tick);
        bench.look();
        bench
    }

    fn blockers(&self) -> Vec<Blocker> {
        self.progress().blockers
    }

    /// The pod is bound to the node, and the watch tells.
    fn bind(&mut self, facts: PodFacts) {
        self.there.push(facts.clone());
        self.hear(Event::Pod(facts));
    }

    fn progress(&self) -> Progress {
        self.engine.progress(self.now)
    }

    /// Nothing is left: waits for the proof.
    fn prove(&mut self) {
        for _ in 0..3 {
            self.look();
            if self.end.is_none() {
                self.pass(secs(1));
            }
        }
    }

    /// Passes time, in steps of half a second in which `answers` are given to what was asked.
    fn answer_for(&mut self, time: Duration, answers: impl Fn(&mut Self)) {
        let until = self.now + time;
        while self.now < until && self.end.is_none() {
            answers(self);
            self.pass(Duration::from_millis(500).min(until.since(self.now)));
        }
    }

    fn is_asked(&self, name: &str) -> bool {
        self.flying.contains(&pod(name).pod.uid)
    }

    fn evicted_names(&self) -> Vec<&str> {
        self.evictions.iter().map(|(_, pod)| pod.name.as_str()).collect()
    }

    fn failure(&self) -> &AttemptFailure {
        match &self.end {
            Some(Err(failure)) => failure,
            other => panic!("{other:?}"),
        }
    }

    fn reason(&self) -> &str {
        &self.failure().reason
    }

    /// What the attempt, which has succeeded, has left.
    fn left(&self) -> &[String] {
        match &self.end {
            Some(Ok(done)) => &done.left,
            other => panic!("{other:?}"),
        }
    }
}

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}
