//! Strategic merge patch: a merge patch that knows which lists are keyed, with directives in members that begin
//! with `$`. Rules: Kubernetes, "Update API Objects in Place Using kubectl patch"; keys: `merge_keys`.

use serde_json::{Map, Value};

use crate::merge_keys::{self, Merge};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// A malformed directive: 400.
    Form(String),
    /// An item of a keyed list without its key, or no object: 500.
    Item(String),
}

/// `resource` as in the store.
pub(crate) fn apply(resource: &str, held: &Value, patch: &Value) -> Result<Value, Unfit> {
    let mut members = held.as_object().cloned().unwrap_or_default();
    let patch = patch.as_object().ok_or_else(|| Unfit::Form("the patch is no object".to_owned()))?;
    merge_object(resource, "", &mut members, patch)?;
    Ok(Value::Object(members))
}

fn merge_object(
    resource: &str,
    at: &str,
    held: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), Unfit> {
    match patch.get(PATCH).map(Value::as_str) {
        None => {}
        Some(Some("replace")) => {
            held.clone_from(patch);
            held.remove(PATCH);
            return Ok(());
        }
        Some(Some("delete")) => {
            held.clear();
            return Ok(());
        }
        Some(other) => return Err(Unfit::Form(format!("unknown patch type {other:?} at \"{at}\""))),
    }
    retain(held, patch, at)?;
    let live = held.clone();
    for (name, value) in patch {
        if let Some(field) = name.strip_prefix(DELETE_FROM) {
            let gone = value.as_array().ok_or_else(|| no_list(name, at))?;
            if let Some(list) = held.get_mut(field).and_then(Value::as_array_mut) {
                list.retain(|it| !gone.contains(it));
            }
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        let order = patch.get(&format!("{ORDER}{name}"));
        let live = live.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        match value {
            Value::Null => {
                held.remove(name);
            }
            Value::Object(new) if !merge_keys::is_replaced(resource, &at) => {
                let mut inner = held.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
                merge_object(resource, &at, &mut inner, new)?;
                held.insert(name.clone(), inner.into());
            }
            Value::Array(new) => {
                let list = held.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
                let merged = merge_list(resource, &at, list, new, live, order)?;
                held.insert(name.clone(), merged.into());
            }
            Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                held.insert(name.clone(), value.clone());
            }
        }
    }
    // A list may be reordered without other changes.
    for (name, order) in patch {
        let Some(field) = name.strip_prefix(ORDER) else { continue };
        let order = order.as_array().ok_or_else(|| no_list(name, at))?;
        let at = if at.is_empty() { field.to_owned() } else { format!("{at}.{field}") };
        if let (false, Some(Value::Array(list))) = (patch.contains_key(field), held.get_mut(field)) {
            let live = list.clone();
            *list = arrange(live.clone(), order, &live, merge_keys::of_list(resource, &at));
        }
    }
    Ok(())
}

fn no_list(directive: &str, at: &str) -> Unfit {
    Unfit::Form(format!("{directive} at \"{at}\" is no list"))
}

/// `$retainKeys`: removes members that it does not name; a patch must not set such a one.
fn retain(held: &mut Map<String, Value>, patch: &Map<String, Value>, at: &str) -> Result<(), Unfit> {
    let Some(keys) = patch.get(RETAIN) else { return Ok(()) };
    let keys = keys.as_array().ok_or_else(|| no_list(RETAIN, at))?;
    let kept = |name: &str| keys.iter().any(|key| key == name);
    let stranger =
        patch.iter().find(|(name, value)| !value.is_null() && !name.starts_with('$') && !kept(name));
    if let Some((name, _)) = stranger {
        return Err(Unfit::Form(format!("{RETAIN} at \"{at}\" does not name {name}, which the patch sets")));
    }
    held.retain(|name, _| kept(name));
    Ok(())
}

fn merge_list(
    resource: &str,
    at: &str,
    mut held: Vec<Value>,
    patch: &[Value],
    live: &[Value],
    order: Option<&Value>,
) -> Result<Vec<Value>, Unfit> {
    let how = merge_keys::of_list(resource, at);
    let directive = |it: &Value| it.get(PATCH).and_then(Value::as_str).map(str::to_owned);
    match how {
        Merge::Replaced => return Ok(patch.to_vec()),
        Merge::AsSet => {
            for it in patch {
                if !held.contains(it) {
                    held.push(it.clone());
                }
            }
        }
        Merge::ByKey(key) => {
            if patch.iter().any(|it| directive(it).as_deref() == Some("replace")) {
                let rest = patch.iter().filter(|it| directive(it).is_none());
                return Ok(rest.cloned().collect());
            }
            for it in patch {
                let members =
                    it.as_object().ok_or_else(|| Unfit::Item(format!("{at}: {it} is no object")))?;
                let name = members.get(key).filter(|it| !it.is_null()).ok_or_else(|| {
                    Unfit::Item(format!("map: {it} does not contain declared merge key: {key}"))
                })?;
                match directive(it).as_deref() {
                    None => {}
                    Some("delete") => {
                        held.retain(|old| old.get(key) != Some(name));
                        continue;
                    }
                    Some(other) => {
                        return Err(Unfit::Form(format!("unknown patch type {other:?} at \"{at}\"")));
                    }
                }
                let place = held.iter().position(|old| old.get(key) == Some(name));
                let old = place.and_then(|place| held[place].as_object()).cloned();
                let mut inner = old.unwrap_or_default();
                merge_object(resource, at, &mut inner, members)?;
                match place {
                    Some(place) => held[place] = inner.into(),
                    None => held.push(inner.into()),
                }
            }
        }
    }
    let order = match order {
        None => patch,
        Some(order) => order.as_array().ok_or_else(|| no_list(ORDER, at))?,
    };
    Ok(arrange(held, order, live, how))
}

/// Items in `order` come in its order; each other one stays before those that it preceded in `live`. So a new
/// item outside of `order` comes first.
fn arrange(merged: Vec<Value>, order: &[Value], live: &[Value], how: Merge) -> Vec<Value> {
    let same = |one: &Value, other: &Value| match how {
        Merge::ByKey(key) => one.get(key) == other.get(key),
        Merge::AsSet | Merge::Replaced => one == other,
    };
    let place = |list: &[Value], it: &Value| list.iter().position(|other| same(other, it));
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|it| place(order, it).is_some());
    named.sort_by_key(|it| place(order, it));
    let mut others = others.into_iter().peekable();
    let mut all = Vec::new();
    for it in named {
        let is_before =
            |other: &Value| matches!((place(live, other), place(live, &it)), (Some(a), Some(b)) if a < b);
        while let Some(other) = others.next_if(is_before) {
            all.push(other);
        }
        all.push(it);
    }
    all.extend(others);
    all
}

#[cfg(test)]
mod tests;
