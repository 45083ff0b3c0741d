//! One word for one thing: no two types bear the same name.

use std::collections::BTreeMap;

use crate::{is_of_tests, product, sources};

/// Names that several types may share, and why.
const SHARED: [(&str, &str); 5] = [
    ("Event", "what the core of an agent or of a part hears"),
    ("Effect", "what such a core asks for"),
    ("Error", "of a crate, always named with its crate"),
    ("Limits", "of an agent: what its section of the limits file may set"),
    ("Shell", "of an agent: what performs the effects of its core"),
];

/// Definitions by type name.
fn types() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let is_product = path.starts_with("crates") && path.components().any(|it| it.as_os_str() == "src");
        if !is_product || is_of_tests(&path) {
            continue;
        }
        for name in product(&text).lines().filter_map(defined) {
            found.entry(name.to_owned()).or_default().push(path.display().to_string());
        }
    }
    assert!(found.len() > 500, "found {} types only", found.len());
    found
}

/// The type that `line` defines. An indented `type` belongs to a trait.
fn defined(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    let rest = match trimmed.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => trimmed,
    };
    let (keyword, rest) = rest.split_once(' ')?;
    let is_type = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => trimmed.len() == line.len(),
        _ => false,
    };
    let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(rest.len());
    let name = &rest[..end];
    (is_type && name.starts_with(|it: char| it.is_uppercase())).then_some(name)
}

#[test]
fn no_two_types_bear_the_same_name() {
    let mut types = types();
    for (name, why) in SHARED {
        let places = types.remove(name).unwrap_or_default();
        assert!(places.len() > 1, "{name} ({why}) need not be shared any more: {places:?}");
    }
    types.retain(|_, places| places.len() > 1);
    assert!(types.is_empty(), "say in the name what each one is: {types:#?}");
}

#[test]
fn a_definition_is_found_by_its_line() {
    assert_eq!(defined("pub struct Plan<'a> {"), Some("Plan"));
    assert_eq!(defined("    pub(super) enum Plan {"), Some("Plan"));
    assert_eq!(defined("trait Plan: Send {"), Some("Plan"));
    assert_eq!(defined("type Plan = u8;"), Some("Plan"));
    assert_eq!(defined("    type Err = Error;"), None);
    assert_eq!(defined("public struct Plan;"), None);
    assert_eq!(defined("/// A struct Plan"), None);
}
