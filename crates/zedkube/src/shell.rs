//! Wires zedkube's topics and files to its facts, and its effects to topics, files and the cluster.
//!
//! A request that vanishes is withdrawn only when it stays away: a lost file is written again by its publisher within a
//! second, and a person's file may be replaced by removing it first. Not here: what follows from a fact (`core`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::force::Orders;
use agent::settings::{DISK_RESERVE, DRAIN_TIMEOUT, EVICTION_REQUESTS, NODE_MAINTENANCE, Properties, is_on};
use agent::{AgentContext, Clock, Error, Hands, Outbox, Tasks, Weight, operator, publication, wire};
use kubeapi::NodeName;
use outage::keeper::Ask;
use pubsub::{BadFile, Change, FileRule, FileState, Publication, TopicRoot};
use step::Mono;
use tokio::sync::{mpsc, watch};
use topics::{
    Answer, ConfigItemValueMap, DrainHistory, DrainJournal, DrainStatus, EdgeNodeInfo, FORCE_FILE,
    NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, OutageAnswer, OutageQuestion, Requester,
    Topic as _, go_json,
};
use tracing::{error, warn};

use crate::core::{Effect, Event, Force, UndoScope};
use crate::hooks::DrainHooks;
use crate::node_report::DrainActivity;
use crate::work::TaskContext;
use crate::{GLOBAL, MISSPELT, NAME, WAIT, longhorn};
use clusterview::leader::Door;
use kubeapi::OwnNode;
use nodestatus::{ClusterMembership, Membership};

/// Files that only have to be there are not longer.
const MARK_BYTES: u64 = 4096;
/// Between two readings of what is to be known of the cluster while its API is away, and after one that failed.
const LEARN_AGAIN: Duration = Duration::from_secs(600);
const LEARN_SOON: Duration = Duration::from_secs(30);
/// Names of tasks; of one name there is one at a time.
const RUN: &str = "run";
const PREFLIGHT: &str = "preflight";
const TURN: &str = "turn";
const LOOK: &str = "look";
const GUARD: &str = "guard";
const GATE: &str = "gate";
const LEFTOVERS: &str = "leftovers";
const UNDO: &str = "undo hooks";
const AFTER_BOOT: &str = "hooks after the boot";
const TAINTS: &str = "taints";

/// The hands of the core.
pub(crate) struct Shell {
    context: AgentContext,
    pub(crate) tasks: Tasks<Event>,
    pub(crate) work: TaskContext,
    status: Publication<NodeDrainStatus>,
    progress: Publication<NodeDrainProgress>,
    journal: Publication<DrainJournal>,
    history: Publication<DrainHistory>,
    outage: Publication<OutageAnswer>,
    /// What was published and done in this run.
    pub(crate) published: watch::Sender<DrainActivity>,
    pub(crate) hooks: DrainHooks,
    election: Door,
    /// How long an attempt to drain may last, as the config has it.
    pub(crate) attempt: watch::Sender<Duration>,
    /// GiB of the disks that Longhorn leaves to others, where the config says so.
    pub(crate) reserve: watch::Sender<Option<u32>>,
    /// What the config wants of Longhorn for the whole cluster.
    pub(crate) longhorn: watch::Sender<longhorn::DesiredLonghorn>,
    /// Whether it wants NodeMaintenances of our node served, once it was read.
    pub(crate) maintenance: watch::Sender<Option<bool>>,
    keeper: Option<mpsc::UnboundedSender<Ask>>,
    /// A force file that counts says COMPLETE.
    forced: Arc<AtomicBool>,
}

/// What an earlier run of this agent left.
pub(crate) struct Earlier {
    pub(crate) journal: Option<DrainJournal>,
    pub(crate) history: Option<DrainHistory>,
    /// What it showed last, in this boot.
    pub(crate) shown: Option<NodeDrainProgress>,
    /// What it answered nodeagent last, in this boot.
    pub(crate) answered: Option<OutageAnswer>,
}

impl Shell {
    /// Becomes the publisher of this agent's topics. Returns what an earlier run left.
    pub(crate) fn open(
        context: &AgentContext,
        work: TaskContext,
        tasks: Tasks<Event>,
        election: Door,
    ) -> Result<(Self, Earlier), Error> {
        let topic_root = &context.topic_root;
        let mut shell = Self {
            status: publication(topic_root, NAME)?,
            progress: publication(topic_root, NAME)?,
            journal: publication(topic_root, NAME)?,
            history: publication(topic_root, NAME)?,
            outage: publication(topic_root, NAME)?,
            published: watch::Sender::default(),
            hooks: DrainHooks::new(context, &work),
            work,
            context: context.clone(),
            tasks,
            election,
            attempt: watch::Sender::new(Properties::default().time(DRAIN_TIMEOUT)),
            reserve: watch::Sender::default(),
            longhorn: watch::Sender::default(),
            maintenance: watch::Sender::default(),
            keeper: None,
            forced: Arc::default(),
        };
        let earlier = Earlier {
            journal: shell.journal.get(GLOBAL).cloned(),
            history: shell.history.get(GLOBAL).cloned(),
            shown: shell.progress.get(GLOBAL).cloned(),
            answered: shell.outage.get(GLOBAL).cloned(),
        };
        shell.work.addresses = earlier.journal.iter().flat_map(|it| it.known.addresses.clone()).collect();
        Ok((shell, earlier))
    }

    /// Starts a task that works on the cluster.
    fn begin<F>(&mut self, name: &str, work: impl FnOnce(TaskContext, Outbox<Event>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let context = self.work.clone();
        self.tasks.events(name, |outbox| work(context, outbox));
    }

    /// Follows what this agent hears of.
    pub(crate) fn follow(
        &mut self,
        cluster_membership: watch::Receiver<ClusterMembership>,
        heard: watch::Sender<Option<Membership>>,
    ) {
        let topic_root = self.context.topic_root.clone();
        self.learn(cluster_membership.clone());
        self.follow_membership(cluster_membership, heard);
        let own_node = self.work.own_node.clone();
        self.tasks.follow::<EdgeNodeInfo>(&topic_root, "zedagent", move |change| {
            node_known(&own_node, &change.put()?)
        });
        self.tasks
            .follow::<OutageQuestion>(&topic_root, "nodeagent", |change| change.put().map(Event::Question));
        follow_requests(&mut self.tasks, &topic_root, self.context.clock);
        let mut last = Properties::default();
        let (attempt, reserve, longhorn) =
            (self.attempt.clone(), self.reserve.clone(), self.longhorn.clone());
        let (requests, maintenance) = (Arc::clone(&self.work.requests), self.maintenance.clone());
        self.tasks.follow::<ConfigItemValueMap>(&topic_root, "zedagent", move |change| {
            let value = change.put()?;
            let (now, refused) = Properties::from_map(&value, &last);
            let (storage, strange) = longhorn::wanted(&value, &longhorn.borrow());
            longhorn.send_if_modified(|held| step::update(held, storage));
            let asks = is_on(&value, EVICTION_REQUESTS).map(|is| requests.store(is, Ordering::Relaxed));
            let serves = is_on(&value, NODE_MAINTENANCE).map(|is| maintenance.send_replace(Some(is)));
            for line in refused.into_iter().chain(strange).chain(asks.err()).chain(serves.err()) {
                warn!("config property {line}");
            }
            last = now.clone();
            attempt.send_replace(now.time(DRAIN_TIMEOUT));
            let wanted = Some(now.count(DISK_RESERVE)).filter(|it| *it < DISK_RESERVE.max);
            reserve.send_if_modified(|held| step::update(held, wanted));
            Some(Event::Properties(now))
        });
        self.tasks.follow_wall(self.context.clock, Event::Wall);
        self.follow_files(&topic_root);
    }

    /// Reads now and then what is to be known of the cluster while its API is away.
    fn learn(&mut self, mut cluster_membership: watch::Receiver<ClusterMembership>) {
        let (work, clock) = (self.work.clone(), self.context.clock);
        self.tasks.events("learn of the cluster", move |outbox| async move {
            while cluster_membership.wait_for(|it| it.membership == Membership::Member).await.is_ok() {
                let learned = work.learn().await.map(Box::new);
                let pause = if learned.is_some() { LEARN_AGAIN } else { LEARN_SOON };
                if let Some(learned) = learned
                    && !outbox.send(Event::Learned(learned)).await
                {
                    return;
                }
                clock.sleep_until(Some(clock.now() + pause)).await;
            }
        });
    }

    /// How this node stands to its cluster, and each change of it. What was sent is `heard`, in this order.
    fn follow_membership(
        &mut self,
        mut cluster_membership: watch::Receiver<ClusterMembership>,
        heard: watch::Sender<Option<Membership>>,
    ) {
        self.tasks.events("follow the membership in the cluster", move |outbox| async move {
            loop {
                let membership = cluster_membership.borrow_and_update().membership;
                if !outbox.send(Event::Member(membership)).await {
                    return;
                }
                heard.send_replace(Some(membership));
                if cluster_membership.changed().await.is_err() {
                    return;
                }
            }
        });
    }

    /// Asks the keeper of our turn, who starts with the first question.
    fn ask_keeper(&mut self, ask: Ask) {
        let unheard = match &self.keeper {
            Some(keeper) => keeper.send(ask).err().map(|it| it.0),
            None => Some(ask),
        };
        let Some(ask) = unheard else { return };
        let (keeper, asks) = mpsc::unbounded_channel();
        if keeper.send(ask).is_err() {
            warn!("the keeper of this node's turn cannot be asked");
        }
        self.keeper = Some(keeper);
        self.begin(TURN, |work, outbox| work.turn(asks, outbox));
    }

    fn follow_files(&mut self, topic_root: &TopicRoot) {
        let mut orders = Orders::open(&self.context);
        let forced = Arc::clone(&self.forced);
        self.tasks.events(format!("follow {FORCE_FILE}"), move |outbox| async move {
            loop {
                let (order, by) = orders.next().await;
                let complete =
                    |it: &Option<NodeDrainStatus>| it.is_some_and(|it| it.status == DrainStatus::Complete);
                forced.store(order.as_ref().is_ok_and(complete), Ordering::Relaxed);
                // Who orders is known before what.
                if !outbox.send(Event::ForceBy(by)).await || !outbox.send(Event::Force(force(order))).await {
                    return;
                }
            }
        });
        let order = FileRule { limit_bytes: MARK_BYTES, order: true };
        let mut there = false;
        self.tasks.follow_file(topic_root, topic_root.path(MISSPELT), order, move |file| {
            let was_there = std::mem::replace(&mut there, file != FileState::Absent);
            if there && !was_there {
                warn!(path = MISSPELT, "wrong file name, ignored; expected {FORCE_FILE}");
            }
            None
        });
        self.tasks.follow_file(topic_root, topic_root.path(WAIT), order, |file| {
            if let FileState::Bad(BadFile { reason, .. }) = &file {
                warn!(path = WAIT, "ignored, it does not hold a drain: {reason}");
            }
            Some(Event::Hold(matches!(file, FileState::Present(_))))
        });
    }
}

/// A request that is away for less time was not withdrawn. Publishers write a lost file again within a second; a
/// withdrawal takes effect within 5 s all the same.
const GRACE: Duration = Duration::from_secs(2);

/// Follows all requests for good: of both agents and of our own duties by their topics, of a person by a file.
fn follow_requests(tasks: &mut Tasks<Event>, topic_root: &TopicRoot, clock: Clock) {
    for (agent, from) in [
        ("zedagent", Requester::DeviceOp),
        ("baseosmgr", Requester::Update),
        (wire::ZEDKUBE, Requester::K3sUpdate),
        (wire::MAINTENANCE, Requester::NodeMaintenance),
    ] {
        let topic_root = topic_root.clone();
        tasks.events(format!("follow {agent}/{}", NodeDrainRequest::NAME), move |outbox| {
            of_agent(topic_root, agent, RequestFollower::new(from, clock, outbox))
        });
    }
    let topic_root = topic_root.clone();
    tasks.events(format!("follow {}", operator::FILE), move |outbox| {
        of_person(topic_root, RequestFollower::new(Requester::Operator, clock, outbox))
    });
}

struct RequestFollower {
    from: Requester,
    clock: Clock,
    outbox: Outbox<Event>,
    /// When a request that has vanished counts as withdrawn.
    withdrawn: Option<Mono>,
}

impl RequestFollower {
    const fn new(from: Requester, clock: Clock, outbox: Outbox<Event>) -> Self {
        Self { from, clock, outbox, withdrawn: None }
    }

    /// Sends the request; false once the receiver is gone. Its topic or file says who asks.
    async fn put(&mut self, request: NodeDrainRequest) -> bool {
        self.withdrawn = None;
        let request = NodeDrainRequest { requested_by: self.from, ..request };
        self.outbox.send(Event::Request(self.from, Some(request))).await
    }

    fn vanished(&mut self) {
        self.withdrawn = Some(self.clock.now() + GRACE);
    }

    /// Returns when what has vanished counts as withdrawn; never while nothing has. Dropping it loses nothing.
    async fn away(&self) {
        self.clock.sleep_until(self.withdrawn).await;
    }

    /// Sends that there is no request; false once the receiver is gone.
    async fn withdraw(&mut self) -> bool {
        self.withdrawn = None;
        self.outbox.send(Event::Request(self.from, None)).await
    }

    /// Sends that all there is was read.
    async fn read(&self) -> bool {
        self.outbox.send(Event::RequestsRead(self.from)).await
    }
}

async fn of_agent(topic_root: TopicRoot, agent: &'static str, mut asked: RequestFollower) {
    let mut topic = wire::subscription::<NodeDrainRequest>(&topic_root, agent);
    loop {
        let listening = tokio::select! {
            biased;
            change = topic.next() => match change {
                Change::Put { value, .. } => asked.put(value).await,
                Change::Gone { .. } => {
                    asked.vanished();
                    true
                }
                Change::Synced => asked.read().await,
                Change::Restarted(_) => true,
                Change::Bad(finding) => {
                    warn!(topic = NodeDrainRequest::NAME, path = %finding.path.display(), reason = finding.reason,
                        "a topic file cannot be used, its last good value stays");
                    true
                }
            },
            () = asked.away() => asked.withdraw().await,
        };
        if !listening {
            return;
        }
    }
}

async fn of_person(topic_root: TopicRoot, mut asked: RequestFollower) {
    let mut file = operator::request(&topic_root);
    let mut read = false;
    loop {
        let listening = tokio::select! {
            biased;
            state = file.next() => match request_in(state) {
                Ok(Some(request)) => asked.put(request).await,
                Ok(None) if !read => asked.withdraw().await,
                Ok(None) => {
                    asked.vanished();
                    true
                }
                // The last good one stays.
                Err(why) => {
                    asked.withdrawn = None;
                    error!(path = operator::FILE, error = why, "drain request refused; ask with `zedbox drain`");
                    true
                }
            },
            () = asked.away() => asked.withdraw().await,
        };
        // The first state, also that there is no such file or directory, is all that there is to read.
        if !listening || (!std::mem::replace(&mut read, true) && !asked.read().await) {
            return;
        }
    }
}

/// What a person with a shell asks for.
fn request_in(file: FileState) -> Result<Option<NodeDrainRequest>, String> {
    match file {
        FileState::Absent => Ok(None),
        FileState::Present(bytes) => go_json::from_slice(&bytes).map(Some).map_err(|cause| cause.to_string()),
        FileState::Bad(finding) => Err(finding.reason),
    }
}

fn node_known(own_node: &OwnNode, info: &EdgeNodeInfo) -> Option<Event> {
    if info.device_name.is_empty() {
        return None;
    }
    let name = info.kube_name();
    match NodeName::parse(&name) {
        Ok(node) => {
            own_node.set(node, info.device_id.to_string());
            Some(Event::NodeKnown { name })
        }
        Err(cause) => {
            error!(device = info.device_name, error = %cause, "the device's name makes no node name; correct deviceName in the config");
            None
        }
    }
}

fn force(order: Result<Option<NodeDrainStatus>, String>) -> Force {
    match order {
        Ok(None) => Force::Absent,
        Ok(Some(order)) => {
            warn!(path = FORCE_FILE, "a force file orders {order}");
            Force::Order(order)
        }
        Err(why) => {
            error!(path = FORCE_FILE, "force file refused: {why}");
            Force::Refused(why)
        }
    }
}

/// Whether this answers COMPLETE to somebody whom `before` does not.
fn completes(before: Option<&NodeDrainProgress>, now: &NodeDrainProgress) -> bool {
    let complete = |it: &&Answer| it.status == DrainStatus::Complete;
    now.answers.iter().filter(complete).any(|it| before.is_none_or(|before| !before.answers.contains(it)))
}

/// What waits, in words.
const ANSWER: &str = "the word that the drain is COMPLETE";

impl Hands for Shell {
    type Effect = Effect;

    fn weight(&self, effect: &Effect) -> Weight {
        match effect {
            Effect::Journal(_) => Weight::record("DrainJournal"),
            Effect::History(_) => Weight::status("DrainHistory"),
            Effect::Progress(progress) if completes(self.progress.get(GLOBAL), progress) => {
                Weight::promise("NodeDrainProgress", ANSWER)
            }
            Effect::Progress(_) => Weight::status("NodeDrainProgress"),
            Effect::Status(status)
                if status.status == DrainStatus::Complete && self.status.get(GLOBAL) != Some(status) =>
            {
                Weight::promise("NodeDrainStatus", ANSWER)
            }
            Effect::Status(_) => Weight::status("NodeDrainStatus"),
            Effect::OutageAnswer(_) => Weight::status("OutageAnswer"),
            Effect::Cordon(..) => Weight::promise(RUN, "the cordon of this node"),
            Effect::Drain(..) => Weight::promise(RUN, "the drain of this node"),
            Effect::Probe(_) | Effect::Margin { .. } | Effect::Await(..) | Effect::Cancel => {
                Weight::cancels(RUN)
            }
            Effect::Candidacy(_)
            | Effect::Turn(_)
            | Effect::Preflight(_)
            | Effect::Guard
            | Effect::Look { .. }
            | Effect::Gate(_)
            | Effect::Taints(_)
            | Effect::Leftovers(_)
            | Effect::UndoHooks
            | Effect::HooksAfterBoot
            | Effect::CordonRemoved
            | Effect::Say(_) => Weight::plain(),
        }
    }

    /// The reboot that a person forces may be what cures the disk.
    fn is_ordered(&self, effect: &Effect) -> bool {
        matches!(effect, Effect::Progress(_) | Effect::Status(_)) && self.forced.load(Ordering::Relaxed)
    }

    async fn perform(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Journal(journal) => wire::publish(&mut self.journal, GLOBAL, &journal)?,
            Effect::History(history) => wire::publish(&mut self.history, GLOBAL, &history)?,
            Effect::Progress(progress) => {
                wire::publish(&mut self.progress, GLOBAL, &progress)?;
                self.published.send_modify(|it| it.progress = Some(Arc::new(*progress)));
            }
            Effect::Status(status) => wire::publish(&mut self.status, GLOBAL, &status)?,
            Effect::OutageAnswer(answer) => wire::publish(&mut self.outage, GLOBAL, &answer)?,
            Effect::Candidacy(candidacy) => self.election.announce(candidacy).await,
            Effect::Probe(run) => self.begin(RUN, |work, outbox| work.probe(run, outbox)),
            Effect::Preflight(run) => self.begin(PREFLIGHT, |work, outbox| work.preflight(run, outbox)),
            Effect::Margin { run, lacks_etcd, trouble } => {
                self.tasks.start(RUN, self.work.clone().margin(run, lacks_etcd, trouble));
            }
            Effect::Turn(ask) => self.ask_keeper(ask),
            Effect::Cordon(run, request, grant) => {
                let hooks = self.hooks.clone();
                self.begin(RUN, |work, outbox| async move {
                    let called = hooks.before_drain(run, &request, &outbox).await;
                    if !called && let Some(event) = work.cordon(run, request, grant).await {
                        outbox.send(event).await;
                    }
                });
            }
            Effect::Drain(run, request, limit, marks) => {
                self.begin(RUN, |work, outbox| work.drain(run, request, (limit, *marks), outbox));
            }
            Effect::Await(run, watched) => self.tasks.start(RUN, self.work.clone().changed(run, watched)),
            Effect::Cancel => {
                for task in [RUN, PREFLIGHT, LOOK, GUARD] {
                    self.tasks.cancel(task);
                }
            }
            Effect::Guard => self.tasks.start(GUARD, self.work.clone().guard()),
            Effect::Look { nth, uncordon, gate_open } => {
                self.tasks.start(LOOK, self.work.clone().look(nth, uncordon, gate_open));
            }
            Effect::Gate(true) => {
                self.begin(GATE, |work, outbox| work.gate(outbox, |it| Event::Gate(Box::new(it))));
            }
            Effect::Gate(false) => self.tasks.cancel(GATE),
            Effect::Leftovers(UndoScope::Nothing) => self.tasks.cancel(LEFTOVERS),
            Effect::Leftovers(scope) => {
                self.begin(LEFTOVERS, |work, outbox| work.undo_drain(scope, outbox));
            }
            Effect::UndoHooks => {
                let hooks = self.hooks.clone();
                self.tasks.events(UNDO, move |outbox| hooks.undo(outbox));
            }
            Effect::HooksAfterBoot => {
                let hooks = self.hooks.clone();
                self.tasks.events(AFTER_BOOT, move |outbox| hooks.after_boot(outbox));
            }
            Effect::Taints(true) => self.begin(TAINTS, TaskContext::taints),
            Effect::Taints(false) => self.tasks.cancel(TAINTS),
            Effect::CordonRemoved => self.published.send_modify(|it| it.uncordons += 1),
            // `records` reads it.
            Effect::Say(message) => step::log!(message),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::Inbox;
    use pubsub::store;

    const FILES: [(Requester, &str); 4] = [
        (Requester::K3sUpdate, "run/zedkube/NodeDrainRequest/global.json"),
        (Requester::DeviceOp, "run/zedagent/NodeDrainRequest/global.json"),
        (Requester::Update, "run/baseosmgr/NodeDrainRequest/global.json"),
        (Requester::Operator, operator::FILE),
    ];
    const LONG: Duration = Duration::from_secs(600);

    struct RequestsFixture {
        root: tempfile::TempDir,
        clock: Clock,
        inbox: Inbox<Event>,
        _tasks: Tasks<Event>,
    }

    impl RequestsFixture {
        fn new() -> Self {
            let (root, clock) = (tempfile::tempdir().unwrap(), Clock::new());
            let (outbox, inbox) = agent::inbox();
            let mut tasks = Tasks::new(outbox);
            follow_requests(&mut tasks, &TopicRoot::open(root.path()).unwrap(), clock);
            Self { root, clock, inbox, _tasks: tasks }
        }

        fn write(&self, file: &str, context: &str) {
            let request = NodeDrainRequest { context: context.to_owned(), ..NodeDrainRequest::default() };
            store::replace(&self.root.path().join(file), &go_json::to_vec(&request).unwrap()).unwrap();
        }

        /// The next request from `from`: its context, or `None` for a withdrawal.
        async fn request_of(&mut self, from: Requester) -> Option<String> {
            loop {
                let event = tokio::time::timeout(LONG, self.inbox.recv()).await.unwrap().unwrap();
                if let Event::Request(by, request) = event
                    && by == from
                {
                    return request.map(|it| it.context);
                }
            }
        }

        async fn first(&mut self, from: Requester) {
            while self.request_of(from).await.as_deref() != Some("first") {}
        }

        /// For long no other request comes from `from`, and no withdrawal: at most the same is heard once more.
        async fn hears_nothing_else(&mut self, from: Requester) {
            let clock = self.clock;
            let long_after = clock.now() + 3 * GRACE;
            loop {
                tokio::select! {
                    () = clock.sleep_until(Some(long_after)) => return,
                    heard = self.request_of(from) => assert_eq!(heard.as_deref(), Some("first"), "{from:?}"),
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_back_within_two_seconds_was_not_withdrawn() {
        for (from, file) in FILES {
            let mut site = RequestsFixture::new();
            let clock = site.clock;
            site.write(file, "first");
            site.first(from).await;
            std::fs::remove_file(site.root.path().join(file)).unwrap();
            let before_it_counts = clock.now() + Duration::from_millis(1_999);
            tokio::select! {
                () = clock.sleep_until(Some(before_it_counts)) => {}
                heard = site.request_of(from) => panic!("{heard:?} of {file}"),
            }
            site.write(file, "first");
            site.hears_nothing_else(from).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d19_a_request_that_stays_away_for_two_seconds_is_withdrawn() {
        for (from, file) in FILES {
            let mut site = RequestsFixture::new();
            site.write(file, "first");
            site.first(from).await;
            std::fs::remove_file(site.root.path().join(file)).unwrap();
            let removed = site.clock.now();
            assert_eq!(site.request_of(from).await, None, "{file}");
            let after = site.clock.now().since(removed);
            assert!((GRACE..GRACE * 2).contains(&after), "{after:?} of {file}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_beside_a_request_says_nothing_when_it_comes_and_when_it_goes() {
        for (from, file) in &FILES[..3] {
            let mut site = RequestsFixture::new();
            let copy = file.replace("global", "k0");
            site.write(file, "first");
            site.first(*from).await;
            site.write(&copy, "of a copy");
            let soon = site.clock.now() + GRACE;
            site.clock.sleep_until(Some(soon)).await;
            std::fs::remove_file(site.root.path().join(&copy)).unwrap();
            site.hears_nothing_else(*from).await;
        }
    }
}
