//! Which pods leave a node in a drain, and in which order: first those that nothing else on the node uses. A tier is
//! over when none of its pods is left on the node.
//!
//! Not here: the order within a tier (`engine::track`), virtual machines, which go before all (`engine::attempt`),
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

    /// Its tier, the namespace, and what else is known of the pod.
    const ROWS: &str = "
application shop
application shop mounts=/ mounts=/var/lib/kubelet mounts=/var/lib/kubelet/pods
application shop class=high priority=1000000000 claims=yes
# What a person wrote.
application shop label=pillar-rs/drain-tier=application class=system-node-critical priority=2000001000 mounts=/opt/cni/bin
address shop label=pillar-rs/drain-tier=address
device shop label=pillar-rs/drain-tier=device
storage shop label=pillar-rs/drain-tier=storage
network shop annotation=pillar-rs/drain-tier=network
system shop annotation=pillar-rs/drain-tier=system
storage shop label=pillar-rs/drain-tier=storage annotation=pillar-rs/drain-tier=system
system shop label=pillar-rs/drain-tier=last annotation=pillar-rs/drain-tier=system
application shop label=pillar-rs/drain-tier=last
application longhorn-system label=pillar-rs/drain-tier=application
# Volumes.
storage longhorn-system
storage shop label=longhorn.io/component=instance-manager
storage shop label=app=longhorn-manager
storage shop label=app.kubernetes.io/name=longhorn
application shop label=app=longhorns
storage csi class=system-node-critical priority=2000001000 mounts=/var/lib/kubelet/plugins
storage csi mounts=/var/lib/kubelet/plugins/disk.csi.example
storage csi mounts=/var/lib/kubelet/plugins_registry mounts=/run/csi.sock
storage csi label=app=csi-disk mounts=/var/lib/kubelet/plugins_registry/
# Devices.
device gpu class=system-node-critical priority=2000001000 mounts=/var/lib/kubelet/device-plugins
device gpu mounts=/var/lib/kubelet/plugins_registry
device kubevirt label=kubevirt.io=virt-handler
device cdi
application shop label=kubevirt.io=virt-launcher mounts=/var/lib/kubelet/device-plugins claims=yes
# Addresses.
address metallb-system
address shop label=app.kubernetes.io/name=metallb
address kube-system label=app.kubernetes.io/name=kube-vip-ds class=system-node-critical priority=2000001000
address kube-system label=app=cni-dhcp-daemon mounts=/opt/cni/bin
# Networks.
network kube-system class=system-node-critical priority=2000001000 mounts=/etc/cni/net.d
network kube-system mounts=/opt/cni/bin
application kube-system mounts=/opt/cnidata
# The system.
system kube-system label=k8s-app=kube-dns class=system-cluster-critical priority=2000000000
system kube-system class=system-node-critical
system kube-system class=own priority=2000000000
# Who mounts a claim leaves before storage.
device kube-system class=system-cluster-critical priority=2000000000 claims=yes
device kube-system mounts=/etc/cni/net.d claims=yes
device shop label=pillar-rs/drain-tier=system claims=yes
address metallb-system claims=yes
storage longhorn-system claims=yes
";

    #[test]
    fn d11_each_sign_puts_a_pod_into_its_tier() {
        for row in ROWS.lines().filter(|it| !it.is_empty() && !it.starts_with('#')) {
            let words: Vec<&str> = row.split(' ').collect();
            let [tier, namespace, signs @ ..] = words.as_slice() else { panic!("{row}") };
            let all = |kind: &str| {
                let of = |it: &&'static str| it.split_once('=').filter(|it| it.0 == kind).map(|it| it.1);
                signs.iter().filter_map(of).collect::<Vec<&'static str>>()
            };
            let pairs = |kind: &str| {
                let pair =
                    |it: &str| it.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
                all(kind).into_iter().filter_map(pair).collect::<BTreeMap<_, _>>()
            };
            let (labels, annotations) = (pairs("label"), pairs("annotation"));
            let signs = Signs {
                namespace,
                labels: &labels,
                annotations: &annotations,
                priority_class: all("class").first().copied().unwrap_or_default(),
                priority: all("priority").first().map_or(0, |it| it.parse().unwrap()),
                host_paths: &all("mounts"),
                mounts_claims: !all("claims").is_empty(),
            };
            assert_eq!(signs.tier().text(), *tier, "{row}");
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
        let with = |owner, finished, terminating| PodFacts { finished, terminating, owner, ..pod("a") };
        let (set, mirror) = (PodClass::Keep(KeepReason::DaemonSet), PodClass::Keep(KeepReason::Mirror));
        let table = [
            (pod("a"), PodClass::Leave),
            (with(PodOwner::Nobody, false, false), PodClass::Leave),
            (with(PodOwner::Other, true, false), PodClass::Leave),
            (with(PodOwner::Other, false, true), PodClass::Await),
            (with(PodOwner::Kubelet, false, false), mirror),
            (with(PodOwner::Kubelet, true, false), mirror),
            (with(PodOwner::DaemonSet, false, false), set),
            (with(PodOwner::DaemonSet, false, true), set),
            (with(PodOwner::DaemonSet, true, false), PodClass::Leave),
            (with(PodOwner::VanishedDaemonSet, false, false), PodClass::Leave),
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
