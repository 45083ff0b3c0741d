//! The manifests of docs/reference, as they are: the roles that the agents need and who gets them, object by object, each
//! behind the name of its part.
//!
//! Not here: whom they are printed for (`role_cmd`).

use std::sync::LazyLock;

/// Roles first, then who gets them.
pub(crate) const MANIFESTS: [&str; 4] = [
    include_str!("../../../docs/reference/role.yaml"),
    include_str!("../../../docs/reference/role-bindings.yaml"),
    include_str!("../../../docs/reference/role-bindings-apps.yaml"),
    include_str!("../../../docs/reference/role-bindings-surge.yaml"),
];
/// Who they are for, in the files.
pub(crate) const SUBJECT: &str = "    kind: User\n    name: pillar-rs";
/// What each role is called, before the name of its part.
const PREFIX: &str = "pillar-rs-";
/// A strong role, printed only when it is asked for.
pub(crate) const SURGE: &str = "surge";

/// Each object of the files behind the name of its part.
pub(crate) static OBJECTS: LazyLock<Vec<(&str, String)>> = LazyLock::new(|| {
    let objects = MANIFESTS.iter().flat_map(|file| file.split("\n---\n"));
    let part = |text: &'static str| {
        let name = text.lines().find_map(|line| line.strip_prefix("  name: "))?;
        Some((name.strip_prefix(PREFIX)?, format!("{}\n", text.trim_end())))
    };
    objects.filter_map(part).collect()
});

/// The parts that can be left out.
pub(crate) fn parts() -> Vec<&'static str> {
    let mut parts: Vec<&str> = OBJECTS.iter().map(|(part, _)| *part).filter(|it| *it != SURGE).collect();
    parts.sort_unstable();
    parts.dedup();
    parts
}
