//! An operator's writes against other writers.

use std::cell::Cell;

use jiff::Timestamp;
use kube::Client;
use kubeapi::{ApiClient, NodeName};
use kubesim::{ScriptedFault, Sim};
use serde_json::{Value, json};

use crate::calls;
use crate::operator::{Failed, change, mark, view};
use crate::site::record::OperatorStatement;
use crate::turn::record::{LEASE, TurnRecord};
use crate::turn::rule::{IGNORE_ANNOTATION, OperatorRefusal, with_limit};

fn cluster() -> (Sim, ApiClient) {
    let sim = Sim::of_nodes(2);
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    (sim, cluster)
}

fn lease(sim: &Sim) -> Value {
    sim.get("coordination/leases", "eve-kube-app", LEASE).unwrap()
}

fn away() -> OperatorStatement {
    OperatorStatement { who: "operator field".into(), why: "in repair".into(), ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn a_write_between_reading_and_writing_is_not_lost() {
    let (sim, cluster) = cluster();
    change(&cluster, Timestamp::UNIX_EPOCH, |record| with_limit(record, 2)).await.unwrap();
    let tries = Cell::new(0);
    let edit = |record: &TurnRecord| {
        tries.set(tries.get() + 1);
        if tries.get() == 1 {
            // A node is faster.
            sim.edit("coordination/leases", "eve-kube-app", LEASE, |it| {
                it["metadata"]["annotations"]["example.com/faster"] = json!("here");
            });
        }
        with_limit(record, 3)
    };
    let (before, after) = change(&cluster, Timestamp::UNIX_EPOCH, edit).await.unwrap();
    assert_eq!((tries.get(), before.limit, after.limit), (2, 2, 3));
    let meta = lease(&sim)["metadata"].clone();
    assert_eq!(meta["annotations"]["example.com/faster"], "here");
    assert_eq!(meta["annotations"]["pillar-rs/outage-limit"], "3");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_deleted_and_made_again_is_not_written_by_its_old_version() {
    let (sim, cluster) = cluster();
    change(&cluster, Timestamp::UNIX_EPOCH, |record| with_limit(record, 2)).await.unwrap();
    let old = lease(&sim)["metadata"]["uid"].clone();
    let tries = Cell::new(0);
    let edit = |record: &TurnRecord| {
        tries.set(tries.get() + 1);
        if tries.get() == 1 {
            assert!(sim.remove("coordination/leases", "eve-kube-app", LEASE));
        }
        with_limit(record, record.limit + 1)
    };
    // What was there is gone with it: the default limit, raised by one.
    let (before, after) = change(&cluster, Timestamp::UNIX_EPOCH, edit).await.unwrap();
    assert_eq!((tries.get(), before.limit, after.limit), (2, 1, 2));
    assert_ne!(lease(&sim)["metadata"]["uid"], old);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_became_a_member_of_etcd_meanwhile_is_not_marked() {
    let (sim, cluster) = cluster();
    let node = calls::named(&cluster, &NodeName::parse("n1").unwrap()).await.unwrap();
    sim.edit("nodes", "", "n1", |it| {
        it["metadata"]["labels"]["node-role.kubernetes.io/etcd"] = json!("true");
    });
    assert_eq!(calls::mark(&cluster, &node, Some("away")).await, Ok(false));
    let name = NodeName::parse("n1").unwrap();
    let refused = mark(&cluster, &name, Some(&away())).await;
    assert_eq!(refused.unwrap_err(), Failed::Refused(OperatorRefusal::Member("n1".to_owned())));
    assert_eq!(
        sim.get("nodes", "", "n1").unwrap()["metadata"]["annotations"][IGNORE_ANNOTATION],
        Value::Null
    );
    // A mark from before it was one can be removed.
    sim.edit("nodes", "", "n1", |it| it["metadata"]["annotations"][IGNORE_ANNOTATION] = json!("old"));
    assert_eq!(mark(&cluster, &name, None).await.unwrap().away.as_deref(), Some("old"));
    assert_eq!(view(&cluster).await.unwrap().away.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_not_made_again() {
    let (sim, cluster) = cluster();
    sim.faults().script("POST", "/leases", 1, ScriptedFault::Cut);
    let lost = change(&cluster, Timestamp::UNIX_EPOCH, |record| with_limit(record, 2)).await.unwrap_err();
    assert!(matches!(lost, Failed::InDoubt(_)), "{lost}");
    assert!(lost.to_string().ends_with("whether it was written: zedbox lock status"), "{lost}");
    assert_eq!(sim.faults().count("POST", "/leases"), 1);
}
