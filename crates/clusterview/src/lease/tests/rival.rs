//! A foreign candidate: the calls of client-go's `leaderelection`, for the property test.
//!
//! Written from the rules of that package: an optimistic update while it leads; else read, create or update with the
//! version read; others are judged by when the record was last seen to change, on the monotonic clock; a round of
//! renewals that fails for the renew deadline ends it, with a release.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use step::Mono;

use super::super::NAME;
use kubeapi::names::APP_NAMESPACE;

const LEASE: Duration = Duration::from_secs(300);
const RENEW: Duration = Duration::from_secs(180);
const RETRY: Duration = Duration::from_secs(15);
/// Added to a pause between two tries to acquire, as a share of it at most.
const JITTER: f64 = 1.2;

#[derive(Debug, Clone)]
pub(super) enum Request {
    Get,
    Create(Box<Lease>),
    Update(Box<Lease>),
}

#[derive(Debug, Clone)]
pub(super) enum Reply {
    Lease(Box<Lease>),
    NotFound,
    Conflict,
    /// A server error, or no answer in time.
    Trouble,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Try {
    Optimistic,
    Get,
    Create,
    Update,
    ReleaseGet,
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Phase {
    #[default]
    Out,
    Acquiring,
    /// Leads; this round of renewals ends the election at that moment if it brings none.
    Renewing {
        until: Mono,
    },
}

#[derive(Debug, Default)]
pub(super) struct Rival {
    identity: String,
    phase: Phase,
    wanted: bool,
    /// The record as last seen, and when first seen so.
    observed: Option<(LeaseSpec, Mono)>,
    object: Option<Lease>,
    at: Option<(Try, Mono)>,
    next: Mono,
    dice: u64,
}

impl Rival {
    pub(super) fn new(identity: &str, chance: u64) -> Self {
        Self { identity: identity.to_owned(), dice: chance, ..Self::default() }
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.phase, Phase::Renewing { .. })
    }

    pub(super) fn next_wake(&self) -> Option<Mono> {
        let due = (self.at.is_none() && (self.wanted || self.phase != Phase::Out)).then_some(self.next);
        let end = match self.phase {
            Phase::Renewing { until } => Some(until),
            Phase::Out | Phase::Acquiring => None,
        };
        due.into_iter().chain(end).min()
    }

    pub(super) fn want(&mut self, now: Mono, wanted: bool) -> Option<Request> {
        self.wanted = wanted;
        if wanted || self.phase == Phase::Out { None } else { self.end(now) }
    }

    /// The election is over for this candidate; the lease is released.
    fn end(&mut self, now: Mono) -> Option<Request> {
        self.phase = Phase::Out;
        self.next = now + RETRY;
        if !self.is_holder() {
            self.at = None;
            return None;
        }
        self.at = Some((Try::ReleaseGet, now));
        Some(Request::Get)
    }

    fn is_holder(&self) -> bool {
        self.observed
            .as_ref()
            .is_some_and(|(spec, _)| spec.holder_identity.as_deref() == Some(&self.identity))
    }

    fn is_valid(&self, now: Mono) -> bool {
        self.observed.as_ref().is_some_and(|(spec, since)| {
            let secs = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap();
            *since + Duration::from_secs(secs) > now
        })
    }

    fn observe(&mut self, now: Mono, lease: Lease) {
        let spec = lease.spec.clone().unwrap();
        if self.observed.as_ref().is_none_or(|(seen, _)| *seen != spec) {
            self.observed = Some((spec, now));
        }
        self.object = Some(lease);
    }

    fn record(&self, wall: Timestamp) -> LeaseSpec {
        let now = Some(MicroTime(wall));
        let old = self.observed.as_ref().map(|(spec, _)| spec.clone()).unwrap_or_default();
        let (acquire_time, transitions) = match (self.is_holder(), &self.observed) {
            (true, _) => (old.acquire_time, old.lease_transitions),
            (false, Some(_)) => (now.clone(), old.lease_transitions.map(|it| it + 1)),
            (false, None) => (now.clone(), Some(0)),
        };
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(LEASE.as_secs()).unwrap()),
            acquire_time,
            renew_time: now,
            lease_transitions: transitions,
            ..LeaseSpec::default()
        }
    }

    fn update(&self, spec: LeaseSpec) -> Request {
        Request::Update(Box::new(Lease { spec: Some(spec), ..self.object.clone().unwrap() }))
    }

    fn tried(&mut self, now: Mono, success: bool) {
        self.at = None;
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chance = f64::from(u32::try_from(self.dice >> 33).unwrap()) / f64::from(1_u32 << 31);
        match (self.phase, success) {
            (Phase::Out, _) => {}
            (Phase::Acquiring, true) => {
                self.phase = Phase::Renewing { until: now + RENEW };
                self.next = now;
            }
            (Phase::Acquiring, false) => self.next = now + RETRY.mul_f64(1.0 + chance * JITTER),
            // The next round begins after the pause, and has its own deadline from then on.
            (Phase::Renewing { .. }, true) => {
                self.phase = Phase::Renewing { until: now + RETRY + RENEW };
                self.next = now + RETRY;
            }
            (Phase::Renewing { .. }, false) => self.next = now + RETRY,
        }
    }

    pub(super) fn wake(&mut self, now: Mono, wall: Timestamp) -> Option<Request> {
        if let Phase::Renewing { until } = self.phase
            && now >= until
        {
            return self.end(now);
        }
        if self.at.is_some() || now < self.next {
            return None;
        }
        match self.phase {
            Phase::Out if !self.wanted => return None,
            Phase::Out => {
                self.phase = Phase::Acquiring;
                self.observed = None;
            }
            Phase::Acquiring | Phase::Renewing { .. } => {}
        }
        if self.is_holder() && self.is_valid(now) {
            self.at = Some((Try::Optimistic, now));
            return Some(self.update(self.record(wall)));
        }
        self.at = Some((Try::Get, now));
        Some(Request::Get)
    }

    pub(super) fn hear(&mut self, now: Mono, wall: Timestamp, reply: Reply) -> Option<Request> {
        let (at, began) = self.at?;
        match (at, reply) {
            (Try::Optimistic | Try::Update | Try::Create, Reply::Lease(lease)) => {
                self.observe(now, *lease);
                self.tried(now, true);
                None
            }
            (Try::Optimistic, _) => {
                self.at = Some((Try::Get, began));
                Some(Request::Get)
            }
            (Try::Get, Reply::NotFound) => {
                self.at = Some((Try::Create, began));
                self.observed = None;
                let metadata = ObjectMeta {
                    name: Some(NAME.to_owned()),
                    namespace: Some(APP_NAMESPACE.to_owned()),
                    ..ObjectMeta::default()
                };
                Some(Request::Create(Box::new(Lease { metadata, spec: Some(self.record(wall)) })))
            }
            (Try::Get, Reply::Lease(lease)) => {
                self.observe(now, *lease);
                let held = self.observed.as_ref().is_some_and(|(spec, _)| {
                    spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty())
                });
                if held && self.is_valid(began) && !self.is_holder() {
                    self.tried(now, false);
                    return None;
                }
                self.at = Some((Try::Update, began));
                Some(self.update(self.record(wall)))
            }
            (Try::ReleaseGet, Reply::Lease(lease)) => {
                self.observe(now, *lease);
                if !self.is_holder() {
                    self.at = None;
                    return None;
                }
                self.at = Some((Try::Release, began));
                let old = self.observed.as_ref().unwrap().0.clone();
                Some(self.update(LeaseSpec {
                    holder_identity: Some(String::new()),
                    lease_duration_seconds: Some(1),
                    acquire_time: Some(MicroTime(wall)),
                    renew_time: Some(MicroTime(wall)),
                    lease_transitions: old.lease_transitions,
                    ..LeaseSpec::default()
                }))
            }
            (Try::ReleaseGet | Try::Release, _) => {
                self.at = None;
                None
            }
            (Try::Get | Try::Create | Try::Update, _) => {
                self.tried(now, false);
                None
            }
        }
    }
}
