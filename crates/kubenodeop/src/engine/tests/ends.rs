//! Every way in which an attempt can fail, walked to its end: none is read as done (issue: "a drain that fails must
//! be impossible to read as done").

use super::*;

/// One way to fail: its name, and the walk.
type Way = (&'static str, fn() -> Bench);

fn limit(secs: u64, then: LimitAction) -> Limit {
    Limit { after: Some(Duration::from_secs(secs)), then }
}

fn short() -> AttemptRules {
    AttemptRules { attempt: secs(100), ..AttemptRules::default() }
}

fn with_claim(name: &str) -> PodFacts {
    PodFacts { claims: vec!["data".to_owned()], ..pod(name) }
}

fn attached() -> Event {
    let claim = ("shop".to_owned(), "data".to_owned());
    Event::Volumes(vec![AttachmentFacts {
        name: "va".to_owned(),
        volume: "pv".to_owned(),
        claim,
        kept_by: vec![],
    }])
}

fn look_fails(reply: Reply) -> Bench {
    let mut bench = Bench::new(vec![]);
    bench.hear(Event::Tick);
    let turn = bench.asked.pop().unwrap();
    bench.hear(Event::Looked { turn, seen: Err(failed(reply)) });
    bench
}

fn cordon_fails(reply: Reply) -> Bench {
    let mut bench = Bench::started(vec![]);
    bench.hear(Event::Node(node(true)));
    bench.hear(Event::Cordoned(Err(failed(reply))));
    bench
}

fn comes_back() -> Bench {
    let rules = AttemptRules { sticky: LimitAction::GiveUp, ..AttemptRules::default() };
    let mut bench = Bench::by(vec![pod("a")], rules);
    for (gone, comes) in [("a", "b"), ("b", "c"), ("c", "d")] {
        bench.leave(gone);
        bench.bind(PodFacts { workload: "ReplicaSet/a".to_owned(), ..pod(comes) });
    }
    bench
}

const WAYS: [Way; 16] = [
    ("all pods refused", || {
        let mut bench = Bench::started(vec![pod("a")]);
        bench.reply("a", permanent());
        bench
    }),
    ("a pod of a tier refused", || {
        let mut bench = Bench::started(vec![pod("a"), pod("b"), PodFacts { tier: Tier::System, ..pod("c") }]);
        bench.reply("a", permanent());
        bench.leave("b");
        bench
    }),
    ("pod limit", || {
        let rules = AttemptRules { pod: limit(60, LimitAction::GiveUp), ..AttemptRules::default() };
        let mut bench = Bench::by(vec![pod("a")], rules);
        bench.reply("a", Reply::Done);
        bench.pass(secs(60));
        bench
    }),
    ("deleted pod refused", || {
        let rules = AttemptRules { pod: limit(60, LimitAction::GetPast), ..AttemptRules::default() };
        let mut bench = Bench::by(vec![pod("a")], rules);
        bench.reply("a", Reply::Budget { text: "429".to_owned(), retry_after: Some(secs(70)) });
        bench.pass(secs(70));
        assert_eq!(bench.deletions.len(), 1);
        bench.reply("a", permanent());
        bench
    }),
    ("comes back", comes_back),
    ("look refused", || look_fails(permanent())),
    ("node gone", || look_fails(Reply::NotFound { text: "404: nodes \"n1\" not found".to_owned() })),
    ("other device", || {
        look_fails(Reply::Permanent { text: "label node-uuid=x".to_owned(), by: RefusedBy::Other })
    }),
    ("cordon refused", || cordon_fails(permanent())),
    ("node gone at cordon", || cordon_fails(Reply::NotFound { text: "404".to_owned() })),
    ("over while blocked", || {
        let mut bench = Bench::by(vec![pod("a")], short());
        bench.reply("a", Reply::Budget { text: "429".to_owned(), retry_after: Some(secs(200)) });
        bench.pass(secs(100));
        bench
    }),
    ("over while going", || {
        let mut bench = Bench::by(vec![pod("a")], short());
        bench.reply("a", Reply::Done);
        bench.pass(secs(100));
        bench
    }),
    ("over while a call is out", || {
        let mut bench = Bench::by(vec![pod("a")], short());
        bench.pass(secs(100));
        bench
    }),
    ("over while detaching", || {
        let mut bench = Bench::by(vec![with_claim("a")], short());
        bench.leave("a");
        bench.hear(attached());
        bench.pass(secs(100));
        bench
    }),
    ("over while proving", || {
        let mut bench = Bench::by(vec![], short());
        bench.pass(secs(100));
        bench
    }),
    ("over while the node is open", || {
        let mut bench = Bench::by(vec![], short());
        bench.hear(Event::Node(node(true)));
        bench.pass(secs(100));
        bench
    }),
];

#[test]
fn no_way_of_failing_is_ever_read_as_done() {
    for (name, walk) in WAYS {
        let mut bench = walk();
        let Some(Err(failure)) = bench.end.clone() else {
            panic!("{name}: {:?}", bench.end);
        };
        let AttemptFailure { reason, .. } = *failure;
        assert!(!reason.is_empty(), "{name}");
        // Nothing that comes later turns it: an empty node, answers, time.
        let first = bench.end.take();
        bench.there.clear();
        let turn = bench.asked.pop().unwrap_or(99);
        let now = bench.now + secs(10);
        for event in [
            Event::Pods(vec![]),
            Event::Volumes(vec![]),
            Event::Cordoned(Ok(true)),
            Event::Looked { turn, seen: Ok((vec![], node(false), None)) },
            Event::Looked { turn, seen: Ok((vec![], node(false), None)) },
            Event::Tick,
        ] {
            for effect in bench.engine.step(now, event) {
                assert_eq!(Some(effect), first.clone().map(Effect::End), "{name}");
            }
        }
    }
}

#[test]
fn d16_a_failure_tells_what_to_watch() {
    let mut bench = Bench::by(vec![pod("a"), pod("b")], short());
    bench.leave("b");
    bench.hear(Event::Node(node(false)));
    bench.reply("a", budget_reply());
    bench.hear(budgets(0));
    bench.hear(unhealthy(vec![]));
    while bench.end.is_none() {
        bench.pass(secs(15));
        if bench.end.is_none() {
            bench.reply("a", budget_reply());
        }
    }
    let AttemptFailure { watched, blockers, marks, .. } = bench.failure();
    assert_eq!(watched.pods.keys().collect::<Vec<_>>(), [&pod("a").pod.uid]);
    assert_eq!(watched.budgets.get("shop").unwrap()[0].name, "web");
    assert!(watched.node.is_some_and(|node| node.unschedulable == Some(true)));
    assert_eq!((blockers.len(), marks.pods_ms.len()), (1, 1));

    let mut bench = Bench::by(vec![with_claim("a")], short());
    bench.leave("a");
    bench.hear(attached());
    bench.pass(secs(100));
    assert_eq!(bench.reason(), "not done within 100 s, still attached: shop/data (pv pv)");
    let volumes = BTreeMap::from([("va".to_owned(), "shop/data (pv pv)".to_owned())]);
    assert_eq!(bench.failure().watched.volumes, volumes);
}
