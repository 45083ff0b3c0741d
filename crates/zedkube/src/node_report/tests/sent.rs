//! What the API server has of it, and what it costs.

use std::sync::Arc;
use std::time::Duration;

use agent::{AgentContext, Clock, Stop, Stopper};
use kubeapi::nodes::LIFECYCLE;
use kubesim::{ScriptedFault, Sim, SimConfig};
use nodestatus::{ClusterMembership, Membership, Totals};
use pubsub::{TopicRoot, store};
use serde_json::{Value, json};
use tokio::sync::watch;
use topics::{
    CordonOwner, DrainPhase, DrainStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, PodCounts,
    Requester, go_json,
};

use super::super::announcer::SETTLE;
use super::super::events::HOURLY;
use super::super::{DrainActivity, NodeReport};
use super::{BOOT, answer, at, blocked, idle, progress};
use crate::BesideDrain;
use crate::limits::Limits;

/// The report of node n1, and what it hears of.
struct Stage {
    _root: tempfile::TempDir,
    _stopper: Stopper,
    topic_root: TopicRoot,
    clock: Clock,
    sim: Sim,
    published: watch::Sender<DrainActivity>,
    members: watch::Sender<ClusterMembership>,
    totals: watch::Sender<Totals>,
}

const UUID: &str = "u1";

impl Stage {
    /// Runs `course` beside the report.
    async fn play(course: impl AsyncFnOnce(&Self)) {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let sim = Sim::new(SimConfig::default());
        sim.add_node("n1", UUID);
        let member = ClusterMembership { membership: Membership::Member, config: None, left: None };
        let (stopper, stop) = Stop::new();
        let stage = Self {
            _root: root,
            _stopper: stopper,
            topic_root: topic_root.clone(),
            clock: Clock::new().off_by(0),
            sim,
            published: watch::Sender::default(),
            members: watch::Sender::new(member),
            totals: watch::Sender::default(),
        };
        let context = AgentContext { topic_root, clock: stage.clock, stop, boot_id: BOOT.to_owned() };
        let members = stage.members.subscribe();
        let report = NodeReport {
            beside: BesideDrain { members, ..BesideDrain::of_test(context, &stage.sim, UUID) },
            published: stage.published.subscribe(),
            totals: stage.totals.clone(),
            told: watch::Sender::default().subscribe(),
        };
        let limits = Limits::default();
        tokio::select! {
            () = report.run(&limits) => panic!("it has ended"),
            () = course(&stage) => {}
        }
    }

    fn put<T: serde::Serialize>(&self, file: &str, value: &T) {
        store::replace(&self.topic_root.path(file), &go_json::to_vec(value).unwrap()).unwrap();
    }

    /// As zedkube publishes it; then time passes.
    async fn publish(&self, progress: NodeDrainProgress, secs: u64) {
        let status = NodeDrainStatus { status: progress.status, requested_by: progress.requested_by };
        self.put("run/zedkube/NodeDrainProgress/global.json", &progress);
        self.put("run/zedkube/NodeDrainStatus/global.json", &status);
        self.published.send_modify(|it| it.progress = Some(Arc::new(progress)));
        self.pass(secs).await;
    }

    async fn pass(&self, secs: u64) {
        self.clock.sleep_until(Some(self.clock.now() + Duration::from_secs(secs))).await;
    }

    fn node(&self) -> Value {
        self.sim.get("nodes", "", "n1").unwrap()
    }

    fn condition(&self) -> Option<Value> {
        self.condition_of("pillar-rs/Drained")
    }

    fn condition_of(&self, kind: &str) -> Option<Value> {
        let node = self.node();
        let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|it| it["type"] == kind)
    }

    /// Status of the conditions that Kubernetes has names for, and the reason of the first.
    fn lifecycle(&self) -> String {
        let all = LIFECYCLE.map(|it| self.condition_of(it).unwrap_or_default());
        let statuses: String = all.iter().map(|it| &it["status"].as_str().unwrap_or("-")[..1]).collect();
        format!("{statuses} {}", all[0]["reason"].as_str().unwrap_or_default())
    }

    /// As `kubectl drain` and a kubelet set one.
    fn set(&self, kind: &str, status: &str, reason: &str) {
        let new = json!({ "type": kind, "status": status, "reason": reason });
        self.sim.edit("nodes", "", "n1", |node| {
            let all = node["status"]["conditions"].as_array_mut().unwrap();
            all.retain(|it| it["type"] != kind);
            all.push(new.clone());
        });
    }

    fn events(&self) -> Vec<(String, u64)> {
        let all = self.sim.list("events");
        all.iter()
            .map(|it| (it["reason"].as_str().unwrap().to_owned(), it["count"].as_u64().unwrap()))
            .collect()
    }

    fn writes(&self) -> usize {
        let faults = self.sim.faults();
        faults.count("PATCH", "/nodes/n1/status")
            + faults.count("POST", "/events")
            + faults.count("PATCH", "/events")
    }
}

#[tokio::test(start_paused = true)]
async fn o3_events_and_condition_follow_a_drain_and_conditions_of_others_stay() {
    Stage::play(async |stage| {
        let others = |stage: &Stage| {
            let node = stage.node();
            let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ours = |it: &Value| {
                it["type"] == "pillar-rs/Drained" || LIFECYCLE.iter().any(|kind| it["type"] == *kind)
            };
            all.into_iter().filter(|it| !ours(it)).collect::<Vec<_>>()
        };
        stage
            .sim
            .until("nodes", |all| all.iter().all(|it| it["status"]["conditions"][0]["type"] == "Ready"))
            .await;
        let before = others(stage);
        stage.publish(idle(), 9).await;
        let first = stage.condition().unwrap();
        assert_eq!((first["status"].as_str(), first["reason"].as_str()), (Some("False"), Some("InService")));
        assert_eq!(
            stage.node()["metadata"]["annotations"]["pillar-rs/drain-state"],
            "IN SERVICE: no drain is requested"
        );
        stage.publish(blocked("shop/a"), 60).await;
        let held = stage.condition().unwrap();
        assert_eq!((held["status"].as_str(), held["reason"].as_str()), (Some("False"), Some("Blocked")));
        assert_eq!(held["lastTransitionTime"], first["lastTransitionTime"], "its status is the same");
        // Free, and held by the same again: counted up.
        stage.publish(NodeDrainProgress { blockers: vec![], ..blocked("") }, 9).await;
        stage.publish(blocked("shop/a"), 9).await;
        let mut all = stage.events();
        all.sort();
        assert_eq!(all, [("DrainBlocked".to_owned(), 2), ("DrainStarted".to_owned(), 1)]);
        let event = stage.sim.list("events")[0].clone();
        assert_eq!(event["metadata"]["namespace"], "default");
        assert_eq!(event["involvedObject"]["kind"], "Node");
        assert_eq!(event["involvedObject"]["uid"], stage.node()["metadata"]["uid"]);
        assert_eq!(others(stage), before, "the conditions of others");
        let totals = stage.totals.borrow().clone();
        assert_eq!((totals.events_left_out, totals.stalled), (0, false));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn o3_a_condition_that_somebody_removes_is_back_and_its_time_is_that_of_its_change() {
    Stage::play(async |stage| {
        stage.publish(idle(), 9).await;
        let first = stage.condition().unwrap();
        stage.sim.edit("nodes", "", "n1", |it| {
            it["status"]["conditions"].as_array_mut().unwrap().retain(|it| it["type"] != "pillar-rs/Drained");
            it["metadata"]["annotations"] = Value::Null;
        });
        stage.pass(310).await;
        let again = stage.condition().unwrap();
        assert_eq!(again["status"], first["status"]);
        assert!(!stage.node()["metadata"]["annotations"]["pillar-rs/drain-state"].is_null());
        // At rest there is one read and one write in five minutes.
        let (reads, writes) = (stage.sim.faults().count("GET", "/nodes/n1"), stage.writes());
        stage.pass(3600).await;
        assert_eq!(stage.sim.faults().count("GET", "/nodes/n1") - reads, 12);
        assert_eq!(stage.writes() - writes, 12);
        // The wall clock does not follow the paused one.
        stage.clock.jump_to_off_by(3600);
        stage.pass(310).await;
        let later = stage.condition().unwrap();
        assert_eq!(later["lastTransitionTime"], again["lastTransitionTime"]);
        assert_ne!(later["lastHeartbeatTime"], again["lastHeartbeatTime"]);
        let request = NodeDrainRequest {
            requested_at: at(1),
            requested_by: Requester::DeviceOp,
            context: "reboot".to_owned(),
        };
        stage.put("run/zedagent/NodeDrainRequest/global.json", &request);
        let proved = NodeDrainProgress {
            answers: answer(topics::SkipKind::None, ""),
            cordon: CordonOwner::Ours,
            ..progress(DrainPhase::Complete, DrainStatus::Complete)
        };
        stage.publish(proved, 9).await;
        let proved = stage.condition().unwrap();
        assert_eq!((proved["status"].as_str(), proved["reason"].as_str()), (Some("True"), Some("Drained")));
        assert_ne!(proved["lastTransitionTime"], again["lastTransitionTime"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn j1_conditions_of_kubernetes_go_with_the_drain_and_one_that_another_has_set_stays_until_ours_changes()
{
    Stage::play(async |stage| {
        stage.publish(idle(), 9).await;
        assert_eq!(stage.lifecycle(), "FFFF NotRequested");
        let since = stage.condition_of(LIFECYCLE[1]).unwrap()["lastTransitionTime"].clone();
        // A person drains with kubectl: twenty minutes later that stands.
        stage.set(LIFECYCLE[0], "True", "KubectlDrainStarted");
        stage.pass(1200).await;
        assert_eq!(stage.lifecycle(), "TFFF KubectlDrainStarted");
        stage.publish(blocked("shop/a"), 9).await;
        assert_eq!(stage.lifecycle(), "TFTF DrainBlocked");
        // What a kubelet has reset is set again.
        stage.set(LIFECYCLE[2], "False", "NotRequested");
        stage.pass(310).await;
        assert_eq!(stage.lifecycle(), "TFTF DrainBlocked");
        assert_eq!(stage.condition_of(LIFECYCLE[1]).unwrap()["lastTransitionTime"], since);
        // Those of others stay where the node leaves its cluster.
        stage.set(LIFECYCLE[3], "True", "KubectlDrainStarted");
        stage.members.send_modify(|it| it.membership = Membership::Outside);
        stage.pass(60).await;
        assert_eq!(stage.lifecycle(), "---T ");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn o3_a_node_that_leaves_its_cluster_shows_nothing_any_more() {
    Stage::play(async |stage| {
        stage.publish(idle(), 9).await;
        assert!(stage.condition().is_some());
        stage.members.send_modify(|it| it.membership = Membership::Undecided);
        stage.pass(900).await;
        assert!(stage.condition().is_some(), "not known is no reason");
        // The first try fails.
        stage.sim.faults().script(
            "PATCH",
            "/nodes/n1/status",
            1,
            ScriptedFault::status(500, "InternalError"),
        );
        stage.members.send_modify(|it| it.membership = Membership::Outside);
        stage.pass(60).await;
        assert_eq!(stage.condition(), None);
        assert!(stage.node()["metadata"]["annotations"]["pillar-rs/drain-state"].is_null());
        let asked = stage.sim.faults().requests().len();
        stage.pass(7200).await;
        assert_eq!(stage.sim.faults().requests().len(), asked, "and it asks for nothing");
        stage.members.send_modify(|it| it.membership = Membership::Member);
        stage.pass(9).await;
        assert!(stage.condition().is_some());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn o3_while_the_api_is_away_nothing_is_sent_and_then_what_waited() {
    Stage::play(async |stage| {
        stage.publish(idle(), 9).await;
        // The drain has noticed it.
        let away = NodeDrainProgress { api_silent_since: at(9), ..blocked("shop/a") };
        let asked = stage.sim.faults().requests().len();
        stage.publish(away, 7200).await;
        assert_eq!(stage.sim.faults().requests().len(), asked);
        stage.publish(blocked("shop/a"), 60).await;
        let reasons: Vec<String> = stage.events().into_iter().map(|it| it.0).collect();
        for reason in ["DrainStarted", "DrainBlocked", "DrainStalled"] {
            assert!(reasons.iter().any(|it| it == reason), "{reason}: {reasons:?}");
        }
        // Nobody has noticed it: it is tried less and less.
        for method in ["GET", "POST", "PATCH"] {
            stage.sim.faults().script(method, "/", u32::MAX, ScriptedFault::Cut);
        }
        let asked = stage.sim.faults().requests().len();
        stage.publish(progress(DrainPhase::FailedDrain, DrainStatus::FailedDrain), 3600).await;
        let tries = stage.sim.faults().requests().len() - asked;
        assert!((3..25).contains(&tries), "{tries}");
        stage.sim.faults().clear();
        stage.pass(310).await;
        assert!(stage.events().iter().any(|it| it.0 == "DrainFailed"), "{:?}", stage.events());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn o3_a_drain_that_flaps_writes_no_more_than_its_bound() {
    Stage::play(async |stage| {
        stage.publish(idle(), 9).await;
        for nth in 0..300 {
            stage.publish(blocked(&format!("shop/{nth}")), SETTLE.as_secs() + 2).await;
        }
        let faults = stage.sim.faults();
        let events = faults.count("POST", "/events") + faults.count("PATCH", "/events");
        assert!(events <= HOURLY, "{events}");
        assert!(stage.totals.borrow().events_left_out > 200, "{:?}", stage.totals.borrow());
        // What ends it has room.
        stage.publish(progress(DrainPhase::FailedDrain, DrainStatus::FailedDrain), 9).await;
        assert!(stage.events().iter().any(|it| it.0 == "DrainFailed"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn o3_words_that_change_all_the_time_are_written_twice_a_minute_at_most() {
    Stage::play(async |stage| {
        stage.publish(idle(), 9).await;
        let writes = stage.sim.faults().count("PATCH", "/nodes/n1/status");
        for gone in 0..240 {
            let counts = PodCounts { total: 500, gone, waiting: 500 - gone, ..PodCounts::default() };
            stage.publish(NodeDrainProgress { counts, blockers: vec![], ..blocked("") }, 1).await;
        }
        let writes = stage.sim.faults().count("PATCH", "/nodes/n1/status") - writes;
        assert!((5..=10).contains(&writes), "{writes}");
        stage.pass(60).await;
        let text = stage.condition().unwrap()["message"].as_str().unwrap().to_owned();
        assert!(text.contains("239 of 500"), "the last words: {text}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn o3_a_user_without_the_role_costs_little_and_another_devices_node_is_not_touched() {
    Stage::play(async |stage| {
        for path in ["/status", "/events"] {
            for method in ["POST", "PATCH"] {
                stage.sim.faults().script(method, path, u32::MAX, ScriptedFault::status(403, "Forbidden"));
            }
        }
        let asked = stage.sim.faults().requests().len();
        stage.publish(blocked("shop/a"), 3600).await;
        let tries = stage.sim.faults().requests().len() - asked;
        assert!(tries < 50, "{tries}");
        stage.sim.faults().clear();
        stage.sim.edit("nodes", "", "n1", |it| it["metadata"]["labels"]["node-uuid"] = "u2".into());
        stage.publish(progress(DrainPhase::FailedDrain, DrainStatus::FailedDrain), 3600).await;
        assert_eq!((stage.condition(), stage.events()), (None, vec![]));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn o3_with_the_setting_off_nothing_is_asked_and_stalls_are_counted_all_the_same() {
    let limits: Limits = serde_json::from_str(r#"{"node_report":false,"stall_after_ms":60000}"#).unwrap();
    assert_eq!((limits.node_report, limits.stall_after()), (false, Duration::from_mins(1)));
    let (published, totals) = (watch::Sender::<DrainActivity>::default(), watch::Sender::<Totals>::default());
    let (sim, root) = (Sim::new(SimConfig::default()), tempfile::tempdir().unwrap());
    let clock = Clock::new();
    let (_stopper, context) = AgentContext::alone(&TopicRoot::open(root.path()).unwrap(), clock, BOOT);
    let report = NodeReport {
        beside: BesideDrain::of_test(context, &sim, UUID),
        published: published.subscribe(),
        totals: totals.clone(),
        told: watch::Sender::default().subscribe(),
    };
    published.send_modify(|it| it.progress = Some(Arc::new(blocked("shop/a"))));
    tokio::select! {
        () = report.run(&limits) => panic!("it has ended"),
        () = clock.sleep_until(Some(clock.now() + Duration::from_mins(5))) => {}
    }
    assert_eq!((totals.borrow().stalls, totals.borrow().stalled), (1, true));
    assert!(sim.faults().requests().is_empty());
}
