//! What this node says of itself to its peers, put together for the status server: `GET /outage`.
//!
//! Not here: who serves it (`nodestatus`), what peers make of it (`outage`). It holds no secret: names, numbers, and
//! why etcd is not healthy.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubeapi::OwnNode;
use nodestatus::Make;
use outage::margin::calls::EtcdAccess;
use outage::margin::words;
use outage::turn::event::TurnState;
use tokio::sync::watch;
use topics::{NodeOutage, TurnWord, go_json};
use tracing::warn;

/// By node with a silent kubelet: it answers this one.
pub(crate) type Hears = BTreeMap<String, bool>;

/// Makes the statement of the node that `own_node` names, with the turn that the last of `turns` says, and which receives answers of others as
/// that of `hears` says.
pub(crate) fn statement(
    own_node: OwnNode,
    etcd: EtcdAccess,
    turns: watch::Receiver<TurnWord>,
    hears: watch::Receiver<Hears>,
) -> Make {
    Arc::new(move || {
        let (own_node, etcd, turns) = (own_node.clone(), etcd.clone(), turns.clone());
        let hears = hears.borrow().clone();
        Box::pin(async move {
            let etcd = words::own(&etcd).await;
            let node = own_node.get().map(|(node, _)| node.to_string()).unwrap_or_default();
            let word = NodeOutage { node, etcd, turn: turns.borrow().clone(), hears };
            let text = go_json::to_vec(&word).map(String::from_utf8);
            if let Ok(Ok(text)) = text {
                return text;
            }
            warn!("what this node says to its peers has no JSON form");
            "{}".to_owned()
        })
    })
}

/// The same about its turn, of what its keeper has said.
pub(crate) fn turn_word(turn_state: &TurnState) -> TurnWord {
    match turn_state {
        TurnState::NotWanted { idle } => TurnWord { idle: *idle, fence: 0 },
        TurnState::Held { fence, .. } | TurnState::Booted { fence, .. } => {
            TurnWord { idle: false, fence: *fence }
        }
        TurnState::Waiting(_) | TurnState::Lost { .. } => TurnWord::default(),
    }
}
