//! Machines: each reason of table A7 for which KubeVirt does not migrate one, each way in which a migration ends, and what
//! KubeVirt answers from version to version.

use kubenodeop::MachinePolicy;
use scenarios::within_still;
use serde_json::json;
use topics::DrainStatus;

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Moved,
    /// It is shut down, and started again after the boot.
    Off,
    /// It is shut down, and its owner starts another guest elsewhere.
    Elsewhere,
    /// It stays, and the drain waits until a person lets it be shut down.
    Held,
}

struct Row {
    name: String,
    spec: Value,
    notes: Vec<(&'static str, String)>,
    foretold: String,
    says: String,
    end: End,
}

impl Row {
    fn new(name: impl Into<String>, end: End, foretold: impl Into<String>) -> Self {
        let foretold = foretold.into();
        let (name, says) = (name.into(), foretold.clone());
        Self { name, spec: migratable(), notes: Vec::new(), foretold, says, end }
    }

    fn noted(mut self, annotation: &'static str, word: impl Into<String>) -> Self {
        self.notes.push((annotation, word.into()));
        self
    }

    fn says(self, words: &str) -> Self {
        Self { says: words.to_owned(), ..self }
    }

    fn with(mut self, member: &str, value: Value) -> Self {
        self.spec[member] = value;
        self
    }
}

/// Plays a reboot with the machines of `rows` on the node, and back. `nudge` hears of each progress.
async fn play(version: &str, rows: &[Row], nudge: impl Fn(&Sim, &NodeDrainProgress, &Course)) {
    let mut world = world(SimConfig::default(), version).await;
    let sim = world.cluster.sim().clone();
    for row in rows {
        sim.add_machine_on("shop", &row.name, "Always", NODE, &row.spec);
        for (annotation, word) in &row.notes {
            annotate(&sim, GUESTS, &row.name, annotation, word);
        }
    }
    up(&sim, rows.len()).await;
    for row in rows {
        // What the annotations say is reported.
        let notes = row.notes.iter().find(|(name, _)| *name == "kubesim/not-migratable");
        let reason = notes.map_or("", |(_, text)| text.split(':').next().unwrap());
        until(&sim, GUESTS, |all| {
            let own = all.iter().find(|it| it["metadata"]["name"] == row.name.as_str()).unwrap();
            own["status"]["conditions"].to_string().contains(reason)
        })
        .await;
    }
    let uid = |name: &str| {
        sim.get(GUESTS, "shop", name).map(|it| it["metadata"]["uid"].clone()).unwrap_or_default()
    };
    let uids: Vec<Value> = rows.iter().map(|it| uid(&it.name)).collect();
    let plan = plan(&world, MachinePolicy::MigrateOrShutdown).await;
    let what = |row: &Row| format!("KubeVirt {version}, {}", row.name);
    let fate = |row: &Row| {
        let name = format!("shop/{}", row.name);
        plan.machines.iter().find(|it| it.name == name).unwrap().fate.clone()
    };
    for row in rows {
        assert!(fate(row).contains(&row.foretold), "{}: {}", what(row), fate(row));
    }
    world.begin().await;
    let mut course = Course::default();
    let held: Vec<&Row> = rows.iter().filter(|it| it.end == End::Held).collect();
    course
        .follow(&world, |seen, course| {
            nudge(&sim, seen, course);
            // All others are away: now a person decides.
            let away = |it: &&topics::MachineProgress| it.state != "gone";
            if !held.is_empty() && seen.machines.iter().filter(away).count() == held.len() {
                for row in &held {
                    annotate(&sim, MACHINES, &row.name, "pillar-rs/drain-policy", "shutdown");
                }
            }
            seen.status == DrainStatus::Complete
        })
        .await;
    world.recorded_count(1).await;
    for (row, uid) in rows.iter().zip(&uids) {
        let (name, what) = (format!("shop/{}", row.name), what(row));
        let left = format!("virtual machine {name}: ");
        let left = course.left.iter().find(|it| it.starts_with(&left));
        let guest = sim.get(GUESTS, "shop", &row.name);
        let node = guest.as_ref().map(|it| it["status"]["nodeName"].as_str().unwrap_or_default());
        let own = |it: &&Value| it["spec"]["vmiName"] == row.name.as_str();
        let moves = sim.list(MIGRATIONS).iter().filter(own).count();
        let shown = course.has(&name, &row.says) || left.is_some_and(|it| it.contains(&row.says));
        assert!(shown, "{what}: \"{}\" was not said: {:?} {left:?}", row.says, course.said.get(&name));
        assert_ne!(node, Some(NODE), "{what}");
        match row.end {
            End::Moved => {
                assert_eq!((moves, left), (1, None), "{what}");
                assert_eq!(&guest.unwrap()["metadata"]["uid"], uid, "{what}: it was shut down");
            }
            End::Off | End::Held => {
                assert!(guest.is_none(), "{what}: {guest:?}");
                let machine = sim.get(MACHINES, "shop", &row.name).unwrap();
                assert_eq!(machine["spec"]["runStrategy"], "Halted", "{what}");
            }
            End::Elsewhere => {
                assert_ne!(&guest.unwrap()["metadata"]["uid"], uid, "{what}");
                assert_eq!(moves, 0, "{what}");
            }
        }
        // What became of it is what was foretold, where only the cluster could change that.
        if !row.foretold.starts_with("is asked") && row.end != End::Held {
            assert!(left.is_some_and(|it| it.ends_with(&fate(row))), "{what}: {left:?}, {}", fate(row));
        }
    }
    let is_machine = |it: &String| it.starts_with("virtual machine ");
    let foretold: BTreeSet<(String, String)> = plan
        .blockers
        .iter()
        .map(|it| (it.pod.clone(), it.code.clone()))
        .filter(|it| is_machine(&it.0))
        .collect();
    let met: BTreeSet<_> = course.met.iter().filter(|it| is_machine(&it.0)).cloned().collect();
    assert_eq!(foretold, met, "KubeVirt {version}: what the plan foretold, and what the drain met");
    crate::comes_back(&mut world, 7).await;
    let runs = |it: &Value| it["status"]["phase"] == "Running";
    until(&sim, GUESTS, |all| all.len() == rows.len() && all.iter().all(runs)).await;
    let clean = |it: &Value| {
        let all = &it["metadata"]["annotations"];
        all["pillar-rs/drain-stopped"].is_null() && it["spec"]["runStrategy"] == "Always"
    };
    until(&sim, MACHINES, |all| all.iter().all(clean)).await;
    world.kill_all().await;
}

/// Table A7, with KubeVirt's messages.
const REASONS: [(&str, &str); 13] = [
    ("InterfaceNotLiveMigratable", "cannot migrate VMI which does not use masquerade"),
    ("CPUModeLiveMigratable", "the node \"edge-node-1\" does not allow migration with host-model"),
    ("HostDeviceNotLiveMigratable", "VMI specifies non-migratable generic PCI host device"),
    ("SEVNotLiveMigratable", "VMI uses SEV"),
    ("TDXNotLiveMigratable", "VMI uses TDX"),
    ("SecureExecutionNotLiveMigratable", "VMI uses Secure Execution"),
    (
        "NoTSCFrequencyNotLiveMigratable",
        "HyperV Reenlightenment VMIs cannot migrate when TSC Frequency is not exposed",
    ),
    ("HypervPassthroughNotLiveMigratable", "VMI uses hyperv passthrough"),
    ("DisksNotLiveMigratable", "cannot migrate VMI: PVC data is not shared"),
    ("HotplugNotLiveMigratable", "VMI has hotplugged disks"),
    ("VirtIOFSNotLiveMigratable", "VMI uses virtiofs"),
    ("PersistentReservationNotLiveMigratable", "VMI uses SCSI persistent reservation"),
    ("DecentralizedNotLiveMigratable", "VMI does not support decentralized live migration"),
];

fn reasons() -> Vec<Row> {
    let mut rows = Vec::new();
    for (nth, (reason, message)) in REASONS.into_iter().enumerate() {
        let why = format!("{reason}: {message}");
        let row = |kind: &str, end| {
            let foretold = format!("cannot move: {why}");
            Row::new(format!("{kind}-{nth}"), end, foretold).noted("kubesim/not-migratable", why.clone())
        };
        rows.push(row("off", End::Off));
        rows.push(row("other", End::Elsewhere).with("evictionStrategy", "LiveMigrateIfPossible".into()));
        rows.push(row("held", End::Held).noted("pillar-rs/drain-policy", "migrate-or-hold"));
    }
    let none = Row::new("none", End::Elsewhere, "cannot move: its eviction strategy is None");
    rows.push(none.with("evictionStrategy", "None".into()));
    rows
}

#[test]
fn d12_o5_for_each_reason_not_to_migrate_the_plan_foretells_what_the_drain_meets_and_the_page_shows() {
    within_still(Box::pin(play("v1.7.3", &reasons(), |_, _, _| {})));
}

fn ways() -> Vec<Row> {
    let asks = "is asked to migrate; node edge-node-";
    let here = json!({ "kubernetes.io/hostname": NODE });
    vec![
        Row::new("moves", End::Moved, asks).says("migrates to node edge-node-"),
        Row::new("fails", End::Off, asks)
            .noted("kubesim/migration", "fail: no memory")
            .says("3 migrations failed, the last one: no memory"),
        // KubeVirt ends one without progress by itself, three times.
        Row::new("stalls", End::Off, asks)
            .noted("kubesim/migration", "hang")
            .says("3 migrations failed, the last one: Live migration"),
        // A target pod that is never made, although there is a place: nobody ends that one.
        Row::new("waits", End::Off, asks)
            .noted("kubesim/migration", "hang-pending")
            .says("is in phase Pending for over 960 s"),
        Row::new("nowhere", End::Off, "cannot move: no other node can take it: ").with("nodeSelector", here),
        Row::new("post", End::Moved, asks)
            .noted("kubesim/migration", "post-copy")
            .says("in post-copy it cannot be ended"),
    ]
}

/// Lets a machine in post-copy arrive once it was seen to be left alone, and virt-api come back.
fn nudge(sim: &Sim, _: &NodeDrainProgress, course: &Course) {
    if course.has("shop/post", "in post-copy it cannot be ended") {
        sim.script_migrations("shop", "post", "succeed");
    }
}

async fn ends(version: &str) {
    play(version, &ways(), nudge).await;
}

#[test]
fn d12_machines_of_kubevirt_1_1_end_as_their_migrations_and_policies_say() {
    within_still(Box::pin(ends("v1.1.1")));
}

#[test]
fn d12_machines_of_kubevirt_1_3_end_as_their_migrations_and_policies_say() {
    within_still(Box::pin(ends("v1.3.1")));
}

#[test]
fn d12_machines_of_kubevirt_1_5_end_as_their_migrations_and_policies_say() {
    within_still(Box::pin(ends("v1.5.2")));
}

#[test]
fn d12_machines_of_kubevirt_1_7_end_as_their_migrations_and_policies_say() {
    within_still(Box::pin(ends("v1.7.3")));
}
