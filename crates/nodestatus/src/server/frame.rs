//! The frame of `/cluster-app`: own object first, then one object for each peer.
//!
//! A peer's answer is inserted unchanged, so it is checked first: the whole stays valid JSON for any reader.
//! Pure: no clock, no I/O, no task.

use core::fmt;
use core::net::IpAddr;
use std::time::Duration;

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use topics::go_json;

/// Limit of the whole answer; further objects are left out.
const WHOLE_BYTES: usize = 2 << 20;
/// A report has four levels.
const LEVELS: u32 = 16;

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
    let mut reader = serde_json::Deserializer::from_str(text);
    Sound { levels: LEVELS }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(text.to_owned())
}

/// Parses a value and keeps nothing.
#[derive(Clone, Copy)]
struct Sound {
    levels: u32,
}

impl Sound {
    fn below<E: serde::de::Error>(self) -> Result<Self, E> {
        let levels = self.levels.checked_sub(1).ok_or_else(|| E::custom("too deep"))?;
        Ok(Self { levels })
    }
}

impl<'de> DeserializeSeed<'de> for Sound {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sound {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        if number.is_finite() { Ok(()) } else { Err(E::custom("a number out of range")) }
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let below = self.below::<A::Error>()?;
        while items.next_element_seed(below)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let below = self.below::<A::Error>()?;
        while members.next_key_seed(below)?.is_some() {
            members.next_value_seed(below)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

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
        ] {
            assert_eq!(object(bytes).is_some(), taken, "{}", String::from_utf8_lossy(bytes));
        }
        let nested = |levels| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        assert_eq!([15, 16, 100_000].map(|it| object(nested(it).as_bytes()).is_some()), [true, true, false]);
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
