//! Writes the page of every state as a file, to be looked at in a browser: `cargo run -p nodestatus --example pages -- DIR`.
//! How pictures are taken of them: CONTRIBUTING.md.

#![expect(clippy::unwrap_used, reason = "a tool for a person: a panic is its way to fail")]

use std::path::PathBuf;

#[path = "../tests/states/mod.rs"]
mod states;

fn main() {
    let dir = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "target/pages".to_owned()));
    std::fs::create_dir_all(&dir).unwrap();
    for state in states::STATES {
        let (status, page) = state.shown();
        assert_eq!(status.headline.text, state.headline, "{}", state.name);
        pubsub::store::replace(&dir.join(format!("{}.html", state.name)), page.as_bytes()).unwrap();
    }
}
