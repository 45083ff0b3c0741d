//! Names virtual machines that do not start, on the node that leads. They are never deleted: what holds one would hold the
//! next one too. Not here: what holds them (`kubenodeop::machines::stuck`).

use std::collections::BTreeMap;
use std::time::Duration;

use agent::{Clock, Troubles};
use clusterview::leader::Leadership;
use clusterview::leads_otherwise;
use kubeapi::ApiClient;
use kubenodeop::machines::stuck::{UnstartedMachine, unstarted};
use step::Mono;
use tokio::sync::watch;
use topics::Trouble;
use tracing::{debug, warn};

const LOOK: Duration = Duration::from_secs(30);
/// One that has not started for so long is named: after a look more it is three minutes at most.
const STARTS_WITHIN: Duration = Duration::from_secs(140);
/// The troubles that begin with this are ours.
const MACHINE: &str = "machine ";

/// Runs until the sender of `leading` is gone. Dropping it loses since when they wait.
pub(crate) async fn run(
    cluster: ApiClient,
    clock: Clock,
    mut leading: watch::Receiver<Leadership>,
    troubles: Troubles,
) {
    let mut since: BTreeMap<String, Mono> = BTreeMap::new();
    loop {
        let now = clock.now();
        let leads = leading.borrow_and_update().holds(now);
        let found = if leads { unstarted(&cluster).await } else { Ok(Vec::new()) };
        match found {
            Ok(all) => {
                since.retain(|uid, _| all.iter().any(|it| it.uid == *uid));
                let is_stuck = |it: &&UnstartedMachine| {
                    now.since(*since.entry(it.uid.clone()).or_insert(now)) >= STARTS_WITHIN
                };
                tell(&troubles, &all.iter().filter(is_stuck).collect::<Vec<_>>());
            }
            // What is reported stays: it is not known to be over.
            Err(error) => debug!(error = error.line(), "cannot look for machines that do not start"),
        }
        let due = leads.then(|| clock.now() + LOOK);
        tokio::select! {
            known = leads_otherwise(&mut leading, clock, leads) => if !known { return },
            () = clock.sleep_until(due), if due.is_some() => {}
        }
    }
}

fn tell(troubles: &Troubles, stuck: &[&UnstartedMachine]) {
    let mut still = Vec::new();
    for UnstartedMachine { name, phase, cause, .. } in stuck {
        let (namespace, alone) = name.split_once('/').unwrap_or_default();
        let trouble = Trouble {
            what: format!("{MACHINE}{name}"),
            error: format!("does not start, phase {phase} for more than two minutes: {cause}"),
            next_step: format!(
                "remove what holds it: `kubectl -n {namespace} describe vmi {alone}` shows its events"
            ),
            ..Trouble::default()
        };
        if troubles.report(&trouble) {
            warn!(machine = name, next_step = trouble.next_step, "machine {name} {}", trouble.error);
        }
        still.push(trouble.what);
    }
    troubles.only(MACHINE, &still);
}

#[cfg(test)]
mod tests {
    use agent::wire::{self, GLOBAL};
    use kube::Client;
    use kubesim::{Sim, SimConfig};
    use pubsub::TopicRoot;
    use serde_json::json;
    use topics::AgentTrouble;

    use super::*;
    use crate::NAME;

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_does_not_start_is_named_within_three_minutes_with_why_and_no_longer_once_it_runs()
    {
        let (root, clock, sim) = (tempfile::tempdir().unwrap(), Clock::new(), Sim::new(SimConfig::default()));
        let topic_root = TopicRoot::open(root.path()).unwrap();
        sim.add_node("n1", "u1");
        sim.add_kubevirt("v1.7.3");
        let closed = |is: bool| sim.edit("nodes", "", "n1", |it| it["spec"]["unschedulable"] = json!(is));
        closed(true);
        sim.add_machine("shop", "till", "Always");
        let troubles = Troubles::open(&topic_root, clock, NAME);
        let leads = Leadership { until: Some(clock.now() + Duration::from_hours(1)) };
        let (leads, cluster) =
            (watch::Sender::new(leads), ApiClient::from_client(Client::new(sim.service(), "default")));
        let duty = run(cluster, clock, leads.subscribe(), troubles);
        let said = || {
            let file: Option<AgentTrouble> = wire::peek(&topic_root, NAME, GLOBAL).unwrap();
            file.into_iter()
                .flat_map(|it| it.troubles)
                .map(|it| format!("{}: {}; {}", it.what, it.error, it.next_step))
                .collect()
        };
        let course = async {
            let pass = |secs| tokio::time::sleep(Duration::from_secs(secs));
            pass(120).await;
            assert_eq!(said(), Vec::<String>::new());
            pass(60).await;
            let told: Vec<String> = said();
            assert_eq!(told.len(), 1, "{told:?}");
            for words in
                ["machine shop/till: does not start, phase", "no node", "kubectl -n shop describe vmi till"]
            {
                assert!(told[0].contains(words), "no `{words}` in {told:?}");
            }
            assert_eq!(sim.faults().count("DELETE", "virtualmachine"), 0);
            closed(false);
            pass(60).await;
            assert_eq!(said(), Vec::<String>::new());
        };
        tokio::select! {
            () = duty => panic!("it has ended"),
            () = course => {}
        }
    }
}
