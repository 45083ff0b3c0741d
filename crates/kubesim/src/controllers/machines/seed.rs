//! KubeVirt and guests to start with.

use serde_json::{Value, json};

use super::{GUESTS, KUBEVIRTS, MACHINES, SETS, current, guests, launcher, owners, tail};
use crate::Sim;
use crate::store::{ObjectStore, name};

impl Sim {
    /// KubeVirt of this version, as `v1.7.3`, which decides its behaviour; its limits are members of
    /// `spec.configuration.migrations` of the object `kubevirt/kubevirt`. While that has the annotation
    /// `kubesim/virt-api: down`, or a Deployment `virt-api` beside it has no Ready pod, virt-api does not
    /// answer.
    pub fn add_kubevirt(&self, version: &str) {
        self.apply(
            KUBEVIRTS,
            json!({
                "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
                "metadata": { "name": "kubevirt", "namespace": "kubevirt" },
                "spec": { "configuration": {} },
                "status": { "phase": "Deployed", "observedKubeVirtVersion": version },
            }),
        );
    }

    /// A virtual machine with this run strategy, whose guest starts on this node; `spec` is the guest's, as
    /// `{"evictionStrategy": "LiveMigrate"}`.
    pub fn add_machine_on(&self, namespace: &str, name: &str, strategy: &str, node: &str, spec: &Value) {
        let machine = json!({ "runStrategy": strategy, "template": { "spec": spec } });
        self.add_guest_of(MACHINES, "VirtualMachine", [namespace, name, name, node], &machine);
    }

    /// A replica set of one guest, which starts on this node; its name.
    pub fn add_machine_set_on(&self, namespace: &str, name: &str, node: &str, spec: &Value) -> String {
        let set = json!({ "replicas": 1, "template": { "spec": spec } });
        let guest = format!("{name}{}", tail());
        self.add_guest_of(SETS, "VirtualMachineInstanceReplicaSet", [namespace, name, &guest, node], &set);
        guest
    }

    /// A guest without an owner, which starts on this node.
    pub fn add_guest_on(&self, namespace: &str, name: &str, node: &str, spec: &Value) {
        self.add_guest_of("", "", [namespace, name, name, node], &json!({ "template": { "spec": spec } }));
    }

    fn add_guest_of(&self, owners: &str, kind: &str, names: [&str; 4], spec: &Value) {
        let [namespace, owner, guest, node] = names;
        self.shared.write(|store| {
            let mut owner = json!({
                "apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": { "name": owner, "namespace": namespace },
                "spec": spec,
            });
            if !owners.is_empty() {
                owner = store.put(owners, owner);
            }
            let guest = owners::put_guest(store, &owner, kind, guest);
            let mut pod = launcher(&guest);
            pod["spec"]["nodeName"] = node.into();
            store.put("pods", pod);
        });
    }

    /// Hotplugs a disk into a running guest; returns the pod that holds it.
    pub fn plug_disk(&self, namespace: &str, guest: &str, disk: &str) -> Option<String> {
        let plug = |store: &mut ObjectStore| {
            let guest = store.found(GUESTS, namespace, guest).cloned()?;
            let launcher = current(store, &guest)?;
            Some(name(&guests::plug(store, &guest, &launcher, disk)))
        };
        self.shared.write(plug)
    }

    /// Outcome of a guest's migrations: `succeed`, `fail: REASON`, `hang` in Running, `hang-pending`,
    /// `post-copy` (hangs and cannot be aborted). False when there is no such guest.
    pub fn script_migrations(&self, namespace: &str, guest: &str, outcome: &str) -> bool {
        self.edit(GUESTS, namespace, guest, |it| {
            it["metadata"]["annotations"]["kubesim/migration"] = outcome.into();
        })
    }
}
