//! When which status is published.
//!
//! Not here: its content (`look`). A change is published at once, because zedmanager starts and ends
//! applications by it, but per application at most once in [`GAP`]: a crash loop must not write all the time.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use crate::pods::AppPod;
use step::{Inserted as _, LiteMap, Mono};
use topics::ENClusterAppStatus;

use super::app::App;
use super::look;

/// Least time between two publications of one application.
pub const GAP: Duration = Duration::from_secs(10);
/// Silence of the Kubernetes API after which its applications are unreachable.
pub const UNREACHABLE_AFTER: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AppAction {
    Publish(String, Box<ENClusterAppStatus>),
    Withdraw(String),
}

/// State of the watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Ear {
    /// Nothing received since the watch was opened.
    #[default]
    Silent,
    Well,
    Failing {
        since: Mono,
    },
    /// Failing for too long.
    Lost,
}

/// Applications, pods, and published statuses.
#[derive(Debug, Default)]
pub(super) struct AppTable {
    pub(super) apps: LiteMap<String, App>,
    /// All existing configs have been passed in.
    pub(super) read: bool,
    pub(super) node: Option<String>,
    /// As last received.
    pub(super) pods: Vec<AppPod>,
    ear: Ear,
    said: LiteMap<String, ENClusterAppStatus>,
    /// Earliest time of the next publication.
    quiet: LiteMap<String, Mono>,
    /// When a failed withdrawal is tried again.
    refused: LiteMap<String, Mono>,
    /// Statuses to publish; `None` to withdraw.
    owed: LiteMap<String, Option<ENClusterAppStatus>>,
}

impl AppTable {
    /// Starts with the statuses of an earlier run.
    pub(super) fn new(said: impl IntoIterator<Item = (String, ENClusterAppStatus)>) -> Self {
        Self { said: said.into_iter().into_lite(), ..Self::default() }
    }

    pub(super) fn configured(&mut self, key: String, app: Option<App>) {
        match app {
            Some(app) => self.apps.insert(key, app),
            None => self.apps.remove(&key),
        };
        if !self.is_wanted() {
            self.pods.clear();
            self.ear = Ear::Silent;
        }
        self.judge();
    }

    /// All existing configs have been passed in.
    pub(super) fn configs_read(&mut self) {
        self.read = true;
        self.judge();
    }

    pub(super) fn node(&mut self, name: String) {
        self.node = Some(name);
        self.judge();
    }

    /// Whether pods are needed.
    pub(super) fn is_wanted(&self) -> bool {
        self.node.is_some() && !self.apps.is_empty()
    }

    pub(super) fn set_pods(&mut self, pods: Vec<AppPod>) {
        self.pods = pods;
        self.ear = Ear::Well;
        self.judge();
    }

    pub(super) fn failed(&mut self, now: Mono) {
        if matches!(self.ear, Ear::Silent | Ear::Well) {
            self.ear = Ear::Failing { since: now };
        }
        self.judge();
    }

    /// Whether the pods are up to date.
    pub(super) fn is_well(&self) -> bool {
        self.ear == Ear::Well
    }

    /// The next action. To be called until there is none; each action ends with [`AppTable::done`].
    pub(super) fn due(&mut self, now: Mono) -> Option<AppAction> {
        if let Ear::Failing { since } = self.ear
            && now >= since + UNREACHABLE_AFTER
        {
            self.ear = Ear::Lost;
            self.judge();
        }
        let (key, what) = self.owed.iter().find(|(key, what)| now >= self.not_before(key, what.is_none()))?;
        Some(match what {
            Some(status) => AppAction::Publish(key.clone(), Box::new(status.clone())),
            None => AppAction::Withdraw(key.clone()),
        })
    }

    /// Whether an action succeeded. A failed one is due again after the gap.
    pub(super) fn done(&mut self, now: Mono, act: AppAction, done: bool) {
        match act {
            AppAction::Publish(key, status) => {
                self.quiet.insert(key.clone(), now + GAP);
                if done {
                    self.owed.remove(&key);
                    self.said.insert(key, *status);
                }
            }
            AppAction::Withdraw(key) if done => {
                self.owed.remove(&key);
                self.said.remove(&key);
                self.quiet.remove(&key);
                self.refused.remove(&key);
            }
            AppAction::Withdraw(key) => {
                self.refused.insert(key, now + GAP);
            }
        }
    }

    pub(super) fn next_wake(&self) -> Option<Mono> {
        let lost = match self.ear {
            Ear::Failing { since } => Some(since + UNREACHABLE_AFTER),
            Ear::Silent | Ear::Well | Ear::Lost => None,
        };
        self.owed.iter().map(|(key, what)| self.not_before(key, what.is_none())).chain(lost).min()
    }

    fn not_before(&self, key: &str, withdrawal: bool) -> Mono {
        let times = if withdrawal { &self.refused } else { &self.quiet };
        times.get(key).copied().unwrap_or(Mono::START)
    }

    fn judge(&mut self) {
        let mut owed = LiteMap::new();
        if self.read {
            let gone = self.said.keys().filter(|key| !self.apps.contains_key(*key));
            gone.map(|key| (key.clone(), None)).insert_into(&mut owed);
        }
        for (key, app) in &self.apps {
            let said = self.said.get(key);
            let status = match (self.ear, &self.node, said) {
                (Ear::Well, Some(node), _) => look::status(app, node, &self.pods),
                (Ear::Lost, Some(_), Some(said)) => look::unreachable(app, said),
                (Ear::Silent | Ear::Failing { .. } | Ear::Lost, ..) | (Ear::Well, None, _) => continue,
            };
            if said != Some(&status) {
                owed.insert(key.clone(), Some(status));
            }
        }
        self.owed = owed;
    }
}

#[cfg(test)]
mod tests;
