//! Longhorn's properties on an embedded cluster.

use kube::Client;
use kubesim::{ScriptedFault, Sim, SimConfig};
use serde_json::{Value, json};
use topics::ConfigItemValue;

use super::*;

const JOBS: &str = "longhorn/recurringjobs";
const SETTINGS: &str = "longhorn/settings";
const NAMESPACE: &str = "longhorn-system";
const JOB: &str = "default-eve-kube-app-snapshot";

fn map(cron: &str, policy: &str) -> ConfigItemValueMap {
    ConfigItemValueMap::of([ConfigItemValue::text(CRON, cron), ConfigItemValue::text(POLICY, policy)])
}

fn want(cron: &str, policy: &str) -> DesiredLonghorn {
    wanted(&map(cron, policy), &DesiredLonghorn::default()).0
}

#[test]
fn what_makes_no_sense_leaves_what_is_in_force() {
    let text = |it: &str| Some(it.to_owned());
    let before = want("0 0 * * *", "always-allow");
    assert_eq!((&before.cron, &before.policy), (&text("0 0 * * *"), &text("always-allow")));
    assert_eq!(want(" @every 1h ", "block-for-eviction").cron, text("@every 1h"));
    assert_eq!(want("0 6 ? * MON", "").cron, text("0 6 ? * MON"));
    assert_eq!(want("", "always-allow").cron, text(""));
    for (cron, policy) in [("0 0 * *", "never"), ("0 0 * * *; x", "no"), ("daily", "Always-Allow")] {
        let (now, refused) = wanted(&map(cron, policy), &before);
        assert_eq!((now, refused.len()), (before.clone(), 2), "{cron} {policy}");
    }
    assert_eq!(
        wanted(&ConfigItemValueMap::default(), &before).0,
        DesiredLonghorn::default(),
        "nothing is wanted"
    );
}

struct Bench {
    sim: Sim,
    wanted: watch::Sender<DesiredLonghorn>,
    leads: watch::Sender<Leadership>,
}

impl Bench {
    fn new() -> Self {
        let sim = Sim::new(SimConfig::default());
        Self { sim, wanted: watch::Sender::default(), leads: watch::Sender::default() }
    }

    fn lead(&self, clock: Clock) {
        self.leads.send_replace(Leadership { until: Some(clock.now() + Duration::from_hours(100)) });
    }

    fn job(&self) -> Option<Value> {
        self.sim.get(JOBS, NAMESPACE, JOB).map(|it| it["spec"].clone())
    }

    fn policy(&self) -> Option<Value> {
        self.sim.get(SETTINGS, NAMESPACE, "node-drain-policy").map(|it| it["value"].clone())
    }

    fn writes(&self) -> usize {
        ["POST", "PATCH", "DELETE", "PUT"].iter().map(|it| self.sim.faults().count(it, "longhorn")).sum()
    }
}

#[tokio::test(start_paused = true)]
async fn e9_policy_and_snapshot_job_are_kept_by_the_node_that_leads_and_only_where_they_differ() {
    let (bench, clock) = (Bench::new(), Clock::new());
    let cluster = ApiClient::from_client(Client::new(bench.sim.service(), "default"));
    let duty = run(cluster, clock, bench.leads.subscribe(), bench.wanted.subscribe());
    let spec = |cron: &str| {
        Some(
            json!({ "task": "snapshot", "groups": ["default"], "cron": cron, "retain": 3, "concurrency": 1 }),
        )
    };
    let course = async {
        let hour = || tokio::time::sleep(Duration::from_hours(1));
        bench.sim.add_longhorn("always-allow");
        hour().await;
        bench.wanted.send_replace(want("0 0 * * *", "block-for-eviction"));
        hour().await;
        assert_eq!((bench.job(), bench.writes()), (None, 0), "another node leads");
        bench.lead(clock);
        hour().await;
        assert_eq!((bench.job(), bench.policy()), (spec("0 0 * * *"), Some("block-for-eviction".into())));
        assert_eq!(bench.writes(), 2, "equal is not written");
        // Drift of each member, and a job that is gone.
        for (member, other) in [
            ("retain", json!(9)),
            ("concurrency", json!(2)),
            ("groups", json!([])),
            ("cron", json!("@daily")),
        ] {
            bench.sim.edit(JOBS, NAMESPACE, JOB, |it| it["spec"][member] = other.clone());
            hour().await;
            assert_eq!(bench.job(), spec("0 0 * * *"), "{member}");
        }
        bench.sim.longhorn_setting("node-drain-policy", "always-allow");
        bench.sim.remove(JOBS, NAMESPACE, JOB);
        bench.sim.faults().script(
            "PATCH",
            "settings/node-drain-policy",
            1,
            ScriptedFault::status(409, "Conflict"),
        );
        hour().await;
        assert_eq!((bench.job(), bench.policy()), (spec("0 0 * * *"), Some("block-for-eviction".into())));
        // What somebody has put beside ours stays.
        bench.sim.edit(JOBS, NAMESPACE, JOB, |it| it["spec"]["labels"] = json!({ "a": "b" }));
        bench.wanted.send_replace(want("0 6 * * *", "always-allow"));
        hour().await;
        assert_eq!(bench.job().unwrap()["labels"], json!({ "a": "b" }));
        assert_eq!(
            (&bench.job().unwrap()["cron"], bench.policy()),
            (&json!("0 6 * * *"), Some("always-allow".into()))
        );
        bench.wanted.send_replace(want("", "always-allow"));
        hour().await;
        assert_eq!(bench.job(), None, "an empty time deletes the job");
        let writes = bench.writes();
        bench.wanted.send_replace(want("", ""));
        // A look that was under way is over.
        tokio::time::sleep(Duration::from_secs(10)).await;
        bench.sim.longhorn_setting("node-drain-policy", "block-for-eviction");
        hour().await;
        assert_eq!(bench.writes(), writes, "an empty policy leaves what Longhorn has");
        // Pods of silent nodes are left alone where the config says so.
        bench.sim.longhorn_setting("node-down-pod-deletion-policy", "delete-both");
        let say = |it: &str| {
            wanted(&ConfigItemValueMap::of([ConfigItemValue::text(NODE_DOWN, it)]), &want("", "")).0
        };
        for (word, then) in
            [("delete-both", "delete-both"), ("", "delete-both"), ("do-nothing", "do-nothing")]
        {
            bench.wanted.send_replace(say(word));
            hour().await;
            let value = bench.sim.get(SETTINGS, NAMESPACE, "node-down-pod-deletion-policy").unwrap();
            assert_eq!(value["value"], then, "{word:?}");
        }
    };
    tokio::select! {
        () = duty => panic!("it has ended"),
        () = course => {}
    }
}

#[tokio::test(start_paused = true)]
async fn e9_a_cluster_without_longhorn_is_waited_for() {
    let (bench, clock) = (Bench::new(), Clock::new());
    let cluster = ApiClient::from_client(Client::new(bench.sim.service(), "default"));
    bench.lead(clock);
    bench.wanted.send_replace(want("0 0 * * *", "always-allow"));
    bench.sim.faults().script("POST", "recurringjobs", 30, ScriptedFault::status(404, "NotFound"));
    let duty = run(cluster, clock, bench.leads.subscribe(), bench.wanted.subscribe());
    let course = async {
        tokio::time::sleep(Duration::from_mins(20)).await;
        assert_eq!((bench.job(), bench.policy()), (None, None), "a setting is not made");
        bench.sim.add_longhorn("block-for-eviction");
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(bench.job().is_some());
        assert_eq!(bench.policy(), Some("always-allow".into()));
    };
    tokio::select! {
        () = duty => panic!("it has ended"),
        () = course => {}
    }
}
