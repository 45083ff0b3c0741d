//! What the Node shows of its drain to everybody who looks at the cluster: Events, a condition, an annotation; and the
//! warning that nothing progresses.
//!
//! It follows what was published, asks nothing of the drain, and the drain waits for none of it. What can be said:
//! `notices`; what is said, and when: `announcer` and `condition`; how often: `events`; to whom off the cluster:
//! `notify`; what is counted for the metrics: `totals`; all pure. Not here: the calls (`kubeapi::nodes::report`).

mod announcer;
mod condition;
mod events;
mod notices;
mod notify;
mod sender;
#[cfg(test)]
mod tests;
mod totals;

use std::sync::Arc;
use std::time::Duration;

use agent::Clock;
use nodestatus::Totals;
use tokio::sync::{mpsc, watch};
use topics::{GoTime, NodeDrainProgress};
use tracing::warn;

use crate::BesideDrain;
use crate::failover::Told;
use crate::limits::{Limits, PAUSE_AGAIN};
use announcer::Announcer;
pub use condition::condition;
use notices::{Notice, NoticeKind};
use notify::HookNotifier;
use sender::Sender;

/// Notices that wait for the API; more are left out.
const QUEUE: usize = 16;

/// What the drain half of zedkube has published and done.
#[derive(Debug, Clone, Default)]
pub(crate) struct DrainActivity {
    /// The newest progress that was published.
    pub(crate) progress: Option<Arc<NodeDrainProgress>>,
    /// How often our cordon was removed since the start of zedkube.
    pub(crate) uncordons: u32,
}

/// What it is made of.
#[derive(Clone)]
pub(crate) struct NodeReport {
    pub(crate) beside: BesideDrain,
    pub(crate) published: watch::Receiver<DrainActivity>,
    pub(crate) totals: watch::Sender<Totals>,
    /// What is the matter with other nodes.
    pub(crate) told: watch::Receiver<Told>,
}

impl NodeReport {
    /// Runs until nobody publishes any more. Dropping it loses what was not yet sent.
    pub(crate) async fn run(self, limits: &Limits) {
        let (notices, inbox) = mpsc::channel(QUEUE);
        let (stalls, stalled) = watch::channel(false);
        let (hooks, to_hooks) = mpsc::channel(QUEUE);
        let notifier = Box::pin(
            HookNotifier::new(&self.beside.context, &self.beside.own_node, to_hooks, limits.notify.clone())
                .run(),
        );
        let listener = ReportListener {
            clock: self.beside.context.clock,
            published: self.published.clone(),
            totals: self.totals.clone(),
            told: self.told.clone(),
            notices: limits.node_report.then_some(notices),
            hooks,
            stalls,
        };
        let listening = listener.run(limits.stall_after(), PAUSE_AGAIN);
        let says = limits.node_report;
        let sender = Box::pin(Sender::new(self, inbox, stalled).run());
        tokio::select! {
            () = listening => {}
            () = notifier => {}
            () = sender, if says => {}
        }
    }
}

/// Hears what is published, and says what follows from it.
struct ReportListener {
    clock: Clock,
    published: watch::Receiver<DrainActivity>,
    totals: watch::Sender<Totals>,
    told: watch::Receiver<Told>,
    notices: Option<mpsc::Sender<(Notice, GoTime)>>,
    /// For the hooks that tell it elsewhere.
    hooks: mpsc::Sender<(Notice, GoTime)>,
    stalls: watch::Sender<bool>,
}

impl ReportListener {
    async fn run(mut self, stall_after: Duration, pause_again: Duration) {
        let mut announcer = Announcer::new(stall_after, pause_again);
        let mut before: Option<Arc<NodeDrainProgress>> = None;
        let mut known = Told::new();
        loop {
            let DrainActivity { progress, uncordons } = self.published.borrow_and_update().clone();
            if let Some(newest) = progress {
                let wall = self.clock.wall();
                let said = announcer.step(self.clock.now(), &newest, uncordons);
                let is_stalled = announcer.is_stalled();
                self.totals.send_modify(|it| {
                    totals::add(it, before.as_deref(), &newest, &said, wall);
                    it.stalled = is_stalled;
                });
                self.stalls.send_if_modified(|held| step::update(held, is_stalled));
                for notice in said {
                    self.say(notice, wall);
                }
                before = Some(newest);
            }
            let told = self.told.borrow_and_update().clone();
            for notice in notices::of_nodes(&known, &told) {
                self.say(notice, self.clock.wall());
            }
            known = told;
            let due = announcer.due();
            tokio::select! {
                Ok(()) = self.told.changed() => {}
                changed = self.published.changed() => if changed.is_err() { return },
                () = self.clock.sleep_until(due), if due.is_some() => {}
            }
        }
    }

    fn say(&self, notice: Notice, at: GoTime) {
        if notice.kind == NoticeKind::Stalled {
            warn!("the drain of this node is stalled: {}", notice.message);
        } else if matches!(notice.kind, NoticeKind::Paused | NoticeKind::StillPaused | NoticeKind::Resumed) {
            warn!("{}", notice.message);
        }
        if self.hooks.try_send((notice.clone(), at)).is_err() {
            warn!("hooks: not called, as {QUEUE} notices wait already: {}", notice.message);
        }
        let Some(notices) = &self.notices else { return };
        if notices.try_send((notice, at)).is_err() {
            self.totals.send_modify(|it| it.events_left_out += 1);
        }
    }
}
