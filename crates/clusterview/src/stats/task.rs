//! Reports the cluster while this node leads.
//!
//! Not here: the election. While another node leads no watch is open.

use std::collections::BTreeSet;

use crate::collections::{Collection, CollectionState, Gathering, PartUpdate};
use agent::{Clock, Error, Outlet, Troubles};
use futures::future::OptionFuture;
use kubeapi::ApiClient;
use tokio::sync::watch;
use topics::{KubeClusterInfo, KubeStatsState};
use tracing::{debug, error, info, warn};

use super::fold::{self, StatsView, fold};
use super::state::{self, Cuts, Moment, Rhythm, StatsAction};
use crate::leader::Leadership;
use crate::{ClusterConfig, GLOBAL, seed};

/// Reports the cluster while this node leads, until the sender of leadership is gone.
///
/// Dropping it withdraws the published value, like the end of a term. Errors: another process publishes the topics, or
/// their directories cannot be used.
pub async fn run(
    troubles: &Troubles,
    cluster: ApiClient,
    clock: Clock,
    mut leading: watch::Receiver<Leadership>,
    mut config: ClusterConfig,
) -> Result<(), Error> {
    let mut task = StatsTask {
        cluster,
        clock,
        info: Outlet::open(troubles)?,
        state: Outlet::open(troubles)?,
        rhythm: Rhythm::default(),
        gathering: None,
        cuts: Cuts::default(),
        logged: BTreeSet::new(),
    };
    let (mut config_ends, mut boots) = (false, clock.boots());
    loop {
        // Leadership is read again before each action: writing takes time.
        loop {
            let now = task.clock.now();
            let leads = *leading.borrow_and_update();
            let opened = task.rhythm.lead(now, leads);
            let Some(act) = opened.or_else(|| task.rhythm.due(now)) else { break };
            task.perform(act, config.borrow().is_some());
        }
        let expiry = task.gathering.as_ref().and_then(|it| it.parts.next_expiry());
        let told = task.gathering.as_mut().map(|it| it.next(|| clock.now()));
        tokio::select! {
            biased;
            changed = leading.changed() => if changed.is_err() { return Ok(()) },
            () = clock.sleep_until(task.rhythm.next_wake()) => {}
            () = clock.sleep_until(expiry), if expiry.is_some() => task.expire(),
            changed = config.changed(), if !config_ends => {
                config_ends = changed.is_err();
                task.rhythm.changed();
            }
            // Its times are computed again; the sender lives as long as this process.
            Ok(()) = boots.changed() => task.publish_state(),
            Some(told) = OptionFuture::from(told) => task.take_update(told),
        }
    }
}

struct StatsTask {
    cluster: ApiClient,
    clock: Clock,
    info: Outlet<KubeClusterInfo>,
    state: Outlet<KubeStatsState>,
    rhythm: Rhythm,
    gathering: Option<Gathering>,
    cuts: Cuts,
    logged: BTreeSet<Collection>,
}

/// A cancelled task leaves no value.
impl Drop for StatsTask {
    fn drop(&mut self) {
        if !self.info.take(GLOBAL) {
            error!(
                "KubeClusterInfo stays published by a node that no longer leads; remove its file under run/zedkube"
            );
        }
        self.state.put(GLOBAL, &KubeStatsState::default());
    }
}

impl StatsTask {
    fn perform(&mut self, act: StatsAction, member: bool) {
        match act {
            StatsAction::Open => {
                info!("this node leads: it reports the cluster");
                self.gathering = Some(Gathering::open(&self.cluster, seed(self.clock)));
                self.cuts = Cuts::default();
                self.logged.clear();
            }
            StatsAction::Close => {
                // Withdrawn before anything else.
                let done = self.info.take(GLOBAL);
                if self.gathering.take().is_some() {
                    info!("this node leads no more: its report of the cluster is withdrawn");
                }
                self.state.put(GLOBAL, &KubeStatsState::default());
                self.rhythm.closed(self.clock.now(), done);
            }
            StatsAction::Publish => self.publish(member),
            StatsAction::Tell => self.publish_state(),
        }
    }

    fn publish(&mut self, member: bool) {
        let Some(gathering) = &self.gathering else { return };
        let view = StatsView { member, longhorn: !gathering.parts.is_absent(Collection::Volumes) };
        let mut info = fold(&gathering.facts(), view);
        // A value that cannot be encoded is reported by the publication.
        let cuts = fold::fit(&mut info).unwrap_or_default();
        let now = self.clock.now();
        self.cuts.set(now, cuts);
        // Folding took time: the term may be over.
        if self.rhythm.until().is_some_and(|until| now < until) && !self.info.put(GLOBAL, &info) {
            self.rhythm.changed();
        }
    }

    fn publish_state(&mut self) {
        let (Some(gathering), Some(until)) = (&self.gathering, self.rhythm.until()) else { return };
        let moment = Moment { now: self.clock.now(), wall: self.clock.wall() };
        self.state.put(GLOBAL, &state::leading(moment, until, &gathering.parts, &self.cuts));
    }

    fn take_update(&mut self, told: PartUpdate) {
        let Some(gathering) = &self.gathering else { return };
        if told.content {
            self.rhythm.changed();
        }
        if !told.state {
            return;
        }
        log(&mut self.logged, told.part, gathering.parts.state(told.part));
        self.rhythm.news(gathering.parts.all_heard());
    }

    fn expire(&mut self) {
        let now = self.clock.now();
        let Some(gathering) = &mut self.gathering else { return };
        if gathering.parts.expire(now) {
            self.rhythm.changed();
            let all_heard = gathering.parts.all_heard();
            self.rhythm.news(all_heard);
        }
    }
}

/// Logs the state of a part: its trouble and the end of it once each.
fn log(logged: &mut BTreeSet<Collection>, of: Collection, state: &CollectionState) {
    let part = of.text();
    match state {
        CollectionState::Well | CollectionState::Unheard => {
            if logged.remove(&of) {
                info!(part, "followed again for the statistics");
            }
        }
        CollectionState::Absent => {
            if logged.insert(of) {
                info!(part, "this cluster does not know it: its part of the statistics is empty");
            }
        }
        CollectionState::Failing { error, next_step, .. } => {
            if logged.insert(of) {
                warn!(
                    part,
                    error, next_step, "cannot follow it for the statistics, the other parts continue"
                );
            } else {
                debug!(part, error, "still cannot follow it for the statistics");
            }
        }
    }
}
