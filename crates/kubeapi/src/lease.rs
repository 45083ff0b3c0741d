//! A Lease in the namespace of applications: read from the store, written whole with the version that was
//! read.
//!
//! Not here: its contents, and when it is written. Every call has a deadline; a dropped call may have been
//! carried out.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource;
use kube::api::{GetParams, PostParams};
use kube::core::Request;
use kube::core::request::Error as Unaskable;
use step::WriteOutcome;

use crate::names::APP_NAMESPACE;
use crate::nodes::FIELD_MANAGER;
use crate::{ApiClient, Error, Reply, found};

/// Limit of one call. Short against the deadlines of an election, which need room for several tries.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);

fn leases() -> Request {
    Request::new(Lease::url_path(&(), Some(APP_NAMESPACE)))
}

/// `None` when there is none. Without a resource version, so from the store and not from a stale cache.
pub async fn read(cluster: &ApiClient, name: &str) -> Result<Option<Lease>, Error> {
    let what = format!("read lease {APP_NAMESPACE}/{name}");
    found(cluster.ask_within(CALL_LIMIT, &what, leases().get(name, &GetParams::default())).await)
}

/// Creates a lease without a version. `verb` is for errors.
pub async fn write(cluster: &ApiClient, name: &str, verb: &str, lease: &Lease) -> WriteOutcome<Lease> {
    let create = lease.metadata.resource_version.is_none();
    let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let request = match serde_json::to_vec(lease) {
        Ok(body) if create => leases().create(&how, body),
        Ok(body) => leases().replace(name, &how, body),
        Err(source) => Err(Unaskable::SerializeBody(source)),
    };
    let what = format!("{verb} lease {APP_NAMESPACE}/{name}");
    let error = match cluster.ask_within(CALL_LIMIT, &what, request).await {
        Ok(lease) => return WriteOutcome::Done(Box::new(lease)),
        Err(error) => error,
    };
    // The cluster software brings the namespace: where it is missing, nothing is outdated.
    let gone = !create && error.is_not_found();
    if gone || matches!(error.reply(), Reply::Conflict { .. } | Reply::UidChanged) {
        WriteOutcome::Outdated
    } else {
        WriteOutcome::Unknown(error.advice())
    }
}
