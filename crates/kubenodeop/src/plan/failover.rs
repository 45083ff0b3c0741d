//! What hangs on a node that may be dead, what of it would run elsewhere, and where it runs by now: by the readings of which
//! a drain is predicted.
//!
//! Not here: whether the node is dead, and what is done about it (`outage::failover`).

use jiff::Timestamp;
use kubeapi::names::{NodeName, SYSTEM_NAMESPACE};
use kubeapi::slim::Pod;
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error};
use topics::HeldWork;

use super::forecast::{Survey, Surveyed};
use super::survey;
use super::tier::{PodClass, PodFacts, is_machine};
use crate::calls::pods;
use crate::calls::unhealthy_pods::hindrance;
use crate::engine::AttemptRules;
use crate::machines::MachineOwner;
use crate::storage::{Cause, StorageView, VolumeFinding, VolumeState};

/// What a launcher pod is made by, as [`PodFacts::workload`] has it.
const GUEST: &str = "VirtualMachineInstance/";

/// What hangs on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HungWork {
    /// Machines first, with why what would not run elsewhere.
    pub work: Vec<HeldWork>,
    /// Volumes in use there without a healthy copy elsewhere, that had or are to have one: a failed one may be brought back
    /// with old data.
    pub lone: Vec<String>,
}

/// What hangs on `node`, by one reading of the cluster.
/// Errors: as [`survey::plan`].
pub async fn hung(cluster: &ApiClient, node: &NodeName) -> Result<HungWork, Error> {
    let survey = Box::pin(survey::survey(cluster, node, &AttemptRules::default())).await?;
    Ok(HungWork { work: survey.work(), lone: survey.lone() })
}

impl Survey {
    fn work(&self) -> Vec<HeldWork> {
        let machines = self.machines.iter().flat_map(|it| &it.machines).filter(|it| it.here && !it.over);
        let machines = machines.map(|it| {
            let target = it.crowded.clone().map_or_else(|| it.start.clone(), Err);
            let waits = stays_down(&it.owner).or_else(|| target.err());
            let guest = &it.guest;
            self.held(HeldWork::MACHINE, (&guest.namespace, &guest.name), &it.claims, waits)
        });
        let hangs = |it: &&Surveyed| {
            let facts = &it.facts;
            let alone = !facts.claims.is_empty() || facts.pod.namespace == SYSTEM_NAMESPACE;
            alone
                && !facts.finished
                && !is_machine(&facts.labels)
                && !matches!(facts.class(), PodClass::Keep(_))
        };
        let pods = self.pods.iter().filter(hangs).map(|it| {
            let PodFacts { pod, claims, workload, .. } = &it.facts;
            let waits = if workload.is_empty() {
                Some("nothing makes it again".to_owned())
            } else {
                self.homeless(it).or_else(|| self.crowded_out(it))
            };
            self.held(HeldWork::POD, (&pod.namespace, &pod.name), claims, waits)
        });
        machines.chain(pods).collect()
    }

    fn held(
        &self,
        kind: &str,
        (namespace, name): (&str, &str),
        claims: &[String],
        waits: Option<String>,
    ) -> HeldWork {
        let mounts = |it: &&VolumeFinding| it.claim.0 == namespace && claims.contains(&it.claim.1);
        let volumes = self.storage.iter().flat_map(|it| &it.findings);
        let last = volumes.filter(mounts).find(|it| it.is_last());
        let last = last.map(|it| format!("the only good copy of volume {it} is on {}", self.node.name));
        HeldWork {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            claims: claims.to_vec(),
            waits: last.or(waits).unwrap_or_default(),
            ..HeldWork::default()
        }
    }

    /// What is to have one copy only has no old one. The engine of a node that is off does not run: only the volume says
    /// that it is attached there.
    fn lone(&self) -> Vec<String> {
        let is_lone = |view: &StorageView, it: &VolumeFinding| match &it.state {
            VolumeState::Safe
            | VolumeState::Unknown
            | VolumeState::LastCopy(Cause::StrictLocal | Cause::Enough | Cause::Parity { .. }) => false,
            // Without a healthy copy Longhorn brings back a failed one.
            VolumeState::Faulted | VolumeState::LastCopy(_) => {
                view.attached.contains_key(&it.volume) && it.wanted > 1 && it.needed == 0
            }
        };
        let of = |view| move |it: &&VolumeFinding| is_lone(view, it);
        let all = self.storage.iter().flat_map(|view| view.findings.iter().filter(of(view)));
        all.map(ToString::to_string).collect()
    }
}

/// Why nothing starts a machine again that has failed, as its owner says.
fn stays_down(owner: &MachineOwner) -> Option<String> {
    match owner {
        MachineOwner::Nobody => Some("nothing starts it again".to_owned()),
        MachineOwner::Machine(Some(it)) if !it.strategy.restarts() => {
            Some(format!("nothing starts it again: its runStrategy is {}", it.strategy))
        }
        MachineOwner::Machine(_) | MachineOwner::Other(_) => None,
    }
}

/// Where each of `work` runs now that hung on `node`: its node and why it does not, by one list of all pods.
/// Errors: those of [`ApiClient`].
pub async fn now(cluster: &ApiClient, node: &str, work: &[HeldWork]) -> Result<Vec<HeldWork>, Error> {
    let scope = WatchScope::all("pods", Pod::url_path(None));
    let all = scope.list_all::<Pod>(cluster).await?.items;
    Ok(work.iter().map(|it| placed(it, node, &all)).collect())
}

fn placed(work: &HeldWork, node: &str, all: &[Pod]) -> HeldWork {
    let is_it = |pod: &PodFacts| {
        // Another pod of a Deployment has another name, and only its set says that it is the same.
        let set = work.name.rsplit_once('-').filter(|_| work.claims.is_empty());
        let same = pod.pod.name == work.name
            || pod.claims.iter().any(|it| work.claims.contains(it))
            || set.is_some_and(|(set, _)| pod.workload == format!("ReplicaSet/{set}"));
        let is = if work.kind == HeldWork::MACHINE {
            pod.workload == format!("{GUEST}{}", work.name)
        } else {
            same && !is_machine(&pod.labels)
        };
        is && pod.pod.namespace == work.namespace && !pod.finished
    };
    let on = |pod: &Pod| pod.spec.as_ref().and_then(|it| it.node_name.clone()).unwrap_or_default();
    let found: Vec<(PodFacts, &Pod)> =
        all.iter().map(|it| (pods::facts(it), it)).filter(|it| is_it(&it.0)).collect();
    let (there, elsewhere): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, it)| on(it) == node);
    let runs = elsewhere.iter().find(|(facts, _)| facts.ready && !facts.terminating);
    let waits = match (runs, elsewhere.first(), there.first()) {
        (Some((_, pod)), ..) => return HeldWork { on: on(pod), waits: String::new(), ..work.clone() },
        (None, _, Some((old, _))) => format!("its pod {} on {node} is not gone yet", old.pod),
        (None, Some((_, pod)), None) => hindrance(pod, Timestamp::now())
            .map_or_else(|| format!("it starts on {}", on(pod)), |it| it.to_string()),
        (None, None, None) if work.waits.is_empty() => "nothing has started it again yet".to_owned(),
        (None, None, None) => work.waits.clone(),
    };
    HeldWork { on: String::new(), waits, ..work.clone() }
}

#[cfg(test)]
mod tests;
