//! The lease as it was read, and what is written in its place.
//!
//! Source: client-go's `resourcelock`: a write replaces the whole spec, keeps the rest of the object, and names the
//! version that was read. Pure: no clock, no I/O, no task.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

use super::NAME;
use kubeapi::names::APP_NAMESPACE;

/// What a release writes as the duration.
const RELEASED_SECS: i32 = 1;

/// The lease as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseSnapshot {
    object: Lease,
}

impl LeaseSnapshot {
    /// Takes the object as the server gave it.
    pub fn new(object: Lease) -> Self {
        Self { object }
    }

    /// Its version: another one after every write by anybody.
    pub fn version(&self) -> &str {
        self.object.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.object.spec.as_ref()
    }

    /// Who holds it; empty for nobody.
    pub fn holder(&self) -> &str {
        self.spec().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
    }

    /// How long the holder is left alone after a sign of life, if it says so.
    pub fn duration(&self) -> Option<Duration> {
        let secs = self.spec()?.lease_duration_seconds?;
        u64::try_from(secs).ok().filter(|secs| *secs > 0).map(Duration::from_secs)
    }

    /// How often the holder has changed.
    pub fn transitions(&self) -> i32 {
        self.spec().and_then(|spec| spec.lease_transitions).unwrap_or_default()
    }

    /// The object, with everything that we do not read.
    pub fn object(&self) -> &Lease {
        &self.object
    }
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq)]
pub enum ElectionWrite {
    /// There is no lease: make it, held by us.
    Create {
        identity: String,
        /// How long we are to be left alone.
        lease: Duration,
    },
    /// Hold it: ours still, or ours from now on.
    Hold {
        on: Box<LeaseSnapshot>,
        identity: String,
        /// How long we are to be left alone.
        lease: Duration,
    },
    Release {
        on: Box<LeaseSnapshot>,
    },
}

impl ElectionWrite {
    /// Who would hold it from now on and does not yet.
    pub fn newcomer(&self) -> Option<&str> {
        match self {
            Self::Create { identity, .. } => Some(identity),
            Self::Hold { on, identity, .. } => (on.holder() != identity).then_some(identity),
            Self::Release { .. } => None,
        }
    }

    /// The object to send. `wall` is what our wall clock shows: for people and for the record, nobody decides by it.
    pub fn object(&self, wall: Timestamp) -> Lease {
        let now = Some(MicroTime(wall));
        match self {
            Self::Create { identity, lease } => Lease {
                metadata: ObjectMeta {
                    name: Some(NAME.to_owned()),
                    namespace: Some(APP_NAMESPACE.to_owned()),
                    ..ObjectMeta::default()
                },
                spec: Some(LeaseSpec {
                    holder_identity: Some(identity.clone()),
                    lease_duration_seconds: Some(secs(*lease)),
                    acquire_time: now.clone(),
                    renew_time: now,
                    lease_transitions: Some(0),
                    ..LeaseSpec::default()
                }),
            },
            Self::Hold { on, identity, lease } => {
                let ours = on.holder() == identity;
                let acquired = on.spec().and_then(|spec| spec.acquire_time.clone()).filter(|_| ours);
                let changes = i32::from(!ours);
                let spec = LeaseSpec {
                    holder_identity: Some(identity.clone()),
                    lease_duration_seconds: Some(secs(*lease)),
                    acquire_time: acquired.or_else(|| now.clone()),
                    renew_time: now,
                    lease_transitions: Some(on.transitions().saturating_add(changes)),
                    ..LeaseSpec::default()
                };
                Lease { spec: Some(spec), ..on.object.clone() }
            }
            Self::Release { on } => {
                let spec = LeaseSpec {
                    holder_identity: Some(String::new()),
                    lease_duration_seconds: Some(RELEASED_SECS),
                    acquire_time: now.clone(),
                    renew_time: now,
                    lease_transitions: Some(on.transitions()),
                    ..LeaseSpec::default()
                };
                Lease { spec: Some(spec), ..on.object.clone() }
            }
        }
    }
}

/// Whole seconds, at least one, never less than it is.
fn secs(time: Duration) -> i32 {
    let whole = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    i32::try_from(whole.max(1)).unwrap_or(i32::MAX)
}
