//! The task that publishes `KubeUserServices`, and the collections that it follows.
//!
//! While no nim is on the device nobody opens ports, and nothing is followed. Nothing is published before services
//! and ingresses were listed, and the load balancer's settings as well unless they cannot be read. A collection that was never
//! listed is not known, and one whose calls fail keeps what it had: a firewall is not closed because an API server is away
//! (D-V10, D-V11). Not here: what is published (`fold`).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use agent::{AgentContext, Clock, Error, Outlet, Tasks, Troubles};
use kubeapi::ApiClient;
use kubeapi::watch::{Manner, ObjectMirror, WatchScope};
use step::{Inserted as _, Mono};
use topics::{DeviceNetworkStatus, EdgeNodeClusterStatus, ErrorDescription, KubeUserServices};
use tracing::{debug, info, warn};

use super::facts::{Ingress, Pool, Service};
use super::fold::{ServicesView, fold};
use crate::collections::{FactItem, ObjectFact, ObjectTable, SLOT};
use crate::{GLOBAL, NAME};

/// Between two publications: each makes nim write its rules again.
const GAP: Duration = Duration::from_secs(5);

enum ServicesInput {
    Ports(BTreeSet<IpAddr>),
    ConfigError(ErrorDescription),
}

struct Followers {
    services: FollowedTable<Service>,
    ingresses: FollowedTable<Ingress>,
    pool: FollowedTable<Pool>,
}

impl Followers {
    fn open(cluster: &ApiClient, clock: Clock) -> Self {
        // Nodes do not ask in step.
        let seed = u64::try_from(clock.now().since_start().as_nanos()).unwrap_or_default();
        let services = WatchScope::all("services of users", "/api/v1/services".to_owned());
        let ingresses =
            WatchScope::all("ingresses of users", "/apis/networking.k8s.io/v1/ingresses".to_owned());
        let pool = WatchScope {
            fields: Some("metadata.name=kubevip".to_owned()),
            ..WatchScope::all(
                "settings of the load balancer",
                "/api/v1/namespaces/kube-system/configmaps".to_owned(),
            )
        };
        Self {
            services: FollowedTable::open(cluster, services, seed),
            ingresses: FollowedTable::open(cluster, ingresses, seed ^ 1),
            pool: FollowedTable::open(cluster, pool, seed ^ 2),
        }
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = self.services.changed() => {}
            () = self.ingresses.changed() => {}
            () = self.pool.changed() => {}
        }
    }
}

/// Published values stay.
pub async fn run(context: &AgentContext, troubles: &Troubles, cluster: ApiClient) -> Result<(), Error> {
    let clock = context.clock;
    let mut outlet = Outlet::<KubeUserServices>::open(troubles)?;
    let (outbox, mut inbox) = agent::inbox();
    let mut tasks = Tasks::new(outbox);
    tasks.follow::<DeviceNetworkStatus>(&context.topic_root, "nim", |change| {
        Some(ServicesInput::Ports(addresses(&change.put()?)))
    });
    tasks.follow::<EdgeNodeClusterStatus>(&context.topic_root, NAME, |change| {
        let error = change.latest()?.map(|it| it.lb_config_error);
        Some(ServicesInput::ConfigError(error.unwrap_or_default()))
    });
    let (mut own, mut config_error) = (None, ErrorDescription::default());
    let mut followers: Option<Followers> = None;
    let (mut owed, mut quiet) = (false, Mono::START);
    loop {
        if own.is_some() && followers.is_none() {
            followers = Some(Followers::open(&cluster, clock));
        }
        let now = clock.now();
        if owed
            && now >= quiet
            && let Some(own) = &own
            && let Some(value) = folded(followers.as_ref(), own, &config_error, clock, outlet.get(GLOBAL))
        {
            if outlet.get(GLOBAL) != Some(&value) {
                let count = |length: Option<usize>| length.unwrap_or_default();
                info!(
                    ports = count(value.user_service.as_ref().map(Vec::len)),
                    paths = count(value.user_ingress.as_ref().map(Vec::len)),
                    "services of users"
                );
            }
            owed = !outlet.put(GLOBAL, &value);
            quiet = now + GAP;
        }
        let due = owed.then_some(quiet).filter(|it| *it > now);
        tokio::select! {
            biased;
            heard = inbox.recv() => match heard {
                Some(ServicesInput::Ports(ports)) => own = Some(ports),
                Some(ServicesInput::ConfigError(error)) => config_error = error,
                None => return Ok(()),
            },
            () = changed(&mut followers) => {}
            () = clock.sleep_until(due), if due.is_some() => continue,
        }
        owed = true;
    }
}

/// `None` while something is unknown.
fn folded(
    followers: Option<&Followers>,
    own: &BTreeSet<IpAddr>,
    config_error: &ErrorDescription,
    clock: Clock,
    before: Option<&KubeUserServices>,
) -> Option<KubeUserServices> {
    let all = followers?;
    if all.pool.known().is_none() && !all.pool.is_failing() {
        return None;
    }
    let view = ServicesView {
        services: all.services.known()?,
        ingresses: all.ingresses.known()?,
        pools: all.pool.known(),
        own,
        config_error,
        now: clock.wall(),
    };
    Some(fold(&view, before))
}

/// Waits for a change; without end while nothing is followed.
async fn changed(followers: &mut Option<Followers>) {
    match followers {
        Some(all) => all.changed().await,
        None => std::future::pending().await,
    }
}

fn addresses(network: &DeviceNetworkStatus) -> BTreeSet<IpAddr> {
    let ports = network.ports.iter().flatten();
    let all = ports.flat_map(|it| it.addr_info_list.iter().flatten()).filter_map(|it| it.addr.0);
    all.map(|it| it.to_canonical()).into_set()
}

/// Dropping it closes the watch.
pub(super) struct FollowedTable<T> {
    what: String,
    mirror: ObjectMirror<FactItem<T>, (String, String), T>,
    failing: bool,
}

impl<T: ObjectFact + Sync> FollowedTable<T> {
    /// The first call is made by the first [`FollowedTable::changed`].
    pub(super) fn open(cluster: &ApiClient, scope: WatchScope, seed: u64) -> Self {
        let (what, manner) = (scope.what.clone(), Manner { slot: SLOT, ..Manner::default() });
        Self {
            what,
            mirror: ObjectMirror::open(cluster, scope, manner, seed, FactItem::kept),
            failing: false,
        }
    }

    /// `None` before the first list.
    pub(super) const fn known(&self) -> Option<&ObjectTable<T>> {
        self.mirror.known()
    }

    pub(super) const fn is_failing(&self) -> bool {
        self.failing
    }

    /// Waits until the objects change, or cannot be read before the first list. Dropping it loses nothing.
    pub(super) async fn changed(&mut self) {
        loop {
            let changed = match self.mirror.changed().await {
                Ok(changed) => changed,
                Err(error) => {
                    let (error, next_step) = (error.line(), error.next_step());
                    if self.failing {
                        debug!(error, "still cannot follow {}", self.what);
                    } else {
                        warn!(error, next_step, "cannot follow {}: what was published stays", self.what);
                    }
                    if !std::mem::replace(&mut self.failing, true) && self.known().is_none() {
                        return;
                    }
                    continue;
                }
            };
            if std::mem::take(&mut self.failing) {
                info!("{}: followed again", self.what);
            }
            if changed {
                return;
            }
        }
    }
}
