//! Every state of a node that the page shows, as a tree of files: one of `run-fixtures`, changed where no fixture has it.

use std::fmt::Write as _;
use std::fs;

use agent::Clock;
use nodestatus::trial;
use outage::failover::silence::{Heard, NodeSilence, SilentNode};
use outage::turn::rule::TurnNode;
use pubsub::TopicRoot;
use serde_json::{Value, json};
use sheet::DrainView;
use topics::{FORCE_FILE, GoTime, Headline, NodeShown, NodeState, NodeStatus};

use crate::drain_cmd::node::{self, NOW, Node, PROGRESS, STATUS, words};

const PENDING: &str = "persist/status/zedagent/DeviceOpPending/reboot.json";
const ZEDAGENTS: &str = "run/zedagent/NodeDrainRequest/global.json";
const PERSONS: &str = "run/zedbox/NodeDrainRequest/global.json";

/// Name, initial tree, and the expected headline; what [`change`] changes in the tree goes by the name.
const STATES: &str = "
    in-service         | cluster-idle      | IN SERVICE: no drain is requested
    no-cluster         | single-node       | IN NO CLUSTER: there is nothing to drain
    cordoned           | cluster-idle      | CORDONED, NOT DRAINED: by somebody else, its pods may still run here
    pending            | cluster-idle      | REQUESTED: reboot 7 is pending, its drain has not begun
    requested          | drain-3-requested | REQUESTED: reboot waits, the node is being checked first
    waiting-for-turn   | drain-3-requested | WAITING FOR ITS TURN: edge-node-3 is down
    waiting-for-window | drain-3-requested | WAITING FOR A WINDOW: reboot waits, the next one opens at 10:29:00 UTC
    draining           | drain-5-cordoned  | DRAINING: reboot waits, 2 of 4 pods gone
    paused             | paused            | PAUSED: no operation starts; paused by field: new disk in bay 2
    paused-reboot      | drain-3-requested | PAUSED: reboot waits; paused by field: new disk
    blocked            | drain-5-cordoned  | BLOCKED: reboot waits, 1 of 4 pods cannot leave
    blocked-many       | drain-5-cordoned  | BLOCKED: reboot waits, 5 of 48 pods cannot leave
    update-blocked     | update-5-cordoned | BLOCKED: OS update waits, 1 of 4 pods cannot leave
    api-silent         | drain-4-starting  | WAITING FOR THE KUBERNETES API: reboot waits, no answer since 09:38:00 UTC
    detaching          | drain-5-detaching | DRAINING: reboot waits, pods are gone, their volumes are being detached
    retrying           | drain-7-retrying  | BLOCKED: reboot waits, 1 of 4 pods cannot leave
    failed-cordon      | failed-cordon-6   | NOT DRAINED: reboot waits, the node cannot be cordoned
    failed             | failed-drain-8    | NOT DRAINED: reboot waits, the drain failed: pod shop/web-5f7d-e757f: PodDisruptionBudget shop/web allows no disruption: 3 of 3 pods healthy, 3 required
    drained            | drain-9-complete  | DRAINED: reboot goes ahead, do not work on it
    held               | drain-9-held      | BLOCKED: reboot waits for the last check before it goes down
    safe               | drain-9-complete  | SAFE TO WORK ON: proved empty under a cordon
    skipped            | drain-9-complete  | WITHOUT A PROVED DRAIN: reboot goes ahead, its drain was skipped
    forced             | forced            | WITHOUT A PROVED DRAIN: reboot goes ahead, a person has forced it
    withdrawn          | drain-9-complete  | WITHDRAWN: nobody asks for this drain any more
    after-boot         | cluster-idle      | AFTER A BOOT: stays cordoned until it is healthy: lease kube-node-lease/edge-node-1: no longer renewed
    whole-site         | cluster-idle      | WHOLE-SITE OPERATION: shutdown holds this node
    leaving            | cluster-idle      | LEAVING ITS CLUSTER: drains wait until it has left
    nothing-published  | malformed         | NOT KNOWN: zedkube has published nothing yet
    stale              | drain-9-complete  | NOT KNOWN: zedkube was last heard of at 09:31:00 UTC; below is what it wrote then
";

#[derive(Clone, Copy)]
pub(crate) struct State {
    pub(crate) name: &'static str,
    fixture: &'static str,
    pub(crate) headline: &'static str,
}

pub(crate) fn all() -> impl Iterator<Item = State> {
    STATES.trim().lines().map(|row| {
        let mut cells = row.splitn(3, '|').map(str::trim);
        let [name, fixture, headline] = std::array::from_fn(|_| cells.next().unwrap());
        State { name, fixture, headline }
    })
}

fn now() -> GoTime {
    NOW.parse().unwrap()
}

fn change(state: &str, tree: &Node) {
    match state {
        "cordoned" => tree.set(
            &json!({ "Cordon": "foreign", "NextStep": "if that cordon is yours: `kubectl uncordon NODE`" }),
        ),
        "pending" => tree.take("drain-3-requested", PENDING),
        "requested" => preflight(tree),
        "waiting-for-turn" => tree.set(&json!({
            "Phase": "waiting-for-turn",
            "Turn": { "Fence": 0, "Rule": "down", "Nodes": ["edge-node-3"], "Since": "2026-03-14T09:30:02Z", "Place": 1 },
            "Reason": "waits for its turn to be down: node edge-node-3 is down: not Ready",
            "NextStep": "wait; `zedbox lock status` shows who is before it; `kubectl describe node edge-node-3`",
        })),
        "waiting-for-window" => tree.set(&json!({
            "Phase": "outside-window", "Deadline": "2026-03-14T10:29:00Z", "Reason": "no window is open",
            "NextStep": "wait, or `zedbox go --past window --reason TEXT` starts it now",
        })),
        "draining" => tree.set(&json!({
            "Blockers": [], "Counts": { "Total": 4, "Gone": 2, "Going": 1, "Waiting": 1, "Blocked": 0 },
            "Reason": "2 of 4 pods gone", "NextStep": "nothing",
        })),
        "paused-reboot" => tree.set(&json!({
            "Phase": "paused", "Reason": "paused by field: new disk, since 2026-03-14 08:50:00 UTC",
            "Pause": { "By": "field", "Reason": "new disk", "Since": "2026-03-14T08:50:00Z" },
            "NextStep": "ask whoever paused it first; then, on this node: `sudo zedbox resume`",
        })),
        "blocked-many" => many(tree),
        "api-silent" => tree.set(&json!({
            "ApiSilentSince": "2026-03-14T09:38:00Z",
            "Reason": "the Kubernetes API is not reachable: get version with kubeconfig k: client error (Connect): tcp \
                       connect error: Connection refused (os error 111)",
            "NextStep": "check that the API server runs",
        })),
        "safe" => persons(tree),
        "skipped" => skipped(tree),
        "withdrawn" => {
            persons(tree);
            fs::remove_file(tree.path(PERSONS)).unwrap();
        }
        "after-boot" => after_boot(tree),
        "whole-site" => {
            tree.set(&json!({ "Phase": "whole-site", "Reason": "whole-site shutdown holds this node" }));
        }
        "leaving" => tree.set(&json!({ "Phase": "leaving", "Reason": "leaves its cluster" })),
        "stale" => {
            persons(tree);
            tree.silent_since("2026-03-14T09:31:00Z");
        }
        _ => {}
    }
}

impl State {
    pub(crate) fn shown(&self) -> (NodeStatus, String) {
        let tree = Node::of(self.fixture);
        change(self.name, &tree);
        tree.put("run/eve-release", "16.3.0-kubevirt-amd64");
        let headline =
            |state: NodeState, text: &str| Headline { state, text: format!("{}: {text}", state.words()) };
        let node = |name: &str| NodeShown {
            name: name.to_owned(),
            ready: "Ready".to_owned(),
            kubelet: "v1.34.2+k3s1".to_owned(),
            ..NodeShown::default()
        };
        let nodes = vec![
            NodeShown {
                control_plane: true,
                etcd: true,
                cordoned: tree.is_cordoned(),
                ..node("edge-node-1")
            },
            NodeShown {
                control_plane: true,
                etcd: true,
                headline: Some(headline(NodeState::InService, "no drain is requested")),
                page: "http://10.244.244.3:12346/".to_owned(),
                ..node("edge-node-2")
            },
            NodeShown { ready: "not Ready".to_owned(), cordoned: true, ..node("edge-node-3") },
        ];
        let nodes = if self.name == "no-cluster" { Vec::new() } else { nodes };
        trial::shown(tree.root(), now(), nodes).unwrap()
    }
}

impl Node {
    fn write(&self, file: &str, value: &Value) {
        self.put(file, &value.to_string());
    }

    fn is_cordoned(&self) -> bool {
        self.path(PROGRESS).exists() && self.progress()["Cordon"] != "none"
    }
}

type TreeChange = (&'static str, fn(&Node));

const CHANGES: [TreeChange; 15] = [
    ("-", |_| {}),
    ("no-cordon", |it| it.set(&json!({ "Cordon": "none" }))),
    ("foreign-cordon", |it| it.set(&json!({ "Cordon": "foreign" }))),
    ("silent", |it| it.silent_since("2026-03-14T07:00:00Z")),
    ("other-boot", |it| {
        it.put("run/force-NodeDrainStatus-boot", "11111111-2222-4333-8444-555555555555");
    }),
    ("k3s-request", |it| {
        let request =
            json!({ "RequestedAt": "2026-03-14T09:35:00Z", "RequestedBy": 5, "Context": "k3s v1.33.1+k3s1" });
        it.write("run/zedkube/NodeDrainRequest/global.json", &request);
    }),
    ("forced", |it| it.write(FORCE_FILE, &json!({ "Status": 9, "RequestedBy": 2 }))),
    ("skipped", skipped),
    ("image-refused", |it| {
        let image = json!({ "BaseOsVersion": "14.6.0", "Error": "no partition takes it" });
        it.write("run/baseosmgr/BaseOsStatus/5c1f6e0a.json", &image);
    }),
    ("disk-full", |it| {
        let trouble =
            json!({ "Path": "/persist/x", "Error": "no space left on device", "Holds": ["reboot 7"] });
        it.write("run/zedagent/AgentTrouble/global.json", &json!({ "Troubles": [trouble] }));
    }),
    ("disk-full-at-rest", |it| {
        let trouble = json!({ "Path": "/persist/x", "Error": "no space left on device" });
        it.write("run/zedagent/AgentTrouble/global.json", &json!({ "Troubles": [trouble] }));
    }),
    ("gate-late", |it| {
        let warning = json!({ "Layer": "system-pods", "Failed": true, "Since": "2026-03-14T09:29:00Z",
            "Words": "pods are not Ready: kube-system/coredns-1 (CrashLoopBackOff)" });
        it.set(&json!({ "Gate": { "Open": true, "Warnings": [warning] } }));
    }),
    ("ordered", |it| {
        it.take("drain-3-requested", PENDING);
        it.edit(PENDING, |op| (op["Counter"], op["Site"]) = (0.into(), "operator root: fan".into()));
    }),
    ("api-away", |it| it.set(&json!({ "ApiSilentSince": "2026-03-14T09:38:00Z" }))),
    ("failed-before", |it| {
        it.take("drain-3-requested", PENDING);
        let (boot, at) = (it.progress()["BootID"].clone(), "2026-03-14T09:20:00Z");
        let drain = json!({ "RequestedBy": 2, "BootID": boot, "Status": 8, "EndedAt": at });
        it.write("persist/status/zedkube/DrainHistory/global.json", &json!({ "Drains": [drain] }));
    }),
];

/// What is said of each tree of `run-fixtures`, by `sheet` and by all who show it; with a change only where it differs:
/// the exit code, status and reason of the condition, and the headline, which is the annotation too.
pub(crate) fn trees() -> String {
    let mut all = String::new();
    for name in node::trees() {
        let mut plain = String::new();
        for (changed, change) in CHANGES {
            let tree = Node::of(&name);
            // One tree cannot be changed.
            if name != "malformed"
                || !["no-cordon", "foreign-cordon", "skipped", "api-away", "failed-before", "gate-late"]
                    .contains(&changed)
            {
                change(&tree);
            }
            let view = DrainView::read(&TopicRoot::open(tree.root()).unwrap(), Clock::new()).as_copy();
            let judged = view.judge(now());
            let about = format!("{name} {changed}");
            let (status, page) = trial::shown(tree.root(), now(), Vec::new()).unwrap();
            assert_eq!(status.headline, judged.headline, "{about}");
            assert!(page.contains(&format!("<h1>{}</h1>", judged.headline.parts().0)), "{about}");
            let condition = zedkube::condition(&view, now(), false);
            assert_eq!(condition.state, topics::cut_text(&judged.headline.text, 512), "{about}");
            assert!(condition.message.starts_with(&condition.state), "{about}");
            let node = format!("{} {}", condition.status, condition.reason);
            let says = format!("{:?}\t{node}\t{}", judged.outcome, judged.headline.text);
            if changed != "-" && says == plain {
                continue;
            }
            // A process for each row that differs: what decides on its code is compared above.
            let told = tree.drain(&format!("status --as-of {NOW}"));
            assert!(told.out.lines().count() <= 12, "{about}: {}", told.out);
            assert!(words(&told.out).starts_with(&words(&judged.headline.text)), "{about}: {}", told.out);
            writeln!(all, "{name}\t{changed}\t{}\t{says}", told.code).unwrap();
            if changed == "-" {
                plain = says;
            }
        }
    }
    all
}

/// What docs/night.md has and no state above: headlines of more changes.
pub(crate) fn at_night() -> Vec<String> {
    let turn = |rule: &str, nodes: &[&str]| json!({ "Phase": "waiting-for-turn", "Turn": { "Rule": rule, "Nodes": nodes } });
    let machine =
        json!({ "Pod": "virtual machine shop/db", "Code": "cannot-move", "Reason": "it cannot move" });
    let changes = [
        turn("holder", &["edge-node-1"]),
        turn("cordoned", &["edge-node-2", "edge-node-3"]),
        json!({ "Phase": "moving-machines", "Blockers": [machine] }),
        json!({ "Phase": "whole-site", "Reason": "whole-site shutdown (waits for node edge-node-3) holds this node: no drain begins, and its cordon stays" }),
    ];
    let headline = |change: &Value| {
        let tree = Node::of("drain-3-requested");
        tree.set(change);
        trial::shown(tree.root(), now(), Vec::new()).unwrap().0.headline.text
    };
    changes.iter().map(headline).chain([of_a_dead_node()]).collect()
}

/// At rest, while another node is silent.
fn of_a_dead_node() -> String {
    let node = TurnNode { name: "edge-node-2".to_owned(), ..TurnNode::default() };
    let silent = SilentNode { node, silence: NodeSilence::Silent, heard: Heard::new(), declared: None };
    let tree = Node::of("cluster-idle");
    let trouble =
        json!({ "What": "node edge-node-2", "Error": silent.words(), "NextStep": silent.next_step() });
    tree.write("run/zedkube/AgentTrouble/global.json", &json!({ "Troubles": [trouble] }));
    trial::shown(tree.root(), now(), Vec::new()).unwrap().0.headline.text
}

/// The same drain for a person's work only.
fn persons(tree: &Node) {
    for file in [ZEDAGENTS, PENDING] {
        fs::remove_file(tree.path(file)).unwrap();
    }
    let (at, context) = ("2026-03-14T09:30:00Z", "operator field: new disk in bay 2");
    tree.write(PERSONS, &json!({ "RequestedAt": at, "RequestedBy": 4, "Context": context }));
    tree.write(STATUS, &json!({ "Status": 9, "RequestedBy": 4 }));
    let mut answer = tree.progress()["Answers"][0].clone();
    answer["RequestedBy"] = 4.into();
    tree.set(&json!({
        "RequestedBy": 4, "Context": context, "Answers": [answer],
        "NextStep": "work on the node; it takes pods again after `zedbox undrain`",
    }));
}

fn skipped(tree: &Node) {
    let skip = "the Kubernetes API was not reachable for 300 s";
    let mut answers = tree.progress()["Answers"].clone();
    answers.as_array_mut().unwrap().iter_mut().for_each(|it| it["Skip"] = skip.into());
    tree.set(&json!({ "Skip": skip, "Answers": answers }));
    if tree.progress()["Phase"] == "complete" {
        tree.set(&json!({
            "Phase": "skipped", "Reason": format!("drain skipped: {skip}"),
            "Counts": { "Total": 4, "Gone": 1, "Going": 0, "Waiting": 3, "Blocked": 0 },
        }));
    }
}

/// Much of everything, with endless words.
fn many(tree: &Node) {
    let long = "namespace-of-a-customer-with-a-long-name/statefulset-of-a-database-with-a-long-name-0";
    let codes = ["budget-stuck", "last-copy", "kubelet-silent", "webhook", "slow-to-end"];
    let blocker = |(nth, code): (usize, &&str)| {
        json!({
            "Pod": format!("{long}{nth}"), "UID": "u", "Code": code, "Since": "2026-03-14T09:36:10Z",
            "Reason": format!("pod {long}{nth}: {}", "PodDisruptionBudget allows no disruption: 2 of 2 pods healthy, 2 required"),
            "NextStep": format!("add a replica: `kubectl -n namespace-of-a-customer-with-a-long-name get pdb,pods {}`", "x".repeat(60)),
        })
    };
    let blockers: Vec<Value> = codes.iter().enumerate().map(blocker).collect();
    tree.set(&json!({
        "Counts": { "Total": 48, "Gone": 30, "Going": 8, "Waiting": 5, "Blocked": 5 }, "Blockers": blockers,
        "BlockersOmitted": 3, "NextStep": format!("{long}0: change the budget (and 7 more)"), "Estimate": "2026-03-14T09:52:00Z",
        "Machines": [{ "Name": "shop/db", "State": "moving", "Reason": "migrates to node edge-node-2, phase Running" }],
        "Volumes": ["shop/data (pv pvc-7c1e)"], "Left": [format!("{long}: it stays: its pods have come back 3 times")],
        "Storage": [{ "Volume": "shop/data (pvc-1)", "Node": "edge-node-1", "Rebuilding": true, "Percent": 42,
            "Reason": "the last healthy copy is here; another is being rebuilt, 42 %", "NextStep": "wait" }],
        "Hooks": ["not called: /etc/zedbox/hooks/before-drain.d/20-backup is not executable"],
    }));
    tree.take("cluster-idle", "persist/status/zedkube/DrainHistory/global.json");
}

fn preflight(tree: &Node) {
    let finding = |code: &str, severity: &str, text: &str, next: &str| {
        json!({
            "Code": code, "Severity": severity, "Text": text, "NextStep": next, "PassedBy": "",
        })
    };
    tree.write("run/zedkube/DrainPreflight/global.json", &json!({
        "At": "2026-03-14T09:30:04Z", "LeftOut": 0, "Findings": [
            finding("backups", "blocks", "backups in progress: b1", "`kubectl -n longhorn-system get backups`; wait for their end"),
            finding("disk", "warns", "cannot be checked: list nodes with kubeconfig k: client error (Connect): tcp connect \
                error: Connection refused (os error 111)", "look at the API server, then at `df -h`"),
        ],
    }));
}

fn after_boot(tree: &Node) {
    let warning = json!({ "Layer": "system-pods", "Failed": true, "Since": "2026-03-14T09:29:00Z",
        "Words": "pods are not Ready: kube-system/coredns-1 (CrashLoopBackOff)",
        "NextStep": "look at `kubectl -n kube-system describe pod coredns-1`" });
    tree.set(&json!({
        "Phase": "after-boot", "Cordon": "ours",
        "Reason": "keeps its own cordon of an earlier boot: lease kube-node-lease/edge-node-1: no longer renewed",
        "NextStep": "look at the log of its kubelet: `journalctl -u k3s`",
        "Gate": { "Open": false, "Layer": "node-lease", "Failed": false, "Since": "2026-03-14T09:38:30Z",
            "Words": "lease kube-node-lease/edge-node-1: no longer renewed",
            "NextStep": "look at the log of its kubelet: `journalctl -u k3s`", "StaleTaints": [], "Warnings": [warning] },
    }));
}
