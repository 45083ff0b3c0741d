//! Leases: of two writers one wins.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use kubesim::{Sim, SimConfig};
use serde_json::json;

fn leases() -> (Sim, Api<Lease>) {
    let sim = Sim::new(SimConfig::default());
    let client = Client::new(sim.service(), "default");
    (sim, Api::namespaced(client, "eve-kube-app"))
}

fn lease(holder: &str) -> Lease {
    serde_json::from_value(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "leader" },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 300, "renewTime": "2025-01-01T00:00:00.000000Z" },
    }))
    .unwrap()
}

fn held_by(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

fn refused<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> (u16, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn of_two_writers_who_read_the_same_version_the_second_is_refused() {
    let (sim, leases) = leases();
    let how = PostParams::default();
    leases.create(&how, &lease("n1")).await.unwrap();
    assert_eq!(refused(leases.create(&how, &lease("n2")).await), (409, "AlreadyExists".to_owned()));
    let read = leases.get("leader").await.unwrap();
    let take = |holder: &str| {
        let mut taken = read.clone();
        taken.spec.as_mut().unwrap().holder_identity = Some(holder.to_owned());
        taken
    };
    let taken = leases.replace("leader", &how, &take("n2")).await.unwrap();
    assert_ne!(taken.metadata.resource_version, read.metadata.resource_version);
    assert_eq!(refused(leases.replace("leader", &how, &take("n3")).await), (409, "Conflict".to_owned()));
    assert_eq!(held_by(&leases.get("leader").await.unwrap()), Some("n2"));
    // A write that names no version would pass over another's: a lease wants one.
    assert_eq!(refused(leases.replace("leader", &how, &lease("n3")).await), (422, "Invalid".to_owned()));
    assert_eq!(sim.list("coordination/leases").len(), 1);
}

#[tokio::test]
async fn events_are_kept_and_found_by_what_they_are_about() {
    let sim = Sim::new(SimConfig::default());
    let events: Api<Event> = Api::namespaced(Client::new(sim.service(), "default"), "shop");
    for (name, about) in [("e1", "web"), ("e2", "db")] {
        let event = serde_json::from_value(json!({
            "metadata": { "name": name }, "reason": "Tested", "message": "it works",
            "involvedObject": { "kind": "Pod", "name": about, "namespace": "shop" },
        }));
        events.create(&PostParams::default(), &event.unwrap()).await.unwrap();
    }
    let found = events.list(&ListParams::default().fields("involvedObject.name=db")).await.unwrap().items;
    let names: Vec<_> = found.iter().map(|it| it.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["e2"]);
}
