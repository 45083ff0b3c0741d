//! Texts in quotes as values, for tests of files.

use crate::Codec;

pub(crate) fn codec() -> Codec<String> {
    Codec {
        encode: |text| Ok(format!("\"{text}\"").into_bytes()),
        decode: |bytes| {
            let text = std::str::from_utf8(bytes)?;
            let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            inner.map(str::to_owned).ok_or_else(|| format!("no text in quotes: {text}").into())
        },
    }
}
