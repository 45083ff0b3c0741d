//! An attempt against answers from the hand, with the time in the hand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use step::{Core, Mono};

use super::{Effect, Engine, Event, Rules, Said};
use crate::budget::{BudgetFacts, Selector};
use crate::cordon::{Cordon, CordonOwner, NodeFacts};
use crate::names::{NodeName, PodRef, PodUid};
use crate::plan::tests::pod;
use crate::plan::{Owner, PodFacts};
use crate::progress::{BlockCode, Outcome, Phase};
use crate::reply::Reply;

fn node(open: bool) -> NodeFacts {
    NodeFacts {
        name: NodeName::parse("n1").unwrap(),
        ready: true,
        unschedulable: !open,
        cordon: if open { Cordon::None } else { Cordon::Ours(CordonOwner::default()) },
        annotation: None,
        tie_breaker: false,
        labels: BTreeMap::new(),
        resource_version: "1".to_owned(),
    }
}

fn budget_reply() -> Reply {
    Reply::Budget { text: "429: needs 2".to_owned(), retry_after: None }
}

fn transient() -> Reply {
    Reply::Transient { text: "503".to_owned(), retry_after: None }
}

fn permanent() -> Reply {
    Reply::Permanent { text: "403 Forbidden".to_owned() }
}

fn budgets(allowed: i32) -> Event {
    let web = BudgetFacts {
        name: "web".to_owned(),
        selector: Some(Selector { labels: pod("x").labels, conditions: vec![] }),
        allowed,
        healthy: 2 + allowed,
        desired: 2,
        expected: 3,
    };
    Event::Budgets { namespace: "shop".to_owned(), budgets: vec![web] }
}

/// An engine with a clock, and the pods as the server has them.
struct Bench {
    engine: Engine,
    now: Mono,
    there: Vec<PodFacts>,
    open: bool,
    evictions: Vec<(Mono, PodRef)>,
    looks: Vec<Mono>,
    cordons: Vec<Mono>,
    follows: Vec<String>,
    said: Vec<Said>,
    flying: BTreeSet<PodUid>,
    most_flying: usize,
    /// Looks that were asked for and not answered.
    asked: Vec<u64>,
    end: Option<Outcome>,
}

impl Bench {
    fn new(there: Vec<PodFacts>) -> Self {
        let now = Mono::from_start(Duration::from_secs(1000));
        Self {
            engine: Engine::new(Rules::default(), now, 7),
            now,
            there,
            open: false,
            evictions: vec![],
            looks: vec![],
            cordons: vec![],
            follows: vec![],
            said: vec![],
            flying: BTreeSet::new(),
            most_flying: 0,
            asked: vec![],
            end: None,
        }
    }

    fn hear(&mut self, event: Event) {
        if let Event::Evicted { uid, .. } = &event {
            self.flying.remove(uid);
        }
        for effect in self.engine.step(self.now, event) {
            assert_eq!(self.end, None, "nothing is asked after the end");
            match effect {
                Effect::Look { turn } => {
                    self.looks.push(self.now);
                    self.asked.push(turn);
                }
                Effect::Evict(pod) => {
                    assert!(self.flying.insert(pod.uid.clone()), "one eviction of {pod} at a time");
                    self.most_flying = self.most_flying.max(self.flying.len());
                    self.evictions.push((self.now, pod));
                }
                Effect::Cordon => self.cordons.push(self.now),
                Effect::FollowBudgets(namespace) => self.follows.push(namespace),
                Effect::Say(said) => self.said.push(said),
                Effect::End(outcome) => self.end = Some(outcome),
            }
        }
    }

    /// Answers every look that is open with the server's state.
    fn look(&mut self) {
        for turn in std::mem::take(&mut self.asked) {
            let seen = Ok((self.there.clone(), node(self.open)));
            self.hear(Event::Looked { turn, seen });
        }
    }

    fn reply(&mut self, name: &str, reply: Reply) {
        self.hear(Event::Evicted { uid: pod(name).pod.uid, reply });
    }

    /// The pod is evicted and gone in the server.
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
        let mut bench = Self::new(there);
        bench.hear(Event::Tick);
        bench.look();
        bench
    }

    fn evicted_names(&self) -> Vec<&str> {
        self.evictions.iter().map(|(_, pod)| pod.name.as_str()).collect()
    }

    fn reason(&self) -> &str {
        match &self.end {
            Some(Outcome::Failed { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }
}

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn d5_an_empty_node_is_proven_by_two_lists_a_second_apart() {
    let mut bench = Bench::started(vec![]);
    assert_eq!((bench.looks.len(), bench.end.clone()), (1, None));
    assert_eq!(bench.engine.progress(bench.now).phase, Phase::Proving);
    bench.pass(Duration::from_millis(999));
    assert_eq!(bench.looks.len(), 1);
    bench.pass(Duration::from_millis(1));
    assert_eq!((bench.looks.len(), bench.end.clone()), (2, None));
    bench.look();
    assert_eq!(bench.end, Some(Outcome::Drained { took: secs(1), evicted: 0, recordons: 0 }));
}

#[test]
fn pods_are_evicted_and_counted_until_nothing_is_left() {
    let mut bench = Bench::started(vec![pod("a"), pod("b")]);
    assert_eq!(bench.evicted_names(), ["a", "b"]);
    bench.leave("a");
    let counts = bench.engine.progress(bench.now).counts;
    assert_eq!((counts.total, counts.gone, counts.waiting, counts.going, counts.blocked), (2, 1, 1, 0, 0));
    bench.leave("b");
    bench.look();
    bench.pass(secs(1));
    bench.look();
    assert_eq!(bench.end, Some(Outcome::Drained { took: secs(1), evicted: 2, recordons: 0 }));
}

#[test]
fn d5_a_new_pod_between_the_two_lists_starts_the_proof_over() {
    for by_watch in [true, false] {
        let mut bench = Bench::started(vec![]);
        bench.pass(Duration::from_millis(500));
        bench.there.push(pod("new"));
        if by_watch {
            bench.hear(Event::Pod(pod("new")));
        }
        bench.pass(Duration::from_millis(500));
        bench.look();
        assert_eq!(bench.evicted_names(), ["new"], "by watch: {by_watch}");
        bench.leave("new");
        bench.look();
        assert_eq!(bench.end, None);
        bench.pass(secs(1));
        bench.look();
        assert!(matches!(bench.end, Some(Outcome::Drained { .. })), "by watch: {by_watch}");
    }
}

#[test]
fn d5_a_pod_that_came_and_went_between_the_two_lists_starts_the_proof_over() {
    let mut bench = Bench::started(vec![]);
    bench.pass(Duration::from_millis(500));
    bench.hear(Event::Pod(pod("brief")));
    bench.hear(Event::PodGone(pod("brief").pod.uid));
    bench.pass(Duration::from_millis(500));
    bench.look();
    assert_eq!(bench.end, None, "the first list does not count any more");
    bench.pass(secs(1));
    bench.look();
    assert!(matches!(bench.end, Some(Outcome::Drained { .. })));
}

#[test]
fn d5_a_list_that_was_asked_for_before_a_pod_came_does_not_prove_that_it_is_gone() {
    let mut bench = Bench::started(vec![]);
    bench.pass(secs(1));
    // The second list has left the server when the pod comes.
    bench.hear(Event::Pod(pod("late")));
    bench.look();
    assert_eq!(bench.end, None);
    assert_eq!(bench.evicted_names(), ["late"]);
    assert_eq!(bench.engine.progress(bench.now).counts.gone, 0);
}

#[test]
fn d18_an_uncordoned_node_is_cordoned_again_and_proven_anew() {
    let mut bench = Bench::started(vec![]);
    bench.pass(Duration::from_millis(500));
    bench.hear(Event::Node(node(true)));
    assert_eq!(bench.cordons, [bench.now]);
    bench.hear(Event::Node(node(true)));
    assert_eq!(bench.cordons.len(), 1, "one call at a time");
    bench.pass(secs(3));
    assert_eq!(bench.end, None);
    bench.hear(Event::Cordoned(Ok(true)));
    bench.look();
    assert_eq!(bench.asked.len(), 1, "a list that was asked for before the cordon proves nothing");
    bench.look();
    bench.pass(secs(1));
    bench.look();
    assert_eq!(
        bench.end,
        Some(Outcome::Drained { took: Duration::from_millis(4500), evicted: 0, recordons: 1 })
    );
}

#[test]
fn d18_a_proof_that_finds_the_node_schedulable_cordons_it_again() {
    let mut bench = Bench::started(vec![]);
    bench.open = true;
    bench.pass(secs(1));
    bench.look();
    assert_eq!((bench.cordons.len(), bench.end.clone()), (1, None));
    assert!(bench.said.contains(&Said::Uncordoned));
}

#[test]
fn d18_somebody_who_undoes_every_cordon_does_not_make_us_spin() {
    let mut bench = Bench::started(vec![pod("a")]);
    let start = bench.now;
    for _ in 0..5 {
        bench.hear(Event::Node(node(true)));
        bench.pass(secs(2));
        bench.hear(Event::Cordoned(Ok(true)));
    }
    assert_eq!(bench.cordons.len(), 5);
    assert!(bench.now.since(start) >= secs(10));
    assert_eq!(bench.engine.progress(bench.now).recordons, 5);
}

#[test]
fn d18_a_cordon_that_fails_is_tried_again_within_five_seconds() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.hear(Event::Node(node(true)));
    for tries in 2..20 {
        bench.hear(Event::Cordoned(Err(Reply::Conflict { text: "409".to_owned() })));
        bench.pass(secs(4));
        assert_eq!(bench.cordons.len(), tries);
    }
    bench.hear(Event::Cordoned(Err(permanent())));
    assert_eq!(bench.reason(), "403 Forbidden");
}

#[test]
fn d2_only_the_permanent_class_ends_a_pod() {
    let text = || "x".to_owned();
    let table = [
        (budget_reply(), Some(BlockCode::Budget)),
        (Reply::ManyBudgets { text: text() }, Some(BlockCode::ManyBudgets)),
        (Reply::Throttle { text: text(), retry_after: None }, Some(BlockCode::Throttled)),
        (Reply::NamespaceEnding { text: text() }, Some(BlockCode::NamespaceEnding)),
        (Reply::Conflict { text: text() }, Some(BlockCode::ApiTrouble)),
        (Reply::Expired, Some(BlockCode::ApiTrouble)),
        (transient(), Some(BlockCode::ApiTrouble)),
        (Reply::Done, None),
        (Reply::NotFound { text: text() }, None),
        (Reply::UidChanged, None),
    ];
    for (reply, code) in table {
        let mut bench = Bench::started(vec![pod("a"), pod("b")]);
        bench.reply("a", reply.clone());
        let held: Vec<BlockCode> =
            bench.engine.progress(bench.now).blockers.iter().map(|it| it.code).collect();
        assert_eq!(held, code.into_iter().collect::<Vec<_>>(), "{reply:?}");
        bench.pass(secs(20));
        assert_eq!(bench.end, None, "{reply:?}");
        assert_eq!(bench.evictions.len() > 2, code.is_some(), "asked again: {reply:?}");
    }
}

#[test]
fn d2_a_pod_that_is_refused_for_good_fails_the_attempt_once_the_others_are_gone() {
    let mut bench = Bench::started(vec![pod("a"), pod("b")]);
    bench.reply("a", permanent());
    bench.pass(secs(60));
    assert_eq!(bench.evicted_names(), ["a", "b"], "not asked again");
    assert_eq!(bench.end, None, "the other one is still on its way");
    bench.leave("b");
    assert_eq!(bench.reason(), "the API server refuses to evict shop/a");
    let Some(Outcome::Failed { blockers, .. }) = &bench.end else { panic!() };
    assert_eq!(blockers[0].code, BlockCode::Refused);
    assert_eq!(blockers[0].reason, "pod shop/a cannot be evicted: 403 Forbidden");
}

#[test]
fn d3_no_pod_is_asked_again_before_its_retry_after_whatever_its_budget_does() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", Reply::Budget { text: "429".to_owned(), retry_after: Some(secs(40)) });
    bench.hear(budgets(1));
    bench.pass(Duration::from_millis(39_999));
    assert_eq!(bench.evictions.len(), 1);
    bench.pass(secs(2));
    assert_eq!(bench.evictions.len(), 2);
}

#[test]
fn d3_waits_grow_to_fifteen_seconds_and_the_engine_sleeps_in_between() {
    let mut bench = Bench::started(vec![pod("a")]);
    for _ in 0..12 {
        bench.reply("a", transient());
        let before = bench.evictions.len();
        bench.pass(secs(15));
        assert_eq!(bench.evictions.len(), before + 1);
    }
    let waits: Vec<Duration> = bench.evictions.windows(2).map(|pair| pair[1].0.since(pair[0].0)).collect();
    assert!(waits[0] <= secs(1), "{waits:?}");
}

#[test]
fn d4_a_blocked_pod_delays_no_first_eviction_of_200_pods() {
    let mut all: Vec<PodFacts> = (0..199).map(|number| pod(&format!("p{number:03}"))).collect();
    all.insert(0, pod("blocked"));
    let mut bench = Bench::started(all);
    let start = bench.now;
    while let Some(uid) = bench.flying.iter().next().cloned() {
        let reply = if uid == pod("blocked").pod.uid { budget_reply() } else { Reply::Done };
        bench.hear(Event::Evicted { uid, reply });
    }
    assert_eq!(bench.evictions.len(), 200);
    assert_eq!(bench.most_flying, 32);
    assert_eq!(bench.now, start);
}

#[test]
fn d16_a_budget_with_room_again_wakes_its_pods_at_once_and_only_when_it_changed() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", budget_reply());
    assert_eq!(bench.follows, ["shop"]);
    bench.hear(budgets(0));
    assert_eq!(
        bench.engine.progress(bench.now).blockers[0].reason,
        "pod shop/a is held: budget web allows 0 to go: 2 of 3 healthy, 2 needed"
    );
    bench.hear(budgets(1));
    assert_eq!(bench.evictions.len(), 2);
    bench.reply("a", budget_reply());
    for _ in 0..10 {
        bench.hear(budgets(1));
    }
    assert_eq!(bench.evictions.len(), 2, "the same again wakes nobody");
    assert_eq!(bench.follows.len(), 1);
}

#[test]
fn a_blocker_keeps_its_time_while_its_code_stays() {
    let mut bench = Bench::started(vec![pod("a")]);
    let since = bench.now;
    bench.reply("a", budget_reply());
    bench.pass(secs(1));
    bench.reply("a", budget_reply());
    assert_eq!(bench.engine.progress(bench.now).blockers[0].since, since);
    let held = |said: &&Said| matches!(said, Said::Held(..));
    assert_eq!(bench.said.iter().filter(held).count(), 1, "said once");
    bench.pass(secs(2));
    bench.reply("a", transient());
    assert_eq!(bench.engine.progress(bench.now).blockers[0].since, bench.now);
}

#[test]
fn d1_a_pod_of_the_same_name_is_another_pod() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", Reply::UidChanged);
    assert_eq!(bench.engine.progress(bench.now).counts.gone, 1, "not waited for");
    let mut other = pod("a");
    other.pod.uid = PodUid::new("other");
    bench.there = vec![other.clone()];
    bench.look();
    assert_eq!(bench.evictions.last().map(|(_, pod)| pod.uid.clone()), Some(PodUid::new("other")));
}

#[test]
fn a_pod_said_to_be_gone_that_is_still_there_is_asked_again_but_not_at_once() {
    let mut bench = Bench::started(vec![pod("a")]);
    for _ in 0..3 {
        bench.reply("a", Reply::NotFound { text: "404".to_owned() });
        bench.look();
        let before = bench.evictions.len();
        bench.hear(Event::Tick);
        assert_eq!(bench.evictions.len(), before);
        bench.pass(secs(15));
        assert_eq!(bench.evictions.len(), before + 1);
    }
    assert_eq!(bench.end, None);
}

#[test]
fn a_pod_that_is_ending_is_waited_for_and_named_when_it_is_late() {
    let mut bench = Bench::started(vec![PodFacts { terminating: true, ..pod("a") }]);
    assert_eq!(bench.evicted_names(), Vec::<&str>::new());
    assert_eq!(bench.engine.progress(bench.now).blockers, []);
    bench.pass(secs(60));
    let blockers = bench.engine.progress(bench.now).blockers;
    assert_eq!(blockers[0].code, BlockCode::SlowToEnd);
    assert_eq!(blockers[0].reason, "pod shop/a was asked to end and is still there after its 30 s");
}

#[test]
fn a_watch_that_lost_an_event_is_made_good_by_a_list_at_the_end_of_the_grace_period() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", Reply::Done);
    bench.there.clear();
    bench.pass(secs(59));
    assert_eq!(bench.looks.len(), 1);
    bench.pass(secs(1));
    bench.look();
    assert_eq!(bench.engine.progress(bench.now).counts.gone, 1);
}

#[test]
fn a_watch_that_lags_does_not_take_back_an_accepted_eviction_but_a_list_does() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", Reply::Done);
    bench.hear(Event::Pod(pod("a")));
    assert_eq!(bench.engine.progress(bench.now).counts.going, 1);
    bench.pass(secs(60));
    bench.look();
    assert_eq!(bench.engine.progress(bench.now).counts.waiting, 1);
    bench.pass(secs(1));
    assert_eq!(bench.evictions.len(), 2);
}

#[test]
fn a_watch_does_not_know_that_a_daemon_set_is_gone_and_a_list_does() {
    let by_watch = PodFacts { owner: Owner::DaemonSet, ..pod("a") };
    let by_list = PodFacts { owner: Owner::VanishedDaemonSet, ..pod("a") };
    let mut bench = Bench::new(vec![by_list]);
    bench.hear(Event::Pods(vec![by_watch.clone()]));
    assert_eq!(bench.evicted_names(), Vec::<&str>::new());
    bench.look();
    assert_eq!(bench.evicted_names(), ["a"]);
    bench.hear(Event::Pod(by_watch));
    assert_eq!(bench.engine.progress(bench.now).counts.total, 1);
}

#[test]
fn a_pod_that_turns_out_to_stay_is_not_waited_for() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", budget_reply());
    bench.hear(Event::Pod(PodFacts { owner: Owner::DaemonSet, ..pod("a") }));
    assert_eq!(bench.engine.progress(bench.now).counts.total, 0);
}

#[test]
fn a_look_that_fails_in_passing_is_repeated_and_the_proof_starts_over() {
    let mut bench = Bench::started(vec![]);
    bench.pass(secs(1));
    let turn = bench.asked.pop().unwrap();
    bench.hear(Event::Looked { turn, seen: Err(transient()) });
    assert_eq!(bench.engine.progress(bench.now).trouble, "503");
    bench.pass(secs(1));
    bench.look();
    assert_eq!((bench.looks.len(), bench.end.clone()), (3, None));
    assert_eq!(bench.engine.progress(bench.now).trouble, "");
    bench.pass(secs(1));
    bench.look();
    assert!(bench.end.is_some());
}

#[test]
fn a_look_that_is_refused_or_finds_no_node_fails_the_attempt() {
    for reply in [permanent(), Reply::NotFound { text: "404: nodes \"n1\" not found".to_owned() }] {
        let mut bench = Bench::new(vec![]);
        bench.hear(Event::Tick);
        let turn = bench.asked.pop().unwrap();
        bench.hear(Event::Looked { turn, seen: Err(reply.clone()) });
        assert_eq!(bench.reason(), reply.text());
    }
}

#[test]
fn the_attempt_ends_at_its_limit_and_names_what_is_left() {
    let mut bench = Bench::started(vec![pod("b"), pod("a"), pod("c")]);
    bench.leave("c");
    bench.reply("a", Reply::Done);
    bench.reply("b", budget_reply());
    let day = secs(24 * 3600);
    let start = Mono::from_start(secs(1000));
    loop {
        bench.pass(secs(15));
        if bench.end.is_some() {
            break;
        }
        bench.reply("b", budget_reply());
        bench.look();
        assert!(bench.now.since(start) <= day + secs(15));
    }
    assert_eq!(bench.reason(), "not done within 86400 s, left: shop/a, shop/b");
}

#[test]
fn d_k11_a_limit_past_the_end_of_time_is_no_limit() {
    let now = Mono::from_start(secs(1000));
    let rules = Rules { attempt: Duration::MAX, ..Rules::default() };
    let mut engine = Engine::new(rules, now, 1);
    let effects = engine.step(now, Event::Tick);
    assert!(matches!(effects[..], [Effect::Look { .. }]), "{effects:?}");
}

#[test]
fn a_fact_heard_twice_is_a_fact_heard_once() {
    let facts = [
        Event::Pods(vec![pod("a"), pod("b")]),
        Event::Pod(pod("a")),
        Event::Pod(PodFacts { terminating: true, ..pod("b") }),
        Event::PodGone(pod("b").pod.uid),
        budgets(0),
        budgets(1),
        Event::Node(node(false)),
        Event::Trouble("x".to_owned()),
        Event::Tick,
    ];
    let (mut once, mut twice) = (Bench::new(vec![]), Bench::new(vec![]));
    for fact in facts {
        once.hear(fact.clone());
        twice.hear(fact.clone());
        twice.hear(fact);
        assert_eq!(once.engine.progress(once.now), twice.engine.progress(twice.now));
        assert_eq!(once.evictions, twice.evictions);
    }
}
