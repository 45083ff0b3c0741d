//! Namespaces in the binary form in which `kubectl create namespace` sends one; no other kind.
//!
//! `k8s\0`, then a message: its member 2 is the object. The object's member 1 is its metadata: member 1 the
//! name, 2 `generateName`, 11 and 12 labels and annotations, each a message of key (1) and value (2). Source:
//! generated.proto of k8s.io/apimachinery (runtime.Unknown, meta.ObjectMeta) and k8s.io/api/core/v1
//! (Namespace).

use serde_json::{Map, Value, json};

const MAGIC: &[u8] = b"k8s\0";
/// Wire types: a number, or bytes with a length.
const NUMBER: u64 = 0;
const BYTES: u64 = 2;

/// `None` where `body` has another form.
pub(crate) fn namespace(body: &[u8]) -> Option<Value> {
    let envelope = members(body.strip_prefix(MAGIC)?)?;
    let object = members(first(&envelope, 2)?)?;
    let meta = members(first(&object, 1)?)?;
    let mut read = Map::new();
    for (number, member) in [(1, "name"), (2, "generateName")] {
        if let Some(value) = first(&meta, number).filter(|it| !it.is_empty()) {
            read.insert(member.to_owned(), text(value)?.into());
        }
    }
    for (number, member) in [(11, "labels"), (12, "annotations")] {
        let mut pairs = Map::new();
        for (_, pair) in meta.iter().filter(|(it, _)| *it == number) {
            let pair = members(pair)?;
            let value = first(&pair, 2).map_or(Some(""), text)?;
            pairs.insert(text(first(&pair, 1)?)?.to_owned(), value.into());
        }
        if !pairs.is_empty() {
            read.insert(member.to_owned(), pairs.into());
        }
    }
    Some(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": read }))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn first<'a>(members: &[(u64, &'a [u8])], number: u64) -> Option<&'a [u8]> {
    members.iter().find(|(it, _)| *it == number).map(|(_, value)| *value)
}

/// Members that are bytes; numbers are skipped.
fn members(mut rest: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let key = number(&mut rest)?;
        let value = number(&mut rest)?;
        match key & 7 {
            NUMBER => {}
            BYTES => {
                let (member, after) = rest.split_at_checked(usize::try_from(value).ok()?)?;
                found.push((key >> 3, member));
                rest = after;
            }
            _ => return None,
        }
    }
    Some(found)
}

/// A varint.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut sum = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        sum |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(sum);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u8, value: &[u8]) -> Vec<u8> {
        [&[(number << 3) | 2, u8::try_from(value.len()).unwrap()], value].concat()
    }

    /// As `kubectl create namespace shop` sends it, with a label.
    pub(crate) fn sent() -> Vec<u8> {
        let label = [member(1, b"team"), member(2, b"a")].concat();
        let meta = [member(1, b"shop"), member(2, b""), member(11, &label)].concat();
        let object = [member(1, &meta), member(2, b""), member(3, b"")].concat();
        let kind = [member(1, b"v1"), member(2, b"Namespace")].concat();
        [MAGIC.to_vec(), member(1, &kind), member(2, &object), member(3, b""), member(4, b"")].concat()
    }

    #[test]
    fn a_namespace_is_read_and_what_is_cut_short_is_none() {
        let body = sent();
        let read = namespace(&body).unwrap();
        assert_eq!(read["metadata"], json!({ "name": "shop", "labels": { "team": "a" } }));
        for end in 0..body.len() - 4 {
            assert!(namespace(&body[..end]).is_none_or(|it| it["metadata"]["name"].is_string()), "{end}");
        }
        assert_eq!(namespace(b"{}"), None);
    }
}
