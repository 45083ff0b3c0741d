//! The frame of `/cluster-app`: own object first, then one object for each peer.
//!
//! A peer's answer is inserted unchanged, so it is checked first: the whole stays valid JSON for any reader.
//! Pure: no clock, no I/O, no task.

use core::net::IpAddr;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use topics::go_json;

/// Limit of the whole answer; further objects are left out.
const WHOLE_BYTES: usize = 2 << 20;
/// A report has four levels.
const LEVELS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PeerBytes {
    Object(String),
    /// No answer within this time.
    Silent(IpAddr, Duration),
    /// Something else: left out.
    Nothing,
}

/// A peer without an answer in time. Members in this order.
#[derive(Serialize)]
struct Missing {
    hostname: String,
    errors: String,
}

/// `own` is an object.
pub(super) fn frame(own: &str, heard: &[PeerBytes]) -> String {
    let mut whole = format!("{{\n  \"key\": \"cluster-app\",\n  \"value\": [{own}");
    for one in heard {
        let object = match one {
            PeerBytes::Object(text) => text.clone(),
            PeerBytes::Silent(peer, limit) => missing(*peer, *limit),
            PeerBytes::Nothing => continue,
        };
        if whole.len() + object.len() < WHOLE_BYTES {
            whole.push(',');
            whole.push_str(&object);
        }
    }
    whole.push_str("]\n}\n");
    whole
}

fn missing(peer: IpAddr, limit: Duration) -> String {
    let errors = format!("no answer within {} s", limit.as_secs_f32());
    let missing = Missing { hostname: peer.to_string(), errors };
    // Two texts always have a JSON form.
    String::from_utf8(go_json::to_vec_indented(&missing).unwrap_or_default()).unwrap_or_default()
}

/// One JSON object as text; `None` for anything else, or what some reader could reject: too deep, numbers out
/// of range, lone surrogates.
pub(super) fn object(bytes: &[u8]) -> Option<String> {
    let text = str::from_utf8(bytes).ok()?.trim_matches([' ', '\t', '\r', '\n']);
    if !text.starts_with('{') {
        return None;
    }
    serde_json::from_str::<Value>(text).ok()?;
    (levels(text) <= LEVELS).then(|| text.to_owned())
}

/// How deep a valid JSON text is nested, members that a later one replaces included.
fn levels(text: &str) -> usize {
    let (mut now, mut most, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => now += 1,
            b'}' | b']' if !quoted => now = now.saturating_sub(1),
            _ => {}
        }
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "{\n  \"hostname\": \"n1\"\n}";

    #[test]
    fn peers_stand_behind_the_own_object_in_the_documented_frame() {
        let peer = "10.244.244.2".parse().unwrap();
        let heard = [
            PeerBytes::Object("{\"hostname\":\"n3\"}".to_owned()),
            PeerBytes::Nothing,
            PeerBytes::Silent(peer, Duration::from_secs(5)),
        ];
        let expected = "{\n  \"key\": \"cluster-app\",\n  \"value\": [{\n  \"hostname\": \"n1\"\n},\
            {\"hostname\":\"n3\"},{\n  \"hostname\": \"10.244.244.2\",\n  \"errors\": \"no answer within 5 s\"\n}]\n}\n";
        assert_eq!(frame(OWN, &heard), expected);
        assert_eq!(frame(OWN, &[]), format!("{{\n  \"key\": \"cluster-app\",\n  \"value\": [{OWN}]\n}}\n"));
    }

    #[test]
    fn nothing_but_one_sound_object_comes_into_the_frame() {
        for (bytes, taken) in [
            (&b" {\"a\":[1,-2.5e3,\"\\u00e9\",null,true,{}]}\r\n"[..], true),
            (b"{}", true),
            (b"", false),
            (b"[]", false),
            (b"\"{}\"", false),
            (b"{},{}", false),
            (b"{}]}", false),
            (b"{\"a\":1", false),
            (b"{\"a\":1,}", false),
            (b"{\"a\":\"\\ud800\"}", false),
            (b"{\"a\":1e999}", false),
            (b"{\"a\":\"\xff\"}", false),
            (b"{\"a\":NaN}", false),
            (b"{/**/}", false),
            (b"{\"a\":\"\\\"[[[[[[[[[[[[[[[[[[[[\"}", true),
        ] {
            assert_eq!(object(bytes).is_some(), taken, "{}", String::from_utf8_lossy(bytes));
        }
        let nested = |levels| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        assert_eq!([15, 16, 100_000].map(|it| object(nested(it).as_bytes()).is_some()), [true, true, false]);
        assert_eq!(object(format!("{{\"a\":{},\"a\":1}}", nested(16)).as_bytes()), None);
    }

    #[test]
    fn the_whole_is_not_longer_than_its_limit_and_stays_json() {
        let large = format!("{{\"a\":\"{}\"}}", "b".repeat(1 << 19));
        let whole = frame(OWN, &vec![PeerBytes::Object(large); 9]);
        assert!(whole.len() <= WHOLE_BYTES + 8, "{}", whole.len());
        let read: Value = serde_json::from_str(&whole).unwrap();
        assert_eq!(read["value"].as_array().unwrap().len(), 4);
    }
}
