//! What a drain says about itself: counts, and why something does not leave, as a word for machines and what a person
//! can do about it.
//!
//! Not here: how it comes to it (`engine`). Pure: no clock, no I/O, no task.

use std::fmt;

use kubeapi::names::PodRef;
use kubeapi::reply::{DeniedBy, RefusedBy, Reply};
use kubeapi::slim::longhorn::named;
use step::{LiteMap, Mono, SmallSort as _};
use topics::{Blocker, DrainMarks, DrainPhase, GoTime, MachineProgress, PodCounts, StorageWait};

use crate::plan::tier::Tier;

/// One attempt at one moment. Equal values mean that nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// `idle` before its first report.
    pub phase: DrainPhase,
    /// Which pods leave now, while some do.
    pub tier: Option<Tier>,
    pub counts: PodCounts,
    /// Virtual machines of the node, by name.
    pub machines: Vec<MachineProgress>,
    /// What holds the drain up, in the order of the pods' names; `Since` as in [`blocker`].
    pub blockers: Vec<Blocker>,
    /// Volumes of pods that have left, still attached here, as `shop/data (pv pvc-1)`; by the claim alone while
    /// attachments have not been heard of; with `, over its 600 s` when they are late.
    pub volumes: Vec<String>,
    /// Volumes with no healthy copy elsewhere, or none anywhere.
    pub storage: Vec<StorageWait>,
    /// What stays or went in another way than by eviction and proof, because a rule says so, as `shop/web-0: why`.
    pub left: Vec<String>,
    /// When the attempt is expected to be done, where that can be told.
    pub estimate: Option<Mono>,
    /// What a restart must not forget.
    pub marks: DrainMarks,
    /// Evictions that the server has accepted.
    pub evicted: u32,
    /// Answers to calls that ask pods to leave, counted by [`kubeapi::Reply::word`].
    pub replies: LiteMap<&'static str, u32>,
    /// How often the node was found uncordoned and cordoned again.
    pub recordons: u32,
    /// The newest trouble with the API that has not passed, or empty.
    pub trouble: String,
    /// What a person can do about that trouble.
    pub trouble_step: String,
    /// Why the container runtime cannot say whether pods past their grace period still run; empty when it can, and while
    /// nobody asks it.
    pub runtime: String,
}

step::named! {
    pub enum MachineState {
        /// Nothing was asked yet.
        Waiting = "waiting",
        /// A migration was asked for and none runs yet.
        Asked = "asked",
        /// It is being migrated.
        Moving = "moving",
        /// Its migration is being ended.
        Aborting = "aborting",
        /// Its guest is shut down, or about to be.
        ShuttingDown = "shutting-down",
        /// It stays, and the drain waits.
        Held = "held",
        /// Its objects cannot be read: nothing is done about it.
        Unreadable = "unreadable",
        /// It stays, and the attempt fails.
        Failed = "failed",
        /// Nothing of it is on this node any more.
        Gone = "gone",
    }
}

/// What holds a drain up: one object, named. Shown as `shop/web-0`, `virtual machine shop/db` or
/// `volume shop/data (pvc-1)`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    Pod(PodRef),
    /// A virtual machine: its instance, by namespace, name and UID.
    Machine(PodRef),
    /// A volume, by the claim that it serves, and its own name.
    Volume {
        namespace: String,
        claim: String,
        /// The volume, as `pvc-1`.
        volume: String,
    },
}

impl Subject {
    /// Its namespace, its name there and its UID; of a volume those of its claim, and its own name.
    fn ids(&self) -> [&str; 3] {
        match self {
            Self::Pod(it) | Self::Machine(it) => [&it.namespace, &it.name, it.uid.as_str()],
            Self::Volume { namespace, claim, volume } => [namespace, claim, volume],
        }
    }
}

impl From<PodRef> for Subject {
    fn from(pod: PodRef) -> Self {
        Self::Pod(pod)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(it) => write!(out, "{it}"),
            Self::Machine(it) => write!(out, "virtual machine {it}"),
            Self::Volume { namespace, claim, volume } => {
                write!(out, "volume {}", named(namespace, claim, volume))
            }
        }
    }
}

/// Something that does not leave, why, and since when: there by a clock that was at [`GoTime::ZERO`] when the drain's was at its
/// start.
pub fn blocker(subject: &Subject, code: BlockCode, reason: String, since: Mono) -> Blocker {
    let [namespace, name, uid] = subject.ids();
    let next_step = match (code, subject) {
        (BlockCode::Webhook, Subject::Machine(_)) => VIRT_API.to_owned(),
        (code, _) => code.next_step(namespace, name),
    };
    Blocker {
        pod: subject.to_string(),
        uid: uid.to_owned(),
        code: code.text().to_owned(),
        reason,
        next_step,
        since: GoTime::ZERO.plus(since.since_start()),
    }
}

/// The worst first, then by name.
pub(crate) fn sort(blockers: &mut [Blocker]) {
    let rank = |it: &Blocker| BlockCode::rank_of(&it.code);
    blockers.order_by(|one, other| rank(one).cmp(&rank(other)).then_with(|| one.pod.cmp(&other.pod)));
}

step::named! {
    /// Why a pod does not leave.
    pub enum BlockCode {
        /// A disruption budget has no room.
        Budget = "budget",
        /// More than one budget selects the pod, and the server evicts no such pod.
        ManyBudgets = "many-budgets",
        /// Its namespace is being deleted.
        NamespaceEnding = "namespace-ending",
        /// The server has too much to do.
        Throttled = "throttled",
        /// The API fails in passing.
        ApiTrouble = "api-trouble",
        /// The server refuses for good: the role does not allow it, or the call is wrong.
        Refused = "refused",
        /// The server does not accept our credentials.
        Unauthorized = "unauthorized",
        /// An admission webhook denies it, or does not answer the server.
        Webhook = "webhook",
        /// An admission policy or plugin of the server denies it, as a ValidatingAdmissionPolicy or a quota.
        Admission = "admission",
        /// It was asked to end and takes longer than its grace period.
        SlowToEnd = "slow-to-end",
        /// It was asked to end, and its grace period passes the limit of the attempt or the drain.
        LongGrace = "long-grace",
        /// Nobody reports for the kubelet of the node, so no pod ends there.
        KubeletSilent = "kubelet-silent",
        /// A disruption budget has no room and will not get any by itself.
        BudgetStuck = "budget-stuck",
        /// Longhorn keeps its instance manager, or it is needed to copy volumes.
        StorageManager = "storage-manager",
        /// The last healthy copy of a volume is here, and another is made while the pod uses it.
        Copying = "copying",
        /// The last healthy copy of a volume is here, and none comes elsewhere by itself.
        LastCopy = "last-copy",
        /// The last healthy copy of a volume is here, as it can have one only.
        StrictLocal = "strict-local",
        /// The last healthy copy of a volume is here, and all other nodes that could take one are cordoned.
        AllCordoned = "all-nodes-cordoned",
        /// The last healthy copy of a volume is here, and no other node has room for one.
        NoRoom = "no-room-for-copy",
        /// The last healthy copy of a volume is here, and another cannot be rebuilt, as a disk is full.
        VolumeFull = "volume-full",
        /// Its workload comes back to this node again and again.
        Sticky = "sticky",
        /// It has been asked to leave for longer than its limit.
        OverTime = "over-time",
        /// A person has it kept until a time.
        HeldUntil = "held-until",
        /// A second copy of its Deployment is made elsewhere before it is evicted.
        Surge = "surge",
        /// No other node can take it.
        NoOtherNode = "no-other-node",
        /// A responder that it declares evicts it, or is to.
        Responder = "responder",
        /// KubeVirt moves its virtual machine, or is about to.
        Moving = "moving",
        /// A virtual machine can be neither moved nor shut down by its policy.
        CannotMove = "cannot-move",
        /// A volume of a virtual machine is rebuilt, and it is not migrated before that is done.
        Rebuilding = "volume-rebuilding",
        /// An object of a virtual machine is not as KubeVirt writes it.
        Unreadable = "unreadable",
    }
}

impl BlockCode {
    /// What a refusal means; trouble of the API where nothing was refused.
    pub(crate) const fn of(refusal: &Reply) -> Self {
        match refusal {
            Reply::Budget { .. } => Self::Budget,
            Reply::ManyBudgets { .. } => Self::ManyBudgets,
            Reply::Moving { .. } => Self::Moving,
            Reply::CannotMove { .. } => Self::CannotMove,
            Reply::Responding { .. } => Self::Responder,
            Reply::NamespaceEnding { .. } => Self::NamespaceEnding,
            Reply::Throttle { .. } => Self::Throttled,
            Reply::Permanent { by: RefusedBy::Credentials, .. } => Self::Unauthorized,
            Reply::Denied { by: DeniedBy::Webhook, .. } | Reply::Unanswered { .. } => Self::Webhook,
            Reply::Denied { by: DeniedBy::Policy | DeniedBy::Plugin, .. } => Self::Admission,
            Reply::Permanent { by: RefusedBy::Role | RefusedBy::Other, .. } => Self::Refused,
            Reply::Done
            | Reply::NotFound { .. }
            | Reply::UidChanged
            | Reply::Conflict { .. }
            | Reply::Expired
            | Reply::Transient { .. } => Self::ApiTrouble,
        }
    }

    /// That of the code of this word.
    pub(crate) fn rank_of(word: &str) -> u8 {
        Self::ALL.iter().find(|it| it.text() == word).map_or(u8::MAX, |it| it.rank())
    }

    /// Its place among others: what no wait cures comes first, what passes by itself last.
    pub(crate) const fn rank(self) -> u8 {
        match self {
            Self::Unauthorized
            | Self::Refused
            | Self::CannotMove
            | Self::Unreadable
            | Self::KubeletSilent => 0,
            Self::BudgetStuck
            | Self::LongGrace
            | Self::StorageManager
            | Self::LastCopy
            | Self::StrictLocal
            | Self::AllCordoned
            | Self::NoRoom
            | Self::VolumeFull => 1,
            Self::Webhook | Self::Admission | Self::ManyBudgets => 2,
            Self::NoOtherNode => 3,
            Self::Sticky => 4,
            Self::OverTime => 5,
            Self::SlowToEnd | Self::Moving | Self::Responder => 6,
            Self::NamespaceEnding => 7,
            Self::Budget | Self::Copying | Self::Rebuilding | Self::Surge | Self::HeldUntil => 8,
            Self::ApiTrouble => 9,
            Self::Throttled => 10,
        }
    }

    /// What a person can do about an object `name` of `namespace`, with the command to type.
    pub fn next_step(self, namespace: &str, name: &str) -> String {
        let text = match self {
            // Whether another node would take one more replica is not known here.
            Self::Budget => {
                "wait until the budget allows a disruption, or repair its pod that is not Ready: `kubectl -n NAMESPACE get pdb,pods` shows it"
            }
            Self::Copying => "wait: `kubectl -n longhorn-system get engines -o yaml` shows how far it is",
            Self::Rebuilding => {
                "wait: `kubectl -n longhorn-system get engines -o yaml` shows how far it is; or let it be migrated all the same: \
                 `kubectl -n NAMESPACE annotate --overwrite virtualmachineinstance NAME pillar-rs/drain-rebuilding=migrate`"
            }
            Self::LastCopy => {
                "see what it waits for: `kubectl -n longhorn-system get volumes,replicas`; or let it pass by name: annotation \
                 `pillar-rs/last-copy-pass` of the volume"
            }
            Self::StrictLocal => {
                "stop what uses it and set another dataLocality, or let it pass by name: annotation \
                 `pillar-rs/last-copy-pass` of the volume"
            }
            Self::AllCordoned => "uncordon one other node: `kubectl uncordon <node>`",
            Self::NoRoom => {
                "make room on another node, or fit its tags: `kubectl -n longhorn-system get nodes.longhorn.io`"
            }
            Self::StorageManager => "see the volumes under Storage; then `kubectl -n NAMESPACE get pdb NAME`",
            // All its pods are Ready, or cannot be counted: see `held::is_stuck`; with its name `held::advised`.
            Self::BudgetStuck => {
                "waiting does not help: let the budget allow one less: `kubectl -n NAMESPACE get pdb,pods` shows it"
            }
            Self::ManyBudgets => {
                "wait until all budgets of the pod allow a disruption, or leave it one: `kubectl -n NAMESPACE get pdb,pods`"
            }
            Self::NamespaceEnding => {
                "find what holds the namespace: `kubectl get namespace NAMESPACE -o yaml`"
            }
            Self::SlowToEnd => {
                "check the kubelet of this node, or the controller of the finalizer that the reason names, which alone may \
                 remove it: `kubectl -n NAMESPACE describe pod NAME`"
            }
            Self::LongGrace => {
                "once it is ending, have it end sooner: `kubectl -n NAMESPACE delete pod NAME --grace-period=60`; for the next \
                 time set a smaller terminationGracePeriodSeconds in its workload"
            }
            Self::OverTime => "check the pod: `kubectl -n NAMESPACE describe pod NAME`",
            Self::HeldUntil => {
                "wait until then; or have it leave now: `kubectl -n NAMESPACE annotate pod NAME pillar-rs/hold-until-`"
            }
            Self::Surge => {
                "wait, or look why its new pod is not Ready: `kubectl -n NAMESPACE get pods -o wide`; a Deployment with the \
                 annotation `pillar-rs/drain-surge: \"no\"` is not waited for"
            }
            Self::NoOtherNode => {
                "make another node fit (labels, taints, room): `kubectl -n NAMESPACE get events`"
            }
            Self::Moving => {
                "wait for the migration: `kubectl -n NAMESPACE get virtualmachineinstancemigrations` shows it"
            }
            Self::Responder => {
                "wait, or check the responder that the reason names: `kubectl -n NAMESPACE get \
                 evictions.lifecycle.k8s.io -o yaml`; with a `pod_limit_ms` the pod is evicted without it after that time"
            }
            Self::CannotMove => {
                "if it may be off, have the drain shut it down: `kubectl -n NAMESPACE annotate --overwrite \
                 virtualmachineinstance NAME pillar-rs/drain-policy=migrate-or-shutdown`; else make it migratable: `kubectl \
                 -n NAMESPACE describe virtualmachineinstance NAME` says what lacks"
            }
            Self::Unreadable => {
                "look at the member that the reason names: `kubectl -n NAMESPACE get \
                 virtualmachines,virtualmachineinstances,virtualmachineinstancemigrations -o yaml`; or shut the machine \
                 down: `virtctl stop -n NAMESPACE NAME`"
            }
            Self::VolumeFull => {
                "make room on the disk that the reason names: delete snapshots and volumes that nobody needs, or enlarge \
                 it; `kubectl -n longhorn-system get nodes.longhorn.io -o yaml` shows `storageAvailable`"
            }
            Self::KubeletSilent => {
                "start the kubelet of this node: `systemctl status k3s` (or rke2-server, rke2-agent, k3s-agent, kubelet) shows \
                 why it does not run; the drain continues by itself once the node is Ready"
            }
            Self::Throttled => "wait; the API server is throttling (429)",
            Self::ApiTrouble => "wait, or check the log of the API server",
            Self::Refused => {
                "give the user of the kubeconfig the roles, as an administrator: `zedbox role | kubectl apply -f -`"
            }
            Self::Unauthorized => {
                "renew the kubeconfig that the reason names: its credentials have expired, or the server does not \
                 know them (`kubectl auth whoami` with that file shows which); it is read again when it changes"
            }
            Self::Webhook => {
                "fix the admission webhook that the reason names, or have it admit evictions: `kubectl get \
                 validatingwebhookconfigurations,mutatingwebhookconfigurations`"
            }
            Self::Admission => {
                "change the admission policy, quota or plugin that the reason names, or have it admit evictions: `kubectl get \
                 validatingadmissionpolicies,validatingadmissionpolicybindings`"
            }
            Self::Sticky => "remove the toleration for a cordon, or the fixed node name, from the workload",
        };
        text.replace("NAMESPACE", namespace).replace("NAME", name)
    }
}

/// As it is on disk.
impl PartialEq<BlockCode> for String {
    fn eq(&self, code: &BlockCode) -> bool {
        self == code.text()
    }
}

/// What a person can do where KubeVirt, or a webhook, does not answer for a virtual machine. Its namespace is another one with
/// Harvester.
pub(crate) const VIRT_API: &str = "see whether virt-api of KubeVirt runs: `kubectl get pods -A -l kubevirt.io=virt-api`; where \
                                   the reason names another webhook: `kubectl get \
                                   validatingwebhookconfigurations,mutatingwebhookconfigurations`";

#[cfg(test)]
mod tests {
    use super::*;
    use kubeapi::names::PodUid;

    #[test]
    fn what_holds_a_drain_up_is_named_by_its_kind() {
        let named =
            |name: &str| PodRef { namespace: "shop".into(), name: name.into(), uid: PodUid::new("u") };
        let volume =
            Subject::Volume { namespace: "shop".into(), claim: "data".into(), volume: "pvc-1".into() };
        let bare = Subject::Volume { namespace: String::new(), claim: String::new(), volume: "pvc-2".into() };
        let all = [Subject::Pod(named("web-0")), Subject::Machine(named("db")), volume, bare];
        let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
        let expected = ["shop/web-0", "virtual machine shop/db", "volume shop/data (pvc-1)", "volume pvc-2"];
        assert_eq!(shown, expected);
        let ids: Vec<&str> = all.iter().map(|it| it.ids()[2]).collect();
        assert_eq!(ids, ["u", "u", "pvc-1", "pvc-2"]);
    }
}
