//! The gate after a boot: what must be sound, from the bottom up, before our node takes workloads again.
//!
//! Not here: reading (`boot`), removing the cordon (zedkube), removing taints (`taints`). A layer whose limit is over
//! is reported as failed and tried on: nothing ends but by the layer becoming sound. Renewals of the lease count as
//! they are seen to happen, by the caller's monotonic clock; what the lease says of wall time is never compared with
//! a clock. Sources: goals R4, R5; the Kubernetes pages "Nodes" (heartbeats), "Leases", "Taints and Tolerations".
//! Pure: no clock, no I/O, no task.

mod volumes;

use std::time::Duration;

use step::Mono;

use volumes::{Volumes, VolumesVerdict};
pub use volumes::{VolumesBefore, VolumesSeen};

/// Device nodes that the cluster software cannot start without, as paths under the root.
pub const DEVICE_NODES: [&str; 1] = ["dev/kmsg"];
/// From one try to remove stale taints to the next.
const MEND_PAUSE: Duration = Duration::from_secs(5);

step::named! {
    /// What must be sound, lowest first.
    pub enum Layer {
        /// Device nodes are there.
        Devices = "device-nodes",
        /// The Kubernetes API answers.
        Service = "kubernetes-service",
        /// Our node is Ready.
        Node = "node-ready",
        /// Its kubelet renews the node lease.
        Lease = "node-lease",
        /// No pod on it that gives volumes is crash-looping.
        Storage = "storage-pods",
        /// No volume is faulted that was healthy before.
        Volumes = "storage-volumes",
        /// All that has held for the set time.
        Steady = "steady",
    }
}

/// How long a layer may take before it counts as failed, and how long things must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Device nodes.
    pub devices: Duration,
    /// The API.
    pub service: Duration,
    /// Ready.
    pub node: Duration,
    /// The lease.
    pub lease: Duration,
    /// Storage pods.
    pub storage: Duration,
    /// Volumes.
    pub volumes: Duration,
    /// How long degraded volumes hold the turn of the node.
    pub degraded: Duration,
    /// How long all layers must hold before the gate opens.
    pub hold: Duration,
    /// How long the lease must have been renewed before stale taints are removed.
    pub taints: Duration,
    /// How often everything is looked at without an event.
    pub look: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            devices: Duration::from_mins(1),
            service: Duration::from_mins(10),
            node: Duration::from_mins(10),
            lease: Duration::from_mins(2),
            storage: Duration::from_mins(10),
            volumes: Duration::from_mins(10),
            degraded: Duration::from_mins(10),
            hold: Duration::from_secs(5),
            taints: Duration::from_mins(1),
            look: Duration::from_mins(2),
        }
    }
}

impl Limits {
    /// The layer's own; `None` for one that only takes its time.
    const fn of(&self, layer: Layer) -> Option<Duration> {
        match layer {
            Layer::Devices => Some(self.devices),
            Layer::Service => Some(self.service),
            Layer::Node => Some(self.node),
            Layer::Lease => Some(self.lease),
            Layer::Storage => Some(self.storage),
            Layer::Volumes => Some(self.volumes),
            Layer::Steady => None,
        }
    }
}

/// Something seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// The device nodes that are missing.
    Devices(Vec<String>),
    /// Whether the API answers, or how it does not.
    Service(Result<(), String>),
    /// A call to the API failed, so. What is known of an API that is away stays as it is: many calls fail
    /// then, each in words of its own.
    Away(String),
    /// What the API itself waits for, as far as this node can see; empty for nothing.
    Waits(String),
    /// Wanted kernel parameters that this boot is without.
    Lost(Vec<String>),
    /// Our node.
    Node(NodeSeen),
    /// Its lease.
    Lease(LeaseSeen),
    /// Storage pods on it that are crash-looping, in words.
    Storage(Vec<String>),
    /// Volumes of the cluster that are not well.
    Volumes(VolumesSeen),
    /// A layer cannot be looked at, though the API answers.
    Trouble(Layer, String),
}

/// What counts of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSeen {
    /// Empty when Ready, else what its condition says.
    pub not_ready: String,
    /// Taints of an outage that are on it, as `node.kubernetes.io/unreachable:NoExecute`.
    pub taints: Vec<String>,
    /// Its volumes before the outage, where a drain has recorded them.
    pub volumes: Option<VolumesBefore>,
}

/// What counts of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSeen {
    /// Its time of renewal as text: compared with nothing but the one before it.
    pub renewed: String,
    /// How long a renewal lasts.
    pub lasts: Duration,
}

/// Renewals that were seen to happen, none later than the lease lasts after the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Beats {
    first: Mono,
    last: Mono,
}

/// Whether the gate is open, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The lowest layer that is not sound; `None` when the gate is open.
    pub layer: Option<Layer>,
    /// What was seen, in one sentence.
    pub words: String,
    /// What a person can do.
    pub next_step: String,
    /// Since when it is so.
    pub since: Mono,
    /// The layer's limit is over: it counts as failed, and is looked at again and again.
    pub failed: bool,
    /// Stale taints that are still on the node.
    pub taints: Vec<String>,
    /// The gate is open or not, the node keeps its turn: volumes are degraded.
    pub holds_turn: bool,
}

impl Verdict {
    /// Whether the node may take workloads again.
    pub const fn is_open(&self) -> bool {
        self.layer.is_none()
    }
}

/// All that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    node_name: String,
    limits: Limits,
    missing: Vec<String>,
    /// `None` before the first answer.
    service: Option<Result<(), String>>,
    /// What the API itself waits for.
    waits: String,
    /// Wanted kernel parameters that this boot is without.
    lost: Vec<String>,
    node: Result<NodeSeen, String>,
    lease: Result<LeaseSeen, String>,
    storage: Result<Vec<String>, String>,
    volumes: Volumes,
    /// When time alone changes what volumes mean.
    volumes_due: Option<Mono>,
    beats: Option<Beats>,
    /// Since when all layers below [`Layer::Steady`] hold.
    sound_since: Option<Mono>,
    /// The lowest layer that is not sound, and since when.
    at: (Option<Layer>, Mono),
    mend_from: Mono,
}

impl Gate {
    /// Nothing is known yet.
    pub fn new(node_name: &str, limits: Limits, now: Mono) -> Self {
        let unknown = || "not looked at yet".to_owned();
        Self {
            node_name: node_name.to_owned(),
            limits,
            missing: Vec::new(),
            service: None,
            waits: String::new(),
            lost: Vec::new(),
            node: Err(unknown()),
            lease: Err(unknown()),
            storage: Err(unknown()),
            volumes: Volumes::unknown(unknown()),
            volumes_due: None,
            beats: None,
            sound_since: None,
            at: (Some(Layer::Service), now),
            mend_from: now,
        }
    }

    /// Takes a fact in. Whatever comes from the API shows that it answers.
    pub fn hear(&mut self, now: Mono, fact: Fact) {
        match fact {
            Fact::Devices(missing) => self.missing = missing,
            Fact::Service(answer) => self.service = Some(answer),
            Fact::Away(why) => {
                if !matches!(self.service, Some(Err(_))) {
                    self.service = Some(Err(why));
                }
            }
            Fact::Waits(waits) => self.waits = waits,
            Fact::Lost(lost) => self.lost = lost,
            Fact::Node(node) => {
                self.service = Some(Ok(()));
                if let Some(record) = &node.volumes {
                    self.volumes.recorded(record);
                }
                self.node = Ok(node);
            }
            Fact::Lease(lease) => {
                self.service = Some(Ok(()));
                self.beat(now, lease);
            }
            Fact::Storage(crashing) => {
                self.service = Some(Ok(()));
                self.storage = Ok(crashing);
            }
            Fact::Volumes(seen) => {
                self.service = Some(Ok(()));
                self.volumes.seen = Ok(seen);
            }
            Fact::Trouble(layer, why) => {
                self.service = Some(Ok(()));
                match layer {
                    Layer::Node => self.node = Err(why),
                    Layer::Lease => self.lease = Err(why),
                    Layer::Storage => self.storage = Err(why),
                    Layer::Volumes => self.volumes.seen = Err(why),
                    Layer::Devices | Layer::Service | Layer::Steady => self.service = Some(Err(why)),
                }
            }
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

    /// The gate as it stands now.
    pub fn judge(&mut self, now: Mono) -> Verdict {
        let mut finding = self.lowest(now);
        let mut volumes = VolumesVerdict::default();
        if finding.is_some() {
            self.volumes.wait();
        } else {
            volumes = self.volumes.judge(now, self.limits.volumes, self.limits.degraded);
            let next = "look at `kubectl -n longhorn-system get volumes,replicas`, and bring back the nodes with copies";
            finding = volumes.shut.take().map(|words| (Layer::Volumes, words, next.to_owned()));
        }
        self.volumes_due = volumes.due;
        if finding.is_some() {
            self.sound_since = None;
        } else {
            let since = *self.sound_since.get_or_insert(now);
            if now < since + self.limits.hold {
                let hold = self.limits.hold.as_secs_f32();
                let words = format!("all is sound, and has to hold for {hold} s");
                finding = Some((Layer::Steady, words, "nothing".to_owned()));
            }
        }
        let layer = finding.as_ref().map(|it| it.0);
        if self.at.0 != layer {
            self.at = (layer, now);
        }
        // Nothing here is broken while others are waited for.
        let waits = layer == Some(Layer::Service) && !self.waits.is_empty();
        let over =
            |layer: Layer| !waits && self.limits.of(layer).is_some_and(|limit| now >= self.at.1 + limit);
        let taints = self.node.as_ref().map(|it| it.taints.clone()).unwrap_or_default();
        let (words, next_step) = match finding {
            Some((_, words, next_step)) => (words, next_step),
            None if taints.is_empty() => self.sound(&volumes.words),
            None => (self.tainted(&taints), "nothing: they are removed then".to_owned()),
        };
        let (since, failed, holds_turn) = (self.at.1, layer.is_some_and(over), volumes.holds_turn);
        Verdict { layer, words, next_step, since, failed, taints, holds_turn }
    }

    fn sound(&self, volumes: &str) -> (String, String) {
        let (mut words, mut next) = ("the node is sound".to_owned(), "nothing");
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
            "the node is sound, but has stale taints until its lease has been renewed for {secs} s: {}",
            taints.join(", ")
        )
    }

    /// The lowest layer that is not sound, what was seen, and what a person can do.
    fn lowest(&self, now: Mono) -> Option<(Layer, String, String)> {
        let node = &self.node_name;
        if !self.missing.is_empty() {
            let missing = self.missing.join(", ");
            let next = "create it (`mknod /dev/kmsg c 1 11` for /dev/kmsg), or start zedbox by the unit \
                        docs/units/zedbox.service, which does so";
            return Some((Layer::Devices, format!("no device node {missing}"), next.to_owned()));
        }
        let away = match &self.service {
            None => Some("not looked at yet"),
            Some(Err(why)) => Some(why.as_str()),
            Some(Ok(())) => None,
        };
        if let Some(why) = away.filter(|_| !self.waits.is_empty()) {
            let words = format!("the Kubernetes API waits: {} ({why})", self.waits);
            return Some((Layer::Service, words, "start the other servers, or wait for them".to_owned()));
        }
        if let Some(why) = away {
            let next = "check that the cluster software runs on this node, and the kubeconfig";
            return Some((Layer::Service, format!("the Kubernetes API: {why}"), next.to_owned()));
        }
        let not_ready = match &self.node {
            Err(why) => Some(why.as_str()),
            Ok(seen) if !seen.not_ready.is_empty() => Some(seen.not_ready.as_str()),
            Ok(_) => None,
        };
        if let Some(why) = not_ready {
            let next = format!("look at `kubectl describe node {node}` and the log of its kubelet");
            return Some((Layer::Node, format!("node {node} is not known to be Ready: {why}"), next));
        }
        let stale = match &self.lease {
            Err(why) => Some(why.as_str()),
            Ok(_) if self.beats.is_none() => Some("not seen renewed since zedkube started"),
            Ok(_) if !self.is_renewed(now) => Some("no longer renewed"),
            Ok(_) => None,
        };
        if let Some(why) = stale {
            let next =
                format!("look at `kubectl -n kube-node-lease get lease {node}` and the log of its kubelet");
            return Some((Layer::Lease, format!("lease kube-node-lease/{node}: {why}"), next));
        }
        match &self.storage {
            Ok(crashing) if crashing.is_empty() => None,
            Ok(crashing) => {
                let next = format!("look at `kubectl logs --previous` of {}", crashing[0]);
                let words = format!("storage pods are crash-looping: {}", crashing.join(", "));
                Some((Layer::Storage, words, next))
            }
            Err(why) => {
                let next = "look at `kubectl get pods -A` of this node".to_owned();
                Some((Layer::Storage, format!("pods of node {node}: {why}"), next))
            }
        }
    }

    /// Whether stale taints are to be removed now: the node is Ready and its lease has been renewed for long enough.
    /// What lies above does not matter, as storage may be what the taints keep away. Asking counts as a try.
    pub fn mends(&mut self, now: Mono) -> bool {
        let tainted = self.node.as_ref().is_ok_and(|it| it.not_ready.is_empty() && !it.taints.is_empty());
        let long = self.beats.is_some_and(|it| it.last.since(it.first) >= self.limits.taints);
        let due = tainted
            && long
            && self.is_renewed(now)
            && matches!(self.service, Some(Ok(())))
            && now >= self.mend_from;
        if due {
            self.mend_from = now + MEND_PAUSE;
        }
        due
    }

    /// When time alone may change the verdict.
    pub fn due(&self, now: Mono) -> Option<Mono> {
        let limit = self.at.0.and_then(|layer| self.limits.of(layer)).map(|limit| self.at.1 + limit);
        let steady = self.sound_since.map(|since| since + self.limits.hold);
        [limit, steady, self.lease_ends(), self.volumes_due]
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .min()
    }
}

#[cfg(test)]
mod tests;
