//! Routes requests, answers reads, passes writes on to `store::writes`.
//!
//! Not here: objects and versions (`store`), `controllers`.

pub(crate) mod discovery;
pub(crate) mod kinds;
pub(crate) mod logs;
pub(crate) mod openapi;
pub(crate) mod path;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod strict;
pub(crate) mod table;
#[cfg(feature = "tls")]
pub(crate) mod tls;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::path::ResourcePath;
use crate::request::{SimRequest, SimResponse};
use crate::table::table;
use crate::watch::{PendingWatch, SelectedObjects};
use crate::{SimShared, evictions, machines, scale, writes};

const MACHINE_CALLS: &str = "subresources/virtualmachine";

pub(crate) fn answer(shared: &Arc<SimShared>, asked: &SimRequest) -> SimResponse {
    answered(shared, asked).unwrap_or_else(|failure| SimResponse::Json(failure.code, failure.status()))
}

fn answered(shared: &Arc<SimShared>, asked: &SimRequest) -> Result<SimResponse, Failure> {
    let target = ResourcePath::parse(&asked.path).filter(|_| !discovery::is_discovery(&asked.path));
    let Some(target) = target else { return discovery::answer(&shared.store(), &asked.path) };
    if !evictions::is_served(&shared.store(), &target.api_version) {
        return Err(Failure::no_such_path());
    }
    match (asked.method.as_str(), target.name.as_deref(), target.sub.as_deref()) {
        // Guests have no status subresource.
        (_, Some(_), Some("status")) if target.resource == machines::GUESTS => Err(Failure::no_such_path()),
        ("GET", None, _) => list(shared, &target, asked),
        ("GET", Some(name), None | Some("status")) => {
            let held = target.outward(shared.store().held(&target, name)?);
            let meta = json!({ "resourceVersion": held["metadata"]["resourceVersion"] });
            let shown = match asked.table() {
                Some(include) => table(&target, std::slice::from_ref(&held), &meta, include),
                None => held,
            };
            Ok(SimResponse::Json(200, shown))
        }
        ("GET", Some(name), Some("log")) if target.resource == "pods" => {
            logs::answer(shared, &target, name, asked)
        }
        ("POST", Some(name), Some("token")) if target.resource == "serviceaccounts" => {
            tokens::answer(shared, &target, name, asked)
        }
        ("POST", Some(name), Some("eviction")) => writes::evict(shared, &target, name, asked),
        ("GET" | "PUT" | "PATCH", Some(name), Some("scale")) => scale::answer(shared, &target, name, asked),
        ("PUT", Some(_), Some(_)) if target.resource.starts_with(MACHINE_CALLS) => {
            machines::answer(shared, &target, asked)
        }
        ("POST", None, None) => writes::create(shared, &target, asked),
        ("PUT", Some(name), None | Some("status")) => writes::update(shared, &target, name, asked),
        ("PATCH", Some(name), None | Some("status")) => writes::patch(shared, &target, name, asked),
        ("DELETE", Some(name), None) => writes::delete(shared, &target, name, asked),
        (_, Some(_), Some(_)) => Err(Failure::no_such_path()),
        (_, _, _) => Err(Failure::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )),
    }
}

fn list(shared: &Arc<SimShared>, target: &ResourcePath, asked: &SimRequest) -> Result<SimResponse, Failure> {
    let text = |name: &str| asked.given(name).unwrap_or_default().to_owned();
    // A name in the path of a watch or list acts as a field selector.
    let scope = SelectedObjects {
        target: target.clone(),
        labels: text("labelSelector"),
        fields: text("fieldSelector"),
    };
    let store = shared.store();
    let (version, start, then) = match asked.given("continue") {
        None => (store.version(), 0, None),
        Some(token) => {
            let (version, start) = page(token)?;
            let then = store.list_at(&target.resource, version).ok_or_else(Failure::old_page)?;
            (version, start, Some(then))
        }
    };
    let mut items = Vec::new();
    let mut keep = |object: &Value| {
        let holds = scope.holds(object);
        if holds.map_err(|field| Failure::bad_request(format!("field label not supported: {field}")))? {
            items.push(target.outward(object.clone()));
        }
        Ok(())
    };
    match &then {
        None => store.list(&target.resource).try_for_each(&mut keep)?,
        Some(then) => then.values().try_for_each(|object| keep(object))?,
    }
    drop(store);
    let from: u64 = asked.number("resourceVersion")?.unwrap_or(0);
    if from > version {
        let text = format!("Too large resource version: {from}, current: {version}");
        let mut failure = Failure::new(504, "Timeout", text);
        failure.details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        return Err(failure);
    }
    if asked.is_set("watch") {
        return watch(shared, scope, from, version, items, asked);
    }
    let limit = asked.number::<usize>("limit")?.filter(|it| *it > 0).unwrap_or(usize::MAX);
    let left = items.len().saturating_sub(start).saturating_sub(limit);
    let mut meta = json!({ "resourceVersion": version.to_string() });
    if left > 0 {
        meta["continue"] = format!("{version}/{}", start + limit).into();
        meta["remainingItemCount"] = left.into();
    }
    let page: Vec<Value> = items.into_iter().skip(start).take(limit).collect();
    if let Some(include) = asked.table() {
        return Ok(SimResponse::Json(200, table(target, &page, &meta, include)));
    }
    Ok(SimResponse::Json(
        200,
        json!({
            "kind": format!("{}List", target.kind()), "apiVersion": target.api_version, "metadata": meta,
            "items": page,
        }),
    ))
}

/// Version of the paged list, and number of objects in earlier pages.
fn page(token: &str) -> Result<(u64, usize), Failure> {
    let parts =
        token.split_once('/').and_then(|(version, start)| Some((version.parse().ok()?, start.parse().ok()?)));
    parts.ok_or_else(|| Failure::bad_request(format!("continue key is not valid: {token:?}")))
}

/// A watch from version `from`; `items` are the objects at `version`.
fn watch(
    shared: &Arc<SimShared>,
    scope: SelectedObjects,
    from: u64,
    version: u64,
    items: Vec<Value>,
    asked: &SimRequest,
) -> Result<SimResponse, Failure> {
    let invalid = |why: &str| {
        Err(Failure::new(422, "Invalid", format!("ListOptions.meta.k8s.io \"\" is invalid: {why}")))
    };
    let initial = match (asked.given("sendInitialEvents"), asked.given("resourceVersionMatch")) {
        (None, None) => None,
        (Some(initial), Some("NotOlderThan")) => Some(matches!(initial, "true" | "1")),
        (Some(_), _) => {
            return invalid(
                "sendInitialEvents: Forbidden: requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        (None, Some(_)) => {
            return invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless \
                 sendInitialEvents is provided",
            );
        }
    };
    let bookmarks = asked.is_set("allowWatchBookmarks");
    // Without a version a watch begins with existing objects, unless the client refuses that.
    let begins = initial.unwrap_or(from == 0);
    let mut first = Vec::new();
    if begins {
        first.extend(items.into_iter().map(|object| json!({ "type": "ADDED", "object": object })));
        if initial == Some(true) && bookmarks {
            first.push(scope.bookmark(version, true));
        }
    }
    let seconds = asked.number("timeoutSeconds")?.filter(|it| *it > 0);
    Ok(SimResponse::Watch(Box::new(PendingWatch {
        shared: Arc::clone(shared),
        version: if begins || from == 0 { version } else { from },
        scope,
        table: asked.table(),
        bookmarks: bookmarks.then_some(shared.config.bookmark_every),
        first,
        limit: seconds.map_or(Duration::from_mins(30), Duration::from_secs),
    })))
}
