//! What a drain is told of turns before it starts.

use checks::Severity;
use jiff::Timestamp;
use kube::Client;
use kubeapi::ApiClient;
use kubesim::{ScriptedFault, Sim, SimConfig};
use serde_json::json;

use crate::findings::look;
use crate::operator::change;
use crate::turn::record::{Holder, LEASE, Mode, TurnRecord};

fn texts(record: &TurnRecord, node: &str) -> Vec<String> {
    crate::findings::of(record, node).into_iter().map(|it| it.text).collect()
}

#[test]
fn u6_who_else_is_down_and_an_operation_on_the_whole_site_are_found_before_a_drain() {
    let holder: Holder = serde_json::from_value(json!({
        "node": "n2", "nodeUID": "u", "op": "reboot", "fence": 3, "phase": "draining",
    }))
    .unwrap();
    let free = TurnRecord::default();
    let taken = TurnRecord { holders: vec![holder], ..TurnRecord::default() };
    let mode: Mode =
        serde_json::from_value(json!({ "id": "1", "kind": "shutdown", "waits": "n3 is silent" })).unwrap();
    let site = TurnRecord { mode: Some(mode), ..TurnRecord::default() };
    assert!(texts(&free, "n1").is_empty());
    assert_eq!(
        texts(&taken, "n1"),
        ["node n2 has the turn to be down (reboot, phase draining); at most 1 may be at once"]
    );
    assert!(texts(&taken, "n2").is_empty(), "its own turn");
    assert_eq!(texts(&site, "n1"), ["an operation on the whole site is under way (shutdown): n3 is silent"]);
}

#[tokio::test(start_paused = true)]
async fn u6_a_record_that_cannot_be_read_is_found_and_none_at_all_is_not() {
    let sim = Sim::new(SimConfig::default());
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    assert!(look(&cluster, None, "n1").await.is_empty());
    change(&cluster, Timestamp::UNIX_EPOCH, |it| Ok(TurnRecord { limit: 2, ..it.clone() })).await.unwrap();
    assert!(look(&cluster, None, "n1").await.is_empty());
    sim.edit("coordination/leases", "eve-kube-app", LEASE, |it| {
        it["metadata"]["annotations"]["pillar-rs/outage-limit"] = json!("many");
    });
    let found = look(&cluster, None, "n1").await;
    assert!(
        found.len() == 1 && found[0].code == "turns" && found[0].next == "zedbox lock status",
        "{found:?}"
    );
    // An API that refuses, or does not answer.
    for (fault, words) in [
        (ScriptedFault::status(403, "Forbidden"), "the server answered 403"),
        (ScriptedFault::status(500, "InternalError"), "the server answered 500"),
        (ScriptedFault::Cut, "eve-kube-app/pillar-rs-outage"),
        (ScriptedFault::Hang, "no answer within"),
    ] {
        sim.faults().clear();
        sim.faults().script("GET", LEASE, u32::MAX, fault.clone());
        let found = look(&cluster, None, "n1").await;
        assert!(
            found.len() == 1 && found[0].code == "turns" && found[0].severity == Severity::Warns,
            "{fault:?}: {found:?}"
        );
        assert!(found[0].text.contains(words), "{fault:?}: {found:?}");
    }
}
