//! Letters in foreign texts that control a terminal or mislead a reader.
//!
//! Pure: no clock, no I/O, no task.

use std::fmt::Write as _;

/// `1 attempt`, `2 attempts`.
pub fn number<N: std::fmt::Display + Copy + PartialEq + From<u8>>(count: N, of: &str) -> String {
    let end = if count == 1.into() { "" } else { "s" };
    format!("{count} {of}{end}")
}

/// Whether a letter is a control character, or changes text direction.
pub fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes such letters, which JSON itself requires only for the oldest of them. Line ends stay.
pub fn harmless_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter != '\n' && acts(letter) {
            write!(out, "\\u{:04x}", u32::from(letter)).unwrap_or_default();
        } else {
            out.push(letter);
        }
    }
    out
}

/// Replaces each such letter by U+FFFD. Line ends stay.
pub fn harmless_text(text: &str) -> String {
    let shown =
        |letter: char| if letter != '\n' && acts(letter) { char::REPLACEMENT_CHARACTER } else { letter };
    text.chars().map(shown).collect()
}
