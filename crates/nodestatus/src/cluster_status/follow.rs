//! Publishes EdgeNodeClusterStatus and gives the server its address.
//!
//! It has an inbox of its own: it does not wait for the drain, nor the drain for it.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use agent::{AgentContext, Error, Outlet, Tasks, Troubles};
use pubsub::Change;
use tokio::sync::watch;
use topics::{DeviceNetworkStatus, EdgeNodeClusterStatus};
use tracing::info;

use super::rules::{NodeAddress, StatusDecision, StatusFacts, place};
use crate::ClusterMembership;
use crate::GLOBAL;
use crate::token::{self, BlockAnswer, TokenKeys};
use agent::duties;

/// Without nim: pause between looks for an interface with the node's address in the cluster.
const ADDRESS_LOOK: Duration = Duration::from_secs(5);
/// nim makes this directory at its start, before any agent that needs it.
const NIM: &str = "run/nim";
/// Trouble of a server that cannot listen yet.
const SERVER: &str = "status server";

enum StatusEvent {
    Network(Box<DeviceNetworkStatus>),
    /// The ports were read; there may be none.
    NetworkRead,
    Token(Box<BlockAnswer>),
}

impl From<BlockAnswer> for StatusEvent {
    fn from(answer: BlockAnswer) -> Self {
        Self::Token(Box::new(answer))
    }
}

/// The publisher of the status. It belongs to the agent and not to the task, which may end a moment later:
/// the agent can be restarted at once.
pub(crate) struct Speaker(Arc<Mutex<StatusOutlet>>, Troubles);

type StatusOutlet = Outlet<EdgeNodeClusterStatus>;

impl Speaker {
    pub(crate) fn open(troubles: &Troubles) -> Result<Self, Error> {
        Ok(Self(Arc::new(Mutex::new(Outlet::open(troubles)?)), troubles.clone()))
    }

    /// Follows the facts while the speaker exists. Dropping it leaves the last value published.
    pub(crate) fn follow(
        &self,
        context: AgentContext,
        cluster_membership: watch::Receiver<ClusterMembership>,
        places: watch::Sender<Option<NodeAddress>>,
    ) -> impl Future<Output = ()> + Send + use<> {
        run(context, Arc::downgrade(&self.0), self.1.clone(), cluster_membership, places)
    }
}

async fn run(
    context: AgentContext,
    said: Weak<Mutex<StatusOutlet>>,
    troubles: Troubles,
    mut cluster_membership: watch::Receiver<ClusterMembership>,
    places: watch::Sender<Option<NodeAddress>>,
) {
    let (outbox, mut inbox) = agent::inbox();
    let mut tasks = Tasks::new(outbox);
    tasks.follow::<DeviceNetworkStatus>(&context.topic_root, "nim", |change| match change {
        Change::Put { value, .. } => Some(StatusEvent::Network(Box::new(value))),
        Change::Gone { .. } => Some(StatusEvent::Network(Box::default())),
        Change::Synced => Some(StatusEvent::NetworkRead),
        Change::Restarted(_) | Change::Bad(_) => None,
    });
    let (sealed, asked) = watch::channel(None);
    let here = context.clone();
    tasks.events("token", move |outbox| async move {
        let keys = || TokenKeys::new(&here.topic_root);
        let follow = || token::follow(here.clone(), keys(), asked.clone(), outbox.clone());
        duties::keep_endless("cluster token", &here, follow).await;
    });
    let mut facts = StatusFacts::default();
    loop {
        facts.learn_membership(&cluster_membership.borrow_and_update());
        sealed.send_if_modified(|asked| step::update(asked, facts.sealed()));
        let looks_for = facts.looks_for().filter(|_| !context.topic_root.path(NIM).exists());
        facts.own_address = looks_for.filter(|it| is_here(*it));
        tell(&troubles, looks_for, facts.own_address);
        let look = looks_for.map(|_| context.clock.now() + ADDRESS_LOOK);
        let Some(speaker) = said.upgrade() else { return };
        let again = {
            let mut said = speaker.lock().unwrap_or_else(PoisonError::into_inner);
            let verdict = facts.judge(said.get(GLOBAL), context.clock.wall());
            publish(&mut said, verdict, &places);
            said.next_try()
        };
        drop(speaker);
        tokio::select! {
            heard = inbox.recv() => match heard {
                Some(StatusEvent::Token(answer)) => facts.opened(*answer),
                Some(StatusEvent::Network(network)) => facts.network = Some(*network),
                Some(StatusEvent::NetworkRead) => _ = facts.network.get_or_insert_default(),
                None => return,
            },
            changed = cluster_membership.changed() => if changed.is_err() { return },
            () = context.clock.sleep_until(again) => {}
            () = context.clock.sleep_until(look) => {}
        }
    }
}

/// Whether an interface of this machine has the address: a socket can be bound to no other. A failure to make
/// a socket, as with too many open files, does not count against it.
fn is_here(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !bound.is_err_and(|it| it.kind() == ErrorKind::AddrNotAvailable)
}

/// Reports what the status server waits for, without nim.
fn tell(troubles: &Troubles, looks_for: Option<IpAddr>, own: Option<IpAddr>) {
    let Some(address) = looks_for.filter(|_| own.is_none()) else { return troubles.over(SERVER) };
    let next_step =
        format!("give an interface {address}, or correct clusterIpPrefix in the device config: ip addr");
    let error = format!("no interface of this machine has {address}, its address in the cluster");
    troubles.say(SERVER, error, next_step);
}

/// Publishes the decision; then gives the server its address, which is a published one.
fn publish(said: &mut StatusOutlet, verdict: StatusDecision, places: &watch::Sender<Option<NodeAddress>>) {
    let now = match verdict {
        StatusDecision::Keep => return,
        StatusDecision::Stay => said.get(GLOBAL).and_then(place),
        StatusDecision::Nothing => {
            if said.get(GLOBAL).is_some() {
                if !said.take(GLOBAL) {
                    return;
                }
                info!("this node is in no cluster, EdgeNodeClusterStatus withdrawn");
            }
            None
        }
        StatusDecision::Status(status) => {
            if !said.put(GLOBAL, &status) {
                return;
            }
            place(&status)
        }
    };
    places.send_if_modified(|place| step::update(place, now));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Membership;
    use crate::NAME;
    use agent::{Clock, Stopper, wire};
    use pubsub::{TopicRoot, store};
    use serde_json::{Value, json};
    use tempfile::TempDir;
    use tokio::task::JoinSet;
    use tokio::time::timeout;
    use topics::AgentTrouble;

    /// Of the test's own clock, which runs ahead while nothing else happens.
    const LIMIT: Duration = Duration::from_hours(24);

    /// A node that can be started again.
    pub(crate) struct Node {
        _root: TempDir,
        pub(crate) topic_root: TopicRoot,
        pub(crate) members: watch::Sender<ClusterMembership>,
        context: AgentContext,
        troubles: Troubles,
        runs: Option<(Speaker, JoinSet<()>)>,
        _stopper: Stopper,
    }

    impl Node {
        pub(crate) fn new(membership: ClusterMembership) -> Self {
            let root = tempfile::tempdir().unwrap();
            let topic_root = TopicRoot::open(root.path()).unwrap();
            let (stopper, context) = AgentContext::alone(&topic_root, Clock::new(), "");
            let troubles = Troubles::open(&topic_root, context.clock, NAME);
            let members = watch::Sender::new(membership);
            Self { _root: root, topic_root, members, context, troubles, runs: None, _stopper: stopper }
        }

        /// Returns where the server is told to listen.
        pub(crate) fn start(&mut self) -> watch::Receiver<Option<NodeAddress>> {
            let (sender, places) = watch::channel(None);
            let (speaker, mut task) = (Speaker::open(&self.troubles).unwrap(), JoinSet::new());
            task.spawn(speaker.follow(self.context.clone(), self.members.subscribe(), sender));
            self.runs = Some((speaker, task));
            places
        }

        pub(crate) fn stop(&mut self) {
            self.runs = None;
        }

        fn said(&self) -> Option<EdgeNodeClusterStatus> {
            wire::peek(&self.topic_root, NAME, GLOBAL).unwrap()
        }

        fn has(&self, address: &str) {
            let ports =
                json!({ "Ports": [{ "IfName": "eth7", "Logicallabel": "lan", "ClusterIPAddr": address }] });
            let file = wire::path::<DeviceNetworkStatus>(&self.topic_root, "nim", GLOBAL);
            store::replace(&file, ports.to_string().as_bytes()).unwrap();
        }
    }

    fn cluster_membership(membership: Membership, address: &str) -> ClusterMembership {
        let valid = membership == Membership::Member;
        let config: Value = json!({
            "Initialized": true, "Valid": valid, "ClusterName": "c", "ClusterInterface": "lan",
            "ClusterIPPrefix": { "IP": address, "Mask": "////8A==" },
            "CipherToken": { "IsCipher": true, "InitialValue": "c2VjcmV0" },
        });
        let config = Some(Arc::new(serde_json::from_value(config).unwrap()));
        ClusterMembership { membership, config, ..ClusterMembership::default() }
    }

    #[tokio::test]
    async fn the_status_follows_config_and_ports_and_stays_until_the_node_has_left() {
        let stands = |membership| cluster_membership(membership, "10.244.244.2");
        let mut node = Node::new(ClusterMembership::default());
        let mut places = node.start();
        node.members.send_replace(stands(Membership::Member));
        node.has("10.244.244.2");
        let place = places.wait_for(Option::is_some).await.unwrap().unwrap();
        assert_eq!(place.address.to_string(), "10.244.244.2");
        let status = node.said().unwrap();
        assert_eq!((status.cluster_interface.as_str(), status.cluster_ip_is_ready), ("eth7", true));
        let fault = "decryptClusterTokenAndManifest: failed to decrypt cluster token: the block has no cipher context; ";
        assert!(status.error.error.starts_with(fault), "{}", status.error.error);
        assert_eq!(status.encrypted_cluster_token.reveal(), "");
        node.has("10.244.244.3");
        places.wait_for(Option::is_none).await.unwrap();
        assert!(!node.said().unwrap().cluster_ip_is_ready);
        node.has("10.244.244.2");
        places.wait_for(Option::is_some).await.unwrap();
        // On its way out the node keeps its address, also over a restart of the agent.
        node.members.send_replace(stands(Membership::Leaving));
        node.has("10.244.244.3");
        node.stop();
        places = node.start();
        assert_eq!(*places.wait_for(Option::is_some).await.unwrap(), Some(place));
        assert_eq!(node.said(), Some(status));
        node.members.send_replace(stands(Membership::Outside));
        places.wait_for(Option::is_none).await.unwrap();
        assert_eq!(node.said(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn t12_without_nim_the_address_is_ready_as_soon_as_an_interface_has_it_and_until_then_it_is_said() {
        // A documentation network: no interface has it.
        let mut node = Node::new(cluster_membership(Membership::Member, "192.0.2.1"));
        let mut places = node.start();
        let mut told =
            node.topic_root.subscription::<AgentTrouble>(&wire::name::<AgentTrouble>(NAME), wire::codec());
        let waits = async {
            loop {
                if let Change::Put { value, .. } = told.next().await
                    && let Some(it) = value.troubles.iter().find(|it| it.what == SERVER)
                {
                    break it.clone();
                }
            }
        };
        let it = timeout(LIMIT, waits).await.expect("it is said what the server waits for");
        assert!(it.error.contains("192.0.2.1") && it.next_step.contains("ip addr"), "{it:?}");
        assert_eq!(*places.borrow(), None);
        node.members.send_replace(cluster_membership(Membership::Member, "127.0.0.1"));
        let place =
            timeout(LIMIT, places.wait_for(Option::is_some)).await.expect("it comes").unwrap().unwrap();
        assert_eq!(place.address.to_string(), "127.0.0.1");
        assert!(node.said().unwrap().cluster_ip_is_ready);
        let over = async { while !matches!(told.next().await, Change::Gone { .. }) {} };
        timeout(LIMIT, over).await.expect("what it waits for is over");
    }
}
