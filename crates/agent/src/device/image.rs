//! The kind of image that this machine runs, from the reference's file. Source: spec/eve-rest.md 2.

use pubsub::{TopicRoot, store};
use tracing::warn;

use crate::report;

/// Under the root.
pub const HV_TYPE: &str = "run/eve-hv-type";
const HV_TYPE_BYTES: u64 = 64;

/// The image's kind by [`HV_TYPE`]; the device config has precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// For clusters: `k`, or `kubevirt` as in earlier images.
    Clusters,
    /// Built without Kubernetes: `kvm` or `xen`.
    Without(&'static str),
    /// Unknown: no file, as on other systems, or an empty, torn or unreadable one, or another word.
    Unsaid,
}

impl ImageKind {
    /// Logs an unknown word.
    pub fn read(topic_root: &TopicRoot) -> Self {
        let bytes = match store::read_start(&topic_root.path(HV_TYPE), HV_TYPE_BYTES) {
            Ok(None) => return Self::Unsaid,
            Ok(Some(bytes)) => bytes,
            Err(cause) => {
                warn!(path = HV_TYPE, error = %report::chain(&cause), "the device config alone says whether there is a cluster");
                return Self::Unsaid;
            }
        };
        match bytes.trim_ascii() {
            b"k" | b"kubevirt" => Self::Clusters,
            b"kvm" => Self::Without("kvm"),
            b"xen" => Self::Without("xen"),
            other => {
                let word = String::from_utf8_lossy(other);
                warn!(
                    path = HV_TYPE,
                    %word, "no kind of image that is known; the device config alone says whether there is a cluster"
                );
                Self::Unsaid
            }
        }
    }
}
