//! Layers of the gate that never shut it for good: clock, runtime, network, pods of kube-system, virtual machines,
//! probes.
//!
//! The first three keep it shut until their limit, the others only keep the turn of the node until theirs; then each is a
//! warning for as long as it lasts. One reading that is false, or that nobody may make, must not keep a healthy node
//! cordoned. Sources: goals R4, U10; the documentation of kube-vip (leases). Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeapi::names::listed;
use step::Mono;

use super::{Layer, VirtualIp};

/// What is the matter, and what a person can do.
pub(super) type LayerTrouble = (String, String);

/// Something that is not as it should be, and does not keep the node cordoned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The layer that it is about.
    pub layer: Layer,
    /// What was seen, in one sentence.
    pub words: String,
    pub next_step: String,
    /// Since when it is so, with all below healthy.
    pub since: Mono,
    /// The layer's limit is over; before, the turn of the node is held for it.
    pub failed: bool,
}

/// How long layers have been in trouble while all below them was healthy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LayerPatience(BTreeMap<Layer, Waited>);

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
    /// What is the matter with a layer as a warning, with since when; `None` when nothing is.
    pub(super) fn judge(
        &mut self,
        now: Mono,
        (layer, limit): (Layer, Duration),
        trouble: Option<LayerTrouble>,
    ) -> Option<Warning> {
        let Some((words, next_step)) = trouble else {
            self.0.remove(&layer);
            return None;
        };
        let new = Waited { since: now, before: Duration::ZERO, from: None };
        let waited = self.0.entry(layer).or_insert(new);
        waited.from.get_or_insert(now);
        let failed = waited.ends(limit).is_some_and(|at| now >= at);
        Some(Warning { layer, words, next_step, since: waited.since, failed })
    }

    /// Something below this layer is not healthy: its time stops.
    pub(super) fn wait(&mut self, now: Mono, layer: Layer) {
        if let Some(waited) = self.0.get_mut(&layer)
            && let Some(from) = waited.from.take()
        {
            waited.before += now.since(from);
        }
    }

    /// Whether a layer is in trouble and within its limit.
    pub(super) fn counts(&self, now: Mono, layer: Layer, limit: Duration) -> bool {
        self.0.get(&layer).and_then(|it| it.ends(limit)).is_some_and(|at| now < at)
    }

    /// When the next limit is over.
    pub(super) fn due(&self, now: Mono, limit: impl Fn(Layer) -> Option<Duration>) -> Option<Mono> {
        let ends = self.0.iter().filter_map(|(layer, it)| it.ends(limit(*layer)?));
        ends.filter(|at| *at > now).min()
    }
}

/// What is known of these layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checks {
    /// What is wrong with the wall clock.
    pub(super) clock: String,
    /// The addresses of the node before this boot.
    pub(super) known: Vec<String>,
    /// That it has others now, with since when that is known.
    pub(super) moved: Option<(Mono, LayerTrouble)>,
    /// Taints on the node that nobody here removes, with since when that is known.
    pub(super) unusual: Option<(Mono, LayerTrouble)>,
    /// What is wrong with the container runtime.
    pub(super) runtime: String,
    /// Each virtual IP, and whether its lease was renewed since the reading before.
    pub(super) virtual_ips: Result<Vec<(VirtualIp, bool)>, String>,
    /// Storage pods without their address in a network of their own.
    pub(super) unconnected: Vec<String>,
    pub(super) system: Vec<String>,
    pub(super) pending: Result<Vec<String>, String>,
    pub(super) machines: Result<Vec<String>, String>,
    /// What the probes of the site find; `None` before the first of them since the node is Ready.
    pub(super) probes: Option<Vec<LayerTrouble>>,
}

impl Checks {
    pub(super) fn unknown(why: &str) -> Self {
        Self {
            clock: String::new(),
            known: Vec::new(),
            moved: None,
            unusual: None,
            runtime: why.to_owned(),
            virtual_ips: Err(why.to_owned()),
            unconnected: Vec::new(),
            system: Vec::new(),
            pending: Err(why.to_owned()),
            machines: Err(why.to_owned()),
            probes: None,
        }
    }

    /// What lies on top has to be looked at again.
    pub(super) fn await_upper(&mut self) {
        let why = || Err("not looked at since the node is Ready".to_owned());
        (self.pending, self.machines) = (why(), why());
        self.probes = None;
    }

    /// Takes in taints of the node that nobody here removes.
    pub(super) fn tainted(&mut self, now: Mono, seen: Option<LayerTrouble>) {
        let since = self.unusual.as_ref().map_or(now, |it| it.0);
        self.unusual = seen.map(|trouble| (since, trouble));
    }

    /// Takes in the leases of virtual IPs.
    pub(super) fn network(&mut self, leases: Vec<VirtualIp>) {
        let before = self.virtual_ips.as_deref().unwrap_or_default();
        let is_renewed =
            |it: &VirtualIp| before.iter().any(|(old, _)| old.lease == it.lease && old.renewed != it.renewed);
        let renewed: Vec<bool> = leases.iter().map(is_renewed).collect();
        self.virtual_ips = Ok(leases.into_iter().zip(renewed).collect());
    }

    pub(super) fn clock_trouble(&self) -> Option<LayerTrouble> {
        let next =
            "check the time source with `timedatectl` or `chronyc tracking`, or set the clock with `date -s`";
        (!self.clock.is_empty()).then(|| (self.clock.clone(), next.to_owned()))
    }

    pub(super) fn runtime_trouble(&self) -> Option<LayerTrouble> {
        let next = "look at `crictl ps`, `systemctl status k3s` (rke2-server, containerd) and its log; `runtime_socket` of the \
                    limits file names the socket that counts";
        (!self.runtime.is_empty()).then(|| (self.runtime.clone(), next.to_owned()))
    }

    pub(super) fn network_trouble(&self) -> Option<LayerTrouble> {
        self.virtual_ip_trouble().or_else(|| {
            let (namespace, name) = self.unconnected.first()?.split(' ').next()?.split_once('/')?;
            let all = listed(&self.unconnected, "; ");
            let words = format!("storage pods have no address in the network that they ask for: {all}");
            Some((
                words,
                format!("look at `kubectl -n {namespace} describe pod {name}` and at the pods of multus"),
            ))
        })
    }

    fn virtual_ip_trouble(&self) -> Option<LayerTrouble> {
        let all = match &self.virtual_ips {
            Ok(all) => all,
            Err(why) => {
                let next = "look at `kubectl -n kube-system get lease plndr-cp-lock plndr-svcs-lock`";
                return Some((format!("leases of virtual IPs: {why}"), next.to_owned()));
            }
        };
        let troubles: Vec<(&VirtualIp, String)> = all
            .iter()
            .filter_map(|(it, is_renewed)| match (it.holder.is_empty(), it.ready, is_renewed) {
                (true, _, _) => Some((it, "no node holds it".to_owned())),
                (false, false, _) => Some((it, "its holder is not a Ready node".to_owned())),
                (false, true, false) => Some((it, "its holder does not renew it".to_owned())),
                (false, true, true) if !it.absent.is_empty() => Some((
                    it,
                    format!("this node holds it, and has no interface with {}", it.absent.join(", ")),
                )),
                (false, true, true) => None,
            })
            .collect();
        let (first, _) = troubles.first()?;
        let name = first.lease.rsplit('/').next().unwrap_or_default();
        let next = format!(
            "look at `kubectl -n kube-system get lease {name}` and at the pods of kube-vip; if kube-vip is no longer in use: \
             `kubectl -n kube-system delete lease {name}`"
        );
        let words = troubles.iter().map(|(it, why)| match it.holder.as_str() {
            "" => format!("lease {}: {why}", it.lease),
            holder => format!("lease {} of {holder}: {why}", it.lease),
        });
        let words: Vec<String> = words.collect();
        Some((format!("a virtual IP is not served: {}", words.join("; ")), next))
    }

    /// Compares the addresses of the node with those before the boot.
    pub(super) fn addressed(&mut self, at: Mono, node: &str, now: &[String]) {
        let is_same = self.known.iter().all(|it| now.contains(it)) && self.known.len() == now.len();
        if self.known.is_empty() || now.is_empty() || is_same {
            self.moved = None;
            return;
        }
        let (was, is) = (self.known.join(", "), now.join(", "));
        let next = "if that is not wanted: give the port its address again (a fixed one, or a DHCP reservation) and reboot; \
                    etcd and the other nodes may still look for it at the old one";
        let words = format!("node {node} has the address {is}; before this boot it had {was}");
        let since = self.moved.as_ref().map_or(at, |it| it.0);
        self.moved = Some((since, (words, next.to_owned())));
    }

    pub(super) fn system_trouble(&self) -> Option<LayerTrouble> {
        let pending = self.pending.as_deref().unwrap_or_default();
        let all: Vec<String> = self.system.iter().chain(pending).cloned().collect();
        if let (Err(why), true) = (&self.pending, all.is_empty()) {
            let next = "look at `kubectl get pods -A --field-selector status.phase=Pending`";
            return Some((format!("pods that no node has taken: {why}"), next.to_owned()));
        }
        let (namespace, name) = all.first()?.split(' ').next()?.split_once('/')?;
        let next = format!("look at `kubectl -n {namespace} describe pod {name}`");
        Some((format!("pods are not Ready: {}", listed(&all, "; ")), next))
    }

    pub(super) fn probes_trouble(&self) -> Option<LayerTrouble> {
        let Some(found) = &self.probes else {
            return Some(("the probes were not tried since the node is Ready".to_owned(), String::new()));
        };
        let (_, next) = found.first()?;
        let all: Vec<String> = found.iter().map(|it| it.0.clone()).collect();
        Some((format!("probes fail: {}", listed(&all, "; ")), next.clone()))
    }

    pub(super) fn machines_trouble(&self) -> Option<LayerTrouble> {
        let all = match &self.machines {
            Ok(all) => all,
            Err(why) => {
                let next = "look at `kubectl get vmi -A`";
                return Some((format!("virtual machines: {why}"), next.to_owned()));
            }
        };
        let (namespace, name) = all.first()?.split(' ').next()?.split_once('/')?;
        let next = format!(
            "`kubectl -n {namespace} describe vmi {name}` says what it waits for; `zedbox machines restore` starts what a drain \
             stopped"
        );
        Some((format!("virtual machines are not up: {}", listed(all, "; ")), next))
    }
}
