//! The lease as read, and the object to write.
//!
//! Source: client-go's `resourcelock`: a write replaces the whole spec, keeps the rest of the object, and names the
//! version that was read. Pure: no clock, no I/O, no task.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

use super::NAME;
use kubeapi::names::APP_NAMESPACE;

/// Duration in a released lease.
const RELEASED_SECS: i32 = 1;

#[derive(Debug, Clone, PartialEq)]
pub struct LeaseSnapshot {
    object: Lease,
}

impl LeaseSnapshot {
    pub fn new(object: Lease) -> Self {
        Self { object }
    }

    /// Changes with every write.
    pub fn version(&self) -> &str {
        self.object.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.object.spec.as_ref()
    }

    /// Empty for none.
    pub fn holder(&self) -> &str {
        self.spec().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
    }

    /// How long the holder is left alone after a sign of life, if given.
    pub fn duration(&self) -> Option<Duration> {
        let secs = self.spec()?.lease_duration_seconds?;
        u64::try_from(secs).ok().filter(|secs| *secs > 0).map(Duration::from_secs)
    }

    /// Number of changes of holder.
    pub fn transitions(&self) -> i32 {
        self.spec().and_then(|spec| spec.lease_transitions).unwrap_or_default()
    }

    /// With all unread members.
    pub fn object(&self) -> &Lease {
        &self.object
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum ElectionWrite {
    /// Create it, held by us.
    Create {
        identity: String,
        lease: Duration,
    },
    /// Take or renew it.
    Hold {
        on: Box<LeaseSnapshot>,
        identity: String,
        lease: Duration,
    },
    Release {
        on: Box<LeaseSnapshot>,
    },
}

impl ElectionWrite {
    /// The new holder, if this changes it.
    pub fn newcomer(&self) -> Option<&str> {
        match self {
            Self::Create { identity, .. } => Some(identity),
            Self::Hold { on, identity, .. } => (on.holder() != identity).then_some(identity),
            Self::Release { .. } => None,
        }
    }

    /// `wall` is our wall clock: for people only, no decision uses it.
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

/// Rounded up, at least one.
fn secs(time: Duration) -> i32 {
    let whole = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    i32::try_from(whole.max(1)).unwrap_or(i32::MAX)
}
