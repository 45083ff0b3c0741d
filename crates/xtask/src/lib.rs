//! Release files: the program, packages, checksums, a list of contents. A tool of the workspace; nothing of
//! it is in an image.
//!
//! The same commit makes the same bytes in any folder: archives are sorted and have the commit's time, and
//! paths of this machine are removed. Who may call: its own `main.rs`, and tests.

pub mod dist;

mod archive;
mod deb;
mod facts;
mod notices;
mod oci;
mod program;
mod sbom;
mod texts;
