//! Reports the cluster while this node leads.
//!
//! Not here: the election. While another node leads no watch is open.

use std::collections::BTreeSet;

use crate::collections::{Collection, CollectionState, Gathering, PartUpdate};
use agent::Clock;
use kubeapi::ApiClient;
use tokio::sync::watch;
use topics::KubeStatsState;
use tracing::{debug, info, warn};

use super::fold;
use super::fold::{StatsView, fold};
use super::state::StatsPublisher;
use super::state::{self, Cuts, Moment};
use super::state::{Rhythm, StatsAction};
use crate::ClusterConfig;
use crate::leader::Leadership;

/// Reports the cluster while this node leads, until the sender of leadership is gone.
///
/// Dropping it withdraws the published value, like the end of a term.
pub async fn run(
    cluster: ApiClient,
    clock: Clock,
    mut leading: watch::Receiver<Leadership>,
    mut config: ClusterConfig,
    board: StatsPublisher,
) {
    let mut task = StatsTask {
        cluster,
        clock,
        board,
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
        let clock = task.clock;
        let expiry = task.gathering.as_ref().and_then(Gathering::next_expiry);
        tokio::select! {
            biased;
            changed = leading.changed() => if changed.is_err() { return },
            () = clock.sleep_until(task.rhythm.next_wake()) => {}
            () = clock.sleep_until(expiry), if expiry.is_some() => task.expire(),
            changed = config.changed(), if !config_ends => {
                config_ends = changed.is_err();
                task.rhythm.changed();
            }
            // Its times are computed again; the sender lives as long as this process.
            Ok(()) = boots.changed() => task.publish_state(),
            told = next(&mut task.gathering, clock) => task.take_update(told),
        }
    }
}

/// The next update of the cluster; never while it is not followed.
async fn next(gathering: &mut Option<Gathering>, clock: Clock) -> PartUpdate {
    match gathering {
        Some(gathering) => gathering.next(|| clock.now()).await,
        None => std::future::pending().await,
    }
}

struct StatsTask {
    cluster: ApiClient,
    clock: Clock,
    board: StatsPublisher,
    rhythm: Rhythm,
    gathering: Option<Gathering>,
    cuts: Cuts,
    logged: BTreeSet<Collection>,
}

impl StatsTask {
    fn perform(&mut self, act: StatsAction, member: bool) {
        match act {
            StatsAction::Open => {
                info!("this node leads: it reports the cluster");
                // Nodes rarely become leaders at the same uptime, and that is harmless.
                let seed = u64::try_from(self.clock.now().since_start().as_nanos()).unwrap_or_default();
                self.gathering = Some(Gathering::open(&self.cluster, seed));
                self.cuts = Cuts::default();
                self.logged.clear();
            }
            StatsAction::Close => {
                // Withdrawn before anything else.
                let done = self.board.withdraw();
                if self.gathering.take().is_some() {
                    info!("this node leads no more: its report of the cluster is withdrawn");
                }
                self.board.publish_state(&KubeStatsState::default());
                self.rhythm.closed(self.clock.now(), done);
            }
            StatsAction::Publish => self.publish(member),
            StatsAction::Tell => self.publish_state(),
        }
    }

    fn publish(&mut self, member: bool) {
        let Some(gathering) = &self.gathering else { return };
        let view = StatsView { member, longhorn: !gathering.parts().is_absent(Collection::Volumes) };
        let mut info = fold(&gathering.facts(), view);
        // A value that cannot be encoded is reported by the publication.
        let cuts = fold::fit(&mut info).unwrap_or_default();
        let now = self.clock.now();
        self.cuts.set(now, cuts);
        // Folding took time: the term may be over.
        if self.rhythm.until().is_some_and(|until| now < until) && !self.board.publish(&info) {
            self.rhythm.changed();
        }
    }

    fn publish_state(&mut self) {
        let (Some(gathering), Some(until)) = (&self.gathering, self.rhythm.until()) else { return };
        let moment = Moment { now: self.clock.now(), wall: self.clock.wall() };
        self.board.publish_state(&state::leading(moment, until, gathering.parts(), &self.cuts));
    }

    fn take_update(&mut self, told: PartUpdate) {
        let Some(gathering) = &self.gathering else { return };
        if told.content {
            self.rhythm.changed();
        }
        if !told.state {
            return;
        }
        log(&mut self.logged, told.part, gathering.parts().state(told.part));
        self.rhythm.news(gathering.parts().all_heard());
    }

    fn expire(&mut self) {
        let now = self.clock.now();
        let Some(gathering) = &mut self.gathering else { return };
        if gathering.expire(now) {
            self.rhythm.changed();
            let all_heard = gathering.parts().all_heard();
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
