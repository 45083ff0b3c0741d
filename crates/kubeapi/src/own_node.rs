//! Our node, as EdgeNodeInfo names it: followed once (`shell`), shared by all users.
//!
//! Not here: whether a name is valid for a node.

use crate::NodeName;
use tokio::sync::watch;

/// Our node, once its name is known. Copies share it.
#[derive(Debug, Clone)]
pub struct OwnNode(watch::Sender<Option<(NodeName, String)>>);

impl Default for OwnNode {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl OwnNode {
    /// Equal values are no change.
    pub fn set(&self, node: NodeName, device_uuid: String) {
        self.0.send_if_modified(|held| step::update(held, Some((node, device_uuid))));
    }

    /// Name and device UUID, or why they are unknown.
    pub fn get(&self) -> Result<(NodeName, String), String> {
        self.0.borrow().clone().ok_or_else(|| "the name of this node is not known yet".to_owned())
    }

    /// Dropping it loses nothing.
    pub async fn known(&self) -> (NodeName, String) {
        self.values().next().await
    }

    /// Each value from now on.
    pub fn values(&self) -> Values {
        let mut held = self.0.subscribe();
        held.mark_changed();
        Values(held)
    }
}

/// Values of a [`OwnNode`]; intermediate ones are skipped.
#[derive(Debug)]
pub struct Values(watch::Receiver<Option<(NodeName, String)>>);

impl Values {
    /// Never returns once no copy of it is left. Dropping it loses nothing.
    pub async fn next(&mut self) -> (NodeName, String) {
        loop {
            if self.0.changed().await.is_err() {
                return std::future::pending().await;
            }
            if let Some(known) = self.0.borrow_and_update().clone() {
                return known;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ready_value(values: &mut Values) -> Option<(NodeName, String)> {
        tokio::select! {
            biased;
            value = values.next() => Some(value),
            () = std::future::ready(()) => None,
        }
    }

    #[tokio::test]
    async fn each_who_asks_hears_the_newest_name_and_an_equal_one_is_no_news() {
        let (own_node, name) = (OwnNode::default(), |text: &str| NodeName::parse(text).unwrap());
        let (mut early, other) = (own_node.values(), own_node.clone());
        assert_eq!(ready_value(&mut early).await, None);
        other.set(name("n1"), "u".to_owned());
        other.set(name("n2"), "u".to_owned());
        for values in [&mut early, &mut own_node.values()] {
            assert_eq!(ready_value(values).await, Some((name("n2"), "u".to_owned())));
            other.set(name("n2"), "u".to_owned());
            assert_eq!(ready_value(values).await, None);
        }
        assert_eq!(own_node.known().await, own_node.get().unwrap());
    }
}
