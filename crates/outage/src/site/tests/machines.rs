//! Virtual machines stopped and started on the embedded cluster, as their run strategy asks.

use kube::Client;
use kubeapi::ApiClient;
use kubeapi::machines::SITE;
use kubesim::{Sim, SimConfig};
use serde_json::{Value, json};

use super::super::calls::act;
use super::super::calls::find;
use super::super::coordinate::next;
use super::super::operator::{begin, pass};
use super::super::record::{SiteKind, SitePhase, SiteRecord};
use super::restart::{now, record, said, wish_of_all};
use crate::site::record::Move;
use crate::turn::record::TurnRecord;

const VMS: &str = "kubevirt/virtualmachines";
const GUESTS: &str = "kubevirt/virtualmachineinstances";
const SETS: &str = "kubevirt/virtualmachineinstancereplicasets";

struct Place {
    sim: Sim,
    cluster: ApiClient,
    site: SiteRecord,
}

fn annotation(object: &Value) -> Option<Value> {
    serde_json::from_str(object["metadata"]["annotations"][SITE.annotation].as_str()?).unwrap()
}

impl Place {
    async fn new(machines: &[(&str, &str)], sets: &[(&str, u64)]) -> Self {
        let sim = Sim::new(SimConfig::default());
        sim.add_node("n1", "u1");
        let mut guests = 0;
        for (name, strategy) in machines {
            sim.add_machine("shop", name, strategy);
            if *strategy == "Manual" {
                let asked = json!([{ "action": "Start" }]);
                sim.edit(VMS, "shop", name, |it| it["status"]["stateChangeRequests"] = asked);
            }
            guests += u64::from(*strategy != "Halted");
        }
        for (name, replicas) in sets {
            sim.add_machine_set("eve-kube-app", name, *replicas);
            guests += replicas;
        }
        let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
        let wish = wish_of_all(SiteKind::Shutdown);
        let nodes: Vec<_> =
            crate::calls::glance(&cluster).await.unwrap().into_iter().map(|(node, _)| node).collect();
        let mut site = now(&begin(&TurnRecord::default(), &wish, &nodes).unwrap());
        site.phase = SitePhase::Stopping;
        let place = Self { sim, cluster, site };
        place.until_running(guests).await;
        place
    }

    async fn until_running(&self, wanted: u64) {
        let runs = |it: &&Value| it["status"]["phase"] == "Running";
        let run = self.sim.until(GUESTS, |all| all.iter().filter(runs).count() as u64 == wanted);
        let run = tokio::time::timeout(std::time::Duration::from_secs(60), run).await;
        assert!(run.is_ok(), "not {wanted} guests run: {:?}", self.sim.list(GUESTS));
    }

    /// What follows now; it is done.
    async fn step(&mut self) -> Move {
        let found = find(&self.cluster, &self.site.phase, "op").await.unwrap();
        let step = next(&self.site, &[], &found);
        match &step {
            Move::To(site) => self.site = (**site).clone(),
            Move::Machines(work) => {
                for it in work {
                    act(&self.cluster, it).await.unwrap();
                }
            }
            Move::Wait(..) | Move::Scale(_) | Move::End => {}
        }
        step
    }

    async fn down(&mut self) {
        for _ in 0..50 {
            if self.site.phase != SitePhase::Stopping {
                return;
            }
            let guests = self.sim.list(GUESTS).len();
            if let Move::Wait(..) = self.step().await {
                self.sim.until(GUESTS, |all| all.len() < guests).await;
            }
        }
        panic!("they are not off: {:?}", self.sim.list(VMS));
    }

    async fn up(&mut self) {
        self.site.phase = SitePhase::Restoring;
        for _ in 0..20 {
            if self.step().await == Move::End {
                return;
            }
        }
        panic!("it does not end: {:?}", self.sim.list(VMS));
    }

    fn spec(&self, resource: &str, name: &str) -> String {
        let namespace = if resource == SETS { "eve-kube-app" } else { "shop" };
        let it = self.sim.get(resource, namespace, name).unwrap();
        let spec = &it["spec"];
        let word =
            [&spec["runStrategy"], &spec["running"], &spec["replicas"]].into_iter().find(|it| !it.is_null());
        let mark = annotation(&it).map(|it| format!(" was {}", it["was"])).unwrap_or_default();
        format!("{}{mark}", word.unwrap())
    }

    fn asked(&self, what: &str) -> usize {
        self.sim.faults().count("PUT", &format!("/{what}"))
    }
}

#[tokio::test(start_paused = true)]
async fn u13_machines_are_stopped_as_their_run_strategy_asks_and_started_as_they_were_the_oldest_first() {
    let machines = [
        ("always", "Always"),
        ("once", "Once"),
        ("manual", "Manual"),
        ("rerun", "RerunOnFailure"),
        ("older", "RerunOnFailure"),
        ("off", "Halted"),
        ("form", "Always"),
    ];
    let mut place = Place::new(&machines, &[("app", 2)]).await;
    place
        .sim
        .edit(VMS, "shop", "form", |it| it["spec"] = json!({ "running": true, "template": { "spec": {} } }));
    place.sim.edit(VMS, "shop", "older", |it| {
        it["metadata"]["annotations"]["kubesim/stop-halts"] = "true".into();
    });
    place.down().await;
    assert_eq!(place.site.phase, SitePhase::Detaching);
    let launcher = |it: &Value| it["metadata"]["labels"]["kubevirt.io"] == "virt-launcher";
    assert!(place.sim.list(GUESTS).is_empty() && !place.sim.list("pods").iter().any(launcher));
    // What each is to be while the site is off, and as it was.
    let specs = [
        (VMS, "always", r#""Halted" was {"runStrategy":"Always"}"#, r#""Always""#),
        (VMS, "once", r#""Halted" was {"runStrategy":"Once"}"#, r#""Once""#),
        (VMS, "manual", r#""Manual" was {"runStrategy":"Manual"}"#, r#""Manual""#),
        (VMS, "rerun", r#""RerunOnFailure" was {"runStrategy":"RerunOnFailure"}"#, r#""RerunOnFailure""#),
        (VMS, "older", r#""Halted" was {"runStrategy":"RerunOnFailure"}"#, r#""RerunOnFailure""#),
        (VMS, "off", r#""Halted""#, r#""Halted""#),
        (VMS, "form", r#"false was {"running":true}"#, "true"),
        (SETS, "app", r#"0 was {"replicas":2}"#, "2"),
    ];
    for (resource, name, off, _) in specs {
        assert_eq!(place.spec(resource, name), off, "{name}");
    }
    assert_eq!(
        (place.asked("stop"), place.asked("start")),
        (3, 0),
        "by request: Manual and RerunOnFailure alone"
    );

    place.site.phase = SitePhase::Restoring;
    let (mut order, mut steps) = (Vec::new(), Vec::new());
    while let Move::Machines(work) = place.step().await {
        order.extend(work.iter().map(|it| it.machine.name.clone()));
        steps.push(work.len());
    }
    // The oldest first, and of the same age by name.
    let created = |name: &&'static str| {
        let (resource, namespace) = if *name == "app" { (SETS, "eve-kube-app") } else { (VMS, "shop") };
        let it = place.sim.get(resource, namespace, name).unwrap();
        (it["metadata"]["creationTimestamp"].as_str().unwrap().to_owned(), (*name).to_owned())
    };
    let mut oldest = ["always", "app", "form", "manual", "older", "once", "rerun"];
    oldest.sort_by_key(created);
    assert_eq!(order, oldest);
    assert_eq!(steps, [5, 1, 1], "the other two while the first ones are on their way up");
    place.until_running(8).await;
    for (resource, name, _, on) in specs {
        assert_eq!(place.spec(resource, name), on, "{name}");
    }
    assert_eq!((place.asked("stop"), place.asked("start")), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn u13_a_machine_that_a_person_has_changed_since_is_not_put_back() {
    let machines =
        [("word", "Always"), ("own", "Manual"), ("copy", "Always"), ("hands", "Always"), ("other", "Always")];
    let mut place = Place::new(&machines, &[("app", 1)]).await;
    place.down().await;
    place.sim.edit(VMS, "shop", "word", |it| it["spec"]["runStrategy"] = "Manual".into());
    place.sim.edit(SETS, "eve-kube-app", "app", |it| it["spec"]["replicas"] = 3.into());
    place.sim.edit(VMS, "shop", "own", |it| {
        it["status"]["stateChangeRequests"] = json!([{ "action": "Start" }]);
    });
    place.sim.edit(VMS, "shop", "copy", |it| it["metadata"]["uid"] = "another".into());
    place.sim.edit(VMS, "shop", "hands", |it| it["metadata"]["annotations"][SITE.annotation] = Value::Null);
    // Stopped by another operation.
    place.sim.edit(VMS, "shop", "other", |it| {
        let mark = annotation(it).unwrap().to_string().replace(r#""op""#, r#""op-2""#);
        it["metadata"]["annotations"][SITE.annotation] = mark.into();
    });
    place.up().await;
    place.until_running(4).await;
    for (resource, name, spec) in [
        (VMS, "other", r#""Halted" was {"runStrategy":"Always"}"#),
        (VMS, "word", r#""Manual""#),
        (VMS, "own", r#""Manual""#),
        (VMS, "copy", r#""Halted""#),
        (VMS, "hands", r#""Halted""#),
        (SETS, "app", "3"),
    ] {
        assert_eq!(place.spec(resource, name), spec, "{name}");
    }
    assert_eq!(place.asked("start"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_somebody_starts_in_between_is_stopped_again_and_keeps_its_newest_word() {
    let mut place = Place::new(&[("vm", "Always")], &[]).await;
    place.down().await;
    place.site.phase = SitePhase::Stopping;
    place.sim.edit(VMS, "shop", "vm", |it| it["spec"]["runStrategy"] = "RerunOnFailure".into());
    place.until_running(1).await;
    place.down().await;
    assert_eq!(place.spec(VMS, "vm"), r#""RerunOnFailure" was {"runStrategy":"RerunOnFailure"}"#);
    place.up().await;
    place.until_running(1).await;
}

#[tokio::test(start_paused = true)]
async fn u13_a_guest_that_nobody_owns_is_named_and_holds_the_site_until_a_person_says_otherwise() {
    let mut place = Place::new(&[("vm", "Always")], &[]).await;
    place.sim.apply(
        GUESTS,
        json!({ "metadata": { "name": "loose", "namespace": "lab" }, "status": { "phase": "Running" } }),
    );
    // The other one is stopped all the same.
    while place.sim.list(GUESTS).len() > 1 {
        let guests = place.sim.list(GUESTS).len();
        if let Move::Wait(..) = place.step().await {
            place.sim.until(GUESTS, |all| all.len() < guests).await;
        }
    }
    let Move::Wait(waits, step) = place.step().await else { panic!("it does not wait") };
    assert!(
        waits.contains("of these nothing stops and starts lab/loose, which no VirtualMachine owns"),
        "{waits}"
    );
    assert!(step.contains("kubectl -n lab delete vmi loose"), "{step}");
    let passed = now(&pass(&record(&place.site), &SitePhase::Stopping, None, &said()).unwrap());
    let found = find(&place.cluster, &passed.phase, "op").await.unwrap();
    assert!(matches!(next(&passed, &[], &found), Move::To(it) if it.phase == SitePhase::Detaching));
    // Machines that may go down with their nodes are not asked at all.
    let left = SiteRecord { leave_machines: true, ..place.site.clone() };
    assert!(matches!(next(&left, &[], &found), Move::To(it) if it.phase == SitePhase::Detaching));
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_guest_still_shuts_down_is_started_once_it_is_off() {
    let mut place = Place::new(&[("vm", "Manual")], &[]).await;
    while place.asked("stop") == 0 {
        place.step().await;
    }
    place.site.phase = SitePhase::Restoring;
    let Move::Wait(waits, _) = place.step().await else { panic!("it does not wait") };
    assert!(waits.contains("to be off before they are started: shop/vm"), "{waits}");
    place.sim.until(GUESTS, <[Value]>::is_empty).await;
    place.up().await;
    place.until_running(1).await;
    assert_eq!((place.asked("start"), place.spec(VMS, "vm")), (1, r#""Manual""#.to_owned()));
}
