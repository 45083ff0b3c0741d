//! The form of a value on a socket, made from its form on disk.
//!
//! The reference passes a value through a generic tree before it sends it: members are sorted at every level,
//! an empty array becomes `null`, members named `pubsub-large-X` go into files of their own. Its tree also
//! damages whole numbers above 2^53 (D-P3); this one keeps all their digits. Not here: the files.
//! Source: lf-edge/eve pkg/pillar/pubsub/large.go. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use super::{Error, escaped, parsed};

/// Name prefix of a member that goes into a file of its own.
const LARGE: &str = "pubsub-large-";
/// Name prefix of the member that replaces it.
const FILE: &str = "pubsub-file-";
/// Limit of the rest of such a name, which becomes part of a file name.
const NAME_LIMIT_BYTES: usize = 100;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Stores a large member, by the rest of its name; returns the path of its file.
pub type StoreMember<'a> = dyn FnMut(&str, &[u8]) -> Result<String, BoxError> + 'a;

/// The wire form of a value, from its form on disk. Large members are passed to `store`.
///
/// A large member within a large one stays inside it, as does one whose name cannot be part of a file name.
/// Errors: the text is no JSON, has a member that readers would take for the path of a large one, or `store`
/// failed.
pub fn to_wire(disk: &[u8], store: &mut StoreMember<'_>) -> Result<Vec<u8>, Error> {
    let mut out = String::with_capacity(disk.len());
    // Sorted, of duplicates the last.
    write(&parsed(disk)?, &mut out, &mut Some(store))?;
    Ok(out.into_bytes())
}

fn fault(member: &str, source: BoxError) -> Error {
    Error::Large { member: member.to_owned(), source }
}

/// The rest of a large member's name, if valid in a file name.
fn rest_of<'a>(member: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = member.strip_prefix(prefix)?;
    let plain = rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (plain && !rest.is_empty() && rest.len() <= NAME_LIMIT_BYTES).then_some(rest)
}

fn write(value: &Value, out: &mut String, store: &mut Option<&mut StoreMember<'_>>) -> Result<(), Error> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&digits(number)),
        Value::String(text) => out.push_str(&quoted(text)?),
        Value::Array(items) if items.is_empty() => out.push_str("null"),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                out.push(if at == 0 { '[' } else { ',' });
                write(item, out, store)?;
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            write_members(members, out, store)?;
            out.push('}');
        }
    }
    Ok(())
}

fn write_members(
    members: &Map<String, Value>,
    out: &mut String,
    store: &mut Option<&mut StoreMember<'_>>,
) -> Result<(), Error> {
    let mut written = BTreeMap::new();
    for (name, value) in members {
        if let (Some(store), Some(rest)) = (store.as_mut(), rest_of(name, LARGE)) {
            let mut content = format!("{{{}:", quoted(name)?);
            write(value, &mut content, &mut None)?;
            content.push('}');
            let path = store(rest, content.as_bytes()).map_err(|source| fault(name, source))?;
            written.insert(format!("{FILE}{rest}"), quoted(&quoted(&path)?)?);
            continue;
        }
        if rest_of(name, FILE).is_some() {
            return Err(fault(name, "readers would take it for the place of a large member".into()));
        }
        let mut text = String::new();
        write(value, &mut text, store)?;
        written.insert(name.to_owned(), text);
    }
    for (at, (name, text)) in written.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(&quoted(name)?);
        out.push(':');
        out.push_str(text);
    }
    Ok(())
}

fn quoted(text: &str) -> Result<String, Error> {
    Ok(escaped(&serde_json::to_string(text).map_err(Error::Write)?))
}

/// Whole numbers with all digits, others as Go writes them.
fn digits(number: &Number) -> String {
    if number.is_u64() || number.is_i64() {
        return number.to_string();
    }
    let value = number.as_f64().unwrap_or_default();
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        // Go writes the sign of an exponent also when it is positive.
        return if text.contains("e-") { text } else { text.replace('e', "e+") };
    }
    value.to_string()
}
