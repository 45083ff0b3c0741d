//! JSON as Go's `encoding/json` writes and reads it.
//!
//! Writing escapes `<`, `>`, `&`, U+2028 and U+2029. Reading matches names without regard to case, ignores
//! unknown ones, takes the last of duplicates, lets `null` leave the zero value, and refuses `9.0` for an
//! integer. Not here: files, and what the members mean.
//! Source: Go package encoding/json. Pure: no clock, no I/O, no task.

mod tree;
mod wire;

use serde::Serialize;
use serde::de::DeserializeOwned;

use tree::{JsonFault, Tree};
pub use tree::{kind, pointer_step};
pub use wire::{BoxError, StoreMember, to_wire};

/// A value that cannot be written or a text that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no JSON; says line and column.
    #[error("{}", syntax(.0))]
    Syntax(#[source] serde_json::Error),
    /// A member has another type or range than its topic says.
    #[error("read {}: {text}", if pointer.is_empty() { "the value" } else { pointer.as_str() })]
    Member { pointer: String, text: String },
    /// A member that goes into a file of its own on a socket.
    #[error("carry member {member} in a file")]
    Large { member: String, source: BoxError },
    /// A value has no JSON form.
    #[error("write JSON: {0}")]
    Write(#[source] serde_json::Error),
}

fn syntax(cause: &serde_json::Error) -> String {
    let (line, column) = (cause.line(), cause.column());
    if cause.is_eof() {
        return format!("the JSON text is cut off in line {line}");
    }
    format!("no JSON text from line {line}, column {column} on")
}

/// Writes `value` compactly, without a final newline.
/// Errors: a map key is not text.
pub fn to_vec<T: Serialize>(value: &T) -> Result<Vec<u8>, Error> {
    Ok(escaped(&serde_json::to_string(value).map_err(Error::Write)?).into_bytes())
}

/// [`to_vec`] with each member on a line of its own, indented by two spaces per level.
///
/// Errors: as [`to_vec`].
pub fn to_vec_indented<T: Serialize>(value: &T) -> Result<Vec<u8>, Error> {
    Ok(escaped(&serde_json::to_string_pretty(value).map_err(Error::Write)?).into_bytes())
}

/// Reads one value; only white space may follow it.
///
/// Bytes that are no UTF-8 become U+FFFD, as in Go. Nesting deeper than 128 is refused.
/// Errors: syntax, with line and column, or the first member of the wrong type, with its path.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let tree: Tree = parsed(bytes)?;
    T::deserialize(&tree).map_err(|JsonFault { pointer, text }| Error::Member { pointer, text })
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_str(&String::from_utf8_lossy(bytes)).map_err(Error::Syntax)
}

/// Go escapes what HTML or JavaScript would read as markup. In JSON these occur within strings only.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' => out.push_str(r"\u003c"),
            '>' => out.push_str(r"\u003e"),
            '&' => out.push_str(r"\u0026"),
            '\u{2028}' => out.push_str(r"\u2028"),
            '\u{2029}' => out.push_str(r"\u2029"),
            other => out.push(other),
        }
    }
    out
}
