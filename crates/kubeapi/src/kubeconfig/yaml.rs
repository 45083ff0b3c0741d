//! The YAML of a kubeconfig as a JSON value: mappings, sequences and texts, with `true`, `false` and `null` where they are
//! not in quotes. Numbers stay texts: no member that is read is one.
//!
//! Over the parser's events, as a deserializer with its rendered excerpts would take 0.3 MB of an image. Not here: what the
//! members mean. Pure: no clock, no I/O, no task.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TextPosition {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A mapping or sequence under construction.
enum OpenNode {
    Mapping(Map<String, Value>, Option<String>),
    Sequence(Vec<Value>),
}

/// Limit of bytes repeated by aliases.
const ALIAS_BYTES: usize = 1 << 20;

/// Reads the one document of `text`; empty ones may follow it. An alias stands for a text only.
///
/// Errors: it is no YAML, or has what no kubeconfig needs: another document, a duplicate or non-text name, an
/// alias of a mapping or a sequence.
pub(super) fn read(text: &str) -> Result<Value, TextPosition> {
    let mut open: Vec<OpenNode> = Vec::new();
    let (mut anchors, mut again): (HashMap<usize, Value>, usize) = (HashMap::new(), 0);
    let (mut document, mut documents) = (None, 0);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|cause| place(cause.marker()))?;
        let wrong = || place(&span.start);
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "comments, and what surrounds a document, say nothing"
        )]
        let whole = match event {
            Event::DocumentStart(..) => {
                documents += 1;
                None
            }
            Event::Alias(anchor) => {
                let said = anchors.get(&anchor).ok_or_else(wrong)?;
                again += said.as_str().map_or(0, str::len);
                if again > ALIAS_BYTES {
                    return Err(wrong());
                }
                Some(said.clone())
            }
            Event::MappingStart(..) => {
                open.push(OpenNode::Mapping(Map::new(), None));
                None
            }
            Event::SequenceStart(..) => {
                open.push(OpenNode::Sequence(Vec::new()));
                None
            }
            Event::MappingEnd | Event::SequenceEnd => match open.pop().ok_or_else(wrong)? {
                OpenNode::Mapping(members, _) => Some(Value::Object(members)),
                OpenNode::Sequence(items) => Some(Value::Array(items)),
            },
            Event::Scalar(text, style, anchor, _) => {
                let is_name = matches!(open.last(), Some(OpenNode::Mapping(_, None)));
                let plain = style == ScalarStyle::Plain && !is_name;
                let said = if plain { scalar(&text) } else { Value::String(text.into_owned()) };
                if anchor > 0 {
                    anchors.insert(anchor, said.clone());
                }
                Some(said)
            }
            _ => None,
        };
        let Some(whole) = whole else { continue };
        match (open.last_mut(), whole) {
            (None, it) if documents == 1 => document = Some(it),
            (None, Value::Null) => {}
            (Some(OpenNode::Sequence(items)), it) => items.push(it),
            (Some(OpenNode::Mapping(members, name @ None)), Value::String(it))
                if !members.contains_key(&it) =>
            {
                *name = Some(it);
            }
            (Some(OpenNode::Mapping(members, Some(name))), it) => {
                members.insert(std::mem::take(name), it);
                if let Some(OpenNode::Mapping(_, name)) = open.last_mut() {
                    *name = None;
                }
            }
            (None | Some(OpenNode::Mapping(_, None)), _) => return Err(wrong()),
        }
    }
    Ok(document.unwrap_or_default())
}

/// An unquoted text, by YAML's core schema.
fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        text => Value::String(text.to_owned()),
    }
}

fn place(at: &granit_parser::Marker) -> TextPosition {
    TextPosition { line: at.line(), column: at.col() + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mappings_sequences_and_texts_are_read_with_and_without_quotes() {
        let rows = [
            ("", json!(null)),
            ("# only a comment\n", json!(null)),
            (
                "a: b\nc:\n- d: 'true'\n  e: true\n- ~\n",
                json!({"a": "b", "c": [{"d": "true", "e": true}, null]}),
            ),
            ("---\na: 12345\n...\n", json!({"a": "12345"})),
            (r#"{"a":{"b":[false,"\u00e4"]}}"#, json!({"a": {"b": [false, "\u{e4}"]}})),
            ("a: |\n  x\n  y\ntrue: null\n", json!({"a": "x\ny\n", "true": null})),
            ("a: \"\"\nb:\n", json!({"a": "", "b": null})),
            ("a: &x b\nc: *x\nd: [*x]\n", json!({"a": "b", "c": "b", "d": ["b"]})),
            ("a: b\n---\n", json!({"a": "b"})),
            ("a: b\n...\n---\n# nothing\n---\n", json!({"a": "b"})),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_kubeconfig_is_refused_where_it_is() {
        let rows = [
            ("a: b\na: c\n", 2),
            ("a: &x [b]\nc: *x\n", 2),
            ("a: *x\n", 1),
            ("a: b\n---\na: c\n", 4),
            ("[a]: b\n", 1),
            ("a: [b\n", 1),
            ("a: b\n  c: d\n", 2),
            ("\"a\n", 1),
        ];
        let lines = rows.map(|(text, _)| read(text).map_err(|it| it.line));
        assert_eq!(lines, rows.map(|(_, line)| Err(line)));
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(&deep).is_err());
        let again = format!("a: &x {}\nb: [{}]\n", "b".repeat(1 << 16), vec!["*x"; 100].join(", "));
        assert!(read(&again).is_err(), "a short text is no long one");
    }
}
