//! Errors in one line.

use std::error::Error;
use std::fmt::Write as _;

/// `a: b: c`; a source whose text its parent already shows is skipped.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let said = inner.to_string();
        if !text.contains(&said) {
            write!(text, ": {said}").unwrap_or_default();
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct LayeredError {
        text: &'static str,
        #[source]
        source: Option<Box<LayeredError>>,
    }

    #[test]
    fn each_layer_is_said_once() {
        let leaf = LayeredError { text: "disk full", source: None };
        let shown = LayeredError { text: "write a: disk full", source: Some(Box::new(leaf)) };
        let top = LayeredError { text: "publish", source: Some(Box::new(shown)) };
        assert_eq!(chain(&top), "publish: write a: disk full");
    }
}
