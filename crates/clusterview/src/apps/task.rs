//! Follows this node's applications and their pods, and publishes their status.
//!
//! It runs beside the drain, with an inbox of its own.

use crate::pods::{self, Pods};
use crate::seed;
use agent::{AgentContext, Clock, Error, Outbox, Outlet, Tasks, Troubles, wire};
use futures::future::OptionFuture;
use kubeapi::ApiClient;
use pubsub::{Change, Codec, TopicRoot};
use tokio::sync::watch;
use topics::{AppInstanceConfig, ENClusterAppStatus, go_json};
use tracing::{debug, info, warn};

use super::app::App;
use super::app_table::{AppAction, AppTable};
use super::course::Scene;
use super::logs::{self, Pipe};
use super::wanted::AppRequirements;
use kubeapi::own_node::{OwnNode, Values};

enum AppEvent {
    App(String, Option<App>),
    /// All existing configs have been sent.
    Read,
}

/// Publishes ENClusterAppStatus for `own_node` and passes the logs on to `pipe`, until `context` says stop. What
/// applications need beside pods goes into `wanted`. It begins with the values of an earlier run, and published ones
/// stay.
///
/// Errors: another process publishes them, or their directories cannot be used.
pub async fn run(
    context: &AgentContext,
    troubles: &Troubles,
    cluster: ApiClient,
    own_node: OwnNode,
    wanted: watch::Sender<AppRequirements>,
    pipe: Pipe,
) -> Result<(), Error> {
    let (status, marks) = (Outlet::open(troubles)?, Outlet::open(troubles)?);
    let (scenes, scene) = watch::channel(Scene::default());
    let (clock, stop) = (context.clock, context.stop.clone());
    let reader = logs::LogReader { cluster: cluster.clone(), clock, stop, marks, pipe };
    let mut teller = AppPublisher::new(clock, cluster, status, (scenes, wanted));
    tokio::join!(logs::run(reader, scene), teller.run(context, own_node.values()));
    Ok(())
}

struct AppPublisher {
    clock: Clock,
    cluster: ApiClient,
    status: Outlet<ENClusterAppStatus>,
    scenes: watch::Sender<Scene>,
    wanted: watch::Sender<AppRequirements>,
    book: AppTable,
    pods: Option<Pods>,
    /// So that the same failure is reported once.
    trouble: Option<String>,
}

impl AppPublisher {
    fn new(
        clock: Clock,
        cluster: ApiClient,
        status: Outlet<ENClusterAppStatus>,
        (scenes, wanted): (watch::Sender<Scene>, watch::Sender<AppRequirements>),
    ) -> Self {
        let book = AppTable::new(status.iter().map(|(key, status)| (key.to_owned(), status.clone())));
        Self { clock, cluster, status, scenes, wanted, book, pods: None, trouble: None }
    }

    async fn run(&mut self, context: &AgentContext, mut names: Values) {
        let (outbox, mut inbox) = agent::inbox();
        let mut tasks = Tasks::new(outbox);
        let topic_root = context.topic_root.clone();
        tasks.events("follow AppInstanceConfig", move |outbox| follow(topic_root, outbox));
        let mut stop = context.stop.clone();
        loop {
            self.follow_pods();
            self.publish();
            let scene = Scene::of(&self.book);
            self.scenes.send_if_modified(|known| step::update(known, scene));
            let wanted = AppRequirements::of(&self.book, &self.wanted.borrow());
            self.wanted.send_if_modified(|known| step::update(known, wanted));
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                heard = inbox.recv() => match heard {
                    Some(AppEvent::App(key, app)) => self.book.configured(key, app),
                    Some(AppEvent::Read) => self.book.configs_read(),
                    None => return,
                },
                (node, _) = names.next() => self.book.node(node.to_string()),
                () = self.clock.sleep_until(self.book.next_wake()) => {}
                Some(told) = OptionFuture::from(self.pods.as_mut().map(Pods::changed)) => self.take_pods(told),
            }
        }
    }

    /// Pods are followed while there is an application.
    fn follow_pods(&mut self) {
        if !self.book.is_wanted() {
            self.pods = None;
        } else if self.pods.is_none() {
            self.pods = Some(pods::follow(&self.cluster, seed(self.clock)));
        }
    }

    fn take_pods(&mut self, told: Result<bool, kubeapi::Error>) {
        let Some(pods) = &self.pods else { return };
        match told {
            Ok(_) => {
                self.book.set_pods(pods.known().into_iter().flat_map(|it| it.values().cloned()).collect());
                if self.trouble.take().is_some() {
                    info!("pods of applications are followed again");
                }
            }
            Err(error) => {
                let (error, next_step) = (error.line(), error.next_step());
                self.book.failed(self.clock.now());
                if self.trouble.is_none() {
                    warn!(error, next_step, "cannot follow the pods of applications, it is tried again");
                } else {
                    debug!(error, "still cannot follow the pods of applications");
                }
                self.trouble = Some(error);
            }
        }
    }

    fn publish(&mut self) {
        let now = self.clock.now();
        while let Some(act) = self.book.due(now) {
            let done = match &act {
                AppAction::Publish(key, status) => {
                    info!(app = key, designated = status.is_dnid_node, here = status.scheduled_on_this_node,
                        status = %status.app_kube_status.number(), "application in the cluster");
                    self.status.put(key, status)
                }
                AppAction::Withdraw(key) => self.status.take(key),
            };
            self.book.done(now, act, done);
        }
    }
}

/// Follows the configs. Only needed members are kept: configs are large and hold secrets.
async fn follow(topic_root: TopicRoot, outbox: Outbox<AppEvent>) {
    let codec = Codec {
        encode: |_: &App| Err("configs of applications are only read".into()),
        decode: |bytes| Ok(App::of(&go_json::from_slice::<AppInstanceConfig>(bytes)?)),
    };
    let mut configs = topic_root.subscription(&wire::name::<AppInstanceConfig>("zedagent"), codec);
    loop {
        let heard = match configs.next().await {
            Change::Put { key, value, .. } => AppEvent::App(key, Some(value)),
            Change::Gone { key, .. } => AppEvent::App(key, None),
            Change::Synced => AppEvent::Read,
            Change::Restarted(_) => continue,
            Change::Bad(finding) => {
                warn!(topic = "AppInstanceConfig", path = %finding.path.display(), reason = finding.reason,
                    "ignored a bad value, the last good one stays");
                continue;
            }
        };
        if !outbox.send(heard).await {
            return;
        }
    }
}
