//! The manifests of docs/reference: roles and bindings for the agents, as objects with the name of their
//! part.
//!
//! Not here: their subjects (`role_cmd`).

use std::sync::LazyLock;

use step::SmallSort as _;

/// Roles first, then bindings.
pub(crate) const MANIFESTS: [&str; 4] = [
    include_str!("../../../docs/reference/role.yaml"),
    include_str!("../../../docs/reference/role-bindings.yaml"),
    include_str!("../../../docs/reference/role-bindings-apps.yaml"),
    include_str!("../../../docs/reference/role-bindings-surge.yaml"),
];
/// Their subject in the files.
pub(crate) const SUBJECT: &str = "    kind: User\n    name: pillar-rs";
/// Of roles' names, before the part.
const PREFIX: &str = "pillar-rs-";
/// A strong role, printed on request only.
pub(crate) const SURGE: &str = "surge";
/// For service accounts alone, by their names.
pub(crate) const TOKEN: &str = "token";

/// With the name of its part.
pub(crate) static OBJECTS: LazyLock<Vec<(&str, String)>> = LazyLock::new(|| {
    let objects = MANIFESTS.iter().flat_map(|file| file.split("\n---\n"));
    let part = |text: &'static str| {
        let name = text.lines().find_map(|line| line.strip_prefix("  name: "))?;
        Some((name.strip_prefix(PREFIX)?, format!("{}\n", text.trim_end())))
    };
    objects.filter_map(part).collect()
});

/// Parts that can be left out.
pub(crate) fn parts() -> Vec<&'static str> {
    let mut parts: Vec<&str> = OBJECTS.iter().map(|(part, _)| *part).filter(|it| *it != SURGE).collect();
    parts.order();
    parts.dedup();
    parts
}
