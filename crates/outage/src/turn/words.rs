//! Words of the record of turns: what a turn is for, how far a holder has come, which nodes go first.
//!
//! A word of another version stays as it is. Pure: no clock, no I/O, no task.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $word:tt,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum $name {
            $($(#[$of])* $variant,)+
            /// A word of another version, kept as it is.
            Stranger(String),
        }

        impl $name {
            /// The word in the record.
            pub fn text(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Stranger(word) => word,
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $($word => Self::$variant,)+
                    _ => Self::Stranger(word),
                }
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.text().to_owned()
            }
        }
    };
}

pub(crate) use words;

words! {
    /// What a turn is for.
    Op {
        Reboot = "reboot",
        Shutdown = "shutdown",
        /// A switch to another image of the operating system.
        OsUpdate = "os-update",
        /// An update of k3s: servers go first.
        K3sUpdate = "k3s-update",
        /// A drain and nothing else.
        Drain = "drain",
        /// A restart that the node decides on itself.
        Restart = "restart",
    }
}

words! {
    /// How far a holder has come.
    Phase {
        /// The turn is its own; nothing else has been done.
        Granted = "granted",
        /// The node is cordoned.
        Cordoned = "cordoned",
        /// Its pods are gone.
        Drained = "drained",
        /// The reboot was ordered.
        GoingDown = "going-down",
        /// It is back in a new boot.
        Booted = "booted",
        /// It is back and the checks after boot are not passed yet.
        Gate = "gate",
        /// What it has its turn for has failed, and its turn stays until a person has looked.
        Failed = "failed",
        /// It restarts without having waited.
        Emergency = "emergency",
    }
}

words! {
    /// The class of a waiting node; see [`super::rule::rank`].
    Class {
        /// No role in the control plane.
        Worker = "worker",
        /// An etcd voter that carries no workloads.
        TieBreaker = "tie-breaker",
        /// A server that does not lead etcd.
        Follower = "follower",
        /// The server that leads etcd.
        Leader = "leader",
    }
}
