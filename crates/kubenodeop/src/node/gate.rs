//! The gate after a boot: what must be healthy, from the bottom up, before our node takes workloads again.
//!
//! Not here: reading (`boot`), removing the cordon (zedkube), removing taints (`taints`). A layer whose limit is over
//! is reported as failed and tried on: nothing ends but by the layer becoming healthy, or, of a layer in `checks` and of
//! readings that nobody may make, by its limit: then it is a warning. Renewals of the lease count as
//! they are seen to happen, by the caller's monotonic clock; what the lease says of wall time is never compared with
//! a clock. Sources: goals R4, R5; the Kubernetes pages "Nodes" (heartbeats), "Leases", "Taints and Tolerations".
//! Pure: no clock, no I/O, no task.

mod checks;
mod facts;
mod layers;
mod volumes;

use std::time::Duration;

use step::Mono;

pub use checks::Warning;
use checks::{Checks, LayerPatience, LayerTrouble};
pub use facts::{GateFact, GateNode, LeaseSeen, VirtualIp};
pub use layers::{Layer, LayerLimits};
use volumes::{Volumes, VolumesVerdict};

/// Device nodes that the cluster software cannot start without, as paths under the root.
pub const DEVICE_NODES: [&str; 1] = ["dev/kmsg"];
/// From one try to remove stale taints to the next.
const MEND_PAUSE: Duration = Duration::from_secs(5);

/// A layer that is not healthy, what was seen, and what a person can do.
type LayerFinding = (Layer, String, String);

/// Renewals that were seen to happen, none later than the lease lasts after the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Beats {
    first: Mono,
    last: Mono,
}

/// Whether the gate is open, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateStatus {
    /// The lowest layer that is not healthy; `None` when the gate is open.
    pub layer: Option<Layer>,
    /// What was seen, in one sentence.
    pub words: String,
    pub next_step: String,
    pub since: Mono,
    /// The layer's limit is over: it counts as failed, and is looked at again and again.
    pub failed: bool,
    /// Stale taints that are still on the node.
    pub taints: Vec<String>,
    /// The gate is open or not, the node keeps its turn: volumes are degraded, pods or machines not up yet.
    pub holds_turn: bool,
    /// What does not keep the node cordoned and is not as it should be.
    pub warnings: Vec<Warning>,
}

impl GateStatus {
    /// Whether the node may take workloads again.
    pub const fn is_open(&self) -> bool {
        self.layer.is_none()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    node_name: String,
    limits: LayerLimits,
    missing: Vec<String>,
    /// `None` before the first answer.
    service: Option<Result<(), String>>,
    /// What the API itself waits for.
    waits: String,
    /// Wanted kernel parameters that this boot is without.
    lost: Vec<String>,
    node: Result<GateNode, String>,
    lease: Result<LeaseSeen, String>,
    storage: Result<Vec<String>, String>,
    volumes: Volumes,
    checks: Checks,
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
            checks: Checks::unknown(&unknown()),
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
            GateFact::Devices(missing) => self.missing = missing,
            GateFact::Clock(wrong) => self.checks.clock = wrong,
            GateFact::Known(addresses) => self.checks.known = addresses,
            GateFact::Service(answer) => self.service = Some(answer),
            GateFact::Away(why) => {
                if !matches!(self.service, Some(Err(_))) {
                    self.service = Some(Err(why));
                }
            }
            GateFact::Waits(waits) => self.waits = waits,
            GateFact::Lost(lost) => self.lost = lost,
            GateFact::Node(node) => {
                if let Some(record) = &node.volumes {
                    self.volumes.recorded(record);
                }
                // What was put on it, or not, before it was Ready says nothing of now.
                if self.node.as_ref().is_ok_and(|it| !it.not_ready.is_empty()) && node.not_ready.is_empty() {
                    self.checks.await_upper();
                }
                self.checks.addressed(now, &self.node_name, &node.addresses);
                self.checks.tainted(now, node.unusual.clone());
                self.node = Ok(node);
            }
            GateFact::Lease(lease) => self.beat(now, lease),
            GateFact::Storage(crashing) => self.storage = Ok(crashing),
            GateFact::Unconnected(pods) => self.checks.unconnected = pods,
            GateFact::System(pods) => self.checks.system = pods,
            GateFact::Runtime(wrong) => self.checks.runtime = wrong,
            GateFact::Network(leases) => self.checks.network(leases),
            GateFact::Pending(pods) => self.checks.pending = Ok(pods),
            GateFact::Machines(machines) => self.checks.machines = Ok(machines),
            GateFact::Probes(found) => self.checks.probes = Some(found),
            GateFact::Volumes(seen) => self.volumes.seen = Ok(seen),
            GateFact::Trouble(layer, why) => match layer {
                Layer::Node => self.node = Err(why),
                Layer::Lease => self.lease = Err(why),
                Layer::Storage => self.storage = Err(why),
                Layer::Volumes => self.volumes.seen = Err(why),
                Layer::Network => self.checks.virtual_ips = Err(why),
                Layer::System => self.checks.pending = Err(why),
                Layer::Machines => self.checks.machines = Err(why),
                Layer::Devices
                | Layer::Clock
                | Layer::Service
                | Layer::Runtime
                | Layer::Probes
                | Layer::Steady => self.service = Some(Err(why)),
            },
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

    /// Whether a layer that is looked at now and then is waited for.
    pub(super) fn waits_for_upper(&self, now: Mono) -> bool {
        let layers = [Layer::Runtime, Layer::Network, Layer::System, Layer::Machines, Layer::Probes];
        layers.into_iter().any(|it| self.patience.counts(now, it, self.limits.of(it).unwrap_or_default()))
    }

    /// How often everything is looked at without an event.
    pub(super) const fn look(&self) -> Duration {
        self.limits.look
    }

    /// The gate as it stands now.
    pub fn judge(&mut self, now: Mono) -> GateStatus {
        let mut warnings = Vec::new();
        let mut finding = self.lowest(now, &mut warnings);
        let mut volumes = VolumesVerdict::default();
        if finding.is_some() {
            self.volumes.wait();
        } else {
            let limit = self.limits.of(Layer::Volumes).unwrap_or_default();
            volumes = self.volumes.judge(now, limit, self.limits.degraded);
            let next = "look at `kubectl -n longhorn-system get volumes,replicas`, and bring back the nodes with copies";
            finding = volumes.shut.take().map(|words| (Layer::Volumes, words, next.to_owned()));
        }
        self.volumes_due = volumes.due;
        for layer in [Layer::System, Layer::Machines, Layer::Probes] {
            finding = self.timed(now, finding, layer, &mut warnings);
        }
        if finding.is_some() {
            self.healthy_since = None;
        } else {
            let since = *self.healthy_since.get_or_insert(now);
            if now < since + self.limits.hold {
                let hold = self.limits.hold.as_secs_f32();
                let words = format!("all checks pass, and have to for {hold} s");
                finding = Some((Layer::Steady, words, String::new()));
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
            None if taints.is_empty() => self.healthy(&volumes.words),
            None => (self.tainted(&taints), String::new()),
        };
        let (since, failed) = (self.at.1, layer.is_some_and(over));
        let holds_turn = volumes.holds_turn || warnings.iter().any(|it| !it.failed);
        GateStatus { layer, words, next_step, since, failed, taints, holds_turn, warnings }
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

    /// The lowest layer that is not healthy, up to the storage pods.
    fn lowest(&mut self, now: Mono, warnings: &mut Vec<Warning>) -> Option<LayerFinding> {
        let finding = self.devices();
        let finding = self.timed(now, finding, Layer::Clock, warnings);
        let finding = finding.or_else(|| self.api()).or_else(|| self.kubelet(now));
        if let Some((since, (words, next_step))) = self.checks.moved.clone().filter(|_| finding.is_none()) {
            warnings.push(Warning { layer: Layer::Network, words, next_step, since, failed: true });
        }
        if let Some((since, (words, next_step))) = self.checks.unusual.clone() {
            warnings.push(Warning { layer: Layer::Node, words, next_step, since, failed: true });
        }
        let finding = self.timed(now, finding, Layer::Runtime, warnings);
        let finding = self.timed(now, finding, Layer::Network, warnings);
        let finding = finding.or_else(|| self.crashing());
        self.timed(now, finding, Layer::Storage, warnings)
    }

    /// A layer that is a warning when its limit is over, if all `below` is healthy. Some only hold the turn until then.
    fn timed(
        &mut self,
        now: Mono,
        below: Option<LayerFinding>,
        layer: Layer,
        warnings: &mut Vec<Warning>,
    ) -> Option<LayerFinding> {
        if below.is_some() {
            self.patience.wait(now, layer);
            return below;
        }
        let (trouble, shuts) = match layer {
            Layer::Clock => (self.checks.clock_trouble(), true),
            Layer::Runtime => (self.checks.runtime_trouble(), true),
            Layer::Network => (self.checks.network_trouble(), true),
            Layer::Storage => (self.unread_pods(), true),
            Layer::System => (self.checks.system_trouble(), false),
            Layer::Machines => (self.checks.machines_trouble(), false),
            Layer::Probes => (self.checks.probes_trouble(), false),
            Layer::Devices | Layer::Service | Layer::Node | Layer::Lease | Layer::Volumes | Layer::Steady => {
                (None, true)
            }
        };
        let limit = self.limits.of(layer).unwrap_or_default();
        let warning = self.patience.judge(now, (layer, limit), trouble)?;
        if shuts && !warning.failed {
            return Some((layer, warning.words, warning.next_step));
        }
        warnings.push(warning);
        None
    }

    fn devices(&self) -> Option<LayerFinding> {
        if self.missing.is_empty() {
            return None;
        }
        let missing = self.missing.join(", ");
        let next = "create it (`mknod /dev/kmsg c 1 11` for /dev/kmsg), or start zedbox by the unit \
                    docs/units/zedbox.service, which does so";
        Some((Layer::Devices, format!("no device node {missing}"), next.to_owned()))
    }

    fn api(&self) -> Option<LayerFinding> {
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
        None
    }

    fn kubelet(&self, now: Mono) -> Option<LayerFinding> {
        let node = &self.node_name;
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
            Ok(_) if self.beats.is_none() => Some("not renewed since zedkube started"),
            Ok(_) if !self.is_renewed(now) => Some("no longer renewed"),
            Ok(_) => None,
        };
        if let Some(why) = stale {
            let next =
                format!("look at `kubectl -n kube-node-lease get lease {node}` and the log of its kubelet");
            return Some((Layer::Lease, format!("lease kube-node-lease/{node}: {why}"), next));
        }
        None
    }

    fn crashing(&self) -> Option<LayerFinding> {
        let all = self.storage.as_deref().ok()?;
        let next = format!("look at `kubectl logs --previous` of {}", all.first()?);
        Some((Layer::Storage, format!("storage pods are crash-looping: {}", all.join(", ")), next))
    }

    fn unread_pods(&self) -> Option<LayerTrouble> {
        let why = self.storage.as_ref().err()?;
        let next = "look at `kubectl get pods -A` of this node".to_owned();
        Some((format!("pods of node {}: {why}", self.node_name), next))
    }

    /// Whether stale taints are to be removed now: the node is Ready and its lease has been renewed for long enough.
    /// What lies above does not matter, as storage may be what the taints keep away. Asking counts as a try.
    pub fn removes_taints(&mut self, now: Mono) -> bool {
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
        let steady = self.healthy_since.map(|since| since + self.limits.hold);
        let warned = self.patience.due(now, |layer| self.limits.of(layer));
        [limit, steady, self.lease_ends(), self.volumes_due, warned]
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .min()
    }
}

#[cfg(test)]
mod tests;
