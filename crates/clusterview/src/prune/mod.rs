//! The leader deletes replaced control-plane nodes: after each change of the cluster's config, when it
//! becomes the leader, and every ten minutes.
//!
//! Not here: which nodes (`replaced`), leadership. Source: spec/agents.md 4.9.

pub mod replaced;

use std::collections::BTreeSet;
use std::time::Duration;

use agent::Clock;
use kubeapi::{ApiClient, OwnNode};
use tokio::sync::watch;
use tracing::{info, warn};

use topics::EdgeNodeClusterConfig;

use crate::leader::Leadership;
use crate::{ClusterConfig, leads_otherwise};

/// Runs until the sender of `leading` is gone. Dropping it ends its calls.
pub(crate) async fn run(
    cluster: ApiClient,
    clock: Clock,
    every: Duration,
    own_node: OwnNode,
    mut config: ClusterConfig,
    mut leading: watch::Receiver<Leadership>,
) {
    let mut said = Warned::default();
    loop {
        let masters = masters(config.borrow_and_update().as_deref());
        let leads = leading.borrow_and_update().holds(clock.now());
        let due = (leads && !masters.is_empty()).then(|| clock.now() + every);
        if leads && !masters.is_empty() {
            if let Err(why) = sweep(&cluster, clock, &own_node, &masters, &leading, &mut said).await
                && said.is_new(why.clone())
            {
                warn!(error = why, "cannot look for replaced control-plane nodes");
            }
            said.end_look();
        }
        tokio::select! {
            changed = config.changed() => if changed.is_err() { return },
            known = leads_otherwise(&mut leading, clock, leads) => if !known { return },
            () = clock.sleep_until(due), if due.is_some() => {}
        }
    }
}

/// Warnings of the last look and this one: a warning is not repeated while it holds, and older ones are
/// forgotten, so that memory is bounded.
#[derive(Debug, Default)]
struct Warned {
    before: BTreeSet<String>,
    now: BTreeSet<String>,
}

impl Warned {
    /// Whether neither the last look nor this one has found it.
    fn is_new(&mut self, what: String) -> bool {
        !self.before.contains(&what) & self.now.insert(what)
    }

    fn end_look(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }
}

/// The devices of the control plane, from a member's config; empty when unknown.
fn masters(config: Option<&EdgeNodeClusterConfig>) -> Vec<String> {
    let listed = config.and_then(|it| it.master_node_ids.as_deref()).unwrap_or_default();
    listed.iter().map(ToString::to_string).collect()
}

async fn sweep(
    cluster: &ApiClient,
    clock: Clock,
    own_node: &OwnNode,
    masters: &[String],
    leading: &watch::Receiver<Leadership>,
    said: &mut Warned,
) -> Result<(), String> {
    let (_, own) = own_node.get()?;
    let found = replaced::look(cluster, masters, &own).await.map_err(|error| error.advice())?;
    for node in &found.unlabelled {
        if said.is_new(format!("unlabelled {node}")) {
            warn!(node, "a control-plane node without label node-uuid: it is left alone");
        }
    }
    if found.foreign_list && said.is_new("foreign list".to_owned()) {
        warn!("no control-plane node is on the config's list MasterNodeIDs: none is deleted");
    }
    for stale in &found.stale {
        // Each deletion needs the lease at its own moment.
        if !leading.borrow().holds(clock.now()) {
            return Ok(());
        }
        replaced::delete(cluster, stale).await.map_err(|error| error.advice())?;
        info!(
            node = %stale.name,
            device = stale.device_uuid,
            "a control-plane node that is no longer in the config's list was deleted"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_still_holds_is_warned_of_once_and_what_is_over_is_forgotten() {
        let mut warned = Warned::default();
        assert!(warned.is_new("a".to_owned()) && !warned.is_new("a".to_owned()));
        warned.end_look();
        assert!(!warned.is_new("a".to_owned()));
        warned.end_look();
        for look in 0..1000 {
            assert!(warned.is_new(format!("trouble {look}")));
            warned.end_look();
            assert!(warned.before.len() + warned.now.len() <= 2);
        }
        assert!(warned.is_new("a".to_owned()), "it is back");
    }
}
