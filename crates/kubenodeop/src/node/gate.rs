//! The gate after a boot: what must be healthy, from the bottom up, before our node takes workloads again; what a
//! layer that is not healthy does, and for how long at most.
//!
//! Renewals of leases count as they are seen to happen, by the caller's monotonic clock; what a lease says of wall
//! time is never compared with a clock. Not here: reading (`boot`), when our cordon goes (`cordon::our_cordon_goes`),
//! removing taints (`cordon`). Sources: the Kubernetes pages "Nodes" (heartbeats), "Leases", "Taints and
//! Tolerations"; the documentation of kube-vip (leases). Pure: no clock, no I/O, no task.

use std::time::Duration;

use checks::Finding;
use checks::network::{self, VirtualIp};
use step::{Inserted as _, LiteMap, Mono};
use topics::{BootGate, GateWarning, GoTime};
use volumes::{Volumes, VolumesVerdict};

use crate::node::cordon::CordonSeen;
use crate::storage::{VolumesBefore, VolumesSeen};

mod volumes;

/// From one try to remove stale taints to the next.
const MEND_PAUSE: Duration = Duration::from_secs(5);

/// Renewals that were seen to happen, none later than the lease lasts after the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Beats {
    first: Mono,
    last: Mono,
}

/// Whether the gate is open, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GateStatus {
    /// The lowest layer that is not healthy; `None` when the gate is open.
    pub layer: Option<Layer>,
    /// As a reader sees it, with times since the boot.
    pub shown: BootGate,
    /// The API was asked and does not answer.
    pub is_api_silent: bool,
    /// The gate is open or not, the node keeps its turn: volumes are degraded, pods or machines not up yet.
    pub holds_turn: bool,
}

impl GateStatus {
    /// Whether the node may take workloads again.
    pub const fn is_open(&self) -> bool {
        self.layer.is_none()
    }
}

/// A point in this boot as the topic has it, before its core puts the wall clock to it.
pub fn since_boot(at: Mono) -> GoTime {
    GoTime::ZERO.plus(at.since_start())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    node_name: String,
    pub(super) limits: LayerLimits,
    /// Wanted kernel parameters that this boot is without.
    pub(super) lost: Vec<String>,
    /// The addresses of the node before this boot; empty where they are not known.
    pub(super) known: Vec<String>,
    /// `None` before the first answer.
    service: Option<Result<(), String>>,
    /// What the API itself waits for.
    waits: String,
    node: Result<GateNode, String>,
    lease: Result<LeaseSeen, String>,
    /// The leases of virtual IPs as they were read last.
    virtual_ips: Vec<VirtualIp>,
    /// What each check has found, with since when it finds anything.
    found: LiteMap<Check, (Mono, Vec<Finding>)>,
    volumes: Volumes,
    patience: LayerPatience,
    /// When time alone changes what volumes mean.
    volumes_due: Option<Mono>,
    beats: Option<Beats>,
    /// Since when all layers below [`Layer::Steady`] hold.
    healthy_since: Option<Mono>,
    /// The lowest layer that is not healthy, and since when.
    at: (Option<Layer>, Mono),
    mend_from: Mono,
}

impl Gate {
    pub fn new(node_name: &str, limits: LayerLimits, now: Mono) -> Self {
        const UNKNOWN: &str = "not looked at yet";
        Self {
            node_name: node_name.to_owned(),
            limits,
            lost: Vec::new(),
            known: Vec::new(),
            service: None,
            waits: String::new(),
            node: Err(UNKNOWN.to_owned()),
            lease: Err(UNKNOWN.to_owned()),
            virtual_ips: Vec::new(),
            found: Check::UNKNOWN.map(|(it, ..)| (it, (now, it.unread(UNKNOWN)))).into_iter().into_lite(),
            volumes: Volumes::unknown(UNKNOWN.to_owned()),
            patience: LayerPatience::default(),
            volumes_due: None,
            beats: None,
            healthy_since: None,
            at: (Some(Layer::Service), now),
            mend_from: now,
        }
    }

    /// Takes a fact in. Whatever comes from the API shows that it answers.
    pub fn hear(&mut self, now: Mono, fact: GateFact) {
        if fact.is_answer() {
            self.service = Some(Ok(()));
        }
        match fact {
            GateFact::Found(check, found) => self.find(now, check, found),
            GateFact::Away(why) => {
                if !matches!(self.service, Some(Err(_))) {
                    self.service = Some(Err(why));
                }
            }
            GateFact::Waits(waits) => self.waits = waits,
            GateFact::VirtualIps(read) => {
                let found = match &read {
                    Ok(all) => network::virtual_ips(&network::renewed(all, &self.virtual_ips)),
                    Err(why) => Check::VirtualIps.unread(why),
                };
                self.find(now, Check::VirtualIps, found);
                self.virtual_ips = read.unwrap_or_default();
            }
            GateFact::Node(Ok(node)) => {
                if let Some(record) = &node.volumes {
                    self.volumes.recorded(record);
                }
                if self.node.as_ref().is_ok_and(|it| !it.not_ready.is_empty()) && node.not_ready.is_empty() {
                    for it in Check::UPPER {
                        self.find(now, it, it.unread("not looked at since the node is Ready"));
                    }
                }
                let moved = network::moved(&self.node_name, &self.known, &node.addresses);
                self.find(now, Check::Addresses, moved);
                self.find(now, Check::Taints, node.unusual.clone());
                self.node = Ok(node);
            }
            GateFact::Node(Err(why)) => self.node = Err(why),
            GateFact::Lease(Ok(lease)) => self.beat(now, lease),
            GateFact::Lease(Err(why)) => self.lease = Err(why),
            GateFact::Volumes(seen) => self.volumes.seen = seen,
        }
    }

    fn find(&mut self, now: Mono, check: Check, found: Vec<Finding>) {
        if found.is_empty() {
            self.found.remove(&check);
        } else {
            self.found.entry(check).or_insert((now, Vec::new())).1 = found;
        }
    }

    fn beat(&mut self, now: Mono, lease: LeaseSeen) {
        if let Ok(before) = &self.lease
            && before.renewed != lease.renewed
            && !lease.renewed.is_empty()
        {
            let going_on = self.beats.filter(|it| now.since(it.last) <= before.lasts);
            self.beats = Some(Beats { first: going_on.map_or(now, |it| it.first), last: now });
        }
        self.lease = Ok(lease);
    }

    /// When the newest renewal no longer counts.
    fn lease_ends(&self) -> Option<Mono> {
        let lasts = self.lease.as_ref().ok()?.lasts;
        self.beats.map(|it| it.last + lasts)
    }

    fn is_renewed(&self, now: Mono) -> bool {
        self.lease_ends().is_some_and(|end| now < end)
    }

    /// Whether the API is not known to answer.
    pub(super) const fn is_away(&self) -> bool {
        !matches!(self.service, Some(Ok(())))
    }

    fn limit(&self, layer: Layer) -> Duration {
        self.limits.of(layer).unwrap_or_default()
    }

    /// Whether a layer that is looked at now and then is waited for.
    pub(super) fn waits_for_upper(&self, now: Mono) -> bool {
        let upper = [Layer::Runtime, Layer::Network, Layer::System, Layer::Machines, Layer::Probes];
        self.patience.ends(now, |it| self.limit(it)).any(|(layer, _)| upper.contains(&layer))
    }

    /// The gate as it stands now.
    pub fn judge(&mut self, now: Mono) -> GateStatus {
        // What was not looked at yet is no news before half its time is over; it holds the turn all the same.
        let (mut shut, mut warnings, mut early) = (None, Vec::new(), false);
        let mut volumes = VolumesVerdict::default();
        for (check, (since, found)) in self.found.iter().filter(|(check, _)| check.warns()) {
            warnings.push(warning(check.layer(), *since, joined(found), true));
        }
        for (layer, hold, _) in GATE {
            if layer == Layer::Volumes {
                if shut.is_some() {
                    self.volumes.wait();
                } else {
                    volumes = self.volumes.judge(now, self.limit(layer), self.limits.degraded);
                    let next = "look at `kubectl -n longhorn-system get volumes,replicas`, and bring back the nodes with copies";
                    shut = volumes.shut.take().map(|words| (layer, (words, next.to_owned())));
                }
                continue;
            }
            let trouble = if shut.is_none() { self.trouble(now, layer) } else { None };
            match trouble {
                None if shut.is_some() => self.patience.wait(now, layer),
                None => self.patience.heal(layer),
                Some((said, unread)) if hold == LayerHold::Shuts && !unread => {
                    self.patience.wait(now, layer);
                    shut = Some((layer, said));
                }
                Some((said, unread)) => {
                    let limit = self.limit(layer);
                    let (since, over) = self.patience.trouble(now, layer, limit);
                    if !over && unread && hold == LayerHold::KeepsTurn && now < since + limit / 2 {
                        early = true;
                    } else if hold == LayerHold::KeepsTurn || over {
                        warnings.push(warning(layer, since, said, over));
                    } else {
                        shut = Some((layer, said));
                    }
                }
            }
        }
        self.volumes_due = volumes.due;
        if shut.is_some() {
            self.healthy_since = None;
        } else {
            let since = *self.healthy_since.get_or_insert(now);
            if now < since + self.limits.hold {
                let hold = self.limits.hold.as_secs_f32();
                let words = format!("all checks pass, and have to for {hold} s");
                shut = Some((Layer::Steady, (words, String::new())));
            }
        }
        let layer = shut.as_ref().map(|it| it.0);
        if self.at.0 != layer {
            self.at = (layer, now);
        }
        // Nothing here is broken while others are waited for.
        let waits = layer == Some(Layer::Service) && !self.waits.is_empty();
        let limit = layer.and_then(|it| self.limits.of(it)).filter(|_| !waits);
        let taints = self.node.as_ref().map(|it| it.taints.clone()).unwrap_or_default();
        let (words, next_step) = match shut {
            Some((_, said)) => said,
            None if taints.is_empty() => self.healthy(&volumes.words),
            None => (self.tainted(&taints), String::new()),
        };
        let holds_turn = volumes.holds_turn || early || warnings.iter().any(|it| !it.failed);
        let shown = BootGate {
            open: layer.is_none(),
            layer: layer.map(|it| it.text().to_owned()).unwrap_or_default(),
            failed: limit.is_some_and(|limit| now >= self.at.1 + limit),
            words,
            next_step,
            since: since_boot(self.at.1),
            stale_taints: taints,
            warnings,
        };
        let is_api_silent = layer == Some(Layer::Service) && self.service.is_some();
        GateStatus { layer, shown, is_api_silent, holds_turn }
    }

    fn healthy(&self, volumes: &str) -> (String, String) {
        let (mut words, mut next) = ("the node is healthy".to_owned(), "");
        if !volumes.is_empty() {
            words = format!("{words}; {volumes}");
            next = "wait, or look at `kubectl -n longhorn-system get volumes,replicas`";
        }
        if !self.lost.is_empty() {
            words = format!("{words}; its kernel was started without {}", self.lost.join(" "));
            next =
                "compare /proc/cmdline with kernel_parameters of the limits file, set them again and reboot";
        }
        (words, next.to_owned())
    }

    fn tainted(&self, taints: &[String]) -> String {
        let secs = self.limits.taints.as_secs();
        format!(
            "the node is healthy, but has stale taints until its lease has been renewed for {secs} s: {}",
            taints.join(", ")
        )
    }

    /// What is the matter with a layer and what a person can do, and whether that is only that it cannot be read.
    fn trouble(&self, now: Mono, layer: Layer) -> Option<((String, String), bool)> {
        let own = if layer == Layer::Service {
            self.api()
        } else if layer == Layer::Node {
            self.not_ready()
        } else if layer == Layer::Lease {
            self.not_renewed(now)
        } else {
            None
        };
        if let Some(own) = own {
            return Some((own, false));
        }
        let of_layer = self.found.iter().filter(|(it, _)| it.layer() == layer && !it.warns());
        let found: Vec<Finding> = of_layer.flat_map(|(_, (_, found))| found.clone()).collect();
        (!found.is_empty()).then(|| (joined(&found), found.iter().all(|it| it.unread)))
    }

    fn api(&self) -> Option<(String, String)> {
        let why = match &self.service {
            None => "not looked at yet",
            Some(Err(why)) => why.as_str(),
            Some(Ok(())) => return None,
        };
        Some(if self.waits.is_empty() {
            (format!("the Kubernetes API: {why}"), super::START_THE_API.to_owned())
        } else {
            let words = format!("the Kubernetes API waits: {} ({why})", self.waits);
            (words, "start the other servers, or wait for them".to_owned())
        })
    }

    fn not_ready(&self) -> Option<(String, String)> {
        let node = &self.node_name;
        let why = match &self.node {
            Err(why) => why,
            Ok(seen) if !seen.not_ready.is_empty() => &seen.not_ready,
            Ok(_) => return None,
        };
        let next = format!("look at `kubectl describe node {node}` and the log of its kubelet");
        Some((format!("node {node} is not known to be Ready: {why}"), next))
    }

    fn not_renewed(&self, now: Mono) -> Option<(String, String)> {
        let node = &self.node_name;
        let why = match &self.lease {
            Err(why) => why.as_str(),
            Ok(_) if self.beats.is_none() => "not renewed since zedkube started",
            Ok(_) if !self.is_renewed(now) => "no longer renewed",
            Ok(_) => return None,
        };
        let next =
            format!("look at `kubectl -n kube-node-lease get lease {node}` and the log of its kubelet");
        Some((format!("lease kube-node-lease/{node}: {why}"), next))
    }

    /// Whether stale taints are to be removed now: the node is Ready and its lease has been renewed for long enough.
    /// What lies above does not matter, as storage may be what the taints keep away. Asking counts as a try.
    pub fn removes_taints(&mut self, now: Mono) -> bool {
        let tainted = self.node.as_ref().is_ok_and(|it| it.not_ready.is_empty() && !it.taints.is_empty());
        let long = self.beats.is_some_and(|it| it.last.since(it.first) >= self.limits.taints);
        let due = tainted && long && self.is_renewed(now) && !self.is_away() && now >= self.mend_from;
        if due {
            self.mend_from = now + MEND_PAUSE;
        }
        due
    }

    /// When time alone may change the verdict.
    pub fn due(&self, now: Mono) -> Option<Mono> {
        let limit = self.at.0.and_then(|layer| self.limits.of(layer)).map(|limit| self.at.1 + limit);
        let steady = self.healthy_since.map(|since| since + self.limits.hold);
        let warned = self.patience.ends(now, |it| self.limit(it)).map(|it| it.1).min();
        [limit, steady, self.lease_ends(), self.volumes_due, warned]
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .min()
    }
}

/// All that was found as one sentence, and the first next step.
fn joined(found: &[Finding]) -> (String, String) {
    let words: Vec<&str> = found.iter().map(|it| it.text.as_str()).collect();
    (words.join("; "), found.first().map(|it| it.next.clone()).unwrap_or_default())
}

fn warning(layer: Layer, since: Mono, (words, next_step): (String, String), failed: bool) -> GateWarning {
    GateWarning { layer: layer.text().to_owned(), words, next_step, since: since_boot(since), failed }
}

#[cfg(test)]
mod tests;

/// What is looked at for a layer, beside API, node, lease and volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Device nodes that are missing.
    Devices,
    /// What is wrong with the wall clock.
    Clock,
    /// Taints that keep pods away from our node, that most nodes do not have, and that nobody here removes.
    Taints,
    /// Other addresses of the node than before this boot.
    Addresses,
    Runtime,
    /// The leases of virtual IPs.
    VirtualIps,
    /// Storage pods on our node without an address in the network that they ask for.
    Unconnected,
    /// Storage pods on it that are crash-looping.
    CrashLoops,
    /// Pods of kube-system on it that are not Ready.
    SystemPods,
    /// Pods that belong on it and were not put there.
    Pending,
    /// Virtual machines that belong on it and are not up.
    Machines,
    /// What the probes of the site find.
    Probes,
}

impl Check {
    /// Those of which nothing is known at first; what it is that cannot be read, and how it is looked at by hand.
    const UNKNOWN: [(Self, &'static str, &'static str); 6] = [
        (Self::Runtime, "the container runtime", "look at `crictl ps`"),
        (
            Self::VirtualIps,
            "leases of virtual IPs",
            "look at `kubectl -n kube-system get lease plndr-cp-lock plndr-svcs-lock`",
        ),
        (Self::CrashLoops, "pods of this node", "look at `kubectl get pods -A` of this node"),
        (
            Self::Pending,
            "pods that no node has taken",
            "look at `kubectl get pods -A --field-selector status.phase=Pending`",
        ),
        (Self::Machines, "virtual machines", "look at `kubectl get vmi -A`"),
        (Self::Probes, "probes", "`zedbox verify` tries them as well"),
    ];
    /// Those of what is put on a node: what was seen before it was Ready says nothing of now.
    const UPPER: [Self; 3] = [Self::Pending, Self::Machines, Self::Probes];

    /// Whether it is a warning at once, and no more.
    const fn warns(self) -> bool {
        matches!(self, Self::Taints | Self::Addresses)
    }

    const fn layer(self) -> Layer {
        match self {
            Self::Devices => Layer::Devices,
            Self::Clock => Layer::Clock,
            Self::Taints => Layer::Node,
            Self::Runtime => Layer::Runtime,
            Self::Addresses | Self::VirtualIps | Self::Unconnected => Layer::Network,
            Self::CrashLoops => Layer::Storage,
            Self::SystemPods | Self::Pending => Layer::System,
            Self::Machines => Layer::Machines,
            Self::Probes => Layer::Probes,
        }
    }

    /// That it was not read, or cannot be.
    pub(crate) fn unread(self, why: &str) -> Vec<Finding> {
        let of = Self::UNKNOWN.into_iter().find(|(it, ..)| *it == self);
        let (_, what, next) = of.unwrap_or((self, self.layer().text(), ""));
        vec![Finding { unread: true, ..Finding::new(self.layer().text(), format!("{what}: {why}"), next) }]
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateFact {
    /// What a check finds now; nothing when all is well, and where there is nothing to look at.
    Found(Check, Vec<Finding>),
    /// A call to the API failed, with this text. What is known of an API that is away stays as it is: many calls
    /// fail then, each with another text.
    Away(String),
    /// What the API itself waits for, seen from this node; empty for nothing.
    Waits(String),
    /// The leases of virtual IPs; none without kube-vip.
    VirtualIps(Result<Vec<VirtualIp>, String>),
    Node(Result<GateNode, String>),
    Lease(Result<LeaseSeen, String>),
    /// Volumes of the cluster that are not well.
    Volumes(Result<VolumesSeen, String>),
}

impl GateFact {
    /// Whether it can only be known from an answer of the API.
    const fn is_answer(&self) -> bool {
        match self {
            Self::Found(check, _) => {
                !matches!(check, Check::Devices | Check::Clock | Check::Runtime | Check::Probes)
            }
            Self::Away(_) | Self::Waits(_) => false,
            Self::VirtualIps(_) | Self::Node(_) | Self::Lease(_) | Self::Volumes(_) => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GateNode {
    /// Empty when Ready, else what its condition says.
    pub not_ready: String,
    /// Taints of an outage that are on it, as `node.kubernetes.io/unreachable:NoExecute`.
    pub taints: Vec<String>,
    /// Other taints that keep pods away from it, and that most nodes do not have.
    pub unusual: Vec<Finding>,
    /// Its addresses of the type `InternalIP`.
    pub addresses: Vec<String>,
    pub cordon: CordonSeen,
    /// Its volumes before the outage, where a drain has recorded them.
    pub volumes: Option<VolumesBefore>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSeen {
    /// Its time of renewal as text: compared with nothing but the one before it.
    pub renewed: String,
    pub lasts: Duration,
}

step::named! {
    /// What must be healthy, lowest first.
    pub enum Layer {
        /// Device nodes are there.
        Devices = "device-nodes",
        /// The wall clock is not known to be wrong.
        Clock = "clock",
        /// The Kubernetes API answers.
        Service = "kubernetes-service",
        /// Our node is Ready.
        Node = "node-ready",
        /// Its kubelet renews the node lease.
        Lease = "node-lease",
        /// The container runtime answers, where it has a socket.
        Runtime = "runtime",
        /// Each virtual IP has a holder that is Ready, and the node has the addresses that it had.
        Network = "network",
        /// No pod on it that gives volumes is crash-looping.
        Storage = "storage-pods",
        /// No volume is faulted that was healthy before.
        Volumes = "storage-volumes",
        /// The pods of kube-system that belong here are Ready, and none waits for a port or a taint.
        System = "system-pods",
        /// The virtual machines that belong here are up.
        Machines = "machines",
        /// What the probes file names answers.
        Probes = "probes",
        /// All that has held for the set time.
        Steady = "steady",
    }
}

/// What follows while a layer is not healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LayerHold {
    /// The gate is shut. After the limit that counts as failed, and nothing else follows.
    Shuts,
    /// The gate is shut until the limit, then it is a warning: one reading that is false, or that nobody may make, must not
    /// keep a healthy node cordoned.
    ShutsUntilLimit,
    /// The node keeps its turn until the limit, then it is a warning; the gate is not shut.
    KeepsTurn,
}

/// Each layer with its hold and its limit, in minutes.
const GATE: [(Layer, LayerHold, u64); Layer::Steady as usize] = [
    (Layer::Devices, LayerHold::Shuts, 1),
    (Layer::Clock, LayerHold::ShutsUntilLimit, 5),
    (Layer::Service, LayerHold::Shuts, 10),
    (Layer::Node, LayerHold::Shuts, 10),
    (Layer::Lease, LayerHold::Shuts, 2),
    (Layer::Runtime, LayerHold::ShutsUntilLimit, 5),
    (Layer::Network, LayerHold::ShutsUntilLimit, 10),
    (Layer::Storage, LayerHold::Shuts, 10),
    (Layer::Volumes, LayerHold::ShutsUntilLimit, 10),
    (Layer::System, LayerHold::KeepsTurn, 15),
    (Layer::Machines, LayerHold::KeepsTurn, 5),
    (Layer::Probes, LayerHold::KeepsTurn, 5),
];

/// How long a layer may take before it counts as failed, and how long things must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerLimits {
    /// Of each layer that has one, in their order.
    pub layers: [Duration; Layer::Steady as usize],
    /// How long degraded volumes hold the turn of the node.
    pub degraded: Duration,
    /// How long all layers must hold before the gate opens.
    pub hold: Duration,
    /// How long the lease must have been renewed before stale taints are removed.
    pub taints: Duration,
    /// How often everything is looked at without an event.
    pub look: Duration,
}

impl Default for LayerLimits {
    fn default() -> Self {
        Self {
            layers: GATE.map(|(_, _, minutes)| Duration::from_mins(minutes)),
            degraded: Duration::from_mins(10),
            hold: Duration::from_secs(5),
            taints: Duration::from_mins(1),
            look: Duration::from_mins(2),
        }
    }
}

impl LayerLimits {
    /// The layer's own; `None` for one that only takes its time.
    pub fn of(&self, layer: Layer) -> Option<Duration> {
        self.layers.get(layer as usize).copied()
    }
}

/// How long layers have been in trouble while all below them was healthy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct LayerPatience(LiteMap<Layer, Waited>);

/// How long one layer was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waited {
    /// Since when it is in trouble.
    since: Mono,
    /// What counted before something below it was not healthy.
    before: Duration,
    /// Since when it counts again; `None` while something below it is not healthy.
    from: Option<Mono>,
}

impl Waited {
    fn ends(&self, limit: Duration) -> Option<Mono> {
        self.from.map(|from| from + limit.saturating_sub(self.before))
    }
}

impl LayerPatience {
    /// A layer is in trouble: since when, and whether its limit is over.
    fn trouble(&mut self, now: Mono, layer: Layer, limit: Duration) -> (Mono, bool) {
        let new = Waited { since: now, before: Duration::ZERO, from: None };
        let waited = self.0.entry(layer).or_insert(new);
        waited.from.get_or_insert(now);
        (waited.since, waited.ends(limit).is_some_and(|at| now >= at))
    }

    /// It is healthy.
    fn heal(&mut self, layer: Layer) {
        self.0.remove(&layer);
    }

    /// Something below this layer is not healthy: its time stops.
    fn wait(&mut self, now: Mono, layer: Layer) {
        if let Some(waited) = self.0.get_mut(&layer)
            && let Some(from) = waited.from.take()
        {
            waited.before += now.since(from);
        }
    }

    /// When the limits end that do so later than now.
    fn ends(&self, now: Mono, limit: impl Fn(Layer) -> Duration) -> impl Iterator<Item = (Layer, Mono)> {
        let ends = self.0.iter().filter_map(move |(layer, it)| Some((*layer, it.ends(limit(*layer))?)));
        ends.filter(move |(_, at)| *at > now)
    }
}
