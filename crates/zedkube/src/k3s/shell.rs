//! Wires the rules of k3s updates to topics and files, and to the Node object of this node.

use std::time::Duration;

use agent::turn::{self, AgentCore};
use agent::{AgentContext, Error, Hands, Tasks, Troubles, Weight, publication, wire};
use kubenodeop::node::boot::GateReport;
use nodestatus::{ClusterMembership, Membership};
use pubsub::{Publication, TopicRoot, store};
use tokio::sync::watch;
use topics::{ConfigItemValueMap, K3sUpdate, KubeConfig, NodeDrainRequest};
use tracing::{error, warn};

use super::rules::{Effect, Event, K3s, SavedK3sUpdate};
use super::rules::{OVERRIDE_BYTES, Override, wanted};
use crate::core::K3sHold;
use crate::work::TaskContext;
use crate::{GLOBAL, NAME};

/// Below it are files that are encrypted with a key of the TPM.
const VAULT: &str = "persist/vault";
/// What the kube container puts beside the settings of k3s.
const FILE: &str = "persist/vault/k3s-user-override.yaml";
/// The name of the trouble while the topic that the kube container reads cannot be published.
const CONFIG: &str = "KubeConfig";
/// Between two tries to have it, first and at last.
const OPEN_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Names of tasks.
const LOOK: &str = "look at the kubelet";
const GATE: &str = "gate";
const READ: &str = "read the override file";

/// The updates of k3s on this node, to be run beside the drain.
pub(crate) struct Updates {
    context: AgentContext,
    work: TaskContext,
    record: Publication<K3sUpdate>,
    request: Publication<NodeDrainRequest>,
    hold: watch::Sender<K3sHold>,
}

struct Shell {
    updates: Updates,
    tasks: Tasks<Event>,
    config: Publication<KubeConfig>,
}

impl Updates {
    /// Reads what an earlier run has left of an update: the drain has to know it before anything else.
    pub(crate) fn open(context: &AgentContext, work: TaskContext) -> Result<Self, Error> {
        let record: Publication<K3sUpdate> = publication(&context.topic_root, NAME)?;
        let request = publication(&context.topic_root, NAME)?;
        let hold = watch::Sender::new(K3sHold::of(record.get(GLOBAL)));
        Ok(Self { context: context.clone(), work, record, request, hold })
    }

    /// What an update says of this node, from before the first fact on.
    pub(crate) fn hold(&self) -> watch::Receiver<K3sHold> {
        self.hold.subscribe()
    }

    /// Runs until `context` says stop.
    /// Errors: what could not be performed and is not tried again.
    pub(crate) async fn run(
        self: Box<Self>,
        cluster_membership: watch::Receiver<ClusterMembership>,
        troubles: &Troubles,
    ) -> Result<(), Error> {
        let context = self.context.clone();
        let Some(config) = published(&context, troubles).await else { return Ok(()) };
        let mut pauses = context.pauses();
        let found = SavedK3sUpdate {
            version: config.get(GLOBAL).map(|it| it.k3s_version.clone()).unwrap_or_default(),
            on_boot: config.get(GLOBAL).is_some_and(|it| it.vmi_deschedule_events.on_boot),
            record: self.record.get(GLOBAL).cloned(),
            request: self.request.get(GLOBAL).cloned(),
            pause: pauses.next().await,
            boot_id: context.boot_id.clone(),
            booted_at: context.clock.booted_at(),
        };
        let (outbox, inbox) = agent::inbox();
        let mut shell = Shell { updates: *self, tasks: Tasks::new(outbox), config };
        shell.tasks.follow_pause(pauses, Event::Pause);
        shell.follow(cluster_membership);
        let core = K3s::new(found, context.clock.now());
        turn::run(AgentCore::Second, core, shell, inbox, &context, troubles).await
    }
}

/// Becomes the publisher of what the kube container reads, once that can be had: updates wait for it, and no drain
/// does. `None` when `context` says stop.
async fn published(context: &AgentContext, troubles: &Troubles) -> Option<Publication<KubeConfig>> {
    let mut stop = context.stop.clone();
    let mut failed = 0;
    loop {
        match publication(&context.topic_root, NAME) {
            Ok(config) => {
                troubles.over(CONFIG);
                return Some(config);
            }
            Err(cause) => {
                troubles.note(CONFIG, &cause);
                troubles.holds(CONFIG, vec!["updates of k3s".to_owned()]);
                troubles.publish();
            }
        }
        failed += 1;
        let again = context.clock.now() + step::doubled(OPEN_AGAIN.0, OPEN_AGAIN.1, failed);
        tokio::select! {
            () = stop.stopped() => return None,
            () = context.clock.sleep_until(Some(again)) => {}
        }
    }
}

impl Shell {
    fn follow(&mut self, mut cluster_membership: watch::Receiver<ClusterMembership>) {
        let context = &self.updates.context;
        let topic_root = context.topic_root.clone();
        self.tasks.follow_wall(context.clock, Event::Wall);
        let mut told = Vec::new();
        self.tasks.follow::<ConfigItemValueMap>(&topic_root, "zedagent", move |change| {
            let (wanted, refused) = wanted(&change.put()?);
            if refused != told {
                for line in &refused {
                    error!("config property {line}");
                }
                told = refused;
            }
            Some(Event::Wanted(wanted))
        });
        self.tasks.events("follow the drain", move |outbox| {
            requester::follow(topic_root, outbox, |word| Some(Event::Drain(word)))
        });
        self.tasks.follow_force(context, |order| Event::Forced(order.ok().flatten()));
        self.tasks.events("follow the membership in the cluster", move |outbox| async move {
            loop {
                let (member, leaves) = clustering(cluster_membership.borrow_and_update().membership);
                if !outbox.send(Event::Member(member, leaves)).await
                    || cluster_membership.changed().await.is_err()
                {
                    return;
                }
            }
        });
    }
}

/// Whether there is a cluster to leave in order, and whether this node has yet to.
fn clustering(membership: Membership) -> (requester::DeviceClustering, bool) {
    match membership {
        Membership::Undecided => (requester::DeviceClustering::Undecided, false),
        Membership::Member => (requester::DeviceClustering::Clustered, false),
        Membership::Leaving => (requester::DeviceClustering::Single, true),
        Membership::Outside => (requester::DeviceClustering::Single, false),
    }
}

fn report(report: GateReport) -> Event {
    let shown = report.verdict.map(|it| it.shown).unwrap_or_default();
    let words = if shown.words.is_empty() { "the first check is under way" } else { &shown.words };
    Event::Gate((!shown.open).then(|| words.to_owned()))
}

/// The override file; `None` while the vault is shut, or it cannot be read.
fn file(topic_root: &TopicRoot) -> Option<Override> {
    if !topic_root.path(VAULT).is_dir() {
        return None;
    }
    match store::read(&topic_root.path(FILE), u64::try_from(OVERRIDE_BYTES).unwrap_or(u64::MAX)) {
        Ok(found) => Some(Override(found.unwrap_or_default())),
        Err(cause) => {
            warn!(path = FILE, error = %cause, "the override file cannot be read; it is replaced when another is wanted");
            // Equal to nothing that can be wanted.
            Some(Override(vec![0]))
        }
    }
}

/// The name of what waits.
const RECORD: &str = "K3sUpdate";

impl Hands for Shell {
    type Effect = Effect;

    fn weight(&self, effect: &Effect) -> Weight {
        match effect {
            Effect::Journal(_) | Effect::Forget => Weight::record(RECORD),
            Effect::Request(_) => Weight::promise("NodeDrainRequest", "the request for a drain"),
            Effect::Withdraw => Weight::status("NodeDrainRequest"),
            Effect::Version(_) => Weight::promise("KubeConfig", "the version of k3s"),
            Effect::OnBoot(_) => Weight::status("VmiDescheduleEvents of KubeConfig"),
            Effect::File(_) => Weight::promise(FILE, "the override file of k3s"),
            Effect::ReadFile | Effect::Look(_) | Effect::Gate(_) | Effect::Say(_) => Weight::plain(),
        }
    }

    async fn perform(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Journal(record) => {
                wire::publish(&mut self.updates.record, GLOBAL, &record)?;
                self.updates.hold.send_replace(K3sHold::of(Some(&record)));
            }
            Effect::Forget => {
                wire::withdraw(&mut self.updates.record, GLOBAL)?;
                self.updates.hold.send_replace(K3sHold::default());
            }
            Effect::Request(request) => wire::publish(&mut self.updates.request, GLOBAL, &request)?,
            Effect::Withdraw => wire::withdraw(&mut self.updates.request, GLOBAL)?,
            Effect::Version(k3s_version) => {
                let other = self.config.get(GLOBAL).cloned().unwrap_or_default();
                let config = KubeConfig { k3s_version, ..other };
                wire::publish(&mut self.config, GLOBAL, &config)?;
            }
            Effect::OnBoot(on_boot) => {
                let mut config = self.config.get(GLOBAL).cloned().unwrap_or_default();
                config.vmi_deschedule_events.on_boot = on_boot;
                wire::publish(&mut self.config, GLOBAL, &config)?;
            }
            Effect::File(Override(bytes)) => {
                let path = self.updates.context.topic_root.path(FILE);
                if bytes.is_empty() { store::remove(&path).map(drop) } else { store::replace(&path, &bytes) }
                    .map_err(Error::pubsub("the override file of k3s"))?;
            }
            Effect::ReadFile => {
                let topic_root = self.updates.context.topic_root.clone();
                let read = tokio::task::spawn_blocking(move || file(&topic_root));
                self.tasks.start(READ, async move { Some(Event::File(read.await.ok().flatten())) });
            }
            Effect::Look(number) => {
                let work = self.updates.work.clone();
                self.tasks
                    .start(LOOK, async move { Some(Event::Reported(number, work.kubelet_version().await)) });
            }
            Effect::Gate(true) => {
                let work = self.updates.work.clone();
                self.tasks.events(GATE, move |outbox| work.gate(outbox, report));
            }
            Effect::Gate(false) => self.tasks.cancel(GATE),
            Effect::Say(message) => step::log!(message),
        }
        Ok(())
    }
}
