//! What kind of image this machine runs, by the reference's file. Source: spec/eve-rest.md 2.

use pubsub::{TopicRoot, store};
use tracing::warn;

use crate::report;

/// Names the kind of the image, under the root.
pub const HV_TYPE: &str = "run/eve-hv-type";
const HV_TYPE_BYTES: u64 = 64;

/// What the image says of itself in [`HV_TYPE`]; the device config goes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// For clusters: `k`, or `kubevirt` as in earlier images.
    Clusters,
    /// Built without Kubernetes: `kvm` or `xen`.
    Without(&'static str),
    /// Nothing that counts: no file, as on other systems, or one that is empty, torn, unreadable or has another word.
    Unsaid,
}

impl ImageKind {
    /// Reads it; a word that is not known is logged.
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
