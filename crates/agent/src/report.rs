//! Errors in one line.

pub use step::chain;

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
