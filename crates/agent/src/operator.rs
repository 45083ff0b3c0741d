//! The drain request of a person with a shell: where it is and by which rule it is read, for the program that writes
//! it and the agent that serves it.
//!
//! Not here: what it says. It orders something, and may be written by any program of that person: so it is held to the
//! rule for orders (owner, mode, no link), which topics of agents are not.

use pubsub::{Bus, FileRule, FileWatch};

/// The topic `NodeDrainRequest` of `zedbox drain request`.
pub const FILE: &str = "run/zedbox/NodeDrainRequest/global.json";
/// No request is longer.
pub const RULE: FileRule = FileRule { limit_bytes: 64 << 10, order: true };

/// How a person's short word to an agent is read: that findings may pass, that a drain may start now.
pub const WORD: FileRule = FileRule { limit_bytes: 4096, order: true };

/// Follows the request. To be called within a runtime.
pub fn request(bus: &Bus) -> FileWatch {
    bus.file(bus.path(FILE), RULE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pubsub::{FileState, store};
    use topics::NodeDrainRequest;

    #[tokio::test]
    async fn the_file_is_that_of_the_topic_and_one_that_is_longer_than_a_request_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let bus = Bus::open(root.path()).unwrap();
        assert_eq!(bus.path(FILE), crate::wire::path::<NodeDrainRequest>(&bus, "zedbox", "global"));
        std::fs::create_dir_all(bus.path(FILE).parent().unwrap()).unwrap();
        store::replace(&bus.path(FILE), &vec![b' '; 64 << 10]).unwrap();
        assert!(matches!(request(&bus).next().await, FileState::Present(_)));
        store::replace(&bus.path(FILE), &vec![b' '; (64 << 10) + 1]).unwrap();
        assert!(matches!(request(&bus).next().await, FileState::Bad(_)));
    }
}
