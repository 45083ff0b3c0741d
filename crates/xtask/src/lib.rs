//! What is given to others: the program, packages with it, checksums, a list of contents. A tool of the workspace; nothing
//! of it is in an image.
//!
//! The same commit makes the same bytes in any folder: archives are sorted and have the commit's time, and of paths only
//! those remain that a build in any folder has. Who may call: its own `main.rs`, and tests. Not here: what the program
//! does. Formats are those of the libraries.

pub mod dist;

mod archive;
mod deb;
mod facts;
mod notices;
mod oci;
mod program;
mod sbom;
mod texts;
