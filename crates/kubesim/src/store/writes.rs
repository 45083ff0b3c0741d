//! Create, update, patch, delete.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::budgets::{self, EvictionRefusal};
use crate::failure::{self, Failure};
use crate::patch::Patch;
use crate::path::ResourcePath;
use crate::request::{SimRequest, SimResponse};
use crate::store::{ObjectStore, events, is_held_back};
use crate::{SimShared, answers, machines, workloads};

/// Updates of these must name the present version.
const CONDITIONAL: [&str; 2] = ["coordination/leases", "policy/poddisruptionbudgets"];
/// DELETE of these returns the object; others get a Status.
const SHOWN_WHEN_DELETED: [&str; 5] =
    ["pods", "namespaces", "persistentvolumeclaims", "persistentvolumes", "services"];

/// `dryRun=All` in the query or in the delete options.
fn is_dry(target: &ResourcePath, asked: &SimRequest, options: &Value) -> Result<bool, Failure> {
    let listed = options["dryRun"].as_array().map(Vec::as_slice).unwrap_or_default();
    let listed = listed.iter().map(|it| it.as_str().unwrap_or_default());
    let mut dry = false;
    for word in asked.given("dryRun").into_iter().chain(listed) {
        if word != "All" {
            let why = format!("Unsupported value: \"{word}\": supported values: \"All\"");
            return Err(Failure::invalid(target, target.name.as_deref().unwrap_or_default(), "dryRun", &why));
        }
        dry = true;
    }
    Ok(dry)
}

/// The body must match the URL.
fn check(target: &ResourcePath, object: &Value) -> Result<(), Failure> {
    if !object.is_object() {
        return Err(Failure::bad_request("the body is no object"));
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    if !version.is_empty() && version != target.api_version {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            target.api_version
        )));
    }
    if let Some(known) = target.known().filter(|known| !kind.is_empty() && kind != known.kind) {
        return Err(Failure::bad_request(format!(
            "{kind} in version \"{version}\" cannot be used as a {}",
            known.kind
        )));
    }
    let namespace = text(&object["metadata"]["namespace"]);
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let name = text(&object["metadata"]["name"]);
    match &target.name {
        Some(named) if !name.is_empty() && name != *named => Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({named})"
        ))),
        _ => Ok(()),
    }
}

/// No object may be created in a namespace that is being deleted, nor a pod be evicted.
fn admit_new(store: &ObjectStore, target: &ResourcePath, name: &str) -> Result<(), Failure> {
    let namespace = target.namespace.as_str();
    if !store.is_ending(namespace) {
        return Ok(());
    }
    let filled =
        [("resource", target.qualified()), ("name", name.to_owned()), ("namespace", namespace.to_owned())];
    let filled = filled.each_ref().map(|(what, with)| (*what, with.as_str()));
    answers::refusal("namespace/new", 0, &filled).map_or(Ok(()), |mut failure| {
        failure.details = failure::about(target, name);
        failure.details["causes"] = json!([{
            "reason": "NamespaceTerminating", "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        Err(failure)
    })
}

fn check_types(
    shared: &SimShared,
    target: &ResourcePath,
    object: &Value,
    asked: &SimRequest,
) -> Result<(), Failure> {
    let strict = asked.given("fieldValidation") == Some("Strict");
    shared.check.map_or(Ok(()), |check| check(target, object, strict))
}

pub(crate) fn create(
    shared: &Arc<SimShared>,
    target: &ResourcePath,
    asked: &SimRequest,
) -> Result<SimResponse, Failure> {
    let dry = is_dry(target, asked, &Value::Null)?;
    let object = asked.json()?;
    check(target, &object)?;
    let mut object = target.inward(object);
    check_types(shared, target, &object, asked)?;
    if object["apiVersion"].is_null() {
        object["apiVersion"] = target.api_version.clone().into();
    }
    let meta = &mut object["metadata"];
    if meta["resourceVersion"].as_str().is_some_and(|it| !it.is_empty()) {
        return Err(Failure::bad_request("resourceVersion should not be set on objects to be created"));
    }
    if !target.namespace.is_empty() {
        meta["namespace"] = target.namespace.clone().into();
    }
    if meta["name"].as_str().is_none_or(str::is_empty) {
        let Some(stem) = meta["generateName"].as_str().filter(|it| !it.is_empty()) else {
            return Err(Failure::invalid(
                target,
                "",
                "metadata.name",
                "Required value: name or generateName is required",
            ));
        };
        let tail: String = uuid::Uuid::new_v4().to_string().chars().take(5).collect();
        meta["name"] = format!("{stem}{tail}").into();
    }
    // Members that only the server sets.
    if let Some(meta) = meta.as_object_mut() {
        for fixed in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            meta.remove(fixed);
        }
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    shared.attempt(dry, |store| {
        admit_new(store, target, &name)?;
        // Admission comes before the lookup.
        match target.resource.as_str() {
            "pods" => object["status"] = json!({ "phase": "Pending" }),
            "namespaces" => object["status"] = json!({ "phase": "Active" }),
            machines::MIGRATIONS => machines::migrations::admit(store, &mut object)?,
            "events" => events::admit(target, &object, None)?,
            _ => {}
        }
        if store.get(&target.resource, &target.namespace, &name).is_some() {
            return Err(Failure::already_exists(target, &name));
        }
        Ok(SimResponse::Json(201, target.outward(store.put(&target.resource, object))))
    })
}

/// Writes `change` of the present object, if its version matches.
pub(crate) fn replace(
    shared: &Arc<SimShared>,
    target: &ResourcePath,
    name: &str,
    asked: &SimRequest,
    change: impl FnOnce(&Value) -> Result<Value, Failure>,
) -> Result<SimResponse, Failure> {
    let dry = is_dry(target, asked, &Value::Null)?;
    shared.attempt(dry, |store| {
        let held = store.held(target, name)?;
        if target.sub.is_none() {
            machines::eviction::admit_update(store, &target.resource)?;
        }
        let mut new = target.inward(change(&target.outward(held.clone()))?);
        machines::eviction::keep_status(&target.resource, &held, &mut new);
        check_types(shared, target, &new, asked)?;
        if target.resource == "events" {
            events::admit(target, &new, Some(&held))?;
        }
        let (was, is) = (&held["metadata"], &new["metadata"]);
        if !is["resourceVersion"].is_null() && is["resourceVersion"] != was["resourceVersion"] {
            let why =
                "the object has been modified; please apply your changes to the latest version and try again";
            return Err(Failure::conflict(target, name, why));
        }
        if !is["uid"].is_null() && is["uid"] != was["uid"] {
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                is["uid"], was["uid"]
            );
            return Err(Failure::conflict(target, name, &why));
        }
        keep(target, &held, &mut new);
        let finished = !held["metadata"]["deletionTimestamp"].is_null()
            && !is_held_back(&new)
            && (target.resource != "pods" || held["metadata"]["deletionGracePeriodSeconds"] == 0);
        let new = store.put(&target.resource, new);
        if finished {
            store.remove(&target.resource, &target.namespace, name);
        }
        Ok(SimResponse::Json(200, target.outward(new)))
    })
}

/// Restores members that a write at this URL cannot change.
fn keep(target: &ResourcePath, held: &Value, new: &mut Value) {
    let fixed =
        ["uid", "creationTimestamp", "name", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds"];
    for fixed in fixed {
        restore(&mut new["metadata"], &held["metadata"], fixed);
    }
    if target.known().is_none_or(|it| !it.status) {
        return;
    }
    if target.sub.as_deref() == Some("status") {
        let (meta, status) = (new["metadata"].clone(), new["status"].clone());
        new.clone_from(held);
        new["metadata"] = meta;
        new["status"] = status;
    } else {
        restore(new, held, "status");
    }
}

fn restore(new: &mut Value, held: &Value, member: &str) {
    let Some(members) = new.as_object_mut() else { return };
    match held.get(member) {
        Some(value) => drop(members.insert(member.to_owned(), value.clone())),
        None => drop(members.remove(member)),
    }
}

pub(crate) fn update(
    shared: &Arc<SimShared>,
    target: &ResourcePath,
    name: &str,
    asked: &SimRequest,
) -> Result<SimResponse, Failure> {
    let object = asked.json()?;
    check(target, &object)?;
    let unversioned = object["metadata"]["resourceVersion"].as_str().is_none_or(str::is_empty);
    if unversioned && CONDITIONAL.contains(&target.resource.as_str()) {
        let why = "Invalid value: 0x0: must be specified for an update";
        return Err(Failure::invalid(target, name, "metadata.resourceVersion", why));
    }
    replace(shared, target, name, asked, |_| Ok(object))
}

pub(crate) fn patch(
    shared: &Arc<SimShared>,
    target: &ResourcePath,
    name: &str,
    asked: &SimRequest,
) -> Result<SimResponse, Failure> {
    let patch = Patch::read(target, &asked.content_type, &asked.body)?;
    replace(shared, target, name, asked, |held| {
        let new = patch.apply(target, held)?;
        check(target, &new)?;
        Ok(new)
    })
}

pub(crate) fn delete(
    shared: &Arc<SimShared>,
    target: &ResourcePath,
    name: &str,
    asked: &SimRequest,
) -> Result<SimResponse, Failure> {
    let mut options = if asked.body.is_empty() { json!({}) } else { asked.json()? };
    if let Some(grace) = asked.given("gracePeriodSeconds").and_then(|it| it.parse::<u64>().ok()) {
        options["gracePeriodSeconds"] = grace.into();
    }
    let dry = is_dry(target, asked, &options)?;
    let object = shared.attempt(dry, |store| remove(store, target, name, &options))?;
    let goes_on = !object["metadata"]["deletionTimestamp"].is_null();
    if goes_on || SHOWN_WHEN_DELETED.contains(&target.resource.as_str()) || target.known().is_none() {
        return Ok(SimResponse::Json(200, target.outward(object)));
    }
    let mut details = failure::about(target, name);
    details["uid"] = object["metadata"]["uid"].clone();
    Ok(SimResponse::Json(
        200,
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details }),
    ))
}

/// Deletes an object with what it owns.
fn remove(
    store: &mut ObjectStore,
    target: &ResourcePath,
    name: &str,
    options: &Value,
) -> Result<Value, Failure> {
    let (resource, namespace) = (target.resource.as_str(), target.namespace.as_str());
    let held = store.held(target, name)?;
    let conditions = [
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    ];
    for (condition, shown, why) in conditions {
        let wanted = &options["preconditions"][condition];
        let present = &held["metadata"][condition];
        if !wanted.is_null() && wanted != present {
            let why = format!(
                "the {shown} in the precondition ({}) does not match the {shown} in record ({}). {why}",
                wanted.as_str().unwrap_or_default(),
                present.as_str().unwrap_or_default()
            );
            let mut failure = Failure::conflict(target, name, &why);
            // Only here the server names the kind in place of the resource.
            let kind = target.kind();
            failure.message = format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}");
            return Err(failure);
        }
    }
    if options["propagationPolicy"] != "Orphan" {
        workloads::retire_owned(store, &held);
    }
    Ok(store.retire(resource, namespace, name, options["gracePeriodSeconds"].as_u64()).unwrap_or(held))
}

pub(crate) fn evict(
    shared: &Arc<SimShared>,
    target: &ResourcePath,
    name: &str,
    asked: &SimRequest,
) -> Result<SimResponse, Failure> {
    let order = asked.json()?;
    let named = order["metadata"]["name"].as_str().unwrap_or(name);
    if named != name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let options = order["deleteOptions"].clone();
    let dry = is_dry(target, asked, &options)?;
    let uid = shared.attempt(dry, |store| {
        let pod = store.get("pods", &target.namespace, name).cloned();
        let pod = pod.ok_or_else(|| Failure::not_found(target, name))?;
        admit_new(store, target, name)?;
        machines::eviction::admit(store, &pod)?;
        let uid = &options["preconditions"]["uid"];
        if uid.is_null() || *uid == pod["metadata"]["uid"] {
            budgets::admit(store, &pod).map_err(refused)?;
            // As the real one: the condition is set before the pod's termination.
            let (reason, message) = ("EvictionByEvictionAPI", "Eviction API: evicting");
            store.mark_disrupted(&target.namespace, name, reason, message);
        }
        remove(store, target, name, &options)?;
        Ok::<_, Failure>(pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    })?;
    if !dry {
        shared.faults.note_evicted(&uid);
    }
    Ok(SimResponse::Json(
        201,
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }),
    ))
}

fn refused(refusal: EvictionRefusal) -> Failure {
    match refusal {
        // The server gives no reason with this one.
        EvictionRefusal::Many => Failure::new(
            500,
            "",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ),
        EvictionRefusal::NoRoom(_, why) => {
            let text = "Cannot evict pod as it would violate the pod's disruption budget.";
            let mut failure = Failure::new(429, "TooManyRequests", text);
            failure.details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": why }] });
            failure
        }
    }
}
