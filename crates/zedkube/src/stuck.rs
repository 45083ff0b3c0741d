//! Names what does not start and what a person has to look at: virtual machines, on the node that leads, and pods of our node with
//! volumes that its kubelet does not mount. Nothing is deleted or restarted: what holds one would hold the next one too, and a
//! restart of k3s takes the API of a server away for a while. Not here: what holds machines (`kubenodeop::machines::stuck`).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use agent::{AgentContext, Clock, Troubles};
use clusterview::leader::Leadership;
use clusterview::leads_otherwise;
use kubeapi::ApiClient;
use kubenodeop::calls::volumes::{UnmountedPod, unmounted};
use kubenodeop::machines::stuck::{UnstartedMachine, unstarted};
use step::{LiteMap, Mono};
use tokio::sync::watch;
use tracing::debug;

use crate::BesideDrain;

const LOOK: Duration = Duration::from_secs(30);
/// One that has not started for so long is named: after a look more it is three minutes at most.
const STARTS_WITHIN: Duration = Duration::from_secs(140);
/// The troubles that begin with this are ours.
const MACHINE: &str = "machine ";
/// A kubelet mounts within seconds.
const MOUNTS_WITHIN: Duration = Duration::from_mins(5);
const MOUNT: &str = "volume of pod ";
/// Below the root: Longhorn's devices, by the names of their volumes.
const DEVICES: &str = "dev/longhorn";

/// Since when each of them is there, by its UID.
#[derive(Default)]
struct StartWaits(LiteMap<String, Mono>);

impl StartWaits {
    /// Reports those of `found` that have been there for `within`, and ends the others that begin with `prefix`.
    fn report(
        &mut self,
        now: Mono,
        within: Duration,
        troubles: &Troubles,
        prefix: &str,
        found: Vec<(String, [String; 3])>,
    ) {
        self.0.retain(|uid, _| found.iter().any(|it| it.0 == *uid));
        let mut still = Vec::new();
        for (uid, [what, error, next_step]) in found {
            if now.since(*self.0.entry(uid).or_insert(now)) < within {
                continue;
            }
            troubles.say(what.clone(), error, next_step);
            still.push(what);
        }
        troubles.only(prefix, &still);
    }
}

/// Runs until the sender of `leading` is gone. Dropping it loses since when they wait.
pub(crate) async fn run(
    cluster: ApiClient,
    clock: Clock,
    mut leading: watch::Receiver<Leadership>,
    troubles: Troubles,
) {
    let mut waiting = StartWaits::default();
    loop {
        let now = clock.now();
        let leads = leading.borrow_and_update().holds(now);
        let found = if leads { unstarted(&cluster).await } else { Ok(Vec::new()) };
        match found {
            Ok(all) => {
                let all = all.into_iter().map(of_machine).collect();
                waiting.report(now, STARTS_WITHIN, &troubles, MACHINE, all);
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

fn of_machine(it: UnstartedMachine) -> (String, [String; 3]) {
    let UnstartedMachine { name, phase, cause, uid } = it;
    let (namespace, alone) = name.split_once('/').unwrap_or_default();
    let trouble = [
        format!("{MACHINE}{name}"),
        format!("does not start, phase {phase} for more than two minutes: {cause}"),
        format!("remove what holds it: `kubectl -n {namespace} describe vmi {alone}` shows its events"),
    ];
    (uid, trouble)
}

/// The same for volumes that are not mounted, for good. Source: lf-edge/eve `pkg/pillar/cmd/zedkube/stuckmount.go`, which
/// restarts k3s.
pub(crate) async fn mounts(beside: BesideDrain) {
    let BesideDrain { context: AgentContext { topic_root, clock, .. }, cluster, .. } = beside;
    let mut waiting = StartWaits::default();
    loop {
        let (node, _) = beside.own_node.known().await;
        match unmounted(&cluster, &node, &devices(&topic_root.path(DEVICES))).await {
            Ok(all) => {
                let all = all.into_iter().map(of_mount).collect();
                waiting.report(clock.now(), MOUNTS_WITHIN, &beside.troubles, MOUNT, all);
            }
            Err(error) => debug!(error = error.line(), "cannot look for volumes that are not mounted"),
        }
        clock.sleep_until(Some(clock.now() + LOOK)).await;
    }
}

fn devices(folder: &Path) -> BTreeSet<String> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|it| it.file_name().to_string_lossy().into_owned()).collect()
}

fn of_mount(UnmountedPod { pod, volume }: UnmountedPod) -> (String, [String; 3]) {
    let trouble = [
        format!("{MOUNT}{pod}"),
        format!(
            "is not mounted for more than five minutes, though the device of {volume} is here: the kubelet of this node is stuck"
        ),
        format!(
            "see `kubectl -n {} describe pod {}`; a restart of k3s ends it, on one node at a time: `systemctl restart k3s`, in an \
             EVE image `pkill -f 'k3s server'`, which is started again there",
            pod.namespace, pod.name
        ),
    ];
    (pod.uid.to_string(), trouble)
}

#[cfg(test)]
mod tests {
    use agent::wire::{self, GLOBAL};
    use kube::Client;
    use kubeapi::{NodeName, OwnNode};
    use kubesim::{Sim, SimConfig};
    use nodestatus::{ClusterMembership, Membership};
    use pubsub::TopicRoot;
    use serde_json::json;
    use topics::AgentTrouble;

    use super::*;
    use crate::NAME;

    impl BesideDrain {
        /// Of node n1 with this UUID, a member of its cluster.
        pub(crate) fn of_test(context: AgentContext, sim: &Sim, uuid: &str) -> Self {
            let own_node = OwnNode::default();
            own_node.set(NodeName::parse("n1").unwrap(), uuid.to_owned());
            let member = ClusterMembership { membership: Membership::Member, config: None, left: None };
            Self {
                troubles: Troubles::open(&context.topic_root, context.clock, NAME),
                context,
                cluster: ApiClient::from_client(Client::new(sim.service(), "default")),
                own_node,
                members: watch::Sender::new(member).subscribe(),
            }
        }
    }

    fn said(topic_root: &TopicRoot) -> Vec<String> {
        let file: Option<AgentTrouble> = wire::peek(topic_root, NAME, GLOBAL).unwrap();
        let all = file.into_iter().flat_map(|it| it.troubles);
        all.map(|it| format!("{}: {}; {}", it.what, it.error, it.next_step)).collect()
    }

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
        let course = async {
            let pass = |secs| tokio::time::sleep(Duration::from_secs(secs));
            pass(120).await;
            assert_eq!(said(&topic_root), Vec::<String>::new());
            pass(60).await;
            let told = said(&topic_root);
            assert_eq!(told.len(), 1, "{told:?}");
            for words in
                ["machine shop/till: does not start, phase", "no node", "kubectl -n shop describe vmi till"]
            {
                assert!(told[0].contains(words), "no `{words}` in {told:?}");
            }
            assert_eq!(sim.faults().count("DELETE", "virtualmachine"), 0);
            closed(false);
            pass(60).await;
            assert_eq!(said(&topic_root), Vec::<String>::new());
        };
        tokio::select! {
            () = duty => panic!("it has ended"),
            () = course => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_volume_that_is_here_and_not_mounted_is_named_after_five_minutes_with_the_command_and_nothing_is_done()
     {
        let (root, clock, sim) = (tempfile::tempdir().unwrap(), Clock::new(), Sim::new(SimConfig::default()));
        let topic_root = TopicRoot::open(root.path()).unwrap();
        sim.add_node("n1", "u1");
        sim.run_kubelet("n1", false);
        let pending = |name: &str, reason: &str| {
            sim.add_claim("shop", name, &format!("pvc-{name}"));
            sim.add_mounting_pod("shop", name, "n1", name);
            let waits = json!([{ "name": "c", "state": { "waiting": { "reason": reason } } }]);
            let status = json!({ "phase": "Pending", "containerStatuses": waits });
            sim.edit("pods", "shop", name, |it| it["status"] = status);
        };
        pending("stuck", "ContainerCreating");
        pending("pulls", "ImagePullBackOff");
        pending("elsewhere", "ContainerCreating");
        let (_stopper, context) = AgentContext::alone(&topic_root, clock, "b1");
        let duty = mounts(BesideDrain::of_test(context, &sim, "u1"));
        let course = async {
            let pass = |secs| tokio::time::sleep(Duration::from_secs(secs));
            pass(600).await;
            assert_eq!(sim.faults().count("GET", "/"), 0, "there is no device");
            for name in ["stuck", "pulls"] {
                fs::create_dir_all(topic_root.path(DEVICES).join(format!("pvc-{name}"))).unwrap();
            }
            pass(280).await;
            assert_eq!(said(&topic_root), Vec::<String>::new());
            pass(60).await;
            let told = said(&topic_root);
            assert_eq!(told.len(), 1, "{told:?}");
            for words in [
                "volume of pod shop/stuck: is not mounted",
                "device of pvc-stuck is here",
                "`systemctl restart k3s`",
            ] {
                assert!(told[0].contains(words), "no `{words}` in {told:?}");
            }
            sim.edit("pods", "shop", "stuck", |it| it["status"] = json!({ "phase": "Running" }));
            pass(60).await;
            assert_eq!(said(&topic_root), Vec::<String>::new());
            let writes = ["POST", "PATCH", "PUT", "DELETE"].map(|it| sim.faults().count(it, "/"));
            assert_eq!(writes, [0; 4]);
        };
        tokio::select! {
            () = duty => panic!("it has ended"),
            () = course => {}
        }
    }
}
