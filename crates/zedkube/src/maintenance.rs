//! NodeMaintenances of our node as requests for its drain, where a config property says so and the operator of that kind does
//! not run, each published like that of an agent; the object's status says what `zedbox status` does. Not here: the calls
//! (`kubenodeop::calls::node_maintenance`).

use agent::settings::NODE_MAINTENANCE;
use agent::wire::{self, GLOBAL};
use kubeapi::objects::{named, text, time};
use kubenodeop::calls::node_maintenance::{oldest, other_operator, write_status};
use nodestatus::Membership;
use pubsub::Publication;
use serde_json::{Value, json};
use sheet::DrainView;
use std::time::Duration;
use tokio::sync::watch;
use topics::{GoTime, NodeDrainRequest, NodeState, Requester};
use tracing::debug;

use crate::BesideDrain;

const LOOK: Duration = Duration::from_secs(10);
const KIND: &str = "NodeMaintenance";

pub(crate) struct MaintenanceDuty {
    /// What is asked for; it outlives this process, and an API that is away.
    pub(crate) asked: Publication<NodeDrainRequest>,
    pub(crate) beside: BesideDrain,
    /// Whether the config wants it; `None` before it was read, and what is kept stays.
    pub(crate) wanted: watch::Receiver<Option<bool>>,
}

impl MaintenanceDuty {
    /// Runs until the config is no longer followed. Dropping it loses nothing.
    pub(crate) async fn run(mut self) {
        loop {
            let wanted = *self.wanted.borrow_and_update();
            let membership = self.beside.members.borrow_and_update().membership;
            let looked = match wanted {
                Some(true) if membership == Membership::Member => self.look().await,
                Some(true) if membership == Membership::Outside => self.keep(None),
                Some(false) => self.unserve().await,
                Some(true) | None => Err(None),
            };
            let again = wanted == Some(true) || matches!(looked, Err(Some(_)));
            match looked {
                Ok(()) => self.beside.troubles.only(KIND, &[]),
                Err(None) => {}
                Err(Some((error, next_step))) => self.beside.troubles.say(KIND, error, next_step),
            }
            let due = again.then(|| self.beside.context.clock.now() + LOOK);
            tokio::select! {
                changed = self.wanted.changed() => if changed.is_err() { return },
                changed = self.beside.members.changed() => if changed.is_err() { return },
                () = self.beside.context.clock.sleep_until(due), if due.is_some() => {}
            }
        }
    }

    /// Keeps the request as the cluster has it, and its status as this node has it. What could not be read stays. Errors: why and
    /// what to do, or `None` where that ends by itself.
    async fn look(&mut self) -> Result<(), Option<(String, String)>> {
        let unread = |error: kubeapi::Error| {
            debug!(error = error.line(), "cannot read or write NodeMaintenances");
            error.is_refused().then(|| (error.line(), error.next_step()))
        };
        let (node, _) = self.beside.own_node.get().map_err(|_unknown| None)?;
        let Some(object) = oldest(&self.beside.cluster, &node).await.map_err(unread)? else {
            return self.keep(None);
        };
        if let Some(other) = other_operator(&self.beside.cluster).await.map_err(unread)? {
            return Err(Some((
                format!("{} is left to its own operator, Deployment {other}", named(&object)),
                format!("set config property {NODE_MAINTENANCE} to false, or remove that operator"),
            )));
        }
        self.keep(Some(&request(&object)))?;
        let (topic_root, clock) = (self.beside.context.topic_root.clone(), self.beside.context.clock);
        let view = tokio::task::spawn_blocking(move || DrainView::read(&topic_root, clock));
        let mut status = status(&view.await.map_err(|_ended| None)?, clock.wall());
        let is_told = |(member, value): (&String, &Value)| object["status"][member] == *value;
        if !status.as_object().is_some_and(|it| it.iter().all(is_told)) {
            status["lastUpdate"] = clock.wall().rfc3339().into();
            write_status(&self.beside.cluster, &object, &status).await.map_err(unread)?;
        }
        Ok(())
    }

    /// Withdraws what was asked for, and says so in the object's status, where that is possible now.
    async fn unserve(&mut self) -> Result<(), Option<(String, String)>> {
        let served = self.asked.get(GLOBAL).is_some();
        self.keep(None)?;
        let why = format!("config property {NODE_MAINTENANCE} is no longer true");
        let status = json!({ "phase": "Failed", "lastError": why, "drainProgress": 0 });
        if served
            && let Ok((node, _)) = self.beside.own_node.get()
            && let Ok(Some(object)) = oldest(&self.beside.cluster, &node).await
            && let Err(error) = write_status(&self.beside.cluster, &object, &status).await
        {
            debug!(error = error.line(), "the status of a NodeMaintenance stays as it was");
        }
        Ok(())
    }

    /// Publishes this request, or withdraws what is published.
    fn keep(&mut self, request: Option<&NodeDrainRequest>) -> Result<(), Option<(String, String)>> {
        let kept = match request {
            Some(request) => wire::publish(&mut self.asked, GLOBAL, request),
            None => wire::withdraw(&mut self.asked, GLOBAL),
        };
        kept.map_err(|cause| {
            Some((step::chain(&cause), "make room under /run; it is tried again by itself".to_owned()))
        })
    }
}

fn request(object: &Value) -> NodeDrainRequest {
    let reason = text(&object["spec"]["reason"]).replace(char::is_control, " ");
    let at = time(&object["metadata"]["creationTimestamp"]);
    NodeDrainRequest {
        requested_by: Requester::NodeMaintenance,
        requested_at: at.and_then(|it| GoTime::from_unix_nanos(it.as_nanosecond())).unwrap_or_default(),
        context: format!("{KIND} {} ({reason})", named(object)),
    }
}

/// The members of its own operator, by the judgement of the page and of the command line.
fn status(view: &DrainView, now: GoTime) -> Value {
    let judged = view.judge(now);
    let state = judged.headline.state;
    let failed = matches!(state, NodeState::Failed | NodeState::Unproved);
    let other = if failed { "Failed" } else { "Running" };
    let phase = if state == NodeState::Safe { "Succeeded" } else { other };
    let said = [judged.headline.text.clone(), view.next_step(&judged, now)];
    let said = said.iter().filter(|it| !it.is_empty()).cloned().collect::<Vec<_>>().join("; ");
    let counts = view.agreed().map(|it| it.counts).unwrap_or_default();
    let blocking = view.agreed().into_iter().flat_map(|it| &it.blockers).map(|it| &it.pod);
    json!({
        "phase": phase,
        "lastError": if phase == "Succeeded" { String::new() } else { said },
        "pendingPods": blocking.collect::<Vec<_>>(),
        "drainProgress": if phase == "Succeeded" { 100 } else { counts.gone * 100 / counts.total.max(1) },
    })
}
