//! A parsed text that keeps every member, and the reading of values out of it by Go's rules.
//!
//! Not here: syntax (`serde_json`) and errors for callers (`go_json`).
//! Source: Go package encoding/json. Pure: no clock, no I/O, no task.

use std::collections::HashMap;
use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::Number;

use crate::form::secret::by_length;

/// A name as one step of a JSON pointer (RFC 6901), its `/` included.
pub fn pointer_step(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// A parsed text with members in their order, duplicates included.
#[derive(Debug)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyTree;

        impl<'de> Visitor<'de> for AnyTree {
            type Value = Tree;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
                Ok(Tree::Bool(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
                Ok(Tree::Number(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
                Ok(Tree::Number(value.into()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Tree, E> {
                Number::from_f64(value)
                    .map(Tree::Number)
                    .ok_or_else(|| E::invalid_value(Unexpected::Float(value), &"a finite number"))
            }

            fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
                Ok(Tree::Text(value.to_owned()))
            }

            fn visit_string<E>(self, value: String) -> Result<Tree, E> {
                Ok(Tree::Text(value))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Tree::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
                let mut object = Vec::new();
                while let Some(member) = members.next_entry()? {
                    object.push(member);
                }
                Ok(Tree::Object(object))
            }
        }

        deserializer.deserialize_any(AnyTree)
    }
}

/// What is wrong and where.
#[derive(Debug)]
pub(super) struct JsonFault {
    /// JSON pointer, RFC 6901.
    pub(super) pointer: String,
    pub(super) text: String,
}

impl JsonFault {
    fn under(mut self, step: &str) -> Self {
        self.pointer.insert_str(0, &pointer_step(step));
        self
    }
}

impl fmt::Display for JsonFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl std::error::Error for JsonFault {}

impl de::Error for JsonFault {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { pointer: String::new(), text: text.to_string() }
    }

    /// A text in place of another type may be a secret that is one level too high.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let shown = found.to_string();
        let found = match (found, shown.as_str()) {
            (Unexpected::Str(text), _) => by_length(text),
            (_, "sequence") => "a list".to_owned(),
            (_, "map") => "an object".to_owned(),
            (_, shown) => shown.split('`').nth(1).unwrap_or(shown).to_owned(),
        };
        Self::custom(format_args!("found {found}, expected {}", kind(&expected.to_string())))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }
}

/// What serde calls `expected`, in words for a person: `u8` is `a whole number from 0 to 255`.
pub fn kind(expected: &str) -> String {
    let (sign, bits) = expected.split_at_checked(1).unwrap_or_default();
    let of_number = match (sign, bits.parse::<u32>()) {
        ("u", Ok(bits @ 8..=64)) => format!("a whole number from 0 to {}", u64::MAX >> (64 - bits)),
        ("i", Ok(bits @ 8..=64)) => {
            format!("a whole number from {} to {}", i64::MIN >> (64 - bits), i64::MAX >> (64 - bits))
        }
        _ => String::new(),
    };
    match expected {
        _ if !of_number.is_empty() => of_number,
        "a boolean" => "true or false".to_owned(),
        "a string" => "a text".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        other => other
            .strip_prefix("struct ")
            .map_or_else(|| other.to_owned(), |name| format!("an object, {name}")),
    }
}

macro_rules! whole_numbers {
    ($($method:ident)+) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonFault> {
            self.number(visitor)
        }
    )+ };
}

impl<'de> Deserializer<'de> for &'de Tree {
    type Error = JsonFault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonFault> {
        match self {
            Tree::Null => visitor.visit_unit(),
            Tree::Bool(value) => visitor.visit_bool(*value),
            Tree::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), _, _) => visitor.visit_u64(value),
                (None, Some(value), _) => visitor.visit_i64(value),
                (None, None, value) => visitor.visit_f64(value.unwrap_or_default()),
            },
            Tree::Text(value) => visitor.visit_borrowed_str(value),
            Tree::List(items) => visitor.visit_seq(Items { items: items.iter(), at: 0 }),
            Tree::Object(members) => visitor.visit_map(TreeMembers::all(members)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonFault> {
        if matches!(self, Tree::Null) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonFault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonFault> {
        match self {
            Tree::Null => visitor.visit_map(TreeMembers::all(&[])),
            Tree::Object(members) => visitor.visit_map(TreeMembers::named(members, fields)),
            // serde would read a list as members in order.
            Tree::List(_) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            Tree::Bool(_) | Tree::Number(_) | Tree::Text(_) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonFault> {
        match self {
            Tree::Text(word) => visitor.visit_enum(word.as_str().into_deserializer()),
            Tree::Null | Tree::Bool(_) | Tree::Number(_) | Tree::List(_) | Tree::Object(_) => {
                self.deserialize_any(visitor)
            }
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonFault> {
        if matches!(self, Tree::Null) { visitor.visit_bool(false) } else { self.deserialize_any(visitor) }
    }

    whole_numbers! {
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonFault> {
        if matches!(self, Tree::Null) {
            visitor.visit_borrowed_str("")
        } else {
            self.deserialize_any(visitor)
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonFault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonFault> {
        if matches!(self, Tree::Null) {
            visitor.visit_seq(Items { items: [].iter(), at: 0 })
        } else {
            self.deserialize_any(visitor)
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonFault> {
        if matches!(self, Tree::Null) {
            visitor.visit_map(TreeMembers::all(&[]))
        } else {
            self.deserialize_any(visitor)
        }
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

impl Tree {
    fn number<'de, V: Visitor<'de>>(&'de self, visitor: V) -> Result<V::Value, JsonFault> {
        if matches!(self, Self::Null) { visitor.visit_u64(0) } else { self.deserialize_any(visitor) }
    }
}

struct Items<'de> {
    items: std::slice::Iter<'de, Tree>,
    at: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = JsonFault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, JsonFault> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let at = self.at;
        self.at += 1;
        seed.deserialize(item).map(Some).map_err(|fault| fault.under(&at.to_string()))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// Members to be handed over, each name once.
struct TreeMembers<'de> {
    left: std::vec::IntoIter<(&'de str, &'de Tree)>,
    value: Option<(&'de str, &'de Tree)>,
}

impl<'de> TreeMembers<'de> {
    fn of(members: impl Iterator<Item = (&'de str, &'de Tree)>) -> Self {
        let mut at: HashMap<&str, usize> = HashMap::new();
        let mut last: Vec<(&str, &Tree)> = Vec::new();
        for (name, value) in members {
            if let Some(known) = at.get(name).and_then(|at| last.get_mut(*at)) {
                known.1 = value;
            } else {
                at.insert(name, last.len());
                last.push((name, value));
            }
        }
        Self { left: last.into_iter(), value: None }
    }

    fn all(members: &'de [(String, Tree)]) -> Self {
        Self::of(members.iter().map(|(name, value)| (name.as_str(), value)))
    }

    /// The members of a struct: exact names first, then names in another case; `null` counts as absent.
    fn named(members: &'de [(String, Tree)], fields: &'static [&'static str]) -> Self {
        let known = |name: &str| {
            let exact = fields.iter().find(|field| **field == name);
            exact.or_else(|| fields.iter().find(|field| same_name(field, name))).copied()
        };
        let present = members.iter().filter(|(_, value)| !matches!(value, Tree::Null));
        Self::of(present.filter_map(|(name, value)| Some((known(name)?, value))))
    }
}

/// Whether Go treats two names as equal: letters of either case, and the two others that fold to ASCII
/// letters.
fn same_name(one: &str, other: &str) -> bool {
    let folded = |letter: char| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    one.chars().map(folded).eq(other.chars().map(folded))
}

impl<'de> MapAccess<'de> for TreeMembers<'de> {
    type Error = JsonFault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, JsonFault> {
        self.value = self.left.next();
        let Some((name, _)) = self.value else { return Ok(None) };
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, JsonFault> {
        let Some((name, value)) = self.value.take() else {
            return Err(de::Error::custom("a value was asked for before its name"));
        };
        seed.deserialize(value).map_err(|fault: JsonFault| fault.under(name))
    }
}
