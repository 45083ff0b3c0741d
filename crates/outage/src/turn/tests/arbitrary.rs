//! Turns beside somebody who writes anything into the Lease and at the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubeapi::nodes::CordonAnnotation;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use step::{Core as _, Mono};

use super::super::Turn;
use super::super::event::{Ask, Effect, Event, ReadError, RecordWritten};
use super::super::record::{BadRecord, Class, FENCE_MOST, HOLDERS, LIMIT, QUEUE, RecordSnapshot, TurnRecord};
use super::super::rule::{CordonMark, TurnNode};
use super::rules::{me, node};
use super::stage::{at, want};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// What somebody else does, or time.
#[derive(Debug, Clone)]
enum Deed {
    Mark { node: usize, mark: Option<CordonAnnotation>, cordoned: bool },
    Lease { transitions: Option<i32>, annotations: BTreeMap<String, String> },
    Delete,
    Want { node: usize, wants: bool },
    Wait(u64),
}

fn fence() -> impl Strategy<Value = u32> {
    select(vec![0, 1, 2, 5, 7, 900, 2_000, FENCE_MOST, i32::MAX.unsigned_abs(), u32::MAX])
}

fn mark() -> impl Strategy<Value = CordonAnnotation> {
    (fence(), select(vec!["L1", "L2", "nope", ""]), select(vec!["x", "a-boot", "b-boot"])).prop_map(
        |(fence, uid, boot)| CordonAnnotation {
            boot_id: boot.to_owned(),
            requested_by: 2,
            requested_at: "t".to_owned(),
            fence,
            lease_uid: uid.to_owned(),
            ..CordonAnnotation::default()
        },
    )
}

fn annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    let holder = (select(NAMES.to_vec()), fence(), select(vec!["x", "a-boot", "c-boot"])).prop_map(
        |(node, fence, boot)| {
            format!(
                r#"{{"node":"{node}","nodeUID":"{node}-uid","bootID":"{boot}","op":"reboot","fence":{fence},"phase":"granted"}}"#
            )
        },
    );
    let waiter = select(NAMES.to_vec()).prop_map(|node| {
        format!(r#"{{"node":"{node}","nodeUID":"{node}-uid","class":"worker","op":"reboot"}}"#)
    });
    let list = |all: Vec<String>| format!("[{}]", all.join(","));
    let text = prop_oneof![
        (Just(HOLDERS), vec(holder, 0..3).prop_map(list)),
        (Just(QUEUE), vec(waiter, 0..3).prop_map(list)),
        (Just(LIMIT), select(vec!["0", "1", "2", "x"]).prop_map(str::to_owned)),
        (Just(HOLDERS), any::<String>()),
    ];
    vec(text, 0..3).prop_map(|all| all.into_iter().map(|(key, text)| (key.to_owned(), text)).collect())
}

fn deed() -> impl Strategy<Value = Deed> {
    let transitions = select(vec![None, Some(-1), Some(0), Some(5), Some(1_500), Some(i32::MAX)]);
    prop_oneof![
        3 => (0..3_usize, proptest::option::of(mark()), any::<bool>())
            .prop_map(|(node, mark, cordoned)| Deed::Mark { node, mark, cordoned }),
        2 => (transitions, annotations())
            .prop_map(|(transitions, annotations)| Deed::Lease { transitions, annotations }),
        1 => Just(Deed::Delete),
        3 => (0..3_usize, any::<bool>()).prop_map(|(node, wants)| Deed::Want { node, wants }),
        4 => (1..90_u64).prop_map(Deed::Wait),
    ]
}

struct Cluster {
    now: Mono,
    lease: Option<Result<RecordSnapshot, BadRecord>>,
    leases: u32,
    versions: u32,
    nodes: Vec<TurnNode>,
    turns: Vec<Turn>,
    calls: Vec<Option<Effect>>,
    writes: [u64; 3],
    grants: BTreeSet<(String, u32)>,
}

impl Cluster {
    fn new() -> Self {
        Self {
            now: at(1_000),
            lease: None,
            leases: 0,
            versions: 0,
            nodes: NAMES.map(node).to_vec(),
            turns: NAMES
                .iter()
                .zip(1..)
                .map(|(name, chance)| Turn::new(me(name, false), Class::Worker, chance))
                .collect(),
            calls: vec![None, None, None],
            writes: [0; 3],
            grants: BTreeSet::new(),
        }
    }

    fn hear(&mut self, nth: usize, event: impl Into<Event>) {
        for effect in self.turns[nth].step(self.now, event.into()) {
            if matches!(
                effect,
                Effect::Read(_) | Effect::ReadCluster(_) | Effect::ReadMargin(_) | Effect::Write(..)
            ) {
                assert!(self.calls[nth].is_none(), "one call at a time");
                self.calls[nth] = Some(effect);
            }
        }
    }

    /// The Lease is this now, and everybody sees it.
    fn put(&mut self, lease: Option<Result<TurnRecord, BadRecord>>) {
        self.versions += 1;
        let uid = match &self.lease {
            Some(Ok(held)) => held.uid.clone(),
            Some(Err(_)) => format!("L{}", self.leases),
            None => {
                self.leases += 1;
                format!("L{}", self.leases)
            }
        };
        let resource_version = self.versions.to_string();
        self.lease = lease.map(|it| it.map(|record| RecordSnapshot { record, uid, resource_version }));
        for nth in 0..3 {
            let value = self.lease.clone().and_then(Result::ok).map(Box::new);
            self.hear(nth, Event::Changed(value));
        }
    }

    fn serve(&mut self, nth: usize) {
        let Some(call) = self.calls[nth].take() else { return };
        let event = match call {
            Effect::Read(id) => {
                let read = self.lease.clone().map(|it| it.map(Box::new)).transpose();
                Event::Read(id, read.map_err(ReadError::BadRecord))
            }
            Effect::ReadCluster(id) => Event::Cluster(id, Ok(self.nodes.clone())),
            Effect::ReadMargin(id) => Event::Margin(id, Ok(())),
            Effect::Write(id, order) => {
                self.writes[nth] += 1;
                let on = match &self.lease {
                    Some(Ok(held)) => Some((held.uid.clone(), held.resource_version.clone())),
                    Some(Err(_)) => Some((String::new(), String::new())),
                    None => None,
                };
                if on != order.on {
                    self.hear(nth, Event::Wrote(id, RecordWritten::Outdated));
                    return;
                }
                let before = self.lease.clone().and_then(Result::ok);
                let mine = order.record.holder(NAMES[nth], &format!("{}-uid", NAMES[nth])).cloned();
                let record = order.record;
                let transitions = record.transitions();
                self.put(Some(TurnRecord::parse(record.annotations().unwrap(), Some(transitions))));
                let held = self.lease.clone().and_then(Result::ok);
                // What is said to be granted and was not before.
                let known = before
                    .and_then(|it| it.record.holder(NAMES[nth], &format!("{}-uid", NAMES[nth])).cloned());
                if let (Some(mine), Some(held)) = (&mine, &held)
                    && known.is_none_or(|it| it.fence != mine.fence)
                {
                    let grant = (held.uid.clone(), mine.fence);
                    assert!(self.grants.insert(grant), "two grants with fence {}", mine.fence);
                }
                Event::Wrote(
                    id,
                    held.map_or_else(
                        || RecordWritten::Unknown("it cannot be read".to_owned()),
                        |it| RecordWritten::Done(Box::new(it)),
                    ),
                )
            }
            other => panic!("{other:?} is no call"),
        };
        self.hear(nth, event);
    }

    /// Answers all calls; who asks without an end is caught.
    fn settle(&mut self) {
        for _ in 0..400 {
            if self.calls.iter().all(Option::is_none) {
                return;
            }
            (0..3).for_each(|nth| self.serve(nth));
        }
        panic!("calls without an end: {:?}", self.calls);
    }

    fn wait(&mut self, secs: u64) {
        let end = self.now + Duration::from_secs(secs);
        while let Some(due) =
            self.turns.iter().filter_map(step::Core::next_wake).min().filter(|it| *it <= end)
        {
            self.now = due.max(self.now);
            for nth in 0..3 {
                if self.turns[nth].next_wake().is_some_and(|it| it <= self.now) {
                    self.hear(nth, Event::Tick);
                }
            }
            self.settle();
        }
        self.now = end;
    }

    fn apply(&mut self, deed: Deed) {
        match deed {
            Deed::Mark { node, mark, cordoned } => {
                self.nodes[node].mark = mark.and_then(CordonMark::of);
                self.nodes[node].unschedulable = cordoned;
            }
            Deed::Lease { transitions, annotations } => {
                self.put(Some(TurnRecord::parse(annotations, transitions)));
            }
            Deed::Delete => {
                self.lease = None;
                (0..3).for_each(|nth| self.hear(nth, Event::Changed(None)));
            }
            Deed::Want { node, wants } => self.hear(node, Ask::Want(wants.then(want))),
            Deed::Wait(secs) => self.wait(secs),
        }
        self.settle();
        let passed = self.now.since(at(1_000)).as_secs();
        for writes in self.writes {
            assert!(writes <= passed + 9, "{writes} writes in {passed} s");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn t5_whatever_others_write_no_number_is_given_twice_and_nobody_writes_more_than_once_a_second(
        deeds in vec(deed(), 1..40),
    ) {
        let mut cluster = Cluster::new();
        for deed in deeds {
            cluster.apply(deed);
        }
    }
}
