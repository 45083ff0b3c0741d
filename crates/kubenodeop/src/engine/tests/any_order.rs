//! Promises that hold in whatever order facts come: a server with a watch that lags, lists that are answered
//! late, lost answers, people who uncordon.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, Copy)]
enum Act {
    /// A pod is scheduled here, if the node is open for it.
    Bind,
    Uncordon,
    /// The server reads what the oldest open look asks for; the answer stays on the way.
    ServeLook,
    AnswerLook,
    LoseLook,
    Deliver,
    Relist,
    /// The oldest eviction under way is carried out, and answered or not.
    Evict(Reaction),
    Finish,
    AnswerCordon,
    Pass(u16),
}

#[derive(Debug, Clone, Copy)]
enum Reaction {
    Done,
    DoneButLost,
    Budget,
    Busy,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let reaction = prop_oneof![
        Just(Reaction::Done),
        Just(Reaction::DoneButLost),
        Just(Reaction::Budget),
        Just(Reaction::Busy)
    ];
    let act = prop_oneof![
        1 => Just(Act::Bind),
        1 => Just(Act::Uncordon),
        4 => Just(Act::ServeLook),
        4 => Just(Act::AnswerLook),
        1 => Just(Act::LoseLook),
        4 => Just(Act::Deliver),
        1 => Just(Act::Relist),
        4 => reaction.prop_map(Act::Evict),
        3 => Just(Act::Finish),
        2 => Just(Act::AnswerCordon),
        3 => (0u16..3000).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 0..120)
}

struct Look {
    turn: u64,
    asked: Mono,
    /// Pods and whether the node was open, once the server has read them.
    read: Option<(Vec<PodFacts>, bool)>,
}

struct World {
    engine: Engine,
    now: Mono,
    pods: Vec<PodFacts>,
    open: bool,
    bound: u32,
    watch: VecDeque<Event>,
    looks: VecDeque<Look>,
    /// Answered looks: when asked, when answered, whether they saw an empty and cordoned node.
    seen: Vec<(Mono, Mono, bool)>,
    evictions: VecDeque<PodRef>,
    accepted: BTreeSet<PodUid>,
    cordons: u32,
    end: Option<AttemptOutcome>,
}

impl World {
    fn new() -> Self {
        let now = Mono::from_start(secs(10));
        let mut world = Self {
            engine: Engine::new(
                DrainIdentity::default(),
                AttemptRules::default(),
                &DrainMarks::default(),
                now,
                3,
            ),
            now,
            pods: vec![pod("a"), pod("b")],
            open: false,
            bound: 0,
            watch: VecDeque::new(),
            looks: VecDeque::new(),
            seen: vec![],
            evictions: VecDeque::new(),
            accepted: BTreeSet::new(),
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
        for effect in self.engine.step(self.now, event) {
            match effect {
                Effect::Look { turn, .. } => self.looks.push_back(Look { turn, asked: self.now, read: None }),
                Effect::Evict(pod) => {
                    assert!(
                        !self.accepted.contains(&pod.uid),
                        "{pod} is evicted again after its eviction was accepted"
                    );
                    self.evictions.push_back(pod);
                }
                Effect::Cordon => self.cordons += 1,
                Effect::End(outcome) => self.end = Some(outcome),
                Effect::FollowBudgets(_)
                | Effect::Remove(..)
                | Effect::Surge(_)
                | Effect::Delete(_)
                | Effect::Inspect { .. }
                | Effect::AskCopy { .. }
                | Effect::FollowVolumes(_)
                | Effect::FollowMachines(_)
                | Effect::LookMachines
                | Effect::Act(..)
                | Effect::AskRuntime
                | Effect::Say(_) => {}
            }
        }
        assert!(self.looks.len() <= 1 && self.cordons <= 1, "one look and one cordon at a time");
        let counts = self.engine.progress(self.now).counts;
        assert_eq!(counts.total, counts.gone + counts.going + counts.waiting + counts.blocked);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Bind if self.open => {
                self.bound += 1;
                let new = pod(&format!("new{}", self.bound));
                self.watch.push_back(Event::Pod(new.clone()));
                self.pods.push(new);
            }
            Act::Bind => {}
            Act::Uncordon => {
                self.open = true;
                self.watch.push_back(Event::Node(node(true)));
            }
            Act::ServeLook => {
                let read = (self.pods.clone(), self.open);
                if let Some(look) = self.looks.front_mut() {
                    look.read.get_or_insert(read);
                }
            }
            Act::AnswerLook => {
                if self.looks.front().is_none_or(|look| look.read.is_none()) {
                    return;
                }
                if let Some(Look { turn, asked, read: Some((pods, open)) }) = self.looks.pop_front() {
                    self.seen.push((asked, self.now, pods.is_empty() && !open));
                    self.hear(Event::Looked { turn, seen: Ok((pods, node(open), None)) });
                }
            }
            Act::LoseLook => {
                if let Some(Look { turn, .. }) = self.looks.pop_front() {
                    self.hear(Event::Looked { turn, seen: Err(failed(transient())) });
                }
            }
            Act::Deliver => {
                if let Some(event) = self.watch.pop_front() {
                    self.hear(event);
                }
            }
            Act::Relist => self.watch.push_back(Event::Pods(self.pods.clone())),
            Act::Evict(reaction) => self.evict(reaction),
            Act::Finish => {
                if let Some(place) = self.pods.iter().position(|facts| facts.terminating) {
                    let gone = self.pods.remove(place);
                    self.watch.push_back(Event::PodGone(gone.pod.uid));
                }
            }
            Act::AnswerCordon => {
                if self.cordons > 0 {
                    self.cordons -= 1;
                    let written = std::mem::take(&mut self.open);
                    self.watch.push_back(Event::Node(node(false)));
                    self.hear(Event::Cordoned(Ok(written)));
                }
            }
            Act::Pass(ms) => {
                let until = self.now + Duration::from_millis(ms.into());
                while let Some(at) = self.engine.next_wake().filter(|at| *at <= until && self.end.is_none()) {
                    self.now = self.now.max(at);
                    self.hear(Event::Tick);
                }
                self.now = until;
            }
        }
    }

    fn evict(&mut self, reaction: Reaction) {
        let Some(pod) = self.evictions.pop_front() else { return };
        let there = self.pods.iter_mut().find(|facts| facts.pod.uid == pod.uid);
        let reply = match (there, reaction) {
            (None, _) => Reply::NotFound { text: "404".to_owned() },
            (Some(_), Reaction::Budget) => budget_reply(),
            (Some(_), Reaction::Busy) => transient(),
            (Some(facts), Reaction::Done | Reaction::DoneButLost) => {
                if !facts.terminating {
                    facts.terminating = true;
                    self.watch.push_back(Event::Pod(facts.clone()));
                }
                if matches!(reaction, Reaction::Done) { Reply::Done } else { transient() }
            }
        };
        if reply == Reply::Done {
            self.accepted.insert(pod.uid.clone());
        }
        self.hear(Event::Evicted { uid: pod.uid, reply });
    }

    /// From now on nobody disturbs and the server serves: the drain must come to its end.
    fn settle(&mut self) {
        for _ in 0..400 {
            for act in [
                Act::AnswerCordon,
                Act::Evict(Reaction::Done),
                Act::Finish,
                Act::Deliver,
                Act::ServeLook,
                Act::AnswerLook,
                Act::Pass(1000),
            ] {
                self.act(act);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn d5_in_any_order_a_drain_ends_and_only_on_two_good_lists_a_second_apart(acts in acts()) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
        world.settle();
        let drained = matches!(world.end, Some(Ok(_)));
        prop_assert!(drained, "{:?}", world.end);
        // The last look proved it, and the first of the proof is the one before: nothing else came in between.
        let good = |look: Option<&(Mono, Mono, bool)>| look.is_some_and(|(_, _, good)| *good);
        let last = world.seen.last();
        let first = world.seen.len().checked_sub(2).and_then(|place| world.seen.get(place));
        prop_assert!(good(last) && good(first), "{:?}", world.seen);
        if let (Some((_, answered, _)), Some((asked, _, _))) = (first, last) {
            prop_assert!(asked.since(*answered) >= secs(1), "{:?}", world.seen);
        }
    }
}
