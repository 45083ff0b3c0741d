//! Whether the image runs Kubernetes: one program serves the images of all hypervisors, and on others there is nothing to
//! drain.
//!
//! Source: spec/eve-rest.md 2.

use pubsub::{Bus, store};
use tracing::warn;

use crate::report;

/// Names the kind of the image. A system that is none of these images has no such file, and runs Kubernetes by choice.
pub const FILE: &str = "run/eve-hv-type";
/// The kind that runs Kubernetes.
const KUBERNETES: &str = "k";
const LIMIT_BYTES: u64 = 64;

/// Whether this image runs Kubernetes. A file that cannot be read is no reason to reboot without a drain.
pub fn runs_kubernetes(bus: &Bus) -> bool {
    match store::read(&bus.path(FILE), LIMIT_BYTES) {
        Ok(None) => true,
        Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).trim() == KUBERNETES,
        Err(cause) => {
            warn!(path = FILE, error = %report::chain(&cause), "taken for an image that runs Kubernetes");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e10_only_k_and_systems_without_the_file_run_kubernetes() {
        let root = tempfile::tempdir().unwrap();
        let bus = Bus::open(root.path()).unwrap();
        assert!(runs_kubernetes(&bus));
        for (text, runs) in [
            ("k", true),
            ("k\n", true),
            ("kvm", false),
            ("xen", false),
            ("kubevirt", false),
            ("", false),
            ("K", false),
        ] {
            store::replace(&bus.path(FILE), text.as_bytes()).unwrap();
            assert_eq!(runs_kubernetes(&bus), runs, "{text:?}");
        }
        store::remove(&bus.path(FILE)).unwrap();
        std::fs::create_dir(bus.path(FILE)).unwrap();
        assert!(runs_kubernetes(&bus), "what cannot be read says nothing");
    }
}
