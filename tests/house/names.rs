//! One word for one thing: no two public types bear the same name, and few others do.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::{is_of_tests, product, sources};

/// Names that several types may bear, and why.
const SHARED: [(&str, &str); 5] = [
    ("Event", "what the core of an agent or of a part hears"),
    ("Effect", "what such a core asks for"),
    ("Error", "of a crate, always named with its crate"),
    ("Limits", "of an agent, what its section of the limits file may set"),
    ("Shell", "of an agent, what performs the effects of its core"),
];
/// So many types have the name of another one in their own crate or in a second one; lower it when you can.
const MOST_NAMESAKES: usize = 60;

/// Where types are defined: name → each place, and whether the type is public there.
fn types() -> BTreeMap<String, Vec<(PathBuf, bool)>> {
    let mut found: BTreeMap<String, Vec<(PathBuf, bool)>> = BTreeMap::new();
    for (path, text) in sources() {
        let is_product = path.starts_with("crates") && path.components().any(|it| it.as_os_str() == "src");
        if !is_product || is_of_tests(&path) {
            continue;
        }
        for (name, is_public) in product(&text).lines().filter_map(defined) {
            found.entry(name.to_owned()).or_default().push((path.clone(), is_public));
        }
    }
    found.retain(|name, _| SHARED.iter().all(|(shared, _)| shared != name));
    assert!(found.len() > 500, "found {} types only", found.len());
    found
}

/// The type that `line` defines, and whether it is public. An indented `type` belongs to a trait.
fn defined(line: &str) -> Option<(&str, bool)> {
    let trimmed = line.trim_start();
    let (is_public, rest) = match trimmed.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => (false, rest.split_once(") ")?.1),
        Some(rest) => (true, rest.strip_prefix(' ')?),
        None => (false, trimmed),
    };
    let (keyword, rest) = rest.split_once(' ')?;
    let is_type = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => trimmed.len() == line.len(),
        _ => false,
    };
    let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(rest.len());
    let name = &rest[..end];
    (is_type && name.starts_with(|it: char| it.is_uppercase())).then_some((name, is_public))
}

#[test]
fn no_two_public_types_bear_the_same_name() {
    let public = |places: &[(PathBuf, bool)]| -> Vec<PathBuf> {
        places.iter().filter(|(_, is_public)| *is_public).map(|(path, _)| path.clone()).collect()
    };
    let twice: Vec<_> = types()
        .into_iter()
        .map(|(name, places)| (name, public(&places)))
        .filter(|(_, places)| places.len() > 1)
        .collect();
    assert!(twice.is_empty(), "say in the name what each one is: {twice:#?}");
}

#[test]
fn few_types_have_a_namesake() {
    let types = types();
    let shown = |places: &[(PathBuf, bool)]| -> Vec<String> {
        places.iter().map(|(path, _)| path.display().to_string()).collect()
    };
    let shared: Vec<_> = types.iter().filter(|(_, places)| places.len() > 1).collect();
    let namesakes: usize = shared.iter().map(|(_, places)| places.len() - 1).sum();
    let list: Vec<_> = shared.iter().map(|(name, places)| (name, shown(places))).collect();
    assert!(namesakes <= MOST_NAMESAKES, "{namesakes} types have the name of another one: {list:#?}");
}

#[test]
fn a_definition_is_found_by_its_line() {
    assert_eq!(defined("pub struct Plan<'a> {"), Some(("Plan", true)));
    assert_eq!(defined("    pub(super) enum Plan {"), Some(("Plan", false)));
    assert_eq!(defined("trait Plan: Send {"), Some(("Plan", false)));
    assert_eq!(defined("type Plan = u8;"), Some(("Plan", false)));
    assert_eq!(defined("    type Err = Error;"), None);
    assert_eq!(defined("public struct Plan;"), None);
    assert_eq!(defined("/// A struct Plan"), None);
}
