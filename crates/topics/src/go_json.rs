//! JSON as Go's `encoding/json` writes and reads it.
//!
//! Writing escapes `<`, `>`, `&`, U+2028 and U+2029. Reading matches names without regard to case, ignores
//! unknown ones, takes the last of duplicates, lets `null` leave the zero value, and refuses `9.0` for an integer.
//! Source: Go package encoding/json. Pure: no clock, no I/O, no task.

use std::collections::HashMap;
use std::fmt;
use std::io;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::{Deserialize, Deserializer, Serialize, forward_to_deserialize_any};
use serde_json::Number;
use serde_json::ser::Formatter;

/// A value that cannot be written or a text that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no JSON; says line and column.
    #[error("read JSON: {0}")]
    Syntax(#[source] serde_json::Error),
    /// A member has another type or range than its topic says.
    #[error("read member {path}: {text}")]
    Member {
        /// Names and indices from the outside in, as `Nodes[2].Status`; `.` is the whole value.
        path: String,
        /// What was found and what was expected.
        text: String,
    },
    /// A value has no JSON form.
    #[error("write JSON: {0}")]
    Write(#[source] serde_json::Error),
}

/// Writes `value` compactly, without a final newline.
///
/// # Errors
/// A map key is not text.
pub fn to_vec<T: Serialize>(value: &T) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, GoEscapes);
    value.serialize(&mut serializer).map_err(Error::Write)?;
    Ok(bytes)
}

/// Reads one value; only white space may follow it.
///
/// # Errors
/// Syntax, with line and column, or the first member of the wrong type, with its path.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let tree: Tree = serde_json::from_slice(bytes).map_err(Error::Syntax)?;
    T::deserialize(&tree).map_err(|Fault { path, text }| Error::Member {
        path: if path.is_empty() { ".".to_owned() } else { path },
        text,
    })
}

/// Go escapes what HTML would take for markup.
struct GoEscapes;

impl Formatter for GoEscapes {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (before, from) = rest.split_at(at);
            out.write_all(before.as_bytes())?;
            let mut chars = from.chars();
            if let Some(escaped) = chars.next() {
                write!(out, "\\u{:04x}", u32::from(escaped))?;
            }
            rest = chars.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

/// A parsed text with members in their order, duplicates included.
#[derive(Debug)]
enum Tree {
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
struct Fault {
    path: String,
    text: String,
}

impl Fault {
    fn under(mut self, step: &str) -> Self {
        let joint = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{step}{joint}{}", self.path);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { path: String::new(), text: text.to_string() }
    }
}

impl<'de> Deserializer<'de> for &'de Tree {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
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
            Tree::Object(members) => visitor.visit_map(Members::all(members)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self {
            Tree::Null => visitor.visit_none(),
            Tree::Bool(_) | Tree::Number(_) | Tree::Text(_) | Tree::List(_) | Tree::Object(_) => {
                visitor.visit_some(self)
            }
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self {
            Tree::Null => visitor.visit_map(Members::all(&[])),
            Tree::Object(members) => visitor.visit_map(Members::named(members, fields)),
            // Left alone, a list would be taken for members in order.
            Tree::List(_) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            Tree::Bool(_) | Tree::Number(_) | Tree::Text(_) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self {
            Tree::Text(word) => visitor.visit_enum(word.as_str().into_deserializer()),
            Tree::Null | Tree::Bool(_) | Tree::Number(_) | Tree::List(_) | Tree::Object(_) => {
                self.deserialize_any(visitor)
            }
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if matches!(self, Tree::Null) { visitor.visit_bool(false) } else { self.deserialize_any(visitor) }
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor)
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor)
    }

    fn deserialize_i16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if matches!(self, Tree::Null) {
            visitor.visit_borrowed_str("")
        } else {
            self.deserialize_any(visitor)
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl Tree {
    fn number<'de, V: Visitor<'de>>(&'de self, visitor: V) -> Result<V::Value, Fault> {
        if matches!(self, Self::Null) { visitor.visit_u64(0) } else { self.deserialize_any(visitor) }
    }
}

struct Items<'de> {
    items: std::slice::Iter<'de, Tree>,
    at: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let at = self.at;
        self.at += 1;
        seed.deserialize(item).map(Some).map_err(|fault| fault.under(&format!("[{at}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// Members to be handed over, each name once.
struct Members<'de> {
    left: std::vec::IntoIter<(&'de str, &'de Tree)>,
    value: Option<(&'de str, &'de Tree)>,
}

impl<'de> Members<'de> {
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

    /// Every member, the last of each name.
    fn all(members: &'de [(String, Tree)]) -> Self {
        Self::of(members.iter().map(|(name, value)| (name.as_str(), value)))
    }

    /// The members of a struct: exact names first, then names in another case; `null` is as good as absent.
    fn named(members: &'de [(String, Tree)], fields: &'static [&'static str]) -> Self {
        let known = |name: &str| {
            let exact = fields.iter().find(|field| **field == name);
            exact.or_else(|| fields.iter().find(|field| field.eq_ignore_ascii_case(name))).copied()
        };
        let present = members.iter().filter(|(_, value)| !matches!(value, Tree::Null));
        Self::of(present.filter_map(|(name, value)| Some((known(name)?, value))))
    }
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.value = self.left.next();
        let Some((name, _)) = self.value else { return Ok(None) };
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let Some((name, value)) = self.value.take() else {
            return Err(de::Error::custom("a value was asked for before its name"));
        };
        seed.deserialize(value).map_err(|fault: Fault| fault.under(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Shape {
        big: u64,
        small: i8,
        text: String,
        list: Option<Vec<u8>>,
        map: BTreeMap<String, Shape>,
    }

    fn read(text: &str) -> Result<Shape, Error> {
        from_slice(text.as_bytes())
    }

    #[test]
    fn names_are_matched_without_case_and_the_last_duplicate_counts() {
        assert_eq!(read(r#"{"BIG":1,"big":2,"other":[{}]}"#).unwrap(), Shape { big: 2, ..Shape::default() });
    }

    #[test]
    fn null_is_the_zero_value_everywhere() {
        let zero = Shape::default();
        assert_eq!(read("null").unwrap(), zero);
        assert_eq!(read(r#"{"Big":null,"Text":null,"List":null}"#).unwrap(), zero);
        assert_eq!(read(r#"{"List":[1,null]}"#).unwrap().list, Some(vec![1, 0]));
        assert_eq!(read(r#"{"Map":{"a":null}}"#).unwrap().map["a"], zero);
    }

    #[test]
    fn d_p3_large_numbers_keep_all_their_digits() {
        let read = read(r#"{"Big":18446744073709551615}"#).unwrap();
        assert_eq!(read.big, u64::MAX);
        assert!(String::from_utf8(to_vec(&read).unwrap()).unwrap().contains("18446744073709551615"));
    }

    #[test]
    fn a_fault_is_told_with_its_member_or_its_place() {
        for (text, words) in [
            (r#"{"Small":200}"#, ["Small", "200"]),
            (r#"{"Map":{"a":{"List":[1,"x"]}}}"#, ["Map.a.List[1]", "string"]),
            (r#"{"Big":9.0}"#, ["Big", "floating point"]),
            (r#"{"Big":9e0}"#, ["Big", "floating point"]),
            ("[]", ["member .", "sequence"]),
            ("{\n\"Big\":1,}", ["line 2", "column"]),
            ("{}x", ["line 1", "trailing"]),
        ] {
            let told = read(text).unwrap_err().to_string();
            assert!(words.iter().all(|word| told.contains(word)), "{text}: {told}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_overflow() {
        let deep = "[".repeat(100_000);
        assert!(matches!(read(&deep), Err(Error::Syntax(_))));
    }

    #[test]
    fn markup_is_escaped_as_go_escapes_it() {
        let shape = Shape { text: "<a>&\u{2028}\u{2029}\u{1}\n".into(), ..Shape::default() };
        let written = String::from_utf8(to_vec(&shape).unwrap()).unwrap();
        assert!(written.contains(r#""\u003ca\u003e\u0026\u2028\u2029\u0001\n""#), "{written}");
        assert_eq!(read(&written).unwrap(), shape);
    }
}
