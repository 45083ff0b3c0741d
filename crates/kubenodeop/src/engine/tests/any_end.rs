//! Promises that hold whatever the rules are and whatever the server says, in whatever order facts come: all reply
//! classes, cuts, lost answers, people who uncordon, budgets that come and go, tiers, workloads that come back,
//! volumes, limits, leaps of time.

use std::collections::VecDeque;

use kube::core::Selector;
use proptest::prelude::*;

use super::surge::under_way;
use super::*;
use crate::calls::surge::SurgeRule;

#[derive(Debug, Clone)]
enum Act {
    /// A pod is bound here: its tier, whether two budgets guard it, whether its workload comes back.
    Bind(usize, bool, bool),
    Uncordon,
    /// The server reads what the open look asks for, and answers, now or with the next act of this kind.
    ServeLook,
    AnswerLook,
    LoseLook,
    Deliver,
    /// The watch is cut or too old: what it had to tell is lost, and a list follows.
    Relist,
    /// The oldest call is carried out, or not, and answered so.
    Answer(Reply),
    /// It is carried out, and the answer is lost.
    LoseAnswer,
    Budgets(i32, i32),
    Inspected(bool),
    /// The pod that is ending longest is gone; its volume stays attached.
    Finish,
    Detach,
    AnswerCordon(bool),
    Pass(u32),
}

fn rules() -> impl Strategy<Value = AttemptRules> {
    let after = || prop::option::of((20u64..300).prop_map(secs));
    let action = || {
        let then =
            prop_oneof![Just(LimitAction::Wait), Just(LimitAction::GiveUp), Just(LimitAction::GetPast)];
        (after(), then).prop_map(|(after, then)| Limit { after, then })
    };
    let sticky = prop_oneof![Just(LimitAction::GetPast), Just(LimitAction::Wait), Just(LimitAction::GiveUp)];
    let surge = prop_oneof![Just(SurgeRule::Never), Just(SurgeRule::All)];
    let all = (action(), sticky, 1usize..4, surge);
    all.prop_map(|(pod, sticky, at_once, surge)| AttemptRules {
        surge,
        attempt: secs(2000),
        at_once,
        proof_gap: secs(1),
        pod,
        sticky,
        machines: crate::machines::MachinePolicy::MigrateOrShutdown,
        ..AttemptRules::default()
    })
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let text = || "x".to_owned();
    let wait = prop::option::of((0u64..60).prop_map(secs));
    let reply = prop_oneof![
        6 => Just(Reply::Done),
        2 => wait.clone().prop_map(move |retry_after| Reply::Budget { text: text(), retry_after }),
        2 => Just(many_budgets()),
        1 => wait.prop_map(move |retry_after| Reply::Throttle { text: text(), retry_after }),
        1 => Just(Reply::NamespaceEnding { text: text() }),
        1 => Just(Reply::Conflict { text: text() }),
        1 => Just(Reply::Expired),
        1 => Just(transient()),
        1 => Just(permanent()),
    ];
    let act = prop_oneof![
        2 => (0usize..3, any::<bool>(), any::<bool>()).prop_map(|(tier, two, back)| Act::Bind(tier, two, back)),
        1 => Just(Act::Uncordon),
        4 => Just(Act::ServeLook),
        4 => Just(Act::AnswerLook),
        1 => Just(Act::LoseLook),
        6 => Just(Act::Deliver),
        1 => Just(Act::Relist),
        6 => reply.prop_map(Act::Answer),
        1 => Just(Act::LoseAnswer),
        2 => (0..2, 0..2).prop_map(|(one, other)| Act::Budgets(one, other)),
        2 => any::<bool>().prop_map(Act::Inspected),
        4 => Just(Act::Finish),
        3 => Just(Act::Detach),
        2 => prop::bool::weighted(0.8).prop_map(Act::AnswerCordon),
        4 => (0u32..3000).prop_map(Act::Pass),
        1 => (3000u32..100_000).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 0..150)
}

/// The pods, and whether the node was open.
type Read = (Vec<PodFacts>, bool);

struct World {
    engine: Engine,
    now: Mono,
    pods: Vec<PodFacts>,
    told: BTreeSet<PodUid>,
    bound: u32,
    open: bool,
    attached: Vec<AttachmentFacts>,
    followed: BTreeSet<ClaimName>,
    watch: VecDeque<Event>,
    /// The look that is open, with what the server has read for it.
    look: Option<(u64, Option<Read>)>,
    look_asked: Mono,
    seen: Option<Read>,
    /// Answered looks: when asked, when answered, whether they saw an empty and cordoned node.
    proofs: Vec<(Mono, Mono, bool)>,
    calls: VecDeque<(PodRef, bool)>,
    surging: BTreeMap<PodUid, Option<Duration>>,
    accepted: BTreeSet<PodUid>,
    budgets: (i32, i32),
    heard: Option<(i32, i32)>,
    follows: bool,
    inspections: u32,
    cordons: u32,
    end: Option<AttemptOutcome>,
}

fn new_pod(number: u32, tier: usize, two: bool, back: bool) -> PodFacts {
    let tiers = [Tier::Application, Tier::Storage, Tier::System];
    let mut facts =
        PodFacts { tier: tiers[tier], claims: vec![format!("c{number}")], ..pod(&format!("p{number}")) };
    facts.labels.insert("two".to_owned(), two.to_string());
    if back {
        facts.workload = "ReplicaSet/back-1".to_owned();
        facts.labels.insert("pod-template-hash".to_owned(), "1".to_owned());
    }
    facts
}

impl World {
    fn new(rules: AttemptRules) -> Self {
        let now = Mono::from_start(secs(10));
        let pods =
            vec![new_pod(901, 0, false, true), new_pod(902, 0, true, false), new_pod(903, 1, false, false)];
        let mut world = Self {
            engine: Engine::new(DrainIdentity::default(), rules, &DrainMarks::default(), now, 3),
            now,
            pods,
            told: BTreeSet::new(),
            bound: 0,
            open: false,
            attached: vec![],
            followed: BTreeSet::new(),
            watch: VecDeque::new(),
            look: None,
            look_asked: now,
            seen: None,
            proofs: vec![],
            calls: VecDeque::new(),
            surging: BTreeMap::new(),
            accepted: BTreeSet::new(),
            budgets: (0, 0),
            heard: None,
            follows: false,
            inspections: 0,
            cordons: 0,
            end: None,
        };
        world.hear(Event::Storage(Ok(None)));
        world.hear(Event::Tick);
        world
    }

    fn hear(&mut self, event: Event) {
        if self.end.is_some() {
            return;
        }
        if let Event::Pods(pods) | Event::Looked { seen: Ok((pods, ..)), .. } = &event {
            self.told.extend(pods.iter().map(|it| it.pod.uid.clone()));
        } else if let Event::Pod(facts) = &event {
            self.told.insert(facts.pod.uid.clone());
        }
        for effect in self.engine.step(self.now, event) {
            match effect {
                Effect::Look { turn, .. } => {
                    assert!(self.look.replace((turn, None)).is_none(), "one look at a time");
                    self.look_asked = self.now;
                }
                Effect::Surge { pod: PodFacts { pod, .. }, over } => {
                    self.surging.insert(pod.uid.clone(), over);
                    self.asked(pod, false);
                }
                Effect::Ask(RemovalCall::Remove, GuardedPod { pod, .. }) => {
                    assert!(matches!(self.heard, Some((1.., 1..))), "{pod} is removed with {:?}", self.heard);
                    assert!(!self.calls.iter().any(|(_, removal)| *removal), "one removal at a time");
                    self.asked(pod, true);
                }
                Effect::Ask(_, GuardedPod { pod, .. }) => self.asked(pod, false),
                Effect::Cordon => self.cordons += 1,
                Effect::FollowBudgets(_) => self.follows = true,
                Effect::Inspect { .. } => self.inspections += 1,
                Effect::FollowVolumes(claims) => self.followed = claims,
                Effect::Withdraw(_)
                | Effect::AskCopy { .. }
                | Effect::FollowMachines(_)
                | Effect::LookMachines
                | Effect::Act(..)
                | Effect::AskRuntime
                | Effect::Say(_) => {}
                Effect::End(outcome) => self.end = Some(outcome),
            }
        }
        assert!(self.cordons <= 1, "one cordon at a time");
        let progress = self.engine.progress(self.now);
        let counts = progress.counts;
        assert_eq!(counts.total, counts.gone + counts.going + counts.waiting + counts.blocked);
        assert!(counts.blocked == 0 || progress.estimate.is_none());
    }

    fn asked(&mut self, pod: PodRef, removal: bool) {
        assert!(!self.accepted.contains(&pod.uid), "{pod} is asked again after a success");
        assert!(!self.calls.iter().any(|(other, _)| *other == pod), "{pod} is asked twice at a time");
        let left = what(&self.engine.progress(self.now).left);
        if let Some(facts) = self.pods.iter().find(|it| it.pod == pod) {
            let earlier = self.pods.iter().find(|it| {
                it.tier < facts.tier && self.told.contains(&it.pod.uid) && !left.contains(&it.pod.to_string())
            });
            assert!(earlier.is_none(), "{pod} is asked while {earlier:?} is there");
        }
        self.calls.push_back((pod, removal));
    }

    fn volumes(&mut self) {
        let (attached, followed) = (&self.attached, &self.followed);
        if !followed.is_empty() {
            let mine = attached.iter().filter(|it| followed.contains(&it.claim)).cloned().collect();
            self.hear(Event::Volumes(mine));
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Bind(tier, two, back) => {
                self.bound += 1;
                let new = new_pod(self.bound, tier, two, back);
                self.watch.push_back(Event::Pod(new.clone()));
                self.pods.push(new);
            }
            Act::Uncordon => {
                self.open = true;
                self.watch.push_back(Event::Node(node(true)));
            }
            Act::ServeLook => {
                let read = (self.pods.clone(), self.open);
                if let Some((_, seen)) = &mut self.look {
                    seen.get_or_insert(read);
                }
            }
            Act::AnswerLook => {
                if let Some((turn, Some((pods, open)))) = self.look.take_if(|(_, seen)| seen.is_some()) {
                    self.seen = Some((pods.clone(), open));
                    self.proofs.push((self.look_asked, self.now, pods.is_empty() && !open));
                    self.hear(Event::Looked { turn, seen: Ok((pods, node(open), None)) });
                }
            }
            Act::LoseLook => {
                if let Some((turn, _)) = self.look.take() {
                    self.hear(Event::Looked { turn, seen: Err(failed(transient())) });
                }
            }
            Act::Deliver => {
                if let Some(event) = self.watch.pop_front() {
                    self.hear(event);
                }
            }
            Act::Relist => {
                self.watch.clear();
                self.hear(Event::Trouble(failed(transient())));
                self.watch.push_back(Event::Pods(self.pods.clone()));
                self.watch.push_back(Event::Node(node(self.open)));
            }
            Act::Answer(reply) => self.answer(Some(reply)),
            Act::LoseAnswer => self.answer(None),
            Act::Budgets(one, other) => {
                self.budgets = (one, other);
                self.tell_budgets();
            }
            Act::Inspected(well) => {
                if self.inspections > 0 {
                    self.inspections -= 1;
                    let (namespace, name) = ("shop".to_owned(), "one".to_owned());
                    let found = if well { Ok(Inspected::default()) } else { Err(failed(transient())) };
                    self.hear(Event::Inspected { namespace, budget: name, found });
                }
            }
            Act::Finish => {
                if let Some(place) = self.pods.iter().position(|facts| facts.terminating) {
                    let gone = self.pods.remove(place);
                    let claim = ("shop".to_owned(), gone.claims[0].clone());
                    let volume = format!("pv-{}", claim.1);
                    self.attached.push(AttachmentFacts {
                        name: claim.1.clone(),
                        volume,
                        claim,
                        kept_by: vec![],
                    });
                    self.watch.push_back(Event::PodGone(gone.pod.uid));
                }
            }
            Act::Detach => {
                self.attached.pop();
                self.volumes();
            }
            Act::AnswerCordon(well) => {
                if self.cordons > 0 {
                    self.cordons -= 1;
                    let written = well && std::mem::take(&mut self.open);
                    self.watch.push_back(Event::Node(node(self.open)));
                    let answer = if well { Ok(written) } else { Err(failed(transient())) };
                    self.hear(Event::Cordoned(answer));
                }
            }
            Act::Pass(ms) => self.pass(Duration::from_millis(ms.into())),
        }
    }

    fn tell_budgets(&mut self) {
        if !self.follows {
            return;
        }
        let (one, other) = self.budgets;
        let selector: Selector = [("two", "true")].into_iter().collect();
        let with = |name: &str, allowed| BudgetFacts {
            selector: Some(selector.clone()),
            ..budget(name, allowed, 2 + allowed, 2, 3)
        };
        self.heard = Some(self.budgets);
        self.hear(all_budgets(&[with("one", one), with("other", other)]));
    }

    fn answer(&mut self, reply: Option<Reply>) {
        let Some((pod, removal)) = self.calls.pop_front() else { return };
        if let Some(over) = self.surging.remove(&pod.uid) {
            // What was asked for is given up once its time is over.
            let reply = reply.unwrap_or_else(transient);
            let answer = match (&reply, over) {
                (Reply::Budget { .. } | Reply::Done, None) => Ok(under_way()),
                (Reply::Budget { .. } | Reply::Done, Some(_)) => {
                    Ok(SurgeAnswer::Without("no room".to_owned()))
                }
                (Reply::ManyBudgets { .. }, _) => Ok(SurgeAnswer::NotNeeded),
                (_, _) => Err(failed(reply)),
            };
            return self.hear(Event::Surged { uid: pod.uid, answer });
        }
        let there = self.pods.iter_mut().find(|facts| facts.pod.uid == pod.uid);
        let reply = match (there, reply.clone()) {
            (None, _) => Reply::NotFound { text: "404".to_owned() },
            // Only the eviction API says this.
            (Some(facts), Some(Reply::ManyBudgets { .. })) if removal || facts.labels["two"] != "true" => {
                transient()
            }
            (Some(facts), Some(Reply::Done) | None) => {
                if !facts.terminating {
                    facts.terminating = true;
                    self.watch.push_back(Event::Pod(facts.clone()));
                }
                reply.unwrap_or_else(transient)
            }
            (Some(_), Some(reply)) => reply,
        };
        if reply == Reply::Done {
            self.accepted.insert(pod.uid.clone());
        }
        self.hear(Event::Evicted { uid: pod.uid, reply });
    }

    /// For so many seconds the server serves and nobody disturbs.
    fn settle(&mut self, secs: u32, relists: bool) {
        for _ in 0..secs {
            self.act(Act::Budgets(1, 1));
            if relists {
                self.act(Act::Relist);
            }
            for act in [
                Act::AnswerCordon(true),
                Act::Answer(Reply::Done),
                Act::Finish,
                Act::Detach,
                Act::Deliver,
                Act::Deliver,
                Act::ServeLook,
                Act::AnswerLook,
                Act::Inspected(true),
                Act::Pass(1000),
            ] {
                self.act(act);
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        let mut wakes = 0;
        while let Some(at) = self.engine.next_wake().filter(|at| *at <= until && self.end.is_none()) {
            self.now = self.now.max(at);
            self.hear(Event::Tick);
            wakes += 1;
            assert!(wakes < 5000, "awake in a circle");
        }
        self.now = until;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn d1_d5_d6_d11_d15_any_attempt_ends_in_time_and_keeps_its_promises(rules in rules(), acts in acts(), kind in any::<bool>()) {
        let mut world = World::new(rules);
        for act in acts {
            world.act(act);
        }
        // Either nobody answers any more, or the server serves and nobody disturbs.
        if kind {
            world.settle(100, true);
        }
        world.pass(secs(2001));
        match &world.end {
            Some(Ok(DrainSuccess { left, .. })) => {
                let (pods, open) = world.seen.clone().unwrap();
                let left = what(left);
                let other = pods.iter().find(|it| !left.contains(&it.pod.to_string()));
                prop_assert!(other.is_none() && !open, "{other:?} {open}");
                for it in world.attached.iter().filter(|it| world.followed.contains(&it.claim)) {
                    prop_assert!(left.contains(&it.to_string()), "{it} is attached, left: {left:?}");
                }
            }
            Some(Err(failure)) => prop_assert!(!failure.reason.is_empty()),
            None => prop_assert!(false, "still not over"),
        }
    }

    #[test]
    fn d5_in_any_order_a_drain_ends_and_only_on_two_good_lists_a_second_apart(acts in acts()) {
        let mut world = World::new(AttemptRules::default());
        for act in acts {
            // No workload of these comes back, no refusal is for good, and no second budget holds anybody.
            let act = if let Act::Bind(tier, ..) = act {
                Act::Bind(tier, false, false)
            } else if matches!(act, Act::Answer(Reply::Permanent { .. } | Reply::ManyBudgets { .. })) {
                Act::LoseAnswer
            } else {
                act
            };
            world.act(act);
        }
        world.settle(400, false);
        prop_assert!(matches!(world.end, Some(Ok(_))), "{:?}", world.end);
        // The last look proved it, and the first of the proof is the one before: nothing else came in between.
        let [.., (_, answered, first), (asked, _, last)] = world.proofs[..] else { panic!("{:?}", world.proofs) };
        prop_assert!(first && last && asked.since(answered) >= secs(1), "{:?}", world.proofs);
    }
}

#[test]
fn d5_a_removal_that_is_throttled_while_its_budgets_shut_is_tried_again_when_they_open() {
    let mut world = World::new(AttemptRules::default());
    for act in [
        Act::ServeLook,
        Act::AnswerLook,
        Act::Answer(many_budgets()),
        Act::Answer(Reply::Budget { text: "x".to_owned(), retry_after: None }),
        Act::Budgets(1, 1),
        Act::Budgets(0, 0),
        Act::Answer(Reply::Throttle { text: "x".to_owned(), retry_after: None }),
    ] {
        world.act(act);
    }
    world.settle(10, false);
    assert!(matches!(world.end, Some(Ok(_))), "{:?}", world.end);
}
