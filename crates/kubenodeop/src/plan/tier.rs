//! Which pods leave a node in a drain, and in which order: first those that nothing else on the node uses. A tier is
//! over when none of its pods is left on the node.
//!
//! Not here: the order within a tier (`engine::index`), virtual machines, which go before all (`engine::attempt`),
//! reading pods. Sources: `kubectl drain --force --ignore-daemonsets --delete-emptydir-data`; the Kubernetes pages
//! "Device Plugins" (`/var/lib/kubelet/device-plugins`), "Network Plugins" (`/etc/cni/net.d`, `/opt/cni/bin`),
//! "Guaranteed Scheduling For Critical Add-On Pods" (the two priority classes and their least value); the CSI
//! community page "Deploying a Driver on Kubernetes" (`/var/lib/kubelet/plugins`, `plugins_registry`); the labels
//! that Longhorn, KubeVirt, MetalLB and kube-vip put on their own pods. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeapi::names::{PodRef, STORAGE_NAMESPACE, listed};
use serde::{Serialize, Serializer};
use step::SmallSort as _;

use crate::plan::budget::{BudgetFacts, GuardedPod};

/// A label or annotation of a pod with the word of a tier: it counts before every other sign.
pub const TIER_KEY: &str = "pillar-rs/drain-tier";
/// An annotation of a pod with the time, in RFC 3339, before which it is not evicted.
pub const HOLD_ANNOTATION: &str = "pillar-rs/hold-until";
/// So far ahead that time may be.
pub const LONGEST_HOLD: Duration = Duration::from_hours(24);
/// Karpenter's word that a pod is not to be evicted.
pub const UNDISTURBED_ANNOTATION: &str = "karpenter.sh/do-not-disrupt";
/// Values of a priority from here on belong to the system.
pub const SYSTEM_PRIORITY: i32 = 2_000_000_000;

const SYSTEM_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];
/// Where drivers of the Container Storage Interface put their sockets.
const PLUGIN_DIR: &str = "/var/lib/kubelet/plugins";
/// Where they announce themselves, as plugins of devices do too.
const REGISTRY_DIR: &str = "/var/lib/kubelet/plugins_registry";
const DEVICE_DIR: &str = "/var/lib/kubelet/device-plugins";
/// Settings and programs of network plugins; the last as k3s moves them.
const NETWORK_DIRS: [&str; 3] = ["/etc/cni", "/opt/cni", "/var/lib/rancher/k3s/agent/etc/cni"];
const ADDRESS_NAMESPACES: [&str; 2] = ["metallb-system", "kube-vip"];
/// The parts of KubeVirt and CDI: they serve machines, and use volumes and networks.
const MACHINE_NAMESPACES: [&str; 2] = ["kubevirt", "cdi"];
/// Names of programs that give addresses, as the start of a name label.
const ADDRESS_NAMES: [&str; 4] = ["kube-vip", "metallb", "cni-dhcp", "dhcp-daemon"];
/// Labels that name the program of a pod.
const NAME_LABELS: [&str; 4] = ["app.kubernetes.io/name", "app", "k8s-app", "name"];

step::named! {
    /// Tiers leave in this order, each wholly before the next.
    #[derive(Default)]
    pub enum Tier {
        /// What the node is there for.
        #[default]
        Application = "application",
        /// Gives addresses to applications: load balancers, DHCP, virtual IPs.
        Address = "address",
        Device = "device",
        Storage = "storage",
        /// Gives them, and storage, a network.
        Network = "network",
        /// Critical for the node or the cluster.
        System = "system",
    }
}

impl Serialize for Tier {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.text().serialize(out)
    }
}

impl Tier {
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tier| tier.text() == text)
    }
}

/// By what the tier of a pod is known.
#[derive(Debug, Clone, Copy)]
pub struct Signs<'a> {
    pub namespace: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub annotations: &'a BTreeMap<String, String>,
    /// Its `priorityClassName`, or empty.
    pub priority_class: &'a str,
    pub priority: i32,
    /// Paths of the node that it mounts.
    pub host_paths: &'a [&'a str],
    pub mounts_claims: bool,
}

impl Signs<'_> {
    /// When the pod leaves. One that mounts a claim, and does not itself give volumes, leaves before storage,
    /// however important it is and whatever its label says.
    pub fn tier(&self) -> Tier {
        let tier = self.annotated().unwrap_or_else(|| self.derived());
        if self.mounts_claims && tier != Tier::Storage { tier.min(Tier::Device) } else { tier }
    }

    /// What a person has written on it. A word that is no tier says nothing.
    fn annotated(&self) -> Option<Tier> {
        [self.labels, self.annotations].into_iter().find_map(|from| Tier::parse(from.get(TIER_KEY)?))
    }

    fn derived(&self) -> Tier {
        if is_machine(self.labels) {
            Tier::Application
        } else if self.gives_volumes() {
            Tier::Storage
        } else if self.mounts(DEVICE_DIR)
            || self.mounts(REGISTRY_DIR)
            || MACHINE_NAMESPACES.contains(&self.namespace)
        {
            Tier::Device
        } else if self.gives_addresses() {
            Tier::Address
        } else if NETWORK_DIRS.iter().any(|dir| self.mounts(dir)) {
            Tier::Network
        } else if SYSTEM_CLASSES.contains(&self.priority_class) || self.priority >= SYSTEM_PRIORITY {
            Tier::System
        } else {
            Tier::Application
        }
    }

    fn gives_volumes(&self) -> bool {
        let csi =
            || self.host_paths.iter().any(|path| path.contains("csi")) || self.named(|it| it.contains("csi"));
        self.namespace == STORAGE_NAMESPACE
            || self.labels.contains_key("longhorn.io/component")
            || self.named(|name| name == "longhorn" || name.starts_with("longhorn-"))
            || self.mounts(PLUGIN_DIR)
            || (self.mounts(REGISTRY_DIR) && csi())
    }

    fn gives_addresses(&self) -> bool {
        ADDRESS_NAMESPACES.contains(&self.namespace)
            || self.named(|name| ADDRESS_NAMES.iter().any(|start| name.starts_with(start)))
    }

    fn named(&self, fits: impl Fn(&str) -> bool) -> bool {
        NAME_LABELS.iter().filter_map(|key| self.labels.get(*key)).any(|name| fits(name))
    }

    /// It mounts `dir` or something below; a mount of something above, as of `/`, is a look at the node and no
    /// service.
    fn mounts(&self, dir: &str) -> bool {
        self.host_paths
            .iter()
            .any(|path| path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }
}

/// Whether a pod with these labels runs a virtual machine of KubeVirt.
pub(crate) fn is_machine(labels: &BTreeMap<String, String>) -> bool {
    labels.get("kubevirt.io").is_some_and(|it| it == "virt-launcher")
}

/// Values of the label `app` that a drain leaves alone: Longhorn's own parts, which must serve the volumes of
/// the pods that leave.
pub const KEPT_APPS: [&str; 5] = [
    "csi-attacher",
    "csi-provisioner",
    "longhorn-admission-webhook",
    "longhorn-conversion-webhook",
    "longhorn-driver-deployer",
];

/// The same as a label selector for the server.
pub const KEPT_APPS_SELECTOR: &str = "app!=csi-attacher,app!=csi-provisioner,app!=longhorn-admission-webhook,\
     app!=longhorn-conversion-webhook,app!=longhorn-driver-deployer";

/// The facts about a pod that a drain needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    pub pod: PodRef,
    /// Its labels; budgets select by them.
    pub labels: BTreeMap<String, String>,
    /// Phase Succeeded or Failed.
    pub finished: bool,
    /// Its phase is Pending.
    pub pending: bool,
    /// Its condition Ready is True.
    pub ready: bool,
    pub terminating: bool,
    /// It runs, or tries to, and has never been Ready.
    pub never_ready: bool,
    /// The time that it may take to end, once asked.
    pub grace: Duration,
    pub owner: PodOwner,
    /// The controller's kind and name, as `ReplicaSet/web-5f7d`; a pod with the same one in the same namespace is
    /// the same workload come back. Empty without a controller.
    pub workload: String,
    /// The API group of the `DaemonSet` that made it, where that is not Kubernetes' own; else empty.
    pub daemon_group: String,
    pub tier: Tier,
    /// Its priority; lower ones leave first within a tier.
    pub priority: i32,
    /// Names of the PersistentVolumeClaims that it mounts, within its namespace.
    pub claims: Vec<String>,
    /// It tolerates the taint of a cordon, so a replacement pod may be scheduled here again.
    pub tolerates_cordon: bool,
    /// Who has to agree before its object goes.
    pub finalizers: Vec<String>,
    /// It declares responders for its eviction.
    pub responders: bool,
    /// Until when a person has it kept.
    pub hold: Option<PodHold>,
    /// [`UNDISTURBED_ANNOTATION`] is on it, which has no end.
    pub undisturbed: bool,
}

/// What [`HOLD_ANNOTATION`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodHold {
    pub text: String,
    /// How far ahead that was by the wall clock when the pod was read, or why it is not obeyed.
    pub ahead: Result<Duration, &'static str>,
}

/// The controller of a pod: what a drain distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodOwner {
    /// None: nothing makes the pod again.
    Nobody,
    /// The kubelet: this is an image of its static pod, so deleting it stops nothing.
    Kubelet,
    /// A `DaemonSet` that is there, or one of another API group, which is not looked for: it would put the pod back
    /// at once.
    DaemonSet,
    /// A `DaemonSet` that is gone, so that nothing makes the pod anew.
    VanishedDaemonSet,
    Other,
}

/// The pods that Karpenter would not evict, in a sentence: they are evicted as any other.
pub(crate) fn undisturbed<'a>(pods: impl Iterator<Item = &'a PodFacts>) -> Option<String> {
    let mut names: Vec<String> = pods.filter(|it| it.undisturbed).map(|it| it.pod.to_string()).collect();
    names.order();
    let why = "has no end and is not obeyed, as pillar-rs/hold-until is";
    (!names.is_empty()).then(|| format!("{UNDISTURBED_ANNOTATION} {why}: {}", listed(&names, ", ")))
}

/// What a drain does with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodClass {
    /// Not touched, not waited for.
    Keep(KeepReason),
    Leave,
    /// Already leaving: waited for.
    Await,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepReason {
    /// One of [`KEPT_APPS`].
    KeptApp,
    /// Its `DaemonSet` would put it back.
    DaemonSet,
    Mirror,
}

impl PodFacts {
    /// It holds disks of a running virtual machine, and goes with its launcher: evicted, it takes them from the guest.
    pub(crate) fn is_hotplug(&self) -> bool {
        self.labels.get("kubevirt.io").is_some_and(|it| it == "hotplug-disk")
    }

    /// Why its hold is not obeyed, where it has one that is not.
    pub(crate) fn hold_refused(&self) -> Option<String> {
        let PodHold { text, ahead } = self.hold.as_ref()?;
        Some(format!("{}: {HOLD_ANNOTATION}={text} is not obeyed: {}", self.pod, ahead.err()?))
    }

    pub(crate) fn guarded(&self) -> GuardedPod {
        GuardedPod { pod: self.pod.clone(), labels: self.labels.clone(), ready: self.ready }
    }

    /// Whether each of more than one budget among `guards` has a say in its end. The eviction API asks none about a pod
    /// that has not run yet or has run to its end.
    pub(crate) fn has_many(&self, guards: &[&BudgetFacts]) -> bool {
        guards.len() > 1 && !self.finished && !self.pending
    }

    /// What a drain does with this pod. Forced as the reference forces it: pods without a controller leave too,
    /// and emptyDir data is lost.
    pub fn class(&self) -> PodClass {
        let kept_app = self.labels.get("app").is_some_and(|app| KEPT_APPS.contains(&app.as_str()));
        if kept_app {
            PodClass::Keep(KeepReason::KeptApp)
        } else if self.owner == PodOwner::DaemonSet && !self.finished {
            PodClass::Keep(KeepReason::DaemonSet)
        } else if self.owner == PodOwner::Kubelet {
            PodClass::Keep(KeepReason::Mirror)
        } else if self.terminating || (self.is_hotplug() && !self.finished) {
            PodClass::Await
        } else {
            PodClass::Leave
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kubeapi::names::PodUid;

    /// One pod: namespace, a label, an annotation, priority class, priority, host paths, claims.
    type Row<'a> = (&'a str, &'a str, &'a str, &'a str, i32, &'a [&'a str], bool, Tier);

    fn tier(row: &Row<'_>) -> Tier {
        let pairs = |text: &str| -> BTreeMap<String, String> {
            text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect()
        };
        let (namespace, label, annotation, priority_class, priority, host_paths, mounts_claims, _) = *row;
        let (labels, annotations) = (pairs(label), pairs(annotation));
        Signs {
            namespace,
            labels: &labels,
            annotations: &annotations,
            priority_class,
            priority,
            host_paths,
            mounts_claims,
        }
        .tier()
    }

    #[test]
    fn d11_each_sign_puts_a_pod_into_its_tier() {
        use Tier::{Address, Application, Device, Network, Storage, System};
        const NODE: &str = "system-node-critical";
        const CLUSTER: &str = "system-cluster-critical";
        let rows: [Row<'_>; 42] = [
            ("shop", "", "", "", 0, &[], false, Application),
            ("shop", "", "", "", 0, &["/", "/var/lib/kubelet", "/var/lib/kubelet/pods"], false, Application),
            ("shop", "", "", "high", 1_000_000_000, &[], true, Application),
            // What a person wrote.
            (
                "shop",
                "pillar-rs/drain-tier=application",
                "",
                NODE,
                2_000_001_000,
                &["/opt/cni/bin"],
                false,
                Application,
            ),
            ("shop", "pillar-rs/drain-tier=address", "", "", 0, &[], false, Address),
            ("shop", "pillar-rs/drain-tier=device", "", "", 0, &[], false, Device),
            ("shop", "pillar-rs/drain-tier=storage", "", "", 0, &[], false, Storage),
            ("shop", "", "pillar-rs/drain-tier=network", "", 0, &[], false, Network),
            ("shop", "", "pillar-rs/drain-tier=system", "", 0, &[], false, System),
            (
                "shop",
                "pillar-rs/drain-tier=storage",
                "pillar-rs/drain-tier=system",
                "",
                0,
                &[],
                false,
                Storage,
            ),
            ("shop", "pillar-rs/drain-tier=last", "pillar-rs/drain-tier=system", "", 0, &[], false, System),
            ("shop", "pillar-rs/drain-tier=last", "", "", 0, &[], false, Application),
            ("longhorn-system", "pillar-rs/drain-tier=application", "", "", 0, &[], false, Application),
            // Volumes.
            ("longhorn-system", "", "", "", 0, &[], false, Storage),
            ("shop", "longhorn.io/component=instance-manager", "", "", 0, &[], false, Storage),
            ("shop", "app=longhorn-manager", "", "", 0, &[], false, Storage),
            ("shop", "app.kubernetes.io/name=longhorn", "", "", 0, &[], false, Storage),
            ("shop", "app=longhorns", "", "", 0, &[], false, Application),
            ("csi", "", "", NODE, 2_000_001_000, &["/var/lib/kubelet/plugins"], false, Storage),
            ("csi", "", "", "", 0, &["/var/lib/kubelet/plugins/disk.csi.example"], false, Storage),
            ("csi", "", "", "", 0, &["/var/lib/kubelet/plugins_registry", "/run/csi.sock"], false, Storage),
            ("csi", "app=csi-disk", "", "", 0, &["/var/lib/kubelet/plugins_registry/"], false, Storage),
            // Devices.
            ("gpu", "", "", NODE, 2_000_001_000, &["/var/lib/kubelet/device-plugins"], false, Device),
            ("gpu", "", "", "", 0, &["/var/lib/kubelet/plugins_registry"], false, Device),
            ("kubevirt", "kubevirt.io=virt-handler", "", "", 0, &[], false, Device),
            ("cdi", "", "", "", 0, &[], false, Device),
            (
                "shop",
                "kubevirt.io=virt-launcher",
                "",
                "",
                0,
                &["/var/lib/kubelet/device-plugins"],
                true,
                Application,
            ),
            // Addresses.
            ("metallb-system", "", "", "", 0, &[], false, Address),
            ("shop", "app.kubernetes.io/name=metallb", "", "", 0, &[], false, Address),
            (
                "kube-system",
                "app.kubernetes.io/name=kube-vip-ds",
                "",
                NODE,
                2_000_001_000,
                &[],
                false,
                Address,
            ),
            ("kube-system", "app=cni-dhcp-daemon", "", "", 0, &["/opt/cni/bin"], false, Address),
            // Networks.
            ("kube-system", "", "", NODE, 2_000_001_000, &["/etc/cni/net.d"], false, Network),
            ("kube-system", "", "", "", 0, &["/opt/cni/bin"], false, Network),
            ("kube-system", "", "", "", 0, &["/opt/cnidata"], false, Application),
            // The system.
            ("kube-system", "k8s-app=kube-dns", "", CLUSTER, 2_000_000_000, &[], false, System),
            ("kube-system", "", "", NODE, 0, &[], false, System),
            ("kube-system", "", "", "own", 2_000_000_000, &[], false, System),
            // Who mounts a claim leaves before storage.
            ("kube-system", "", "", CLUSTER, 2_000_000_000, &[], true, Device),
            ("kube-system", "", "", "", 0, &["/etc/cni/net.d"], true, Device),
            ("shop", "pillar-rs/drain-tier=system", "", "", 0, &[], true, Device),
            ("metallb-system", "", "", "", 0, &[], true, Address),
            ("longhorn-system", "", "", "", 0, &[], true, Storage),
        ];
        for row in rows {
            assert_eq!(tier(&row), row.7, "{row:?}");
        }
    }

    #[test]
    fn tiers_leave_users_first_and_each_word_is_read_back() {
        assert!(Tier::ALL.is_sorted());
        for &tier in Tier::ALL {
            assert_eq!(Tier::parse(tier.text()), Some(tier));
        }
        assert_eq!(Tier::parse("System"), None);
    }

    /// A running pod of a replica set.
    pub(crate) fn pod(name: &str) -> PodFacts {
        PodFacts {
            pod: PodRef {
                namespace: "shop".to_owned(),
                name: name.to_owned(),
                uid: PodUid::new(format!("uid-{name}")),
            },
            labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
            finished: false,
            pending: false,
            ready: true,
            terminating: false,
            never_ready: false,
            grace: Duration::from_secs(30),
            owner: PodOwner::Other,
            workload: format!("ReplicaSet/{name}"),
            daemon_group: String::new(),
            tier: Tier::Application,
            priority: 0,
            claims: Vec::new(),
            tolerates_cordon: false,
            hold: None,
            undisturbed: false,
            finalizers: Vec::new(),
            responders: false,
        }
    }

    #[test]
    fn the_classes_are_those_of_a_forced_kubectl_drain() {
        let plain = pod("a");
        let table = [
            (plain.clone(), PodClass::Leave),
            (PodFacts { owner: PodOwner::Nobody, ..plain.clone() }, PodClass::Leave),
            (PodFacts { finished: true, ..plain.clone() }, PodClass::Leave),
            (PodFacts { terminating: true, ..plain.clone() }, PodClass::Await),
            (PodFacts { owner: PodOwner::Kubelet, ..plain.clone() }, PodClass::Keep(KeepReason::Mirror)),
            (
                PodFacts { owner: PodOwner::Kubelet, finished: true, ..plain.clone() },
                PodClass::Keep(KeepReason::Mirror),
            ),
            (PodFacts { owner: PodOwner::DaemonSet, ..plain.clone() }, PodClass::Keep(KeepReason::DaemonSet)),
            (
                PodFacts { owner: PodOwner::DaemonSet, terminating: true, ..plain.clone() },
                PodClass::Keep(KeepReason::DaemonSet),
            ),
            (PodFacts { owner: PodOwner::DaemonSet, finished: true, ..plain.clone() }, PodClass::Leave),
            (PodFacts { owner: PodOwner::VanishedDaemonSet, ..plain }, PodClass::Leave),
        ];
        for (given, class) in table {
            assert_eq!(given.class(), class, "{given:?}");
        }
    }

    #[test]
    fn longhorns_own_parts_stay_by_rule_and_by_selector() {
        for app in KEPT_APPS {
            let kept = PodFacts { labels: BTreeMap::from([("app".to_owned(), app.to_owned())]), ..pod("a") };
            assert_eq!(kept.class(), PodClass::Keep(KeepReason::KeptApp), "{app}");
        }
        let selector: Vec<String> = KEPT_APPS.iter().map(|app| format!("app!={app}")).collect();
        assert_eq!(KEPT_APPS_SELECTOR, selector.join(","));
    }

    #[test]
    fn a_pod_that_holds_disks_of_a_running_machine_is_waited_for_and_never_asked() {
        let labels = BTreeMap::from([("kubevirt.io".to_owned(), "hotplug-disk".to_owned())]);
        let disks = PodFacts { labels, ..pod("hp-volume-x") };
        assert_eq!(disks.class(), PodClass::Await);
        assert_eq!(PodFacts { finished: true, ..disks }.class(), PodClass::Leave);
    }
}
